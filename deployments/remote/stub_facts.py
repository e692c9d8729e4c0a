"""What a probe of two typical machines brings: a CPU host, and a host with eight H200. Data for the stub's nodes."""

from __future__ import annotations

import hashlib
from typing import Any

GIB = 1024**3
ENVIRONMENT = "/opt/vllm"


def cpu_host(name: str = "cpu-1", cores: int = 16) -> dict[str, Any]:
    """Raw facts of a machine without GPUs and with vLLM's CPU build in /opt/vllm."""
    facts = _machine(name, cores=cores, memory=64 * GIB, model="AMD EPYC 9354 32-Core Processor", sockets=1)
    facts["environment"] = environment(vllm="0.33.0+cpu", torch="2.11.0+cpu")
    return facts


def h200_host(name: str = "gpu-1", gpus: int = 8) -> dict[str, Any]:
    """Raw facts of a machine with H200 GPUs, two fast networks, and vLLM in /opt/vllm."""
    facts = _machine(name, cores=192, memory=2048 * GIB, model="Intel(R) Xeon(R) Platinum 8480C", sockets=2)
    facts["nvidia_smi"] = {"found": "/usr/bin/nvidia-smi", "xml": nvidia_smi_xml(name, gpus)} | _answered
    facts["nics"].append(_nic("ib0", name, mtu=4092, speed=400_000, network="10.1.0"))
    facts["tools"]["nvidia-smi"] = "/usr/bin/nvidia-smi"
    facts["environment"] = environment(vllm="0.33.0", torch="2.11.0+cu130", **{"nvidia-nccl-cu13": "2.29.7"})
    return facts


def environment(path: str = ENVIRONMENT, **packages: str) -> dict[str, Any]:
    """An engine environment that holds `packages`, Ray and the router."""
    return {
        "path": path,
        "python": f"{path}/bin/python",
        "python_version": "3.12.3",
        "executables": {name: f"{path}/bin/{name}" for name in ("vllm", "ray", "vllm-router")},
        "packages": {"ray": "2.60.0", "vllm-router": "0.1.17", **packages},
    }


def no_environment(path: str) -> dict[str, Any]:
    """A folder that is no engine environment."""
    executables = dict.fromkeys(("vllm", "ray", "vllm-router"))
    return {"path": path, "python": None, "python_version": None, "executables": executables, "packages": {}}


_answered = {"rc": 0, "stderr": "", "timed_out": False, "compute_capabilities": {}}
_absent = {**_answered, **dict.fromkeys(("found", "xml", "rc", "stderr"))}


def digits(text: str, length: int = 32) -> str:
    """Hex digits that are always the same for the same text."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def uuid_of(text: str) -> str:
    word = digits(text)
    return f"{word[:8]}-{word[8:12]}-{word[12:16]}-{word[16:20]}-{word[20:]}"


def _machine(name: str, *, cores: int, memory: int, model: str, sockets: int) -> dict[str, Any]:
    return {
        **_system(name),
        "cpu": {"model": model, **_cores(cores, sockets), "flags": ["avx2", "avx512f"]},
        "memory": {"total": memory, "available": memory * 9 // 10, "swap_total": 0, "swap_free": 0},
        "disks": [
            {"mount": "/", "fs": "ext4", "size": 900 * GIB, "free": 600 * GIB},
            {"mount": "/models", "fs": "xfs", "size": 7000 * GIB, "free": 5000 * GIB},
        ],
        "nics": [_nic("eth0", name, mtu=1500, speed=25_000, network="10.0.0")],
        "default_interface": "eth0",
        "ip_local_port_range": [32768, 60999],
        "listening": [22],
        "nvidia_smi": dict(_absent),
        "shm": {"size": memory // 2, "free": memory // 2},
        "limits": {"nofile": [1048576, 1048576], "memlock": [-1, -1], "nproc": [-1, -1]},
        "environment": None,
        "candidates": [ENVIRONMENT],
        **_account(name),
    }


def _system(name: str) -> dict[str, Any]:
    return {
        "hostname": name,
        "os": {"pretty": "Ubuntu 24.04.3 LTS", "id": "ubuntu", "version_id": "24.04"},
        "kernel": "6.8.0-79-generic",
        "arch": "x86_64",
        "python": {"version": "3.12.3", "executable": "/usr/bin/python3"},
        "boot_id": uuid_of(f"{name}/boot/1"),
        "machine_id": digits(f"{name}/machine"),
    }


def _account(name: str) -> dict[str, Any]:
    return {
        "login_shell": "/bin/bash",
        "home": "/home/pilot",
        "home_fs": "ext4",
        "state_dir": f"/home/pilot/.local/state/pilothouse/{digits(name, 12)}",
        "user": "pilot",
        "uid": 1000,
        "detach": {
            "kill_user_processes": False,
            "linger": False,
            "cgroup": "/user.slice/user-1000.slice/session-4.scope",
            "sshd_cgroup_kills": False,
            "systemd": True,
            "escapes": False,
            "in_container": False,
        },
        "tools": {name: f"/usr/bin/{name}" for name in _PRESENT} | dict.fromkeys(_MISSING),
    }


_PRESENT = ("ps", "ss", "ip", "git", "dmesg", "systemd-run", "numactl")
_MISSING = ("nvidia-smi", "ibstat", "docker")


def _cores(cores: int, sockets: int) -> dict[str, int]:
    return {"cores": cores, "threads": 2 * cores, "usable": cores, "sockets": sockets, "numa": sockets}


def _nic(nic: str, name: str, *, mtu: int, speed: int, network: str) -> dict[str, Any]:
    word = digits(f"{name}/{nic}", 12)
    return {
        "name": nic,
        "mac": ":".join(["02", *(word[place : place + 2] for place in range(2, 12, 2))]),
        "mtu": mtu,
        "up": True,
        "speed_mbps": speed,
        "addresses": [f"{network}.{int(word[:2], 16) % 250 + 2}/24"],
    }


_GPU = """\
	<gpu id="00000000:{bus:02X}:00.0">
		<product_name>NVIDIA H200</product_name>
		<product_brand>NVIDIA</product_brand>
		<product_architecture>Hopper</product_architecture>
		<persistence_mode>Enabled</persistence_mode>
		<mig_mode>
			<current_mig>Disabled</current_mig>
			<pending_mig>Disabled</pending_mig>
		</mig_mode>
		<mig_devices>
			None
		</mig_devices>
		<serial>{serial}</serial>
		<uuid>GPU-{uuid}</uuid>
		<minor_number>{minor}</minor_number>
		<pci>
			<pci_bus_id>00000000:{bus:02X}:00.0</pci_bus_id>
		</pci>
		<fan_speed>N/A</fan_speed>
		<performance_state>P0</performance_state>
		<fb_memory_usage>
			<total>143771 MiB</total>
			<reserved>616 MiB</reserved>
			<used>0 MiB</used>
			<free>143156 MiB</free>
		</fb_memory_usage>
		<compute_mode>Default</compute_mode>
		<utilization>
			<gpu_util>0 %</gpu_util>
			<memory_util>0 %</memory_util>
		</utilization>
		<ecc_mode>
			<current_ecc>Enabled</current_ecc>
			<pending_ecc>Enabled</pending_ecc>
		</ecc_mode>
		<temperature>
			<gpu_temp>33 C</gpu_temp>
			<memory_temp>38 C</memory_temp>
		</temperature>
		<gpu_power_readings>
			<power_state>P0</power_state>
			<average_power_draw>76.40 W</average_power_draw>
			<current_power_limit>700.00 W</current_power_limit>
		</gpu_power_readings>
		<clocks>
			<sm_clock>345 MHz</sm_clock>
			<mem_clock>3201 MHz</mem_clock>
		</clocks>
		<processes>
		</processes>
	</gpu>
"""
_BUSES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)


def nvidia_smi_xml(name: str, gpus: int) -> str:
    """`nvidia-smi -q -x` of idle H200s, with the elements that are read; the UUIDs belong to the host's name."""
    parts = [
        _GPU.format(
            bus=_BUSES[place % 8] + place // 8,
            serial=1_650_000_000_000 + place,
            uuid=uuid_of(f"{name}/gpu/{place}"),
            minor=place,
        )
        for place in range(gpus)
    ]
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        "\t<timestamp>Tue Dec  1 12:00:00 2026</timestamp>\n\t<driver_version>580.159.04</driver_version>\n"
        f"\t<cuda_version>13.0</cuda_version>\n\t<attached_gpus>{gpus}</attached_gpus>\n"
        f"{''.join(parts)}</nvidia_smi_log>\n"
    )


QWEN2_CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
}


def qwen2_folder() -> dict[str, Any]:
    """What `read_model` says of a folder with a 7B Qwen2 model, but for its path."""
    shards = [(f"model-{place:05}-of-00004.safetensors", size) for place, size in enumerate(_SHARD_BYTES, 1)]
    small = [("config.json", 663), ("generation_config.json", 243), ("model.safetensors.index.json", 27752)]
    files = [*small, *shards, ("tokenizer.json", 7031645), ("tokenizer_config.json", 7305)]
    return {
        "exists": True,
        "files": [{"name": name, "size": size, "mtime": 1_790_000_000.0} for name, size in sorted(files)],
        "config": dict(QWEN2_CONFIG),
        "config_error": None,
        "index_total_size": 15231233024,
        "generation_config": True,
    }


_SHARD_BYTES = (3945441440, 3864726352, 3864726424, 3556377672)


def host_key_blob(name: str) -> bytes:
    """An Ed25519 public key in SSH's form that belongs to the name; nobody has its private half."""
    kind, point = b"ssh-ed25519", bytes.fromhex(digits(f"{name}/host key", 64))
    return len(kind).to_bytes(4, "big") + kind + len(point).to_bytes(4, "big") + point
