from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from deployments.domain.errors import PilothouseError
from deployments.services import access


class Command(BaseCommand):
    help = "Makes an API token for a user and prints it, once: automation's first token, without a browser."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, help="whose token it is; it never may do more than its user")
        parser.add_argument("--scope", default="viewer", choices=list(access.Role.__members__))
        parser.add_argument("--days", type=int, default=30, help="until it expires (default 30)")
        parser.add_argument("--name", default="command line", help="what the list of tokens calls it")

    def handle(self, *args: Any, **options: Any) -> None:
        """The token alone goes to standard output, so that a script can take it."""
        user = get_user_model().objects.filter(username=options["user"]).first()
        actor = access.actor_of_user(user) if user is not None else None
        if actor is None:
            raise CommandError(f"There is no active user {options['user']!r}.")
        try:
            _, text = access.create_token(actor, name=options["name"], scope=options["scope"], days=options["days"])
        except PilothouseError as error:
            raise CommandError(f"{error.message} {error.remedy}".strip()) from error
        self.stdout.write(text)
