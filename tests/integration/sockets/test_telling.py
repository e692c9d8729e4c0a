"""What open pages are told, and when they are sent away."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.test import Client

from deployments import transitions
from deployments.models import Deployment, Node
from deployments.services import keys, layouts, models, nodes, people
from deployments.services.access import Actor, create_token
from tests.integration.panel import PASSWORD

from .client import Page, push, sign_in, until

REFRESH = json.dumps({"refresh": True})


def node(admin: Actor, name: str) -> Node:
    keys.generate_key(admin, name=f"key-{name}")
    (row,) = nodes.add_nodes(admin, [{"name": name, "address": "a.example", "user": "p", "key": f"key-{name}"}])
    return row


def test_pages_are_told_of_what_concerns_them_and_of_nothing_else(url: str, admin: Actor, stub: object) -> None:
    first, second = node(admin, "one"), node(admin, "two")
    session = sign_in(admin)
    with ExitStack() as open_pages:
        told = [
            open_pages.enter_context(Page(url, f"/ws/live/{path}/", session))
            for path in ("fleet", "nodes", "node/one", "all")
        ]
        others = [
            open_pages.enter_context(Page(url, f"/ws/live/{path}/", session))
            for path in ("node/two", "jobs", "deployments", "models")
        ]
        transitions.record("node", first.pk, "", "CHANGED", "APPLIED", node_id=first.pk)
        for page in told:
            page.says(REFRESH)
        push("fleet", "<p>after</p>")
        push(f"node-{second.pk}", "<p>after</p>")
        told[0].says("<p>after</p>")
        others[0].says("<p>after</p>")  # nothing came before it
        transitions.tell("events", {"type": "changed", "node": second.pk})
        others[0].says(REFRESH)


def test_who_may_sign_in_is_told_to_nobody(url: str, admin: Actor) -> None:
    with Page(url, "/ws/live/fleet/", sign_in(admin)) as page:
        create_token(admin, name="quiet", scope="viewer", days=1)
        push("fleet", "<p>after</p>")
        page.says("<p>after</p>")


def test_a_layout_and_many_transitions_at_once_are_told(url: str, admin: Actor) -> None:
    with (
        Page(url, "/ws/live/all/", sign_in(admin)) as everything,
        Page(url, "/ws/live/jobs/", sign_in(admin)) as jobs,
    ):
        layouts.add_layout(admin, name="one", kind="single")
        everything.says(REFRESH)
        row = transitions.Transition(subject="replica", subject_id="1", new="READY", reason="APPLIED", actor="x")
        transitions.record_all([row])
        jobs.says(REFRESH)
        everything.says(REFRESH)


def test_a_deployment_and_the_machines_under_it_are_told_to_its_page(url: str, admin: Actor, stub: object) -> None:
    machine = node(admin, "one")
    model, _ = models.register_model(admin, name="m", path="/models/m")
    layout = layouts.add_layout(admin, name="one", kind="single")
    chat, other = (
        Deployment.objects.create(name=name, model=model, layout=layout, served_name=name) for name in ("chat", "other")
    )
    with Page(url, "/ws/live/deployment/chat/", sign_in(admin)) as page:
        transitions.record("deployment", other.pk, "", "READY", "APPLIED", deployment_id=other.pk)
        push(f"deployment-{chat.pk}", "<p>after</p>")
        page.says("<p>after</p>")
        transitions.record("deployment", chat.pk, "", "READY", "APPLIED", deployment_id=chat.pk)
        page.says(REFRESH)
        transitions.tell("events", {"type": "changed", "node": machine.pk})
        page.says(REFRESH)


def logs_out(viewer: Actor, admin: Actor, session: str) -> None:
    browser = Client(headers={"host": "127.0.0.1"})
    browser.cookies["pilothouse_session"] = session
    assert browser.post("/logout/").status_code == 302


def is_disabled(viewer: Actor, admin: Actor, session: str) -> None:
    people.change_user(admin, viewer.user_id or 0, active=False)


def becomes_operator(viewer: Actor, admin: Actor, session: str) -> None:
    people.change_user(admin, viewer.user_id or 0, role="operator")


def gets_another_password(viewer: Actor, admin: Actor, session: str) -> None:
    user = get_user_model().objects.get(pk=viewer.user_id)
    user.set_password("another " + PASSWORD)
    user.save()
    transitions.ring_person(user.pk)


@pytest.mark.parametrize("happens", [logs_out, is_disabled, becomes_operator, gets_another_password])
def test_a_page_is_closed_when_its_person(
    url: str, viewer: Actor, admin: Actor, happens: Callable[[Actor, Actor, str], None]
) -> None:
    session = sign_in(viewer)
    with Page(url, "/ws/live/fleet/", session) as page, Page(url, "/ws/live/all/", sign_in(admin)) as other:
        happens(viewer, admin, session)
        assert page.closed_with() == 4401
        layouts.add_layout(admin, name="one", kind="single")
        other.says(REFRESH)


def test_signing_out_in_one_browser_leaves_the_others(url: str, viewer: Actor, admin: Actor) -> None:
    session = sign_in(viewer)
    with Page(url, "/ws/live/all/", sign_in(viewer)) as elsewhere:
        logs_out(viewer, admin, session)
        layouts.add_layout(admin, name="one", kind="single")
        elsewhere.says(REFRESH)


def test_a_session_that_ends_by_itself_and_an_object_that_is_removed_end_the_page(
    url: str, viewer: Actor, admin: Actor, stub: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from monitoring import consumers

    monkeypatch.setattr(consumers, "CHECK_S", 0.2)
    row = node(admin, "one")
    session = sign_in(viewer)
    with Page(url, "/ws/live/node/one/", sign_in(admin)) as gone, Page(url, "/ws/live/fleet/", session) as ended:
        Node.objects.filter(pk=row.pk).delete()
        Session.objects.filter(session_key=session).delete()
        assert gone.closed_with() == 4404
        assert ended.closed_with() == 4401


def test_pages_that_were_closed_leave_nothing_behind(url: str, viewer: Actor) -> None:
    from channels.layers import get_channel_layer

    session = sign_in(viewer)
    for _ in range(3):
        with Page(url, "/ws/live/fleet/", session):
            pass
    layers = get_channel_layer()._layers.values()  # type: ignore[union-attr]
    until("channels and groups are given back", lambda: not any(layer.channels or layer.groups for layer in layers))
