from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand

from controlplane import settings


class Command(BaseCommand):
    help = "Runs the whole panel on this machine, with its own PostgreSQL and Valkey, until Ctrl-C."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Becomes the supervisor, which needs no Django and so stays small."""
        os.chdir(settings.BASE_DIR)
        os.execv(sys.executable, [sys.executable, "-m", "controlplane.embedded"])
