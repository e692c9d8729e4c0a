"""Rules 15 to 17: data types and kernels against the accelerators."""

from __future__ import annotations

from collections.abc import Iterator

from ..plugins import Problem
from . import methods
from .capability import seen, told, where
from .rule import Rule, doubtful, listed, wrong
from .subject import Subject

BFLOAT16 = "8.0"
# CUDA 13, which the engine's wheels are built with from this version on, knows nothing older than Turing.
CUDA_13_SINCE, OLDEST = "0.20", "7.5"
FP8_NATIVE = "8.9"
# Model families that lose their numbers in float16.
NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
KV_DTYPES_SINCE = "0.26"
KV_DTYPES = (
    *("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head"),
    *("int8_per_token_head", "int4_per_token_head", "nvfp4", "nvfp4_ds_mla", "nvfp4_4over6", "ultraquant_4bit"),
    *("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
)


def data_type(subject: Subject) -> Iterator[Problem]:
    """15: bfloat16 has the accelerators for it, float16 the model."""
    asked = methods.dtype(subject)
    fragile = subject.text.get("model_type") in NO_FLOAT16 or subject.config.get("model_type") in NO_FLOAT16
    if fragile and asked == "float16":
        old = any(True for _ in seen(subject, BFLOAT16)) and subject.platform == "cuda"
        fits = ("float32",) if old else ("bfloat16", "float32")
        yield wrong(
            "dtype",
            "The model's family is numerically unstable in float16, and vLLM refuses it.",
            f"Set --dtype to {listed(fits)}.",
            fits,
        )
    if subject.platform != "cuda" or not (asked == "bfloat16" or (fragile and asked is None)):
        return
    for host, slot in seen(subject, BFLOAT16):
        has = f"bfloat16 needs compute capability {BFLOAT16}; {where(host, slot)} has {slot.compute_capability}"
        fits = ("float32",) if fragile else ("auto", "float16")
        yield told(
            subject,
            host,
            asked == "bfloat16",
            minimum=BFLOAT16,
            setting="dtype",
            message=f"{has}." if asked else f"{has}, and the model cannot take float16: it would run in float32.",
            remedy=f"Set --dtype to {listed(fits)}, or choose accelerators of compute capability {BFLOAT16} or higher.",
            values=fits,
        )


def architecture(subject: Subject) -> Iterator[Problem]:
    """16: the engine's wheel has code for the accelerators."""
    since = subject.at_least(CUDA_13_SINCE)
    if subject.platform != "cuda" or since is False:
        return
    for host, slot in seen(subject, OLDEST):
        yield told(
            subject,
            host,
            since is True,
            minimum=OLDEST,
            setting="compute_capability",
            message=f"vLLM from {CUDA_13_SINCE} on has no code below compute capability {OLDEST}; "
            f"{where(host, slot)} has {slot.compute_capability}.",
            remedy=f"Choose newer accelerators, or install a vLLM below {CUDA_13_SINCE} or a build of your own there.",
            values=(OLDEST,),
        )


def kv_data_type(subject: Subject) -> Iterator[Problem]:
    """17: the data type of the KV cache exists, and the accelerators have it."""
    asked = subject.args.word("kv_cache_dtype")
    if asked is None:
        return
    if asked not in KV_DTYPES:
        say = wrong if subject.at_least(KV_DTYPES_SINCE) else doubtful
        yield say(
            "kv_cache_dtype",
            f"{asked!r} is not a data type that the KV cache can have.",
            f"Choose one of {', '.join(KV_DTYPES[:7])}, or leave --kv-cache-dtype out.",
            ("auto", "fp8"),
        )
    if subject.platform != "cuda" or asked not in ("fp8", "fp8_e4m3", "fp8_per_token_head"):
        return
    for host, slot in seen(subject, FP8_NATIVE):
        yield told(
            subject,
            host,
            False,
            minimum=FP8_NATIVE,
            setting="kv_cache_dtype",
            message=f"A KV cache in {asked} is native from compute capability {FP8_NATIVE} on; {where(host, slot)} has "
            f"{slot.compute_capability}, where not every attention kernel takes it.",
            remedy=f"Set --kv-cache-dtype to auto, or choose accelerators of {FP8_NATIVE} or higher.",
            values=("auto",),
        )


RULES = (
    Rule(15, "The data type suits the accelerators and the model", data_type),
    Rule(16, "The engine's wheel has code for the accelerators", architecture),
    Rule(17, "The KV cache's data type exists and suits the accelerators", kv_data_type),
)
