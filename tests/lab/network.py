"""The lab's cables: a switch in a namespace of its own, one uplink to the machine, one link to each host.

10.77.N.0/25 is the visible network (hosts from .1, the switch .125, the machine itself .126); 10.77.N.128/25 is a
second one that only host 1 has a foot in (.129). Nothing is routed out of the lab.
"""

from __future__ import annotations

import re
import secrets
import subprocess
from dataclasses import dataclass

from tests.lab import needs
from tests.lab.folder import NETWORK

SWITCH, MACHINE, FOOT = 125, 126, 129
MAX_VISIBLE, MAX_HIDDEN = 120, 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host is plugged in: its number on its network, counted from 1."""

    number: int
    hidden: bool

    @property
    def port(self) -> str:
        return f"{'h' if self.hidden else 'p'}{self.number}"


class Network:
    """One lab's switch. All methods raise CalledProcessError-like RuntimeError naming what `ip` said."""

    def __init__(self, octet: int):
        self.octet = octet
        self.uplink = f"phl{octet}-{secrets.token_hex(2)}"
        self._switch: subprocess.Popen[bytes] | None = None

    @property
    def switch_pid(self) -> int:
        assert self._switch is not None, "the network is down"
        return self._switch.pid

    def address(self, place: Place) -> str:
        return self._ip(FOOT + place.number if place.hidden else place.number)

    @property
    def machine_address(self) -> str:
        """The address under which the hosts see the machine that runs the lab (and the panel on it)."""
        return self._ip(MACHINE)

    def _ip(self, last: int) -> str:
        return f"{NETWORK}.{self.octet}.{last}"

    def up(self) -> None:
        # `cat` holds the namespace and ends with our end of its pipe, however we die.
        argv = [needs.find("unshare"), "--net", "cat"]
        self._switch = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(b"\n")
        self._switch.stdin.flush()
        self._switch.stdout.readline()
        self._build()

    def _build(self) -> None:
        _ip_batch(
            None,
            f"link add {self.uplink} type veth peer name uplink netns {self.switch_pid}",
            f"addr add {self.machine_address}/24 dev {self.uplink}",
            f"link set {self.uplink} up",
        )
        _ip_batch(
            self.switch_pid,
            "link set lo up",
            "link add visible type bridge",
            "link add hidden type bridge",
            f"addr add {self._ip(SWITCH)}/25 dev visible",
            "link set uplink master visible up",
            "link set visible up",
            "link set hidden up",
            "route add unreachable default",
        )
        # Forwarding with nowhere to forward to: a packet for the world is answered at once instead of swallowed.
        in_network(self.switch_pid, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def down(self) -> None:
        if self._switch is None:
            return
        subprocess.run([needs.find("ip"), "link", "del", self.uplink], capture_output=True, check=False)
        self._switch.kill()
        self._switch.wait()
        for stream in (self._switch.stdin, self._switch.stdout):
            if stream:
                stream.close()
        self._switch = None

    def plug(self, cables: list[tuple[int, Place]], jump_pid: int | None = None) -> None:
        """Cables to hosts, given as (pid in the host's namespace, place); `jump_pid` gets one into the hidden net."""
        lines = []
        for pid, place in cables:
            lines += self._cable(pid, place.port, "eth0", place)
        if jump_pid is not None:
            lines += self._cable(jump_pid, "foot", "eth1", Place(0, True))
        _ip_batch(self.switch_pid, *lines)

    def _cable(self, pid: int, port: str, interface: str, place: Place) -> list[str]:
        # A host keeps its hardware address over a reboot, or its neighbours would talk to the old one for a while.
        mac = f"02:77:{self.octet:02x}:{int(place.hidden):02x}:00:{place.number:02x}"
        bridge = "hidden" if place.hidden else "visible"
        return [
            f"link add {port} type veth peer name {interface} address {mac} netns {pid}",
            f"link set {port} master {bridge} up",
        ]

    def unplug_for_good(self, place: Place, foot: bool) -> None:
        """Take the cables of a host that is off away, which the kernel would do only some time later."""
        for port in [place.port, *(["foot"] if foot else [])]:
            in_network(self.switch_pid, "ip", "link", "del", port, check=False)

    def inside(self, place: Place, foot: bool) -> list[str]:
        """What the host itself has to tell `ip`. `foot`: it also stands in the hidden network."""
        gateway = self._ip(FOOT if place.hidden else SWITCH)
        lines = ["link set lo up", f"addr add {self.address(place)}/25 dev eth0", "link set eth0 up"]
        if foot:
            lines += [f"addr add {self._ip(FOOT)}/25 dev eth1", "link set eth1 up"]
        return [*lines, f"route add default via {gateway}"]

    def unplug(self, place: Place) -> None:
        _ip_batch(self.switch_pid, f"link set {place.port} down")

    def replug(self, place: Place) -> None:
        _ip_batch(self.switch_pid, f"link set {place.port} up")

    def slow(self, place: Place, rate: str | None) -> None:
        """Limit what reaches the host to `rate` (as tc writes it: 1mbit); None lifts the limit.

        Raises LabUnavailable when this kernel has no tbf.
        """
        if rate is None:
            in_network(self.switch_pid, "tc", "qdisc", "del", "dev", place.port, "root", check=False)
            return
        shape = [
            "tc",
            "qdisc",
            "replace",
            "dev",
            place.port,
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            "16kb",
            "latency",
            "400ms",
        ]
        done = in_network(self.switch_pid, *shape, check=False)
        if "qdisc kind is unknown" in done.stderr:
            raise needs.LabUnavailable("a slow link: this kernel has no tbf")
        if done.returncode != 0:
            raise RuntimeError(f"tc: {done.stderr.strip()}")

    def shape_of(self, place: Place) -> str:
        """What tc shows for the host's link."""
        return in_network(self.switch_pid, "tc", "qdisc", "show", "dev", place.port).stdout


def in_network(pid: int, *argv: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program of the machine inside the network namespace of `pid`."""
    command = [needs.find("nsenter"), "-t", str(pid), "-n", *argv]
    done = subprocess.run(
        command, input=text, text=True, capture_output=True, check=False, env={"PATH": needs.SEARCH_PATH}
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done


def drop(pid: int, direction: str | None, peer: str | None) -> None:
    """Have the host drop what comes "in", goes "out", or both (None); of one `peer` address or of everybody."""
    wanted = [direction] if direction else ["in", "out"]
    chains = [_chain(each, peer) for each in wanted]
    table = "table inet lab_cut {\n" + "\n".join(chains) + "\n}\n"
    in_network(pid, "nft", "-f", "-", text="table inet lab_cut\ndelete table inet lab_cut\n" + table)


def drop_nothing(pid: int) -> None:
    in_network(pid, "nft", "-f", "-", text="table inet lab_cut\ndelete table inet lab_cut\n")


def _chain(direction: str, peer: str | None) -> str:
    if direction not in ("in", "out"):
        raise ValueError(f'direction is "in", "out" or None, not {direction!r}')
    hook, interface, side = ("input", "iifname", "saddr") if direction == "in" else ("output", "oifname", "daddr")
    if peer is not None and not re.fullmatch(r"[0-9.]+", peer):
        raise ValueError(f"not an IPv4 address: {peer!r}")
    match = f"ip {side} {peer} " if peer else ""
    return f'chain {hook} {{ type filter hook {hook} priority -10; {interface} != "lo" {match}drop; }}'


def _ip_batch(pid: int | None, *lines: str) -> None:
    argv = [needs.find("ip"), "-batch", "-"]
    text = "".join(line + "\n" for line in lines)
    if pid is not None:
        in_network(pid, *argv, text=text)
        return
    done = subprocess.run(argv, input=text, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip: {done.stderr.strip()}")
