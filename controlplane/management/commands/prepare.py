from __future__ import annotations

import secrets
from argparse import ArgumentParser
from typing import Any, cast

import psycopg
import redis
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction
from django.db.backends.postgresql.base import DatabaseWrapper

from controlplane.database import redis_client_url
from controlplane.static import collect_if_changed
from deployments.models import Member
from deployments.services import ensure_local_node

ADMIN = "admin"


class Command(BaseCommand):
    help = "Brings database, static files, first admin and local node up to date; safe to run again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        words = "for panels whose parts do not share one machine, as in containers: none of them is a node"
        parser.add_argument("--no-local-node", action="store_true", help=words)

    def handle(self, *args: Any, **options: Any) -> None:
        self._ask_database()
        self._ask_broker()
        call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
        collect_if_changed()
        self._first_admin()
        if not options["no_local_node"]:
            ensure_local_node()
        cast("DatabaseWrapper", connection).close_pool()

    def _ask_database(self) -> None:
        try:
            psycopg.connect(settings.DATABASE_URL, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            raise CommandError(f"DATABASE_URL: the database does not answer: {error}", returncode=2) from error

    def _ask_broker(self) -> None:
        try:
            with redis.Redis.from_url(redis_client_url(settings.BROKER_URL), socket_connect_timeout=5) as client:
                client.ping()
        except (redis.RedisError, OSError) as error:
            raise CommandError(f"BROKER_URL: the broker does not answer: {error}", returncode=2) from error

    @transaction.atomic
    def _first_admin(self) -> None:
        """Only while there is no account at all; the password is shown now and never again."""
        users = get_user_model().objects
        if users.exists():
            return
        password = secrets.token_urlsafe(15)
        user = users.create_superuser(ADMIN, password=password)
        Member.objects.update_or_create(user=user, defaults={"role": "admin"})
        change = f".venv/bin/python manage.py changepassword {ADMIN}"
        self.stdout.write(f"First login: {ADMIN} / {password}   (shown only now; change it with `{change}`)")
