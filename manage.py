#!/usr/bin/env python
"""Django's command line with our settings."""

from __future__ import annotations

import os
import sys

from controlplane.env import or_exit


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    with or_exit():
        import controlplane.settings  # noqa: F401 - wrong settings are named before Django sees any
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
