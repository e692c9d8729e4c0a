"""SSH keys that the panel logs in with."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status

from deployments.api.asking import Asking
from deployments.schemas.nodes import GenerateKeyInput, ImportKeyInput, Key, PasteKeyInput
from deployments.services import keys

router = Router(tags=["keys"])


@router.get("", response=list[Key])
def list_keys(request: Asking) -> Any:
    """All keys: public lines and fingerprints."""
    return [Key.of(row) for row in keys.list_keys()]


@router.post("/generate", response={201: Key})
def generate_key(request: Asking, body: GenerateKeyInput) -> Any:
    """A fresh Ed25519 key."""
    return Status(201, Key.of(keys.generate_key(request.auth, name=body.name)))


@router.post("/paste", response={201: Key})
def paste_key(request: Asking, body: PasteKeyInput) -> Any:
    """A private key without a passphrase; it is stored encrypted."""
    return Status(201, Key.of(keys.add_key(request.auth, name=body.name, private=body.private)))


@router.get("/folder", response=list[str])
def list_folder(request: Asking) -> Any:
    """Files in the folder that KEYS_DIR names."""
    return keys.importable_keys(request.auth)


@router.post("/import", response={201: Key})
def import_key(request: Asking, body: ImportKeyInput) -> Any:
    """A key from that folder."""
    return Status(201, Key.of(keys.import_key(request.auth, name=body.name, file=body.file)))


@router.delete("/{name}", response={204: None})
def remove_key(request: Asking, name: str) -> Any:
    """Forget a key that no node uses."""
    keys.remove_key(request.auth, name)
    return Status(204, None)
