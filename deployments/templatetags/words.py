"""Words for states, reasons and kinds: one table each, for every page and both languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as lazy
from django.utils.translation import ngettext

from deployments.domain.specs import ProcessEvidence

# state -> (word, look). The look is a colour and a shape together; style sheets and icons know nothing else of states.
STATES: dict[str, tuple[Promise, str]] = {
    "READY": (lazy("ready"), "ok"),
    "SUCCEEDED": (lazy("succeeded"), "ok"),
    "ACTIVE": (lazy("active"), "ok"),
    "RUNNING": (lazy("running"), "work"),
    "STARTING": (lazy("starting"), "work"),
    "STOPPING": (lazy("stopping"), "work"),
    "CANCELLING": (lazy("cancelling"), "work"),
    "PENDING": (lazy("pending"), "wait"),
    "BACKOFF": (lazy("backing off"), "warn"),
    "DEGRADED": (lazy("degraded"), "warn"),
    "UNHEALTHY": (lazy("unhealthy"), "warn"),
    "NOT_READY": (lazy("not ready"), "warn"),
    "CORDONED": (lazy("cordoned"), "warn"),
    "DRAINING": (lazy("draining"), "warn"),
    "OFFERED": (lazy("to be accepted"), "warn"),
    "FAILED": (lazy("failed"), "bad"),
    "UNREACHABLE": (lazy("unreachable"), "bad"),
    "CHANGED": (lazy("changed"), "bad"),
    "UNKNOWN": (lazy("unknown"), "unknown"),
    "STOPPED": (lazy("stopped"), "off"),
    "PAUSED": (lazy("paused"), "off"),
    "CANCELLED": (lazy("cancelled"), "off"),
    "REMOVED": (lazy("removed"), "off"),
    "ADDED": (lazy("added"), "off"),
    "CREATED": (lazy("created"), "off"),
    "ACCEPTED": (lazy("accepted"), "ok"),
    "REVOKED": (lazy("revoked"), "off"),
    "EXPIRED": (lazy("expired"), "off"),
}

REASONS: dict[str, Promise] = {
    "APPLIED": lazy("asked for"),
    "ROLLED_UP": lazy("follows from its parts"),
    "PLACED": lazy("seats found"),
    "LAUNCHED": lazy("launched"),
    "PROBE_PASSED": lazy("probe passed"),
    "PROBE_FAILED": lazy("probe failed"),
    "ADOPTED": lazy("found again and adopted"),
    "NODE_SILENT": lazy("node silent"),
    "STOPPED_BY_OPERATOR": lazy("stopped by an operator"),
    "FORCED_BY_OPERATOR": lazy("taken as gone on an operator's word"),
    "SUPERSEDED": lazy("replaced by a newer generation"),
    "PEER_FAILED": lazy("another process of its replica failed"),
    "EXITED": lazy("exited"),
    "START_TIMEOUT": lazy("not ready in time"),
    "UNRESPONSIVE": lazy("stopped answering"),
    "NODE_LOST": lazy("node lost"),
    "NEVER_STARTED": lazy("never started"),
    "BACKING_OFF": lazy("waiting before the next attempt"),
    "ATTEMPTS_USED_UP": lazy("attempts used up"),
    "UNPLACEABLE": lazy("no place for it now"),
    "UNREACHABLE": lazy("node unreachable"),
    "PORT_IN_USE": lazy("port in use"),
    "FENCED": lazy("late start refused"),
    "AUTH_FAILED": lazy("login refused"),
    "HOST_KEY_CHANGED": lazy("host key changed"),
    "HOST_KEY_UNKNOWN": lazy("host key not accepted yet"),
    "INTERPRETER_MISSING": lazy("Python missing"),
    "INTERPRETER_TOO_OLD": lazy("Python too old"),
    "ENGINE_MISSING": lazy("vLLM missing"),
    "MODEL_MISSING": lazy("model missing"),
    "UNKNOWN_FLAG": lazy("unknown flag"),
    "INVALID_OPTION": lazy("invalid option"),
    "INVALID_LAYOUT": lazy("layout does not fit"),
    "INVALID_INPUT": lazy("invalid input"),
    "NOT_PERMITTED": lazy("not permitted"),
    "NOT_FOUND": lazy("not found"),
    "CONFLICT": lazy("conflict"),
    "STALE_GENERATION": lazy("changed meanwhile"),
    "TIMED_OUT": lazy("timed out"),
    "HELPER_FAILED": lazy("helper failed"),
    "REMOTE_ERROR": lazy("remote error"),
    "OUT_OF_MEMORY": lazy("out of memory"),
    "EXEC_FAILED": lazy("program could not be run"),
    "PATH_MISSING": lazy("path missing"),
    "JOB_STARTED": lazy("job started"),
    "JOB_DONE": lazy("job done"),
    "JOB_FAILED": lazy("job failed"),
    "CANCELLED": lazy("cancelled"),
    "KEY_READ": lazy("API key read"),
}

PHASES: dict[str, Promise] = {
    "launching": lazy("launching"),
    "configuring": lazy("configuring"),
    "rendezvous": lazy("ranks meet"),
    "downloading": lazy("downloading weights"),
    "loading": lazy("loading weights"),
    "compiling": lazy("compiling"),
    "profiling": lazy("measuring memory"),
    "capturing": lazy("capturing graphs"),
    "ready": lazy("opening its port"),
}

KINDS: dict[str, Promise] = {
    "scan": lazy("Fetch host keys"),
    "probe": lazy("Probe nodes"),
    "find_model": lazy("Look for model files"),
    "fingerprint_model": lazy("Hash model files"),
    "install_environment": lazy("Install environment"),
    "deployment": lazy("deployment"),
    "replica": lazy("replica"),
    "process": lazy("process"),
    "node": lazy("node"),
    "job": lazy("job"),
    "key": lazy("SSH key"),
    "model": lazy("model"),
    "layout": lazy("layout"),
    "token": lazy("API token"),
    "user": lazy("user"),
    "engine": lazy("engine"),
    "single": lazy("Single"),
    "tensor": lazy("Tensor parallel"),
    "viewer": lazy("viewer"),
    "operator": lazy("operator"),
    "admin": lazy("admin"),
    "generated": lazy("generated"),
    "pasted": lazy("pasted"),
    "folder": lazy("from the key folder"),
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
    if evidence["proven"]:
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
