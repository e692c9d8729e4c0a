"""Puts a simulated fleet into a panel's database: rows as if every node had been added, accepted and probed.

`python -m tests.fleet.register < told.json`, in the environment of that panel; `told.json` is what the fleet printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deployments.models import Node, SshKey

KEY = "fleet"


def register(told: dict[str, Any]) -> list[Node]:
    """Rows of all nodes with their accepted host key, facts and accelerators.

    Args:
        told: `port`, `host_key`, `private_key`, `nodes` (a number) and `gpus` of the fleet.
    """
    from django.utils import timezone

    from deployments.domain.facts import read_facts
    from deployments.models import Node
    from tests.fleet.server import ADDRESS, facts_of, names

    key, now = ssh_key(told["private_key"]), timezone.now()
    raw = {name: facts_of(name, told["gpus"]) for name in names(told["nodes"])}
    rows = Node.objects.bulk_create(
        Node(
            name=name,
            address=ADDRESS,
            port=told["port"],
            user=name,
            key=key,
            host_key=told["host_key"],
            platform="cuda" if told["gpus"] else "cpu",
            state="READY",
            state_at=now,
            boot_id=facts["boot_id"],
            facts=read_facts({**facts, "at": now.timestamp(), "paths": {}, "clock": {"now": now.timestamp()}}),
            facts_at=now,
        )
        for name, facts in raw.items()
    )
    _add_accelerators(rows, raw)
    return rows


def ssh_key(private: str) -> SshKey:
    """The row of the fleet's key, made or renewed."""
    from deployments.models import SshKey
    from deployments.remote.ssh_files import load_private_key

    key = load_private_key(private)
    fields = {"public": key.export_public_key().decode().strip(), "fingerprint": key.get_fingerprint()}
    return SshKey.objects.update_or_create(name=KEY, defaults={**fields, "private": private, "source": "pasted"})[0]


def _add_accelerators(rows: Sequence[Node], raw: dict[str, dict[str, Any]]) -> None:
    from deployments.domain.facts import accelerators_of
    from deployments.models import Accelerator

    Accelerator.objects.bulk_create(
        Accelerator(
            node=row,
            uuid=slot.uuid,
            index=slot.index,
            name=slot.name,
            memory_mib=slot.memory_mib,
            platform=slot.platform,
            compute_capability=slot.compute_capability or "",
            mig=slot.mig,
        )
        for row in rows
        for slot in accelerators_of(raw[row.name], platform=row.platform)
    )


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    import django

    django.setup()
    print(json.dumps({row.name: row.pk for row in register(json.load(sys.stdin))}))


if __name__ == "__main__":
    main()
