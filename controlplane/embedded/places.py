"""Where the embedded default keeps its state. Pure: names only, nothing is made or read here.

Unix sockets have paths of at most 107 bytes, so that a deep VAR_DIR cannot hold them; they then live in a short
folder under /tmp whose name is derived from VAR_DIR and the user.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SOCKET_LIMIT = 107
PG_SOCKET = ".s.PGSQL.5432"
DATABASE = "pilothouse"


@dataclass(frozen=True, slots=True)
class Places:
    """Every path of one embedded installation, from its VAR_DIR and the user that runs it."""

    var: Path
    uid: int

    @property
    def runtime(self) -> Path:
        """The folder of the sockets: below VAR_DIR when the longest name fits, else a short one."""
        inside = self.var / "run"
        if len(bytes(inside / PG_SOCKET)) <= SOCKET_LIMIT:
            return inside
        return Path(f"/tmp/pilothouse-{self.uid}-{self.key}")

    @property
    def key(self) -> str:
        return hashlib.sha256(bytes(self.var)).hexdigest()[:12]

    @property
    def secret_key(self) -> Path:
        return self.var / "secret-key"

    @property
    def field_keys(self) -> Path:
        return self.var / "field-keys"

    @property
    def postgres_data(self) -> Path:
        return self.var / "postgres"

    @property
    def valkey_data(self) -> Path:
        return self.var / "valkey"

    @property
    def valkey_socket(self) -> Path:
        return self.runtime / "valkey.sock"

    @property
    def static(self) -> Path:
        return self.var / "static"

    @property
    def lock(self) -> Path:
        return self.var / "supervisor.lock"

    @property
    def database_url(self) -> str:
        return f"postgresql:///{DATABASE}?user={DATABASE}&host={quote(str(self.runtime), safe='')}"

    @property
    def broker_url(self) -> str:
        return f"redis+socket://{quote(str(self.valkey_socket))}"
