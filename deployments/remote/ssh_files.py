"""Reading what people paste: private keys, `ssh_config`, `known_hosts`. Text in, values out; no file is ever opened."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import asyncssh

from deployments.domain.errors import InvalidInput

from .launcher import HostKey


@dataclass(frozen=True, slots=True)
class ConfigHost:
    """One `Host` alias of an ssh_config with the values OpenSSH would use; None = not said."""

    alias: str
    hostname: str | None = None
    port: int | None = None
    user: str | None = None
    identityfile: str | None = None
    proxyjump: str | None = None


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One line of a known_hosts file. `patterns` as written; hashed ones start with `|1|`.

    `marker` is None, `revoked` or `cert-authority`.
    """

    line: int
    patterns: tuple[str, ...]
    key: HostKey
    marker: str | None = None


def generate_key(comment: str = "pilothouse") -> tuple[str, str]:
    """A new Ed25519 key: private key as OpenSSH text, public key as one line for authorized_keys."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    return key.export_private_key().decode(), key.export_public_key().decode().strip()


def load_private_key(text: str) -> asyncssh.SSHKey:
    """The key in `text`.

    Raises:
        InvalidInput: Not a private key, or locked with a passphrase.
    """
    text = text.strip()
    if not text:
        raise _bad_key("There is no private key.", "Paste a private key, or let the panel make one.")
    if text.startswith("PuTTY-User-Key-File"):
        raise _bad_key("This is a key in PuTTY's format.", "Export it from PuTTYgen as an OpenSSH key.")
    if text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise _bad_key("This is a public key.", "Paste the private key: the file without .pub.")
    try:
        return asyncssh.import_private_key(text + "\n")
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        if "passphrase" in str(error).lower():
            raise _bad_key(
                "This private key is locked with a passphrase.",
                "Unlock a copy with `ssh-keygen -p`, or let the panel make a key of its own; it is stored encrypted.",
            ) from None
        raise _bad_key(
            f"This is not a private key: {error}.", "Paste the whole file, first and last line too."
        ) from None
    except Exception as error:
        # Hostile bytes reach several decoders inside asyncssh, each with exceptions of its own.
        raise _bad_key(
            f"This is not a private key: {error}.", "Paste the whole file, first and last line too."
        ) from None


def read_private_key(text: str) -> tuple[str, str]:
    """The public line (for authorized_keys) and the SHA256 fingerprint of a private key.

    Raises:
        InvalidInput: Not a private key, or locked with a passphrase.
    """
    key = load_private_key(text)
    return key.export_public_key().decode().strip(), key.get_fingerprint()


def _bad_key(message: str, remedy: str) -> InvalidInput:
    return InvalidInput(message, remedy=remedy, field="private_key")


def host_key(public: str) -> HostKey:
    """A public key line (type, base64, maybe a comment) as a `HostKey`.

    Raises:
        InvalidInput: Not one.
    """
    words = public.split()
    try:
        kind, blob = words[0], base64.b64decode(words[1], validate=True)
    except (IndexError, ValueError, binascii.Error):
        raise InvalidInput("This is not a public key.", field="host_key") from None
    name = kind.encode()
    if blob[: 4 + len(name)] != len(name).to_bytes(4, "big") + name:
        raise InvalidInput(f"This key says {kind} and is something else.", field="host_key")
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return HostKey(kind, f"{kind} {words[1]}", f"SHA256:{digest}")


def parse_known_hosts(text: str) -> list[KnownHost]:
    """The entries of a known_hosts file.

    Raises:
        InvalidInput: A line is not an entry; the message names it.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0)[1:] if words[0].startswith("@") else None
        try:
            key = host_key(" ".join(words[1:3]))
        except InvalidInput as error:
            raise InvalidInput(f"Line {number} of known_hosts: {error.message}", field="known_hosts") from None
        if marker not in (None, "revoked", "cert-authority"):
            raise InvalidInput(f"Line {number} of known_hosts: @{marker} is not a marker.", field="known_hosts")
        entries.append(KnownHost(number, tuple(words[0].split(",")), key, marker))
    return entries


def known_keys(entries: list[KnownHost], address: str, port: int = 22) -> list[HostKey]:
    """The host keys that entries give for an address; revoked ones and certificate authorities are left out."""
    name = address.lower() if port == 22 else f"[{address.lower()}]:{port}"
    matching = [entry for entry in entries if _host_matches(entry.patterns, name)]
    revoked = {entry.key.public for entry in matching if entry.marker == "revoked"}
    return [entry.key for entry in matching if entry.marker is None and entry.key.public not in revoked]


def _host_matches(patterns: tuple[str, ...], name: str) -> bool:
    if len(patterns) == 1 and patterns[0].startswith("|"):
        return _hash_matches(patterns[0], name)
    return _patterns_match(patterns, name)


def _hash_matches(pattern: str, name: str) -> bool:
    try:
        _, version, salt, expected = pattern.split("|")
        mac = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return version == "1" and hmac.compare_digest(mac, base64.b64decode(expected))
    except (ValueError, binascii.Error):
        return False


def _patterns_match(patterns: tuple[str, ...], name: str) -> bool:
    """OpenSSH's rule: one pattern matches and no negated one does. `[` is a plain letter there."""
    found = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!").lower().replace("[", "[[]")
        if fnmatch.fnmatchcase(name.lower(), wanted):
            if pattern.startswith("!"):
                return False
            found = True
    return found


@dataclass(slots=True)
class _Block:
    """A `Host` or `Match` block: whom it is for and what it sets, in order.

    `names`: its patterns are aliases people can choose. `by_hostname`: they are held against the `HostName` found so
    far instead of the alias, as `Match host` is.
    """

    patterns: tuple[str, ...]
    settings: list[tuple[str, str]]
    names: bool = True
    by_hostname: bool = False


_KEPT = ("hostname", "port", "user", "identityfile", "proxyjump")


def parse_ssh_config(text: str) -> list[ConfigHost]:
    """The aliases of an ssh_config, each with the values that OpenSSH would use for it.

    `Include` is never followed. `Match all`, `Match host` and `Match originalhost` count; blocks with other criteria
    (user, localuser, final ...) depend on who asks, and are left out.

    Raises:
        InvalidInput: The file would run programs (`Match exec`, `ProxyCommand`), or a line cannot be read.
    """
    blocks = _blocks(text)
    aliases = dict.fromkeys(
        name
        for block in blocks
        if block.names
        for name in block.patterns
        if not name.startswith("!") and not any(letter in name for letter in "*?")
    )
    return [_resolve(alias, blocks) for alias in aliases]


def _blocks(text: str) -> list[_Block]:
    blocks = [_Block(("*",), [], names=False)]
    for number, keyword, words in _config_lines(text):
        if keyword == "host":
            blocks.append(_Block(tuple(words), []))
        elif keyword == "match":
            blocks.append(_match_block(number, words))
        elif keyword == "proxycommand":
            if [word.lower() for word in words] != ["none"]:
                what = "ProxyCommand runs a program on the panel's machine"
                raise _bad_line(number, what, "Use a jump host instead.")
            blocks[-1].settings.append(("proxyjump", "none"))
        elif keyword in _KEPT:
            blocks[-1].settings.append((keyword, _one_value(number, keyword, words)))
    return blocks


def _match_block(number: int, words: list[str]) -> _Block:
    criteria = [word.lower() for word in words]
    if any(word.lstrip("!").startswith("exec") for word in criteria):
        raise _bad_line(number, "Match exec runs a program on the panel's machine", "Leave that block out.")
    if criteria == ["all"]:
        return _Block(("*",), [], names=False)
    if len(words) == 2 and criteria[0] in ("host", "originalhost"):
        by_hostname = criteria[0] == "host"
        return _Block(tuple(words[1].split(",")), [], names=False, by_hostname=by_hostname)
    return _Block((), [], names=False)


def _config_lines(text: str) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        keyword, rest = _keyword(line)
        lexer = shlex.shlex(rest, posix=True)
        lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "", '"'
        try:
            words = list(lexer)
        except ValueError:
            raise _bad_line(number, "a quote is not closed", "Close it.") from None
        if not words:
            raise _bad_line(number, f"{keyword} has no value", "Give it one or leave the line out.")
        yield number, keyword.lower(), words


def _keyword(line: str) -> tuple[str, str]:
    for place, letter in enumerate(line):
        if letter in " \t=":
            return line[:place], line[place:].lstrip(" \t").removeprefix("=").lstrip(" \t")
    return line, ""


def _one_value(number: int, keyword: str, words: list[str]) -> str:
    if len(words) != 1 and not words[1].startswith("#"):
        raise _bad_line(number, f"{keyword} takes one value", "Quote it if it has spaces.")
    if keyword == "port" and not (words[0].isascii() and words[0].isdigit() and 0 < int(words[0]) < 65536):
        raise _bad_line(number, f"{words[0]} is not a port", "Use a number from 1 to 65535.")
    return words[0]


def _resolve(alias: str, blocks: list[_Block]) -> ConfigHost:
    found: dict[str, str] = {}
    for block in blocks:
        name = _hostname(alias, found) if block.by_hostname else alias
        if _patterns_match(block.patterns, name):
            for keyword, value in block.settings:
                found.setdefault(keyword, value)
    jump = found.get("proxyjump")
    return ConfigHost(
        alias=alias,
        hostname=_hostname(alias, found) if "hostname" in found else None,
        port=int(found["port"]) if "port" in found else None,
        user=found.get("user"),
        identityfile=found.get("identityfile"),
        proxyjump=None if jump is None or jump.lower() == "none" else jump,
    )


def _hostname(alias: str, found: dict[str, str]) -> str:
    return found.get("hostname", alias).replace("%h", alias).replace("%%", "%")


def _bad_line(number: int, what: str, remedy: str) -> InvalidInput:
    return InvalidInput(f"Line {number} of the ssh config: {what}.", remedy=remedy, field="ssh_config")
