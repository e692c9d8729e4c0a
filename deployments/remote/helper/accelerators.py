"""Memory of accelerators before and after a process, as far as nvidia-smi tells."""

import csv

from . import programs

SLACK_MIB = 64
_TIMEOUT_S = 5.0


def _query(what, fields):
    """Rows of a CSV query, or None when there is no (answering) nvidia-smi."""
    path = programs.which("nvidia-smi")
    if path is None:
        return None
    options = ["--query-%s=%s" % (what, ",".join(fields)), "--format=csv,noheader,nounits"]
    done = programs.run([path, *options], _TIMEOUT_S)
    if done.rc != 0:
        return None
    return [row for row in csv.reader(done.out.splitlines(), skipinitialspace=True) if len(row) == len(fields)]


def used(uuids):
    """{uuid: MiB used, or None where it is not said}; None when nothing answers."""
    rows = _query("gpu", ("uuid", "memory.used"))
    if rows is None:
        return None
    said = {row[0]: int(row[1]) if row[1].isdigit() else None for row in rows}
    return {uuid: said.get(uuid) for uuid in uuids}


def _holders():
    """{uuid: set of pids} of compute processes, or None."""
    rows = _query("compute-apps", ("gpu_uuid", "pid"))
    if rows is None:
        return None
    found = {}
    for uuid, pid in rows:
        if pid.isdigit():
            found.setdefault(uuid, set()).add(int(pid))
    return found


def held(uuids, baseline, pids):
    """Uuids whose memory is not back: above the baseline, and one of `pids` is among its users. None = unknown."""
    if not uuids:
        return []
    now = used(uuids)
    if now is None:
        return None
    high = [uuid for uuid in uuids if not _is_back(now.get(uuid), (baseline or {}).get(uuid))]
    if not high:
        return []
    holders = _holders()
    return None if holders is None else [uuid for uuid in high if holders.get(uuid, set()) & set(pids)]


def _is_back(now, before):
    return now is not None and before is not None and now <= before + SLACK_MIB
