"""Who may have what pushed to them."""

from __future__ import annotations

import json
import uuid

import pytest
from asgiref.sync import async_to_sync
from websockets.exceptions import InvalidStatus

from deployments.models import Job, Node
from deployments.services.access import Actor

from .client import Page, handshake, push, sign_in

REFRESH = json.dumps({"refresh": True})
LISTS = ("fleet", "nodes", "deployments", "models", "jobs", "all")


def refused(url: str, path: str, **options: object) -> int:
    with pytest.raises(InvalidStatus) as caught:
        handshake(url, path, **options)  # type: ignore[arg-type]
    return caught.value.response.status_code


@pytest.mark.parametrize("kind", LISTS)
def test_a_viewer_may_watch_every_list(url: str, viewer: Actor, kind: str) -> None:
    with Page(url, f"/ws/live/{kind}/", sign_in(viewer)) as page:
        page.socket.ping().wait(10)


def test_nobody_may_watch_who_is_not_signed_in(url: str) -> None:
    assert refused(url, "/ws/live/fleet/") == 403
    assert refused(url, "/ws/live/fleet/", session="a" * 32) == 403


def test_a_disabled_account_may_not_watch(url: str, viewer: Actor) -> None:
    from django.contrib.auth import get_user_model

    session = sign_in(viewer)
    get_user_model().objects.filter(pk=viewer.user_id).update(is_active=False)
    assert refused(url, "/ws/live/fleet/", session=session) == 403


def test_an_ended_session_may_not_watch_and_is_left_as_it_is(url: str, viewer: Actor) -> None:
    from django.contrib.sessions.models import Session
    from django.utils import timezone

    session = sign_in(viewer)
    Session.objects.update(expire_date=timezone.now())
    before = Session.objects.values().get()
    assert refused(url, "/ws/live/fleet/", session=session) == 403
    assert Session.objects.values().get() == before


def test_watching_does_not_make_a_session_last_longer(url: str, viewer: Actor) -> None:
    from django.contrib.sessions.models import Session

    session = sign_in(viewer)
    before = Session.objects.values().get()
    with Page(url, "/ws/live/fleet/", session):
        pass
    assert Session.objects.values().get() == before


@pytest.mark.parametrize(
    "origin", [None, "https://elsewhere.example", "null", "https://127.0.0.1:1", "http://127.0.0.1"]
)
def test_a_page_of_somebody_else_may_not_open_a_socket(url: str, viewer: Actor, origin: str | None) -> None:
    assert refused(url, "/ws/live/fleet/", session=sign_in(viewer), origin=origin) == 403


def test_a_trusted_origin_may_open_a_socket(url: str, viewer: Actor, settings: object) -> None:
    settings.TRUSTED_ORIGINS = ["https://panel.example"]  # type: ignore[attr-defined]
    with Page(url, "/ws/live/fleet/", sign_in(viewer), origin="https://panel.example"):
        pass


def test_a_host_name_that_is_not_ours_is_refused_though_page_and_host_agree(
    url: str, viewer: Actor, settings: object
) -> None:
    settings.ALLOWED_HOSTS = ["panel.example"]  # type: ignore[attr-defined]
    assert refused(url, "/ws/live/fleet/", session=sign_in(viewer)) == 403


@pytest.mark.parametrize(
    "path",
    ["node/nowhere", "deployment/nothing", f"job/{uuid.uuid4()}", "job/x", "secrets", "node", "fleet/x", "node/%00"],
)
def test_what_does_not_exist_is_told_after_the_handshake(url: str, viewer: Actor, path: str) -> None:
    with handshake(url, f"/ws/live/{path}/", sign_in(viewer)) as socket:
        page = Page.__new__(Page)
        page.socket = socket
        assert page.closed_with() == 4404


def test_an_address_without_a_socket_is_refused(url: str, viewer: Actor) -> None:
    assert refused(url, "/ws/", session=sign_in(viewer)) == 403
    assert refused(url, "/nodes/", session=sign_in(viewer)) == 403


def test_a_browser_has_nothing_to_say(url: str, viewer: Actor) -> None:
    with Page(url, "/ws/live/fleet/", sign_in(viewer)) as page:
        page.socket.send("hello")
        assert page.closed_with() == 1008


def test_somebody_with_very_many_pages_is_told_to_try_later(url: str, viewer: Actor) -> None:
    from contextlib import ExitStack

    from monitoring.consumers import SOCKETS_PER_PERSON

    session = sign_in(viewer)
    with ExitStack() as pages:
        for _ in range(SOCKETS_PER_PERSON):
            pages.enter_context(Page(url, "/ws/live/all/", session))
        one_more = Page(url, "/ws/live/all/", session)
        assert one_more.closed_with() == 1013


def test_figures_go_to_the_pages_of_their_topic_and_language_as_they_are(url: str, viewer: Actor) -> None:
    node = Node.objects.create(name="héron", address="n.example", user="pilot")
    session = sign_in(viewer)
    html = f'<div id="host-{node.pk}" hx-swap-oob="true">12 %</div>'
    with (
        Page(url, "/ws/live/node/h%C3%A9ron/?language=en", session) as english,
        Page(url, "/ws/live/node/h%C3%A9ron/?language=zh-hans", session) as chinese,
        Page(url, "/ws/live/fleet/?language=xx", session) as fleet,
    ):
        push(f"node-{node.pk}", html)
        push(f"node-{node.pk}", "<p>中文</p>", "zh-hans")
        push("fleet", "<b>fleet</b>")
        english.says(html)
        chinese.says("<p>中文</p>")
        fleet.says("<b>fleet</b>")


def test_who_watches_is_known_to_those_who_render(url: str, viewer: Actor) -> None:
    from monitoring.sinks import watchers

    with Page(url, "/ws/live/fleet/?language=zh-hans", sign_in(viewer)):
        assert "fleet.zh-hans" in async_to_sync(watchers.watched)()


def test_a_job_is_known_by_its_id(url: str, viewer: Actor) -> None:
    job = Job.objects.create(kind="probe", title="x", actor="ada")
    with Page(url, f"/ws/live/job/{job.pk}/", sign_in(viewer)):
        pass
