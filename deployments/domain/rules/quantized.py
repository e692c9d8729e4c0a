"""Rules 10 to 14: quantised weights against the split, the accelerator and the settings."""

from __future__ import annotations

from collections.abc import Iterator

from ..plugins import Problem
from . import methods, split
from .capability import seen, told, where
from .rule import Rule, doubtful, listed, wrong
from .shape import TP
from .subject import Subject

# The smallest tile of the Marlin kernels: outputs and inputs of one rank.
MARLIN_OUTPUTS, MARLIN_INPUTS = 64, 128


def groups(subject: Subject) -> Iterator[Problem]:
    """10: a rank's inputs are whole groups of an AWQ, GPTQ or similar checkpoint."""
    size, group = subject.tensor_parallel_size, split.group_size(subject)
    if group is None or split.groups_fit(subject, size):
        return
    for name, width in split.quantized_inputs(subject).items():
        if width % size or (width // size) % group:
            fits = split.good_sizes(subject)
            yield wrong(
                TP,
                f"The checkpoint is quantised in groups of {group}; the model's {name} of {width} over {size} ranks "
                f"gives {_share(width, size)} each, which is not a whole number of groups.",
                f"Choose a tensor parallel size that keeps whole groups ({listed(fits)}), use pipeline stages for the "
                f"other accelerators, or a checkpoint padded to a multiple of {size * group}.",
                fits,
            )


def _share(width: int, size: int) -> str:
    return str(width // size) if width % size == 0 else f"{width / size:.1f}"


def marlin_fits(subject: Subject, size: int) -> bool:
    """Whether each rank's part fills whole tiles of the Marlin kernels."""
    widths = split.quantized_inputs(subject).values()
    return all((width // size) % MARLIN_OUTPUTS == 0 and (width // size) % MARLIN_INPUTS == 0 for width in widths)


def marlin(subject: Subject) -> Iterator[Problem]:
    """11: a rank's part fills whole tiles of the fast kernels."""
    size = subject.tensor_parallel_size
    four_bit = methods.family(methods.checkpoint(subject)) in ("awq", "gptq")
    cut = split.groups_fit(subject, size) and split.widths_fit(subject, size)
    if subject.platform != "cuda" or not four_bit or not cut or size == 1 or marlin_fits(subject, size):
        return
    fits = split.good_sizes(subject, marlin_fits)
    yield doubtful(
        TP,
        f"Over {size} ranks a part of the quantised weights is no multiple of {MARLIN_OUTPUTS} outputs and "
        f"{MARLIN_INPUTS} inputs; the Marlin kernels do not take it, and what replaces them is slower or refuses it.",
        f"Choose another tensor parallel size ({listed(fits)}).",
        fits,
    )


def blocks(subject: Subject) -> Iterator[Problem]:
    """12: a rank's part is made of whole blocks of an FP8 checkpoint."""
    size, block = subject.tensor_parallel_size, split.block_size(subject)
    if block is None or split.blocks_fit(subject, size):
        return
    for name, width in split.quantized_inputs(subject).items():
        if any(width % size or (width // size) % step for step in block):
            fits = split.good_sizes(subject)
            experts = name == "moe_intermediate_size"
            yield wrong(
                TP,
                f"The checkpoint has FP8 blocks of {block[0]} x {block[1]}; the model's {name} of {width} over {size} "
                f"ranks gives {_share(width, size)} each, which is not a whole number of blocks.",
                f"Choose a tensor parallel size that keeps whole blocks ({listed(fits)})"
                + (", or spread the experts with --enable-expert-parallel." if experts else "."),
                fits,
            )


def capability(subject: Subject) -> Iterator[Problem]:
    """13: every accelerator has the compute capability that the quantisation needs."""
    method = methods.effective(subject)
    if method is None or subject.platform != "cuda":
        return
    plugin = methods.PLUGINS.get(method)
    if plugin and subject.at_least("0.28") is not False:
        yield from _plugin(subject, method, plugin)
    needs = methods.needed(subject)
    if needs is None:
        return
    minimum, what, falls_back = needs
    for host, slot in seen(subject, minimum):
        setting, values, remedy = _cure(subject, minimum, slot.compute_capability or "")
        yield told(
            subject,
            host,
            subject.at_least(methods.TABLE_SINCE) is True and not falls_back,
            minimum=minimum,
            setting=setting,
            message=f"{what} needs compute capability {minimum}; {where(host, slot)} has {slot.compute_capability}"
            + (", where the engine may use the weights alone." if falls_back else "."),
            remedy=remedy,
            values=values,
        )


def _cure(subject: Subject, minimum: str, has: str) -> tuple[str, tuple[str, ...], str]:
    """What to change: the method where people chose it, else the accelerator."""
    if not subject.args.given("quantization") or methods.checkpoint(subject):
        return (
            "compute_capability",
            (minimum,),
            f"Choose accelerators of compute capability {minimum} or higher, or another checkpoint.",
        )
    can = methods.online_for(has)
    remedy = f"Choose --quantization {listed(can)}, or" if can else "Remove --quantization, or choose"
    return "quantization", can, f"{remedy} accelerators of compute capability {minimum} or higher."


def _plugin(subject: Subject, method: str, plugin: str) -> Iterator[Problem]:
    known = [host.packages for host in subject.hosts if host.packages is not None]
    if known and all(plugin in packages for packages in known):
        return
    say = wrong if known and subject.at_least("0.28") else doubtful
    yield say(
        "quantization",
        f"From 0.28 on vLLM has no {method} of its own; it comes with the package {plugin}"
        + (", which is not installed." if known else ", which may not be installed."),
        f"Install {plugin} in the engine environment, or choose an AWQ, GPTQ or compressed-tensors checkpoint.",
        [] if methods.checkpoint(subject) else methods.ONLINE,
    )


def matching(subject: Subject) -> Iterator[Problem]:
    """14: --quantization fits the checkpoint, the data type, and is not given up."""
    asked, own = subject.args.word("quantization"), methods.checkpoint(subject)
    if asked and own and not methods.agree(asked, own):
        yield wrong(
            "quantization",
            f"--quantization {asked} does not match the checkpoint, which is quantised with {own}.",
            f"Remove --quantization (the engine reads it from the checkpoint), or set it to {own}.",
            [own],
        )
    elif asked and not own and subject.config and methods.family(asked) in methods.CHECKPOINT_ONLY:
        yield wrong(
            "quantization",
            f"--quantization {asked} does not quantise anything, and this checkpoint is not quantised.",
            f"Serve a checkpoint that is quantised so, or quantise while loading: {listed(methods.ONLINE)}.",
            methods.ONLINE,
        )
    yield from _given_up(subject)
    yield from _data_type(subject)


def _given_up(subject: Subject) -> Iterator[Problem]:
    method = methods.effective(subject)
    if method in methods.DEPRECATED and subject.args.on("allow_deprecated_quantization") is not True:
        say = wrong if subject.at_least("0.26") else doubtful
        yield say(
            "allow_deprecated_quantization",
            f"vLLM is about to drop the quantisation {method} and refuses it by itself.",
            "Add --allow-deprecated-quantization, or choose another checkpoint.",
            [True],
        )


def _data_type(subject: Subject) -> Iterator[Problem]:
    method, dtype = methods.effective(subject), methods.dtype(subject)
    takes = methods.data_types(method)
    if dtype is None or takes is None or dtype in takes:
        return
    set_by = "" if subject.args.given("dtype") else " (the CPU platform's default)"
    yield wrong(
        "dtype",
        f"The quantisation {method} does not work with the data type {dtype}{set_by}.",
        f"Set --dtype to {listed(takes)}.",
        takes,
    )


RULES = (
    Rule(10, "Ranks hold whole groups of a quantised checkpoint", groups),
    Rule(11, "Ranks fill whole tiles of the Marlin kernels", marlin),
    Rule(12, "Ranks hold whole blocks of an FP8 checkpoint", blocks),
    Rule(13, "The accelerators can compute the quantisation", capability),
    Rule(14, "The quantisation asked for matches the checkpoint and the data type", matching),
)
