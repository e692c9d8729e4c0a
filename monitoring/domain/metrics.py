"""The catalogue of metrics: what each is called, what it measures, in which unit, and where it comes from.

Engines rename their metrics; `aliases` are the names of older versions, tried after the present one.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How values behave: a gauge moves, a counter only rises, a histogram counts by size."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: As it is exposed now; a histogram's without `_bucket`, `_sum`, `_count`.
        unit: Of a value, in the plural; a ratio's is 1.
        source: Who measures it, and what.
        aliases: Names of older versions, the newest first.
    """

    name: str
    unit: str
    kind: Kind
    source: str
    aliases: tuple[str, ...] = ()

    def exposed_in(self, names: Container[str]) -> str | None:
        """The newest name of this metric that is among `names`."""
        if self.name in names:
            return self.name
        return next((alias for alias in self.aliases if alias in names), None)


RUNNING = Metric("vllm:num_requests_running", "requests", Kind.GAUGE, "vLLM: requests in execution batches")
WAITING = Metric("vllm:num_requests_waiting", "requests", Kind.GAUGE, "vLLM: requests in the queue")
KV_USAGE = Metric(
    "vllm:kv_cache_usage_perc",
    "1",
    Kind.GAUGE,
    "vLLM: part of the KV cache blocks in use, 1 = all",
    ("vllm:gpu_cache_usage_perc",),  # until 0.11
)
PROMPT_TOKENS = Metric("vllm:prompt_tokens_total", "tokens", Kind.COUNTER, "vLLM: prompt tokens taken in")
GENERATION_TOKENS = Metric("vllm:generation_tokens_total", "tokens", Kind.COUNTER, "vLLM: tokens generated")
REQUESTS = Metric(
    "vllm:request_success_total", "requests", Kind.COUNTER, "vLLM: requests that ended, for whatever reason"
)
PREEMPTIONS = Metric(
    "vllm:num_preemptions_total", "requests", Kind.COUNTER, "vLLM: requests put back for want of KV cache"
)
PREFIX_QUERIES = Metric(
    "vllm:prefix_cache_queries_total",
    "tokens",
    Kind.COUNTER,
    "vLLM: tokens looked up in the prefix cache",
    ("vllm:gpu_prefix_cache_queries_total",),  # until 0.11
)
PREFIX_HITS = Metric(
    "vllm:prefix_cache_hits_total",
    "tokens",
    Kind.COUNTER,
    "vLLM: tokens found in the prefix cache",
    ("vllm:gpu_prefix_cache_hits_total",),  # until 0.11
)
TTFT = Metric("vllm:time_to_first_token_seconds", "seconds", Kind.HISTOGRAM, "vLLM: arrival to first token")
INTER_TOKEN = Metric(
    "vllm:inter_token_latency_seconds",
    "seconds",
    Kind.HISTOGRAM,
    "vLLM: time between two tokens of a request",
    ("vllm:time_per_output_token_seconds",),  # until 0.14
)
E2E = Metric("vllm:e2e_request_latency_seconds", "seconds", Kind.HISTOGRAM, "vLLM: arrival to last token")

ENGINE: tuple[Metric, ...] = (
    RUNNING,
    WAITING,
    KV_USAGE,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    REQUESTS,
    PREEMPTIONS,
    PREFIX_QUERIES,
    PREFIX_HITS,
    TTFT,
    INTER_TOKEN,
    E2E,
)

# What a watch asks each engine for: every name of every version.
WANTED: tuple[str, ...] = tuple(name for metric in ENGINE for name in (metric.name, *metric.aliases))
