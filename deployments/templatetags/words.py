"""Words for states, reasons and kinds: one table each, for every page and both languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from deployments.domain.specs import ProcessEvidence

# state -> (word, look). The look is a colour and a shape together; style sheets and icons know nothing else of states.
STATES: dict[str, tuple[Promise, str]] = {
    "READY": (gettext_lazy("ready"), "ok"),
    "SUCCEEDED": (gettext_lazy("succeeded"), "ok"),
    "ACTIVE": (gettext_lazy("active"), "ok"),
    "RUNNING": (gettext_lazy("running"), "work"),
    "STARTING": (gettext_lazy("starting"), "work"),
    "STOPPING": (gettext_lazy("stopping"), "work"),
    "CANCELLING": (gettext_lazy("cancelling"), "work"),
    "PENDING": (gettext_lazy("pending"), "wait"),
    "BACKOFF": (gettext_lazy("backing off"), "warn"),
    "DEGRADED": (gettext_lazy("degraded"), "warn"),
    "UNHEALTHY": (gettext_lazy("unhealthy"), "warn"),
    "NOT_READY": (gettext_lazy("not ready"), "warn"),
    "CORDONED": (gettext_lazy("cordoned"), "warn"),
    "DRAINING": (gettext_lazy("draining"), "warn"),
    "OFFERED": (gettext_lazy("to be accepted"), "warn"),
    "FAILED": (gettext_lazy("failed"), "bad"),
    "UNREACHABLE": (gettext_lazy("unreachable"), "bad"),
    "CHANGED": (gettext_lazy("changed"), "bad"),
    "UNKNOWN": (gettext_lazy("unknown"), "unknown"),
    "STOPPED": (gettext_lazy("stopped"), "off"),
    "PAUSED": (gettext_lazy("paused"), "off"),
    "CANCELLED": (gettext_lazy("cancelled"), "off"),
    "REMOVED": (gettext_lazy("removed"), "off"),
    "ADDED": (gettext_lazy("added"), "off"),
    "CREATED": (gettext_lazy("created"), "off"),
    "ACCEPTED": (gettext_lazy("accepted"), "ok"),
    "REVOKED": (gettext_lazy("revoked"), "off"),
    "EXPIRED": (gettext_lazy("expired"), "off"),
}

REASONS: dict[str, Promise] = {
    "APPLIED": gettext_lazy("asked for"),
    "ROLLED_UP": gettext_lazy("follows from its parts"),
    "PLACED": gettext_lazy("seats found"),
    "LAUNCHED": gettext_lazy("launched"),
    "PROBE_PASSED": gettext_lazy("probe passed"),
    "PROBE_FAILED": gettext_lazy("probe failed"),
    "ADOPTED": gettext_lazy("found again and adopted"),
    "NODE_SILENT": gettext_lazy("node silent"),
    "STOPPED_BY_OPERATOR": gettext_lazy("stopped by an operator"),
    "FORCED_BY_OPERATOR": gettext_lazy("taken as gone on an operator's word"),
    "SUPERSEDED": gettext_lazy("replaced by a newer generation"),
    "PEER_FAILED": gettext_lazy("another process of its replica failed"),
    "EXITED": gettext_lazy("exited"),
    "START_TIMEOUT": gettext_lazy("not ready in time"),
    "UNRESPONSIVE": gettext_lazy("stopped answering"),
    "NODE_LOST": gettext_lazy("node lost"),
    "NEVER_STARTED": gettext_lazy("never started"),
    "BACKING_OFF": gettext_lazy("waiting before the next attempt"),
    "ATTEMPTS_USED_UP": gettext_lazy("attempts used up"),
    "UNPLACEABLE": gettext_lazy("no place for it now"),
    "UNREACHABLE": gettext_lazy("node unreachable"),
    "PORT_IN_USE": gettext_lazy("port in use"),
    "FENCED": gettext_lazy("late start refused"),
    "AUTH_FAILED": gettext_lazy("login refused"),
    "HOST_KEY_CHANGED": gettext_lazy("host key changed"),
    "HOST_KEY_UNKNOWN": gettext_lazy("host key not accepted yet"),
    "INTERPRETER_MISSING": gettext_lazy("Python missing"),
    "INTERPRETER_TOO_OLD": gettext_lazy("Python too old"),
    "ENGINE_MISSING": gettext_lazy("vLLM missing"),
    "MODEL_MISSING": gettext_lazy("model missing"),
    "UNKNOWN_FLAG": gettext_lazy("unknown flag"),
    "INVALID_OPTION": gettext_lazy("invalid option"),
    "INVALID_LAYOUT": gettext_lazy("layout does not fit"),
    "INVALID_INPUT": gettext_lazy("invalid input"),
    "NOT_PERMITTED": gettext_lazy("not permitted"),
    "NOT_FOUND": gettext_lazy("not found"),
    "CONFLICT": gettext_lazy("conflict"),
    "STALE_GENERATION": gettext_lazy("changed meanwhile"),
    "TIMED_OUT": gettext_lazy("timed out"),
    "HELPER_FAILED": gettext_lazy("helper failed"),
    "REMOTE_ERROR": gettext_lazy("remote error"),
    "OUT_OF_MEMORY": gettext_lazy("out of memory"),
    "EXEC_FAILED": gettext_lazy("program could not be run"),
    "PATH_MISSING": gettext_lazy("path missing"),
    "JOB_STARTED": gettext_lazy("job started"),
    "JOB_DONE": gettext_lazy("job done"),
    "JOB_FAILED": gettext_lazy("job failed"),
    "CANCELLED": gettext_lazy("cancelled"),
    "KEY_READ": gettext_lazy("API key read"),
    "NOT_READY": gettext_lazy("not ready"),
    "TOO_MANY_CHATS": gettext_lazy("too many chats"),
    "NO_CHAT_TEMPLATE": gettext_lazy("no chat template"),
    "ENGINE_REFUSED": gettext_lazy("refused by the engine"),
    "ENGINE_FAILED": gettext_lazy("engine failed"),
    "ENGINE_UNREACHABLE": gettext_lazy("engine takes no connection"),
    "ENGINE_BROKE": gettext_lazy("engine broke off"),
    "ENGINE_SILENT": gettext_lazy("engine silent"),
    "ANSWER_BROKE": gettext_lazy("answer broke off"),
    "ANSWER_TOO_LONG": gettext_lazy("answer too long"),
    "INVALID": gettext_lazy("cannot be done like this"),
    "ILLEGAL_TRANSITION": gettext_lazy("not possible in this state"),
    "INTERNAL": gettext_lazy("internal fault"),
    "BOOT_FAILED": gettext_lazy("helper did not come up"),
    "PROTOCOL": gettext_lazy("connection disturbed"),
    "BAD_ANSWER": gettext_lazy("answer makes no sense"),
    "BAD_REQUEST": gettext_lazy("request not understood"),
    "BUSY": gettext_lazy("busy with another request"),
    "DIR_MISSING": gettext_lazy("folder missing"),
    "NOT_A_FOLDER": gettext_lazy("not a folder"),
    "DISK_FULL": gettext_lazy("disk full"),
    "PERMISSION": gettext_lazy("permission denied"),
    "START_FAILED": gettext_lazy("start failed"),
    "STATE_DIR": gettext_lazy("state folder unusable"),
    "STILL_RUNNING": gettext_lazy("still running"),
    "UNKNOWN_PROCESS": gettext_lazy("process not known to the node"),
}

PHASES: dict[str, Promise] = {
    "launching": gettext_lazy("launching"),
    "configuring": gettext_lazy("configuring"),
    "rendezvous": gettext_lazy("ranks meet"),
    "downloading": gettext_lazy("downloading weights"),
    "loading": gettext_lazy("loading weights"),
    "compiling": gettext_lazy("compiling"),
    "profiling": gettext_lazy("measuring memory"),
    "capturing": gettext_lazy("capturing graphs"),
    "ready": gettext_lazy("opening its port"),
}

KINDS: dict[str, Promise] = {
    "scan": gettext_lazy("Fetch host keys"),
    "probe": gettext_lazy("Probe nodes"),
    "find_model": gettext_lazy("Look for model files"),
    "fingerprint_model": gettext_lazy("Hash model files"),
    "install_environment": gettext_lazy("Install environment"),
    "deployment": gettext_lazy("deployment"),
    "replica": gettext_lazy("replica"),
    "process": gettext_lazy("process"),
    "node": gettext_lazy("node"),
    "job": gettext_lazy("job"),
    "key": gettext_lazy("SSH key"),
    "model": gettext_lazy("model"),
    "layout": gettext_lazy("layout"),
    "token": gettext_lazy("API token"),
    "user": gettext_lazy("user"),
    "engine": gettext_lazy("engine"),
    "single": gettext_lazy("Single"),
    "tensor": gettext_lazy("Tensor parallel"),
    "viewer": gettext_lazy("viewer"),
    "operator": gettext_lazy("operator"),
    "admin": gettext_lazy("admin"),
    "generated": gettext_lazy("generated"),
    "pasted": gettext_lazy("pasted"),
    "folder": gettext_lazy("from the key folder"),
}


def state_word(state: str) -> str:
    """A state in words; one that nobody named is shown as it is."""
    return str(STATES[state][0]) if state in STATES else state.lower().replace("_", " ")


def state_look(state: str) -> str:
    """`ok`, `work`, `wait`, `warn`, `bad`, `unknown` or `off`."""
    return STATES[state][1] if state in STATES else "off"


def reason_word(reason: str) -> str:
    """A reason or error code in words."""
    return str(REASONS[reason]) if reason in REASONS else reason.lower().replace("_", " ")


def kind_word(kind: str) -> str:
    """A kind of job, subject, layout or role in words."""
    return str(KINDS[kind]) if kind in KINDS else kind.replace("_", " ")


def phase_word(phase: str) -> str:
    """A phase of the start in words."""
    return str(PHASES[phase]) if phase in PHASES else phase


def evidence_words(seen: ProcessEvidence | None) -> list[str]:
    """How a process was last observed, piece by piece."""
    if seen is None:
        return [_("no report yet")]
    if not seen.known:
        return [_("the node does not know it")]
    if not seen.alive:
        return [_ended(seen)]
    words = [ngettext("%(n)d process alive", "%(n)d processes alive", seen.members) % {"n": seen.members}]
    words.append(_("/health not answered") if seen.health_status is None else f"/health {seen.health_status}")
    if seen.model_listed is not None:
        words.append(_("model listed") if seen.model_listed else _("model not listed"))
    if seen.completion_ok is not None:
        words.append(_("completion came back") if seen.completion_ok else _("completion failed"))
    return words


def _ended(seen: ProcessEvidence) -> str:
    if seen.exit_signal:
        return _("ended by signal %(signal)s") % {"signal": seen.exit_signal}
    if seen.exit_code is not None:
        return _("ended with code %(code)s") % {"code": seen.exit_code}
    return _("not running")


def proof_words(evidence: Mapping[str, Any] | None) -> list[str]:
    """A stop's proof, sentence by sentence."""
    if not evidence:
        return []
    if "proven" not in evidence:
        return [str(evidence.get("message") or "")]
    sentences = [_signal(signal) for signal in evidence.get("signals") or ()]
    left = evidence.get("left") or {}
    if evidence["proven"] and left.get("accelerators") is None:
        # Nothing on the node could tell of accelerator memory: a CPU's is back with its processes.
        sentences.append(_("No process of it is left and its ports are closed."))
    elif evidence["proven"]:
        sentences.append(_("No process of it is left, its ports are closed, its accelerators' memory is back."))
    else:
        sentences += _left(left)
    end = evidence.get("exit") or {}
    if end.get("signal"):
        sentences.append(_("It ended by signal %(signal)s.") % {"signal": end["signal"]})
    elif end.get("code") is not None:
        sentences.append(_("It ended with code %(code)s.") % {"code": end["code"]})
    return sentences


def _signal(signal: Mapping[str, Any]) -> str:
    count = len(signal.get("to") or ())
    words = ngettext("%(signal)s was sent to %(n)d process.", "%(signal)s was sent to %(n)d processes.", count)
    return words % {"signal": signal.get("signal"), "n": count}


def _left(left: Mapping[str, Any]) -> list[str]:
    found = [
        _("Still alive: pid %(pid)s (%(name)s).") % {"pid": member.get("pid"), "name": member.get("name", "?")}
        for member in left.get("members") or ()
    ]
    found += [_("Port %(port)s is still open.") % {"port": port} for port in left.get("ports") or ()]
    found += [
        _("The memory of accelerator %(name)s is not back.") % {"name": item} for item in left.get("accelerators") or ()
    ]
    return found or [_("Not proven yet.")]
