"""Which GPUs a machine has: places on the bus, and names for those that tell nothing themselves."""

from __future__ import annotations

from pathlib import Path

from deployments.remote.helper.inventory import Inventory, bus_id, device

LOST = "GPU is lost."


def gpu(uuid: str, bus: str) -> tuple:
    return device(uuid=uuid, bus_id=bus_id(bus), name="H100", memory_total=80), []


def lost(uuid: str | None = None, bus: str | None = None) -> tuple:
    return device(uuid=uuid, bus_id=bus_id(bus), lost=LOST), []


def told(devices: list[dict]) -> list[tuple]:
    return [(found["index"], found["uuid"], found["bus_id"], found["lost"]) for found in devices]


def bound(folder: Path, **uuids: str) -> str:
    """The driver's list of what it was bound to, by bus number."""
    for bus, uuid in uuids.items():
        (folder / f"0000:{bus}:00.0").mkdir()
        (folder / f"0000:{bus}:00.0" / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\n")
    return str(folder)


def test_bus_addresses_of_old_and_new_tools_are_the_same():
    assert bus_id("0000:ba:00.0") == bus_id("00000000:BA:00.0") == "00000000:BA:00.0"
    assert bus_id("F:01:00.0") == "0000000F:01:00.0"
    assert bus_id(None) is bus_id("") is None


def test_a_gpu_lost_before_anybody_saw_it_is_named_by_the_drivers_list(tmp_path):
    inventory = Inventory(bound(tmp_path, **{"18": "GPU-aa", "5d": "GPU-bb", "BA": "GPU-cc"}))
    found = inventory.complete([gpu("GPU-cc", "0000:BA:00.0"), lost(), gpu("GPU-aa", "0000:18:00.0")])
    assert told(found) == [
        (0, "GPU-aa", "00000000:18:00.0", None),
        (1, "GPU-bb", "00000000:5D:00.0", LOST),
        (2, "GPU-cc", "00000000:BA:00.0", None),
    ]
    assert found[1]["name"] == "NVIDIA H100"


def test_a_list_that_does_not_know_the_uuid_tells_at_least_the_place(tmp_path):
    inventory = Inventory(bound(tmp_path, **{"18": "GPU-aa", "5D": "GPU-????????-????-????-????-????????????"}))
    found = inventory.complete([gpu("GPU-aa", "0000:18:00.0"), lost()])
    assert told(found)[1] == (1, "lost-00000000:5D:00.0", "00000000:5D:00.0", LOST)


def test_a_list_that_leaves_a_choice_names_nobody(tmp_path):
    inventory = Inventory(bound(tmp_path, **{"18": "GPU-aa", "5D": "GPU-bb"}))
    assert told(inventory.complete([lost()])) == [(0, "lost-0", None, LOST)]


def test_a_lost_gpu_is_recognised_by_its_place_and_comes_back(tmp_path):
    inventory = Inventory(str(tmp_path / "none"))
    whole = [gpu("GPU-a", "0000:18:00.0"), gpu("GPU-b", "0000:5D:00.0")]
    inventory.complete(whole)
    found = inventory.complete([lost(bus="0000:18:00.0"), whole[1]])
    assert told(found)[0] == (0, "GPU-a", "00000000:18:00.0", LOST)
    assert (found[0]["name"], found[0]["memory_total"]) == ("H100", 80)
    assert [each["lost"] for each in inventory.complete(whole)] == [None, None]


def test_of_a_failed_reading_only_the_identities_stay(tmp_path):
    inventory = Inventory(str(tmp_path / "none"))
    inventory.complete([(device(uuid="GPU-a", bus_id=bus_id("0000:18:00.0"), power_w=300.0), [])])
    found = inventory.blank({bus_id("0000:18:00.0"): LOST, bus_id("0000:BA:00.0"): LOST})
    assert told(found) == [
        (0, "GPU-a", "00000000:18:00.0", LOST),
        (1, "lost-00000000:BA:00.0", "00000000:BA:00.0", LOST),
    ]
    assert found[0]["power_w"] is None
