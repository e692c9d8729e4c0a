"""`makemigrations --check` without its question to a database, which a checkout need not have."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")


def main() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    warnings.filterwarnings("ignore", message="Got an error checking a consistent migration history")
    call_command("makemigrations", check=True, dry_run=True, skip_checks=True, verbosity=1)


if __name__ == "__main__":
    main()
