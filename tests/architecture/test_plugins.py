"""A plug-in is one file and its examples; without an example it does not count."""

from __future__ import annotations

import json

from deployments.domain import layouts, platforms
from deployments.domain.plugins import discover
from tests.architecture.test_sizes import BASE

LAYOUTS = discover(layouts, "LAYOUT", "kind")
PLATFORMS = discover(platforms, "PLATFORM", "name")
GOLDEN = BASE / "tests" / "golden" / "layouts"


def test_every_layout_has_an_example() -> None:
    assert [name for name in LAYOUTS if not list((GOLDEN / name).glob("*.json"))] == []


def test_every_platform_is_in_an_example() -> None:
    shown = {json.loads(path.read_text()).get("node", {}).get("platform") for path in GOLDEN.rglob("*.json")}
    assert set(PLATFORMS) <= shown


def test_every_file_of_a_plug_in_folder_is_a_plug_in_of_its_name() -> None:
    folders = {"layouts": LAYOUTS, "platforms": PLATFORMS}
    for folder, found in folders.items():
        files = {path.stem for path in (BASE / "deployments" / "domain" / folder).glob("*.py")} - {"__init__"}
        assert files == set(found)
