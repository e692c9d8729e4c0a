"""What holds for all pages, table-driven over all of their addresses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver, reverse

from deployments.models import Deployment, Job, Process
from deployments.remote.stub import StubLauncher
from deployments.services import access, deployments
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput
from deployments.urls import urlpatterns
from tests.browser import crowd, telemetry

from ..panel import found_model, ready_node, settle, single_layout
from .conftest import signed_in
from .reading import Page, read

pytestmark = pytest.mark.django_db(transaction=True)
# The smallest role that may open each page; only the others in urls.py are open to every viewer.
OPERATOR = {
    "node-intent", "model-add", "model-remove", "layout-add", "layout-remove", "deployment-add", "deployment-change",
    "deployment-stop", "deployment-pause", "deployment-run", "deployment-scale", "deployment-remove", "job-cancel",
    "deployment-chat", "deployment-key",
}  # fmt: skip
ADMIN = {
    "node-add", "nodes-add", "node-change", "node-remove", "node-environment", "process-force", "key-remove", "users",
    "user",
}  # fmt: skip
# Answers to GET that only lead back to a page.
BACK = {"deployment-preview", "probe", "model-look", "deployment-retry", "user"}
NAMES = [pattern.name for pattern in urlpatterns if pattern.name]


@pytest.fixture
def addresses(stub: StubLauncher, admin: Actor) -> dict[str, str]:
    """An address for each page of a small panel with one of everything."""
    node = ready_node(admin)
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    token, _ = access.create_token(admin, name="ci", scope="viewer", days=1)
    known = {
        "node": node.name, "model": "qwen", "layout": "one", "deployment": "chat", "key": "main",
        "process": str(Process.objects.get().pk), "job": str(Job.objects.latest("created_at").pk),
        "token": token.pk, "user": admin.user_id,
    }  # fmt: skip
    return {name: _address(name, known) for name in NAMES}


def _address(name: str, known: dict[str, Any]) -> str:
    (pattern,) = [pattern for pattern in urlpatterns if pattern.name == name]
    arguments = {}
    for part in pattern.pattern.converters:
        kind = {"name": name.split("-")[0], "process_id": "process", "job_id": "job"}.get(
            part, part.removesuffix("_id")
        )
        arguments[part] = known[kind]
    return reverse(name, kwargs=arguments)


def test_every_page_answers_its_role_and_refuses_smaller_ones(
    addresses: dict[str, str], as_viewer: Client, as_operator: Client, as_admin: Client
) -> None:
    wrong = []
    for name, address in addresses.items():
        good = 302 if name in BACK else 200
        expected = (
            403 if name in OPERATOR | ADMIN else good,
            403 if name in ADMIN else good,
            good,
        )
        found = tuple(client.get(address).status_code for client in (as_viewer, as_operator, as_admin))
        wrong += [] if found == expected else [(name, expected, found)]
    assert wrong == []


def test_signed_out_every_page_leads_to_the_login_and_comes_back(addresses: dict[str, str]) -> None:
    for address in addresses.values():
        answer = Client().get(address)
        assert (answer.status_code, answer["Location"]) == (302, f"/login/?next={address}"), address
        assert Client().post(address).status_code == 302


def test_signed_out_a_live_part_sends_the_whole_page_to_the_login(addresses: dict[str, str]) -> None:
    answer = Client().get("/", headers={"HX-Request": "true", "HX-Target": "live"})
    assert answer["HX-Redirect"] == "/login/?next=/"


def test_a_disabled_person_is_signed_out_at_once(addresses: dict[str, str], operator: Actor) -> None:
    from django.contrib.auth import get_user_model

    client = signed_in(operator)
    assert client.get("/").status_code == 200
    get_user_model().objects.filter(pk=operator.user_id).update(is_active=False)
    assert client.get("/").status_code == 302


def test_no_page_holds_what_the_policy_forbids(addresses: dict[str, str], as_admin: Client) -> None:
    complaints = []
    for name, address in [*addresses.items(), ("login", "/login/"), ("missing", "/nodes/none/")]:
        client = Client() if name == "login" else as_admin
        page = read(client.get(address, follow=True))
        complaints += [(name, complaint) for complaint in _forbidden(page)]
    assert complaints == []


def _forbidden(page: Page) -> list[str]:
    found = [f"inline script {text[:40]}" for text in page.scripts if text]
    for tag, name, value in page.attributes:
        if name == "style" or name.startswith("on") or value.lstrip().lower().startswith("javascript:"):
            found.append(f"<{tag} {name}={value[:40]}>")
        if name in ("src", "href", "action", "hx-get", "hx-post") and re.match(r"(\w+:)?//", value):
            found.append(f"foreign {value}")
        if name in ("hx-on", "hx-vars") or name.startswith("hx-on:"):
            found.append(f"evaluated {name}")
    return found


def test_every_page_has_one_heading_a_language_landmarks_and_unique_ids(
    addresses: dict[str, str], as_admin: Client
) -> None:
    for name, address in addresses.items():
        if name in BACK:
            continue
        page = read(as_admin.get(address))
        tags = [tag for tag, _, _ in page.attributes]
        ids = [value for _, attribute, value in page.attributes if attribute == "id"]
        assert len(ids) == len(set(ids)), (name, sorted(i for i in ids if ids.count(i) > 1))
        assert ("html", "lang", "en") in page.attributes, name
        assert page.source.count("<h1") == 1 or name in QUESTIONS, name
        assert {"main", "nav"} <= set(tags) | set(re.findall(r"<(\w+)", page.source)), name


QUESTIONS = {name for name in NAMES if name.split("-")[-1] in ("intent", "remove", "stop", "pause", "run", "force")} | {
    "job-cancel", "token-revoke",
}  # fmt: skip


def test_every_label_belongs_to_a_field_and_every_field_has_one(addresses: dict[str, str], as_admin: Client) -> None:
    for name in (
        "node-add",
        "deployment-add",
        "settings",
        "keys",
        "users",
        "node-environment",
        "layout-add",
        "nodes-add",
    ):
        page = read(as_admin.get(addresses[name]))
        ids = {value for _, attribute, value in page.attributes if attribute == "id"}
        labelled = {value for tag, attribute, value in page.attributes if (tag, attribute) == ("label", "for")}
        assert labelled <= ids, (name, labelled - ids)


def test_what_a_viewer_may_not_do_is_not_offered(addresses: dict[str, str], as_viewer: Client) -> None:
    forbidden = {addresses[name] for name in OPERATOR | ADMIN} | {addresses["deployment-retry"], addresses["probe"]}
    for name in ("fleet", "nodes", "node", "models", "model", "layouts", "deployments", "deployment", "jobs", "keys"):
        page = read(as_viewer.get(addresses[name]))
        assert not (page.links | page.actions) & forbidden, name


def test_what_an_admin_alone_may_do_is_not_offered_to_an_operator(
    addresses: dict[str, str], as_operator: Client
) -> None:
    forbidden = {addresses[name] for name in ADMIN}
    for name in ("fleet", "nodes", "node", "models", "deployment", "settings", "keys"):
        page = read(as_operator.get(addresses[name]))
        assert not (page.links | page.actions) & forbidden, name


def test_all_pages_speak_chinese(addresses: dict[str, str], as_admin: Client) -> None:
    as_admin.post("/i18n/setlang/", {"language": "zh-hans", "next": "/"})
    for name, address in addresses.items():
        if name in BACK:
            continue
        page = read(as_admin.get(address))
        assert ("html", "lang", "zh-hans") in page.attributes, name
        assert "机群" in page.text, name
        # An engine's log is shown as it is.
        assert name == "log" or _english(page.text) == [], name


def test_pages_full_of_figures_speak_chinese(addresses: dict[str, str], as_admin: Client) -> None:
    crowd.gather(nodes=2, gpus=4)
    telemetry.hear()
    as_admin.post("/i18n/setlang/", {"language": "zh-hans", "next": "/"})
    told = {"/": "使用中的加速器", "/nodes/rack01-1/": "显存", addresses["deployment"]: "首 token 延迟"}
    for address, word in told.items():
        page = read(as_admin.get(address))
        assert word in page.text, address
        hidden = [value for _, attribute, value in page.attributes if attribute in ("title", "aria-label")]
        assert _english(" ".join([page.text, *hidden])) == [], address


def _english(text: str) -> list[str]:
    """Runs of three English words or more; commands, paths and arguments have no such runs."""
    found = re.findall(r"(?<![\w./-])[A-Za-z][a-z]+(?: [a-z]{2,}){2,}(?![\w./-])", text)
    return [words for words in found if not words.startswith("English ")]


def test_a_live_part_that_says_nothing_new_is_not_sent_again(addresses: dict[str, str], as_admin: Client) -> None:
    asking = {"HX-Request": "true", "HX-Target": "live"}
    first = as_admin.get(addresses["deployment"], headers=asking)
    assert first.status_code == 200
    assert "<html" not in first.content.decode()
    again = as_admin.get(addresses["deployment"], headers={**asking, "X-Digest": first["X-Digest"]})
    assert (again.status_code, again.content) == (204, b"")
    Deployment.objects.update(state="DEGRADED")
    changed = as_admin.get(addresses["deployment"], headers={**asking, "X-Digest": first["X-Digest"]})
    assert "degraded" in changed.content.decode()


def test_a_live_part_is_what_the_page_holds(addresses: dict[str, str], as_admin: Client) -> None:
    for name in ("fleet", "nodes", "node", "deployments", "deployment", "jobs", "models", "model", "fingerprints"):
        whole = read(as_admin.get(addresses[name])).text
        part = read(as_admin.get(addresses[name], headers={"HX-Request": "true", "HX-Target": "live"})).text
        ages = re.compile(r"(in )?\d+ (s|min)( ago)?")
        assert ages.sub("", part) in ages.sub("", whole), name


def test_there_is_no_route_of_pages_outside_the_table() -> None:
    assert {name for name in get_resolver().reverse_dict if isinstance(name, str)} >= set(NAMES)
    assert set(NAMES) >= OPERATOR | ADMIN
