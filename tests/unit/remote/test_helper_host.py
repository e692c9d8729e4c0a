"""Figures of a host from the kernel's files: rates, resets, what is shown and what is not, and mounts that hang."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest

from deployments.remote.helper import host, slowly
from deployments.remote.helper.host import Machine, Stream
from monitoring.domain.samples import Host

DEADLINE_S = 20.0
MEMINFO = """MemTotal:  2000 kB
MemFree:  1 kB
MemAvailable:  1500 kB
SwapTotal:  500 kB
SwapFree:  400 kB
HugePages_Total:  0
"""
NET_HEAD = "Inter-|   Receive\n face |bytes\n"


class Files:
    """A machine of files that a test writes."""

    def __init__(self, root: Path) -> None:
        self.proc, self.sys = root / "proc", root / "sys"
        self.now = 100.0
        self.put("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\nintr 5\n")
        self.put("proc/meminfo", MEMINFO)
        self.put("proc/vmstat", "nr_free 1\npswpin 10\npswpout 20\noom_kill 2\n")
        self.disks("sda", read=100, write=200, busy=1000)
        self.network("eth0", rx=1000, tx=2000)
        self.put("sys/block/sda/device")
        self.stream = Stream(Machine(str(self.proc), str(self.sys)), lambda: self.now)

    def put(self, name: str, text: str = "") -> None:
        path = self.proc.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def disks(self, *names: str, read: int = 0, write: int = 0, busy: int = 0) -> None:
        rows = [f" 8 0 {name} 5 0 {read} 7 5 0 {write} 7 0 {busy} 9 0 0 0 0" for name in names]
        self.put("proc/diskstats", "\n".join(rows) + "\n")

    def network(self, *names: str, rx: int = 0, tx: int = 0, errors: str = "1 2") -> None:
        rows = [f"{name:>6}: {rx} 9 {errors} 0 0 0 0 {tx} 9 3 4 0 0 0 0" for name in names]
        self.put("proc/net/dev", NET_HEAD + "\n".join(rows) + "\n")

    def sample(self, after: float = 0.0) -> Host:
        self.now += after
        return msgspec.convert(self.stream.sample(), Host)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_the_first_report_has_what_stands_and_no_rates(files):
    first = files.sample()
    assert (first.memory_total, first.memory_available) == (2000 * 1024, 1500 * 1024)
    assert (first.swap_total, first.swap_free, first.oom_kills) == (500 * 1024, 400 * 1024, 2)
    assert first.cpu is first.swap_in_bps is first.swap_out_bps is None
    assert [(disk.name, disk.read_bps, disk.write_bps, disk.busy) for disk in first.disks] == [
        ("sda", None, None, None)
    ]
    assert [(net.name, net.rx_bps, net.tx_bps, net.errors) for net in first.networks] == [("eth0", None, None, 10)]


def test_rates_are_over_the_time_between_two_reports(files):
    files.sample()
    files.put("proc/stat", "cpu  150 0 100 850 0 0 0 0 0 0\n")
    files.put("proc/vmstat", "pswpin 12\npswpout 20\noom_kill 3\n")
    files.disks("sda", read=104, write=200, busy=1500)
    files.network("eth0", rx=5000, tx=2000)
    second = files.sample(after=2.0)
    assert (second.cpu, second.oom_kills) == (50.0, 3)
    assert (second.swap_in_bps, second.swap_out_bps) == (host.PAGE, 0.0)
    assert (second.disks[0].read_bps, second.disks[0].write_bps, second.disks[0].busy) == (1024.0, 0.0, 25.0)
    assert (second.networks[0].rx_bps, second.networks[0].tx_bps) == (2000.0, 0.0)


def test_a_counter_that_went_back_is_null_and_the_next_rate_is_right(files):
    files.sample()
    files.put("proc/stat", "cpu  1 0 1 8 0 0 0 0 0 0\n")
    files.put("proc/vmstat", "pswpin 0\npswpout 0\n")
    files.disks("sda", read=0, write=0, busy=0)
    files.network("eth0", rx=0, tx=0)
    reset = files.sample(after=1.0)
    assert reset.cpu is reset.swap_in_bps is reset.swap_out_bps is reset.oom_kills is None
    assert reset.disks[0].read_bps is reset.disks[0].busy is reset.networks[0].rx_bps is None
    files.network("eth0", rx=500)
    assert files.sample(after=1.0).networks[0].rx_bps == 500.0


def test_a_disk_or_interface_that_comes_or_goes_harms_nothing(files):
    files.sample()
    files.put("sys/block/nvme0n1/device")
    files.disks("nvme0n1", read=5)
    files.network("eth0", "eth1")
    second = files.sample(after=1.0)
    assert [(disk.name, disk.read_bps) for disk in second.disks] == [("nvme0n1", None)]
    assert [net.name for net in second.networks] == ["eth0", "eth1"]
    files.network("eth1")
    assert [net.name for net in files.sample(after=1.0).networks] == ["eth1"]


def test_a_report_a_moment_later_repeats_the_rates_instead_of_rounding_errors(files):
    files.sample()
    files.network("eth0", rx=3000)
    assert files.sample(after=2.0).networks[0].rx_bps == 1000.0
    files.network("eth0", rx=3001)
    assert files.sample(after=0.01).networks[0].rx_bps == 1000.0


def test_two_streams_do_not_take_each_others_time(files):
    other = Stream(Machine(str(files.proc), str(files.sys)), lambda: files.now)
    files.sample()
    other.sample()
    files.network("eth0", rx=3000)
    files.sample(after=1.0)
    files.network("eth0", rx=5000)
    files.now += 1.0
    assert other.sample()["networks"][0]["rx_bps"] == 2000.0


def test_only_whole_real_disks_are_shown(files):
    files.put("sys/block/nvme0n1/device")
    files.put("sys/block/cciss!c0d0/device")
    for name in ("loop0", "dm-0", "md0", "zram0", "sr0"):
        files.put(f"sys/block/{name}/size")
    files.put("sys/block/sr0/device")
    files.disks("sda", "sda1", "nvme0n1", "nvme0n1p2", "cciss/c0d0", "loop0", "dm-0", "md0", "zram0", "sr0")
    assert [disk.name for disk in files.sample().disks] == ["cciss/c0d0", "nvme0n1", "sda"]


def test_without_sys_whole_disks_are_told_by_name(tmp_path):
    files = Files(tmp_path)
    files.stream = Stream(Machine(str(files.proc), str(tmp_path / "none")), lambda: files.now)
    files.disks("sda", "sda1", "vdb", "nvme0n1", "nvme0n1p1", "dm-0", "loop3")
    assert [disk.name for disk in files.sample().disks] == ["nvme0n1", "sda", "vdb"]


def test_interfaces_of_containers_are_hidden_and_real_ones_never(files):
    for name in ("tap9", "dummy-port"):
        files.put(f"sys/class/net/{name}/device")
    real = ["bond0", "dummy-port", "enp3s0f0", "eth0", "eth0.7", "hsn0", "ib0", "ibp12s0", "tap9", "wg0"]
    noise = [
        "lo",
        "veth12ab",
        "docker0",
        "br-1234",
        "virbr0",
        "cali77",
        "cni0",
        "flannel.1",
        "ifb0",
        "tunl0",
        "kube-ipvs0",
    ]
    files.network(*noise, *real)
    assert [net.name for net in files.sample().networks] == real


def test_where_there_are_only_virtual_interfaces_they_are_shown(files):
    files.network("lo", "veth1")
    assert [net.name for net in files.sample().networks] == ["veth1"]


def test_the_speed_of_an_interface_is_looked_up_beside_the_reports(files):
    files.put("sys/class/net/eth0/speed", "200000\n")
    files.put("sys/class/net/ib0/speed", "-1\n")
    files.network("eth0", "ib0")
    files.sample()
    found = _later(lambda: [net.speed_mbps for net in files.sample(after=1.0).networks], lambda speeds: speeds[0])
    assert found == [200000.0, None]


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu  a b c\n", "\0\0\0", "cpu0 1 2 3 4 5 6 7 8\n"])
def test_kernel_files_of_another_form_cost_only_their_figures(files, text):
    for name in ("stat", "vmstat", "diskstats", "net/dev", "meminfo", "self/cgroup"):
        files.put(f"proc/{name}", text)
    for after in (0.0, 1.0):
        found = files.sample(after)
        assert found.cpu is found.memory_total is found.disks is found.networks is found.oom_kills is None
    assert found.load is not None


def test_missing_kernel_files_are_null(tmp_path):
    found = msgspec.convert(Stream(Machine(str(tmp_path / "a"), str(tmp_path / "b"))).sample(), Host)
    assert found.cpu is found.memory_total is found.disks is found.networks is None
    assert found.cores


@pytest.mark.parametrize(
    ("groups", "limits", "cores"),
    [
        ("0::/\n", {}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000", "a/cpu.max": "300000 100000"}, 1),
        ("0::/a\n", {"a/cpu.max": "50000 100000"}, 1),
        ("0::/../..\n", {"cpu.max": "400000 100000"}, 4),
        (
            "4:memory:/m\n2:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"},
            2,
        ),
        ("2:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 8),
        ("0::/a\n", {"a/cpu.max": "900000 100000"}, 8),
        ("0::/a\n", {"a/cpu.max": "100000 0"}, 8),
    ],
)
def test_cores_are_those_that_may_be_used(files, monkeypatch, groups, limits, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    files.put("proc/self/cgroup", groups)
    for name, text in limits.items():
        files.put(f"sys/fs/cgroup/{name}", text + "\n")
    assert files.sample().cores == cores


MOUNTS = [
    ("/", "ext4", "/dev/sda1"),
    ("/home", "ext4", "/dev/sda2"),
    ("/home/bind", "ext4", "/dev/sda2"),
    ("/etc/hosts", "ext4", "/dev/sda3"),
    ("/proc", "proc", "proc"),
    ("/dev/shm", "tmpfs", "tmpfs"),
    ("/run", "tmpfs", "tmpfs"),
    ("/snap/core/1", "squashfs", "/dev/loop0"),
    ("/data", "nfs4", "server:/data"),
    ("/old", "ext4", "/dev/sdb1"),
    ("/old", "xfs", "/dev/sdc1"),
    ("/var/lib/docker/overlay2/x/merged", "overlay", "overlay"),
]


def test_each_place_with_room_is_shown_once(monkeypatch):
    monkeypatch.setattr("deployments.remote.helper.paths.mounts", lambda: MOUNTS)
    monkeypatch.setattr("os.statvfs", lambda _: pytest.fail("not asked in the report's own thread"))
    monkeypatch.setattr("threading.Thread.start", lambda _: None)
    found = Machine().filesystems()
    assert [room["mount"] for room in found] == ["/", "/data", "/dev/shm", "/home", "/old"]
    assert all(room["size"] is None and room["free"] is None for room in found)


def test_the_root_of_a_container_is_shown(monkeypatch):
    monkeypatch.setattr("deployments.remote.helper.paths.mounts", lambda: [("/", "overlay", "overlay")])
    found = _later(Machine().filesystems, lambda rooms: rooms[0]["size"])
    assert 0 < found[0]["free"] <= found[0]["size"]


def test_a_mount_that_hangs_is_null_costs_one_thread_and_blocks_nothing(monkeypatch):
    released, looks = threading.Event(), []
    real = host._room

    def room(point: str) -> dict:
        if point == "/gone":
            looks.append(point)
            released.wait(DEADLINE_S)
            return {"size": 10, "free": 5}
        return real(point)

    monkeypatch.setattr(host, "_room", room)
    monkeypatch.setattr(slowly, "AGAIN_S", 0.0)
    monkeypatch.setattr("deployments.remote.helper.paths.mounts", lambda: [*MOUNTS[:1], ("/gone", "nfs4", "server:/x")])
    machine = Machine()
    found = _later(machine.filesystems, lambda rooms: rooms[0]["size"])
    for _ in range(20):
        assert machine.filesystems()[1] == {"mount": "/gone", "size": None, "free": None}
    assert (found[0]["mount"], looks) == ("/", ["/gone"])
    released.set()
    assert _later(machine.filesystems, lambda rooms: rooms[1]["size"])[1] == {"mount": "/gone", "size": 10, "free": 5}


def test_a_value_whose_look_up_begins_to_hang_is_not_shown_any_more():
    now, released, answers = [0.0], threading.Event(), iter((1, 2))

    def look() -> int:
        if (answer := next(answers)) == 2:
            released.wait(DEADLINE_S)
        return answer

    value = slowly.Slowly(look, lambda: now[0])
    assert _later(value.value, bool) == 1
    now[0] = slowly.AGAIN_S
    assert value.value() == 1
    now[0] += slowly.HANGS_S + 0.1
    assert value.value() is None
    released.set()
    assert _later(value.value, bool) == 2


def test_a_look_up_that_fails_is_null():
    def look() -> int:
        raise OSError("stale file handle")

    value = slowly.Slowly(look)
    assert value.value() is None
    _later(lambda: value._found_at, bool)
    assert value.value() is None


def _later(look, good):
    """What `look` gives once `good` likes it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        seen = look()
        if seen is not None and good(seen):
            return seen
        time.sleep(0.01)
    raise AssertionError(f"still {look()!r}")
