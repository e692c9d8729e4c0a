"""Rules 1 to 6: the model's shape against the sizes of the split."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..plugins import Problem
from . import split
from .rule import Rule, doubtful, listed, wrong
from .subject import Subject

TP = "tensor_parallel_size"
PP = "pipeline_parallel_size"
PARTITION = "VLLM_PP_LAYER_PARTITION"
# Families of decoders that could be cut into stages for a long time. Others may, from some version on.
IN_STAGES = re.compile(
    r"(?!.*(MTP|Eagle))(L[Ll]a[Mm][Aa]|Llava|InternVL|InternS1|PaliGemma|Pixtral|Molmo|Ovis|PhiMoE|Phi4ForCausalLMV|Lfm2"
    r"|MiniMax|MiMo|Step|StableLm|Orion|Bailing|DeciLM|Apertus|Longcat|Keye|Ultravox|Voxtral|Blip2|DeepseekOCR"
    r"|Llama|Mistral|Ministral|Mixtral|Qwen[23]|Deepseek(V2|V3|V32)?(?=For)|DeepseekV|Gemma[234]?(?=For)|Glm|ChatGLM|Phi3"
    r"|Phi(?=For)|GptOss|GPT2|GPTNeoX|GPTJ|GPTBigCode|Falcon|Bloom|OPT|OLMo|Olmo|Granite|InternLM|Baichuan|Cohere|Starcoder"
    r"|StableLM|Nemotron|Exaone|MiniCPM|Arctic|Dbrx|Jamba|Mamba|Aquila|Yi|Solar|Ernie|Hunyuan|Kimi|Moonlight)"
)


def attention_heads(subject: Subject) -> Iterator[Problem]:
    """1: the attention heads divide by TP."""
    size, count = subject.tensor_parallel_size, split.heads(subject)
    if size > 1 and count is None and subject.config:
        yield doubtful(
            TP,
            f"The model's config does not say its number of attention heads; {size} ranks may not split it evenly.",
            "Choose a power of two as tensor parallel size.",
        )
    if count and not split.heads_fit(subject, size):
        fits = split.good_sizes(subject)
        yield wrong(
            TP,
            f"The model has {count} attention heads; they cannot be split over {size} ranks evenly.",
            f"Choose a tensor parallel size that divides {count} ({listed(fits)}).",
            fits,
        )


def key_value_heads(subject: Subject) -> Iterator[Problem]:
    """2: the key/value heads divide by TP, or TP by them."""
    size, count = subject.tensor_parallel_size, split.kv_heads(subject)
    if count and not split.kv_heads_fit(subject, size):
        fits = split.good_sizes(subject)
        yield wrong(
            TP,
            f"The model has {count} key/value heads; {size} ranks can neither split nor replicate them evenly.",
            f"Choose a tensor parallel size that divides {count} or is a multiple of it ({listed(fits)}).",
            fits,
        )


def feed_forward(subject: Subject) -> Iterator[Problem]:
    """3: the widths of the feed-forward layers divide by TP."""
    size = subject.tensor_parallel_size
    for name, width in split.split_widths(subject).items():
        if width % size:
            fits = split.good_sizes(subject)
            experts = subject.experts is not None and name != "shared_expert_intermediate_size"
            yield wrong(
                TP,
                f"The model's {name} is {width}; it cannot be split over {size} ranks evenly.",
                f"Choose a tensor parallel size that divides {width} ({listed(fits)})"
                + (", or spread the experts with --enable-expert-parallel." if experts else "."),
                fits,
            )


def vocabulary(subject: Subject) -> Iterator[Problem]:
    """4: the vocabulary, padded to 64 entries, divides by TP."""
    size, padded = subject.tensor_parallel_size, split.padded_vocabulary(subject)
    if padded % size:
        fits = split.good_sizes(subject)
        yield wrong(
            TP,
            f"The model's vocabulary, padded to {padded} entries, cannot be split over {size} ranks evenly.",
            f"Choose a tensor parallel size that divides {padded} ({listed(fits)}).",
            fits,
        )


def layers(subject: Subject) -> Iterator[Problem]:
    """5: every stage has a layer, and a partition given by hand has all of them."""
    stages = subject.pipeline_parallel_size
    count = subject.model.num_hidden_layers or subject.whole("num_hidden_layers", "n_layer")
    if count is None:
        return
    if stages > count:
        fits = [n for n in range(1, min(count, 16) + 1) if count % n == 0]
        yield wrong(
            PP,
            f"The model has {count} layers; {stages} stages would leave some without any.",
            f"Choose a pipeline parallel size of at most {count}; {listed(fits)} split it evenly.",
            fits,
        )
    elif stages > 1 and PARTITION in subject.env:
        yield from _partition(subject, count, stages)


def _partition(subject: Subject, count: int, stages: int) -> Iterator[Problem]:
    text = subject.env[PARTITION]
    parts = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if len(parts) == stages == len(text.split(",")) and sum(parts) == count:
        return
    even = [count // stages + (1 if stage < count % stages else 0) for stage in range(stages)]
    right = ",".join(str(part) for part in even)
    yield wrong(
        PARTITION,
        f"{PARTITION} is {text!r}: it needs {stages} numbers, one a stage, that add up to the model's {count} layers.",
        f"Remove it (the engine chooses), or set it like {right}.",
        [right],
    )


def stages_supported(subject: Subject) -> Iterator[Problem]:
    """6: the architecture can be cut into stages."""
    name = subject.model.architecture
    if subject.pipeline_parallel_size == 1 or name is None or IN_STAGES.match(name):
        return
    yield doubtful(
        PP,
        f"It is not known whether vLLM can cut {name} into {subject.pipeline_parallel_size} stages; if not, it ends "
        "with 'Pipeline parallelism is not supported for this model'.",
        "Set the pipeline parallel size to 1 and split by tensor, or try it on a recent vLLM.",
        [1],
    )


RULES = (
    Rule(1, "Attention heads divide by the tensor parallel size", attention_heads),
    Rule(2, "Key/value heads divide by the tensor parallel size, or it by them", key_value_heads),
    Rule(3, "Feed-forward widths divide by the tensor parallel size", feed_forward),
    Rule(4, "The padded vocabulary divides by the tensor parallel size", vocabulary),
    Rule(5, "Every pipeline stage has a layer", layers),
    Rule(6, "The architecture can be cut into pipeline stages", stages_supported),
)
