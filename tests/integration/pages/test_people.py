"""Tokens, keys and people on the settings pages, and signing in."""

from __future__ import annotations

import re

import pytest
from cryptography.fernet import Fernet
from django.test import Client

from deployments.remote import ssh_files
from deployments.services import access, keys
from deployments.services.access import Actor

from ..panel import PASSWORD
from .reading import read

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_token_is_shown_once_and_works_until_it_is_revoked(as_operator: Client) -> None:
    made = as_operator.post("/settings/", {"name": "ci", "scope": "operator", "days": "7"})
    (text,) = re.findall(r"ph_[\w-]{43}", made.content.decode())
    assert made["Cache-Control"] == "no-store"
    assert access.actor_of_token(text) is not None
    again = read(as_operator.get("/settings/")).text
    assert text not in again
    assert text[:9] in again
    token = access.ApiToken.objects.get()
    as_operator.post(f"/settings/tokens/{token.pk}/revoke/")
    assert access.actor_of_token(text) is None
    assert "revoked" in read(as_operator.get("/settings/")).text


def test_nobody_makes_a_token_that_may_do_more_than_they(as_viewer: Client) -> None:
    assert 'value="operator"' not in as_viewer.get("/settings/").content.decode()
    assert as_viewer.post("/settings/", {"name": "x", "scope": "admin", "days": "7"}).status_code == 422
    assert access.ApiToken.objects.count() == 0


def test_somebody_elses_token_is_neither_shown_nor_revoked(as_viewer: Client, admin: Actor) -> None:
    token, _ = access.create_token(admin, name="theirs", scope="admin", days=1)
    assert "theirs" not in read(as_viewer.get("/settings/")).text
    assert as_viewer.post(f"/settings/tokens/{token.pk}/revoke/").status_code == 409
    token.refresh_from_db()
    assert token.revoked_at is None


def test_a_key_is_generated_or_pasted_its_public_line_shown_and_the_private_part_never(as_admin: Client) -> None:
    private, public = ssh_files.generate_key()
    as_admin.post("/settings/keys/", {"name": "made", "source": "generate"})
    as_admin.post("/settings/keys/", {"name": "mine", "source": "paste", "private_key": private})
    page = as_admin.get("/settings/keys/").content.decode()
    assert public.split()[1] in page
    assert "PRIVATE KEY" not in page
    assert [key.name for key in keys.list_keys()] == ["made", "mine"]
    locked = as_admin.post("/settings/keys/", {"name": "bad", "source": "paste", "private_key": "nonsense"})
    assert "Paste the whole file, first and last line too." in read(locked).text
    as_admin.post("/settings/keys/mine/remove/", {"typed": "mine"})
    assert [key.name for key in keys.list_keys()] == ["made"]


def test_a_key_that_cannot_be_decrypted_is_listed_and_can_be_removed(as_admin: Client, settings) -> None:  # type: ignore[no-untyped-def]
    as_admin.post("/settings/keys/", {"name": "old", "source": "generate"})
    settings.FIELD_KEYS = [Fernet.generate_key().decode()]
    for path in ("/settings/keys/", "/add/node/", "/add/nodes/"):
        assert "old" in read(as_admin.get(path)).text
    as_admin.post("/settings/keys/old/remove/", {"typed": "old"})
    assert keys.list_keys() == []


def test_keys_come_from_the_named_folder(as_admin: Client, tmp_path, settings) -> None:  # type: ignore[no-untyped-def]
    private, _ = ssh_files.generate_key()
    (tmp_path / "id_fleet").write_text(private)
    settings.KEYS_DIR = str(tmp_path)
    assert "id_fleet" in read(as_admin.get("/settings/keys/")).text
    as_admin.post("/settings/keys/", {"name": "fleet", "source": "folder", "key_file": "id_fleet"})
    assert keys.get_key("fleet").source == "folder"


def test_people_are_added_changed_and_disabled_but_never_the_last_admin(as_admin: Client, admin: Actor) -> None:
    weak = as_admin.post("/settings/users/", {"username": "new", "password": "short", "role": "viewer"})
    assert weak.status_code == 422
    as_admin.post("/settings/users/", {"username": "new", "password": PASSWORD, "role": "operator"})
    assert Client().login(username="new", password=PASSWORD)
    user = access.get_user_model().objects.get(username="new")
    as_admin.post(f"/settings/users/{user.pk}/", {"role": "viewer"})
    actor = access.actor_of_user(access.get_user_model().objects.get(pk=user.pk))
    assert actor is not None
    assert actor.role.name == "viewer"
    as_admin.post(f"/settings/users/{user.pk}/", {"active": "0"})
    assert not Client().login(username="new", password=PASSWORD)
    last = as_admin.post(f"/settings/users/{admin.user_id}/", {"role": "viewer"})
    assert last.status_code == 409
    assert "Make another user admin first." in read(last).text


def test_signing_in_says_what_was_wrong_and_after_ten_times_to_wait(operator: Actor) -> None:
    client = Client(REMOTE_ADDR="192.0.2.77")
    wrong = client.post("/login/", {"username": "otto", "password": "no"})
    assert wrong.status_code == 200
    assert "correct username and password" in read(wrong).text
    for _ in range(9):
        client.post("/login/", {"username": "otto", "password": "no"})
    late = client.post("/login/", {"username": "otto", "password": PASSWORD})
    assert late.status_code == 429
    assert "Wait five minutes" in read(late).text
    right = Client(REMOTE_ADDR="192.0.2.78").post(
        "/login/?next=/jobs/", {"username": "otto", "password": PASSWORD, "next": "/jobs/"}
    )
    assert right["Location"] == "/jobs/"


def test_a_form_from_a_foreign_page_is_refused(operator: Actor) -> None:
    client = Client(enforce_csrf_checks=True)
    client.login(username="otto", password=PASSWORD)
    for address in ("/probe/", "/add/layout/", "/settings/", "/logout/"):
        assert client.post(address, {"name": "x"}).status_code == 403, address


def test_the_theme_of_the_cookie_is_drawn_by_the_server(as_viewer: Client) -> None:
    as_viewer.cookies["pilothouse_theme"] = "dark"
    assert 'data-theme="dark"' in as_viewer.get("/").content.decode()
    as_viewer.cookies["pilothouse_theme"] = '"><script>alert(1)</script>'
    assert "alert(1)" not in as_viewer.get("/").content.decode()
