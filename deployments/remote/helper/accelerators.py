"""Memory of accelerators before and after a process, as far as nvidia-smi tells."""

from . import programs
from .later import Later

csv = Later("csv")

# A driver keeps this much more or less from one moment to the next, and a context beside what its process asked for.
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


def snapshot(uuids):
    """{uuid: {"used": MiB, "by": {pid: MiB}}} as it is now; None when nothing answers, values None where not said."""
    rows = _query("gpu", ("uuid", "memory.used"))
    if rows is None:
        return None
    apps = _query("compute-apps", ("gpu_uuid", "pid", "used_memory")) or []
    said = {row[0]: _number(row[1]) for row in rows}
    found = {uuid: {"used": said.get(uuid), "by": {}} for uuid in uuids}
    for uuid, pid, used in apps:
        if uuid in found:
            found[uuid]["by"][pid] = _number(used)
    return found


def _number(text):
    return int(text) if text.isdigit() else None


def held(uuids, before, pids):
    """Uuids whose memory is not back. None = nothing on this node has ever been able to tell."""
    now = snapshot(uuids) if uuids else {}
    if now is None:
        # It answered before the start and does not now: that is no proof.
        return sorted(before) if before else None
    return [uuid for uuid in uuids if not _is_back(now[uuid], (before or {}).get(uuid), pids)]


def _is_back(now, before, pids):
    """Memory is back when what nobody else explains is no more than it was before, and no member holds any."""
    if any(pid in now["by"] for pid in map(str, pids)):
        return False
    if before is None or now["used"] is None or before["used"] is None:
        return True
    strangers = [used for pid, used in now["by"].items() if pid not in before["by"]]
    if None in strangers:
        return True
    return now["used"] - sum(strangers) <= before["used"] + SLACK_MIB * (1 + len(strangers))
