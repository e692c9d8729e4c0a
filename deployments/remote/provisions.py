"""Modules that a node's helper may ask for: their source is read here and run there, never imported by the panel."""

from __future__ import annotations

from functools import cache
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import Any

from .channel import Channel

# A node may not have whatever it names.
OFFERED = frozenset({"pynvml"})
PROVIDE_S = 30.0


async def provide(channel: Channel) -> None:
    """Sends what the helper said it wants, as far as it is offered and installed here.

    Raises:
        RemoteError: As `Channel.request`.
    """
    modules = provisions(channel.hello)
    if modules:
        await channel.request("provide", {"modules": modules}, PROVIDE_S)


def provisions(hello: dict[str, Any]) -> dict[str, str]:
    """{name: source} of the modules to send for a hello's `wants`."""
    wants = hello.get("wants")
    names = OFFERED.intersection(name for name in wants if isinstance(name, str)) if isinstance(wants, list) else ()
    found = {name: _source(name) for name in names}
    return {name: source for name, source in found.items() if source is not None}


@cache
def _source(name: str) -> str | None:
    # The names have no dots, so looking for them runs none of their code.
    spec = find_spec(name)
    return spec.loader.get_source(name) if spec and isinstance(spec.loader, InspectLoader) else None
