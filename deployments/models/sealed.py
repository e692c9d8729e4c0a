"""Text that is encrypted in the database. The newest of FIELD_KEYS seals, all of them open, so keys can be rotated."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models

from deployments.domain.errors import Conflict


def _box() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.FIELD_KEYS])


class SealedText(models.TextField):
    """A TextField whose column holds a Fernet token. Empty text stays empty."""

    def get_prep_value(self, value: str | None) -> str | None:
        value = super().get_prep_value(value)
        return _box().encrypt(value.encode()).decode() if value else value

    def from_db_value(self, value: str | None, expression, connection) -> str | None:
        if not value:
            return value
        try:
            return _box().decrypt(value.encode()).decode()
        except InvalidToken:
            raise Conflict(
                "A secret in the database was sealed with a key that is not among FIELD_KEYS.",
                remedy="Put the old key back at the end of FIELD_KEYS (or FIELD_KEYS_FILE) and start again.",
            ) from None
