"""What operators see of a node now: figures derived from its samples, kept as JSON and pushed to browsers.

Missing is None, never 0. Times are seconds since the epoch on the panel's clock, memory is in bytes.
"""

from __future__ import annotations

import msgspec

from .samples import Gpus, Host

# One value of a trend stands for so many seconds, and a trend holds so many: five minutes.
TREND_STEP_S = 5
TREND_LENGTH = 60
# Rates and percentiles of engines look back so far (s).
WINDOW_S = 60
# Older than this, figures are shown as not current (s).
STALE_S = 5


class Trend(msgspec.Struct, frozen=True):
    """The last five minutes, the newest value last; a gap is None."""

    values: tuple[float | None, ...] = ()


class Quantiles(msgspec.Struct, frozen=True):
    """Seconds, over the window; None where nothing was counted in it."""

    p50: float | None = None
    p99: float | None = None


class EngineFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One engine.

    Attributes:
        at: When its metrics were heard; None = never.
        error: Why there are no metrics now.
        kv_usage: 0 to 1, of the fullest core of the engine.
        prompt_rate, generation_rate: Tokens per second.
        requests_rate: Finished requests per second.
        preemptions: Within the window.
        prefix_hit_rate: 0 to 1, of the tokens looked up within the window.
        window_s: What the rates and quantiles look back over; shorter than WINDOW_S at first.
    """

    at: float | None = None
    error: str | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    prompt_rate: float | None = None
    generation_rate: float | None = None
    requests_rate: float | None = None
    preemptions: float | None = None
    prefix_hit_rate: float | None = None
    ttft: Quantiles = Quantiles()
    inter_token: Quantiles = Quantiles()
    e2e: Quantiles = Quantiles()
    window_s: float = WINDOW_S
    generation_trend: Trend = Trend()


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One node.

    Attributes:
        node: Its primary key.
        heard_at: When the newest report came.
        problem: Why a part of it cannot be read, in words for the log of the node; None = all was understood.
        gpu: None = no NVIDIA driver there.
        engines: By process id.
        cpu_trend: Percent.
        utilization_trends, memory_trends: Percent, by accelerator uuid.
    """

    node: int
    heard_at: float
    problem: str | None = None
    host: Host | None = None
    gpu: Gpus | None = None
    engines: dict[str, EngineFigures] = {}
    cpu_trend: Trend = Trend()
    utilization_trends: dict[str, Trend] = {}
    memory_trends: dict[str, Trend] = {}


def encode(figures: NodeFigures) -> bytes:
    return msgspec.json.encode(figures)


def decode(data: bytes) -> NodeFigures:
    """Raises: msgspec.DecodeError, msgspec.ValidationError: It was written by another version."""
    return msgspec.json.decode(data, type=NodeFigures)
