"""SSH keys that the panel logs in with."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from deployments.domain.errors import Conflict, InvalidInput, NotFound, Taken
from deployments.models import SshKey
from deployments.remote import ssh_files
from deployments.services import naming
from deployments.services.access import Actor, Role, require
from deployments.transitions import record


def list_keys() -> list[SshKey]:
    """All keys; the private parts stay where they are."""
    return list(SshKey.objects.defer("private").order_by("name"))


def get_key(key_name: str) -> SshKey:
    """The key called `key_name`."""
    row = SshKey.objects.defer("private").filter(name=naming.known(key_name)).first()
    if row is None:
        raise NotFound(f"There is no SSH key {key_name!r}.", remedy="Generate or add one first.", field="key")
    return row


def generate_key(actor: Actor, *, name: str) -> SshKey:
    """A fresh ed25519 key. Its public line goes into authorized_keys on the nodes."""
    require(actor, Role.admin, "add SSH keys")
    private, _ = ssh_files.generate_key()
    return _keep(actor, name, private, "generated")


def add_key(actor: Actor, *, name: str, private: str) -> SshKey:
    """A key that was pasted in.

    Raises:
        InvalidInput: It cannot be read (also: it has a passphrase).
    """
    require(actor, Role.admin, "add SSH keys")
    return _keep(actor, name, private, "pasted")


def keys_in_folder() -> list[str]:
    """Names of the files in the folder that KEYS_DIR names, which an admin may take keys from."""
    folder = settings.KEYS_DIR
    if not folder:
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file() and not entry.name.endswith(".pub"))
    except OSError:
        return []


def importable_keys(actor: Actor) -> list[str]:
    """`keys_in_folder`, for those who may take keys from there."""
    require(actor, Role.admin, "add SSH keys")
    return keys_in_folder()


def import_key(actor: Actor, *, name: str, file: str) -> SshKey:
    """A key from the folder that KEYS_DIR names. The file is read once."""
    if file not in importable_keys(actor):
        raise InvalidInput(
            f"There is no file {file!r} in the key folder.", remedy="Set KEYS_DIR and name a file in it.", field="file"
        )
    try:
        text = (Path(settings.KEYS_DIR) / file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidInput(f"{file!r} cannot be read: {error.strerror}.", field="file") from None
    return _keep(actor, name, text, "folder")


def _keep(actor: Actor, name: str, private: str, source: str) -> SshKey:
    naming.name(name)
    public, fingerprint = ssh_files.read_private_key(private)
    values = {"public": public, "fingerprint": fingerprint, "private": private, "source": source}
    try:
        with transaction.atomic():
            key = SshKey.objects.create(name=name, **values)
    except IntegrityError:
        raise Taken(f"There is an SSH key {name!r} already.", remedy="Choose another name.", field="name") from None
    record("key", key.pk, "", "CREATED", "APPLIED", fingerprint, actor=actor.name, name=name)
    return key


def remove_key(actor: Actor, key_name: str) -> None:
    """Forget a key that no node uses."""
    require(actor, Role.admin, "remove SSH keys")
    key = get_key(key_name)
    try:
        key.delete()
    except ProtectedError:
        raise Conflict(f"Nodes log in with the key {key_name!r}.", remedy="Give them another key first.") from None
    record("key", key_name, "", "REMOVED", "APPLIED", actor=actor.name, name=key_name)
