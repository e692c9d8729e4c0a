"""The first words a node's Python hears: receive the other modules from stdin and run them from memory.

The text of this file is handed to `python -c`. It must parse on Python 2.7, so that an interpreter that is too old can
say so instead of failing with a syntax error. It reads exactly its own bytes from stdin: frames follow them.
"""

import sys

OLDEST = (3, 8)


class Sources(object):
    """Imports modules from a dictionary of their sources, or of what they were compiled to for this Python."""

    def __init__(self, modules):
        self.modules = modules

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        from importlib.machinery import ModuleSpec

        is_package = any(other.startswith(name + ".") for other in self.modules)
        return ModuleSpec(name, self, is_package=is_package)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__spec__.name
        code = self.modules[name]
        if not hasattr(code, "co_code"):
            code = compile(code, name.replace(".", "/") + ".py", "exec")
        exec(code, module.__dict__)

    def get_source(self, name):
        source = self.modules.get(name)
        return None if hasattr(source, "co_code") else source


def say(word, nonce, text):
    import os

    os.write(1, ("\n%s %s %s\n" % (word, nonce, text)).encode("ascii", "replace"))


def exactly(count):
    import os

    parts = []
    while count:
        part = os.read(0, min(count, 65536))
        if not part:
            sys.exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive():
    import json
    import marshal
    import zlib

    data = zlib.decompress(exactly(int(exactly(8), 16)))
    return json.loads(data.decode("utf-8")) if data[:2] == b'{"' else marshal.loads(data)


def code_format():
    """What tells whether code compiled elsewhere is good here: it changes with each version of Python."""
    from _frozen_importlib_external import MAGIC_NUMBER

    return MAGIC_NUMBER.hex()


def boot(nonce):
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < OLDEST:
        say("PHFAIL", nonce, "INTERPRETER_TOO_OLD " + version)
        sys.exit(1)
    try:
        for needed in ("ctypes", "fcntl", "json", "select", "zlib"):
            __import__(needed)
    except ImportError as error:
        say("PHFAIL", nonce, "INTERPRETER_UNFIT %s lacks %s" % (version, error))
        sys.exit(1)
    say("PHBOOT", nonce, version + " " + code_format())
    from importlib import import_module

    bundle = receive()
    sys.meta_path.insert(0, Sources(bundle["modules"]))
    import_module(bundle["main"]).main(nonce, bundle)


if __name__ == "__main__":
    # The login folder must not shadow the standard library: drop it before the first real import.
    sys.path[:] = [folder for folder in sys.path if folder]
    boot(sys.argv[1])
