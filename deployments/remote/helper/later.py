"""Modules of the standard library that are imported when they are first used.

A fresh connection is mostly imports, and few requests need all of them: a node should not pay for the others.
"""

import importlib


class Later:
    """Stands for the module `name`."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(importlib.import_module(self._name), attribute)
