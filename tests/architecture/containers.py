"""Reads docker/Dockerfile and docker/compose.yml the way Docker does, as far as these two files go."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

import yaml

from tests.architecture.test_sizes import BASE

FOLDER = BASE / "docker"
SECRETS = "/run/secrets/"
VARIABLE = re.compile(r"(?<!\$)\$\{?(\w+)(?::-([^}]*))?\}?")


@dataclass(frozen=True)
class Instruction:
    """One line of a Dockerfile, continuations joined: its name in capitals and the rest as written."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The rest as words, of the JSON form too."""
        return json.loads(self.text) if self.text.startswith("[") else shlex.split(self.text)


def dockerfile() -> list[Instruction]:
    lines = [line for line in (FOLDER / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    pairs = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), text.strip()) for name, _, text in pairs]


def the(name: str) -> Instruction:
    """The last instruction of this name, which is the one that counts."""
    return [instruction for instruction in dockerfile() if instruction.name == name][-1]


def image_environment() -> dict[str, str]:
    """What ENV sets."""
    return dict(word.split("=", 1) for row in dockerfile() if row.name == "ENV" for word in row.words)


def commands_of_run() -> list[tuple[dict[str, str], list[str]]]:
    """(variables before it, words) of each simple command that a RUN executes."""
    found = []
    for text in (row.text for row in dockerfile() if row.name == "RUN"):
        for words in map(shlex.split, text.split("&&")):
            split = next(place for place, word in enumerate(words) if "=" not in word)
            found.append((dict(word.split("=", 1) for word in words[:split]), words[split:]))
    return found


def compose() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yml").read_text())


def ours() -> dict[str, dict[str, Any]]:
    """The services that run from our image."""
    return {name: service for name, service in compose()["services"].items() if "build" in service}


def environment(service: dict[str, Any]) -> dict[str, str]:
    """What a service is given, image included, when the operator has set nothing."""
    given = {**image_environment(), **{name: str(value) for name, value in service["environment"].items()}}
    return {name: VARIABLE.sub(lambda found: found[2] or "", value) for name, value in given.items()}


def is_sent_to_docker(path: str) -> bool:
    """Whether .dockerignore lets this path of the checkout into the build; the last line that speaks of it decides."""
    sent = True
    for line in (BASE / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!").strip("/").removeprefix("**/")
        parents = ["/".join(path.split("/")[:count]) for count in range(1, path.count("/") + 2)]
        names = path.split("/") if "**/" in line else []
        if any(fnmatch.fnmatchcase(each, pattern) for each in (*parents, *names)):
            sent = line.startswith("!")
    return sent
