"""The settings as the type checker's Django plug-in loads them: no secret is needed to look at types."""

import os

os.environ.setdefault("SECRET_KEY", "only for types 0123456789 abcdefghijklmnop")
os.environ.setdefault("FIELD_KEYS", "b25seS1mb3ItY2hlY2tzLTAxMjM0NTY3ODlhYmNkZWY=")

from controlplane.settings import *  # noqa: F403 - after the lines above
