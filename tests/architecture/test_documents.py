"""Documents that a reader follows have to be true."""

from __future__ import annotations

import re

from tests.architecture.test_sizes import BASE, SOURCES

READ = re.compile(r'(?:_env\.\w+|_secret)\(\s*"([A-Z_]+)"')


def test_every_setting_is_documented_and_no_other() -> None:
    documented = re.findall(r"^\| `([A-Z_]+)` ", (BASE / "docs" / "settings.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(set(READ.findall(SOURCES["controlplane/settings.py"])))


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = []
    for document in (*BASE.glob("*.md"), *(BASE / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            if not (document.parent / target).exists():
                broken.append(f"{document.name}: {target}")
    assert broken == []
