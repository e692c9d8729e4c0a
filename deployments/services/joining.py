"""Nodes as people bring them: with a key made on the way, or many at once from text they already have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from deployments.domain.errors import InvalidInput
from deployments.models import Node
from deployments.remote import ssh_files
from deployments.services.access import Actor, Role, require
from deployments.services.keys import add_key, generate_key, import_key
from deployments.services.nodes import add_nodes

MAX_NODES = 1000


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to make on the way. `source`: `generate`, `paste` (private text) or `folder` (file name)."""

    source: str
    name: str
    private: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A machine found in somebody's text. `jump` is `user@address:port`, as far as it was said."""

    name: str
    address: str
    port: int = 22
    user: str = ""
    jump: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a text holds: machines, and what of it could not be used and why."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = field(default=())


def add_node(actor: Actor, item: Mapping[str, Any], new_key: NewKey | None = None) -> Node:
    """Add one node, making its key first when there is none yet; neither is kept when the other is refused.

    Raises:
        InvalidInput, NotFound, Conflict: As `add_nodes` and the key services.
    """
    with transaction.atomic():
        if new_key is not None:
            item = {**item, "key": _make(actor, new_key)}
        return add_nodes(actor, [item])[0]


def _make(actor: Actor, new: NewKey) -> str:
    if new.source == "generate":
        return generate_key(actor, name=new.name).name
    if new.source == "paste":
        return add_key(actor, name=new.name, private=new.private).name
    return import_key(actor, name=new.name, file=new.file).name


def read_machines(actor: Actor, text: str, kind: str) -> Found:
    """Machines in a `list` (one a line: [name] [user@]address[:port]), an `ssh_config` or a `known_hosts` text.

    Raises:
        InvalidInput: A line cannot be read; the message names it.
    """
    require(actor, Role.admin, "add nodes")
    readers = {"list": _read_list, "ssh_config": _read_ssh_config, "known_hosts": _read_known_hosts}
    if kind not in readers:
        raise InvalidInput(f"{kind!r} is not a kind of text.", remedy="Choose list, ssh_config or known_hosts.")
    found = readers[kind](text)
    if not found.candidates:
        raise InvalidInput("No machine was found in the text.", remedy="Paste one machine a line.", field="text")
    if len(found.candidates) > MAX_NODES:
        raise InvalidInput(f"That is more than {MAX_NODES} machines.", remedy="Add them in parts.", field="text")
    return found


def _read_list(text: str) -> Found:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) > 2:
            raise InvalidInput(
                f"Line {number} has {len(words)} words.", remedy="Write [name] [user@]address[:port].", field="text"
            )
        user, address, port = split_login(words[-1], f"Line {number}")
        found.append(Candidate(words[0] if len(words) == 2 else name_from(address), address, port, user))
    return Found(tuple(found))


def split_login(text: str, where: str) -> tuple[str, str, int]:
    """`user@address:port` (`[v6]:port` too) as user ('' = not said), address, port.

    Raises:
        InvalidInput: The port is no number.
    """
    user, _, rest = text.rpartition("@")
    if rest.startswith("["):
        address, _, tail = rest[1:].partition("]")
        port = tail.removeprefix(":")
    elif rest.count(":") == 1:
        address, _, port = rest.partition(":")
    else:
        address, port = rest, ""
    if port and not (port.isascii() and port.isdigit()):
        raise InvalidInput(f"{where}: {port!r} is not a port.", remedy="Give a number from 1 to 65535.", field="text")
    return user, address, int(port or 22)


def name_from(address: str) -> str:
    """A name to propose for an address: the host's first label, or the whole address when it is an IP address."""
    label = address.lower() if address.replace(".", "").isdigit() else address.lower().split(".")[0]
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in label).strip("-")[:63]


def _read_ssh_config(text: str) -> Found:
    hosts = ssh_files.parse_ssh_config(text)
    found = tuple(
        Candidate(
            name_from(host.alias), host.hostname or host.alias, host.port or 22, host.user or "", host.proxyjump or ""
        )
        for host in hosts
    )
    return Found(found)


def _read_known_hosts(text: str) -> Found:
    found: dict[str, Candidate] = {}
    hashed = 0
    for entry in ssh_files.parse_known_hosts(text):
        names = [name for name in entry.patterns if not set(name) & set("*?!|")]
        hashed += any(name.startswith("|") for name in entry.patterns)
        if entry.marker is None and names:
            _, address, port = split_login(names[0], f"Line {entry.line}")
            found.setdefault(f"{address}:{port}", Candidate(name_from(address), address, port))
    notes = (f"{hashed} entries are hashed, so their names cannot be read.",) if hashed else ()
    return Found(tuple(found.values()), notes)
