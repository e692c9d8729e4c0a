"""Network interfaces and ports of this machine."""

import fcntl
import os
import re
import socket
import struct

from . import programs
from .paths import read_text

_SYS = "/sys/class/net"
_ADDRESS, _NETMASK = 0x8915, 0x891B
_IP_S = 3.0


def interfaces():
    """[{"name", "mac", "mtu", "up", "speed_mbps", "addresses"}] with addresses as address/prefix."""
    addresses = _addresses()
    names = sorted(name for name in os.listdir(_SYS) if os.path.exists(os.path.join(_SYS, name, "mtu")))
    return [_interface(name, addresses.get(name, [])) for name in names]


def _interface(name, addresses):
    def value(file):
        return read_text(os.path.join(_SYS, name, file))

    mtu, speed = value("mtu"), value("speed")
    return {
        "name": name,
        "mac": value("address") or None,
        "mtu": int(mtu) if mtu and mtu.isdigit() else None,
        # Loopback and tunnels say "unknown"; they are up when the flag says so.
        "up": bool(int(value("flags") or "0", 16) & 1) and value("operstate") not in ("down", "lowerlayerdown"),
        "speed_mbps": int(speed) if speed and speed.isdigit() else None,
        "addresses": addresses,
    }


def _addresses():
    path = programs.which("ip")
    done = programs.run([path, "-o", "addr", "show"], _IP_S) if path else None
    if done is None or done.rc != 0:
        return {name: _ask_kernel(name) for name in os.listdir(_SYS)}
    found = {}
    for name, address in re.findall(r"^\d+:\s+(\S+)\s+inet6?\s+(\S+)", done.out, re.M):
        # A point-to-point address comes without its prefix.
        found.setdefault(name, []).append(address if "/" in address else address + "/32")
    return found


def _ask_kernel(name):
    """An interface's first IPv4 address, for machines without the ip program."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("256s", name[:15].encode())
        try:
            address, mask = (fcntl.ioctl(sock.fileno(), code, request)[20:24] for code in (_ADDRESS, _NETMASK))
        except OSError:
            return []
    prefix = bin(int.from_bytes(mask, "big")).count("1")
    return ["%s/%d" % (socket.inet_ntoa(address), prefix)]


def default_interface():
    """The interface of the default route, IPv4 first, or None."""
    for line in (read_text("/proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == "00000000" and words[7] == "00000000":
            return words[0]
    for line in (read_text("/proc/net/ipv6_route") or "").splitlines():
        words = line.split()
        if len(words) > 9 and words[1] == "00" and words[0] == "0" * 32 and words[9] != "lo":
            return words[9]
    return None


def ephemeral_ports():
    """[first, last] of the ports the kernel gives out by itself, or None."""
    text = read_text("/proc/sys/net/ipv4/ip_local_port_range")
    return [int(word) for word in text.split()] if text else None
