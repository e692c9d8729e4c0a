"""What the fleet page weighs, and what it costs the server: with 2, 100 and 800 GPUs whose figures are in the cache."""

from __future__ import annotations

import gzip
import statistics
import time
from typing import Any

from benchmarks.live.stand import Stand
from benchmarks.report import Options, table

# (nodes, GPUs of each)
SIZES = ((1, 2), (25, 4), (100, 8))


def run(options: Options) -> dict[str, Any]:
    reps = 3 if options.quick else 15
    found = {}
    with Stand() as stand:
        stand.inside("sign_in")
        for nodes, gpus in SIZES:
            found[nodes * gpus] = stand.inside("pages", {"nodes": nodes, "gpus": gpus, "reps": reps})
    print(_table(found))
    return {"gpus": found}


def weigh(nodes: int, gpus: int, reps: int) -> dict[str, dict[str, float]]:
    """Inside a panel: the whole page and its live part, with a fleet of that size and an engine on each node.

    Returns: For each: `bytes`, `gzip_bytes`, `ms` (median wall time), `cpu_ms` (median of this process), `queries`.
    """
    from django.contrib.auth import get_user_model
    from django.test import Client

    _fill(nodes, gpus)
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(get_user_model().objects.get(username="bench"))
    part = {"HTTP_HX_REQUEST": "true", "HTTP_HX_TARGET": "live"}
    return {"page": _cost(client, {}, reps), "live part": _cost(client, part, reps)}


def _fill(nodes: int, gpus: int) -> None:
    """Rows of simulated nodes, and their figures after two minutes of samples."""
    from django.core.cache import cache
    from django.utils import timezone

    from deployments.models import Node
    from monitoring.domain.derive import Derivation
    from monitoring.domain.figures import encode
    from monitoring.domain.metrics import WANTED
    from monitoring.domain.samples import read_sample
    from tests.fleet.busy import busy_node
    from tests.fleet.register import register

    Node.objects.all().delete()
    clock = [time.time() - 60.0]
    for row in register(_told(nodes, gpus)):
        node, derivation = busy_node(row.name, gpus, lambda: clock[0]), Derivation(row.pk)
        start = clock[0]
        for step in range(13):
            clock[0] = start + 5.0 * step
            report = node.report(WANTED, gpu=True)
            figures = derivation.feed(read_sample(report), clock[0])
        clock[0] = start
        cache.set(f"figures:{row.pk}", encode(figures), 600)
        kept = {name: value for name, value in node.report().items() if name != "gpu"}
        Node.objects.filter(pk=row.pk).update(report=kept, heard_at=timezone.now())


def _told(nodes: int, gpus: int) -> dict[str, Any]:
    from deployments.remote.ssh_files import generate_key

    private, public = generate_key()
    return {"port": 22, "host_key": public, "private_key": private, "nodes": nodes, "gpus": gpus}


def _cost(client: Any, headers: dict[str, str], reps: int) -> dict[str, float]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    wall, cpu = [], []
    client.get("/", **headers)
    for _ in range(reps):
        began, used = time.perf_counter(), time.process_time()
        answer = client.get("/", **headers)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        if answer.status_code != 200:
            raise RuntimeError(f"the fleet page answers {answer.status_code}")
    with CaptureQueriesContext(connection) as queries:
        client.get("/", **headers)
    return {
        "bytes": len(answer.content),
        "gzip_bytes": len(gzip.compress(answer.content)),
        "ms": round(1000 * statistics.median(wall), 1),
        "cpu_ms": round(1000 * statistics.median(cpu), 1),
        "queries": len(queries),
    }


def _table(found: dict[int, dict[str, dict[str, float]]]) -> str:
    rows = [
        [
            f"{gpus} GPUs, {name}",
            f"{row['bytes'] / 1024:.1f}",
            f"{row['gzip_bytes'] / 1024:.1f}",
            f"{row['ms']:.0f}",
            f"{row['cpu_ms']:.0f}",
            f"{row['queries']:.0f}",
        ]
        for gpus, parts in found.items()
        for name, row in parts.items()
    ]
    return table(["fleet page", "KiB", "gzip KiB", "ms", "CPU ms", "queries"], rows)
