"""`makemigrations --check` for a checkout without a database: models against migration files, nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")


def main() -> int:
    import django

    django.setup()
    missing = _changes()
    for app, migrations in missing.items():
        for operation in (operation for migration in migrations for operation in migration.operations):
            print(f"no migration yet: {app}: {operation.describe()}")
    return 1 if missing else 0


def _changes() -> dict:
    from django.apps import apps
    from django.db.migrations.autodetector import MigrationAutodetector
    from django.db.migrations.loader import MigrationLoader
    from django.db.migrations.state import ProjectState

    loader = MigrationLoader(None, ignore_no_migrations=True)
    return MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps)).changes(graph=loader.graph)


if __name__ == "__main__":
    sys.exit(main())
