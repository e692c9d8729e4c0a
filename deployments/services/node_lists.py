"""Many nodes at once from text, with the host keys that somebody's known_hosts has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.domain.errors import InvalidInput
from deployments.remote import ssh_files
from deployments.services.access import Actor
from deployments.services.joining import Candidate, read_machines, split_login

# What a scan would offer, the best first.
KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


def read_nodes(
    actor: Actor, text: str, kind: str, *, known_hosts: str = "", defaults: Mapping[str, Any] | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Items for `add_nodes` from a `list`, an `ssh_config` or a `known_hosts` text, and what could not be used.

    Args:
        known_hosts: Another text to look host keys up in; they become each item's `known_key`.
        defaults: Fields for every item that the text does not set itself.

    Raises:
        InvalidInput: A line cannot be read; the message names it.
    """
    found = read_machines(actor, text, kind)
    entries = ssh_files.parse_known_hosts("\n".join([known_hosts, text if kind == "known_hosts" else ""]))
    aliases = {host.alias: host for host in ssh_files.parse_ssh_config(text)} if kind == "ssh_config" else {}
    items = [_item(candidate, defaults or {}, entries, aliases) for candidate in found.candidates]
    return items, list(found.notes)


def _item(
    found: Candidate,
    defaults: Mapping[str, Any],
    entries: list[ssh_files.KnownHost],
    aliases: Mapping[str, ssh_files.ConfigHost],
) -> dict[str, Any]:
    item = {**defaults, "name": found.name, "address": found.address, "port": found.port}
    if found.user:
        item["user"] = found.user
    if found.jump:
        item["jump"] = _jump(found, aliases)
    keys = {key.type: key.public for key in ssh_files.known_keys(entries, found.address, found.port)}
    known = next((keys[kind] for kind in KEY_TYPES if kind in keys), None)
    if known:
        item["known_key"] = known
    return item


def _jump(found: Candidate, aliases: Mapping[str, ssh_files.ConfigHost]) -> dict[str, Any]:
    if "," in found.jump:
        raise InvalidInput(
            f"{found.name} is reached through more than one jump host.", remedy="Name one of them.", field="text"
        )
    user, address, port = split_login(found.jump, found.name)
    alias = aliases.get(address)
    if alias is not None:
        address, port, user = alias.hostname or address, alias.port or port, user or alias.user or ""
    return {"address": address, "port": port, **({"user": user} if user else {})}
