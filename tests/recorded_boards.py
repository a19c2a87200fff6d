"""Trees of /proc and /sys as real boards show them, and the real probing script run against one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from armload.boards.board import Board
from armload.boards.probe import Probe, parse_probe, probe_script
from armload.core.shell import quote
from armload.core.values import parse_bytes
from tests.sysfs import write_tree

RECORDED: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)

_POLICY_KHZ, _DEVICE_HZ = 1000, 1_000_000


def numbers(text: str) -> range:
    first, _, last = str(text).partition("-")
    return range(int(first), int(last or first) + 1)


def _kib(size: str) -> int:
    return int(str(parse_bytes(f"{size[:-1]} {size[-1]}iB"))) // 1024


def _proc(board: dict[str, Any]) -> dict[str, object]:
    cores = [core for core in board["cores"] for _ in range(core["count"])]
    memory = board["memory"]
    total, available = _kib(memory["total"]), _kib(memory["available"])
    swaps = [*board.get("swaps", ())]
    sizes = [[int(word) for word in line.split()[2:4]] for line in swaps]
    return {
        "sys/kernel/random/boot_id": "0d5e7a0c-5a3c-4b6e-9c39-6a5f0b9d2c11",
        "uptime": "2580.11 9911.02",
        "loadavg": "0.10 0.05 0.01 1/412 2213",
        "meminfo": f"MemTotal: {total} kB\nMemFree: {available} kB\nMemAvailable: {available} kB\n"
        f"SwapTotal: {sum(size for size, _ in sizes)} kB\n"
        f"SwapFree: {sum(size - used for size, used in sizes)} kB",
        "cpuinfo": "\n".join(
            f"processor\t: {number}\nBogoMIPS\t: 50.00\nFeatures\t: {board['features']}\n"
            f"CPU implementer\t: {core.get('implementer', '0x41')}\nCPU architecture: 8\n"
            f"CPU variant\t: 0x0\nCPU part\t: {core['part']}\nCPU revision\t: 1\n"
            for number, core in enumerate(cores)
        ),
        "mounts": "/dev/root / ext4 rw,noatime 0 0",
        "swaps": "\n".join(["Filename Type Size Used Priority", *swaps]).replace(" ", "\t"),
    }


def _policies(board: dict[str, Any]) -> dict[str, object]:
    files: dict[str, object] = {}
    for policy in board.get("policies", ()):
        groups = [numbers(policy["cores"])] if "cores" in policy else []
        groups += [range(core, core + 1) for core in numbers(policy.get("each", "1-0"))]
        for group in groups:
            folder = f"devices/system/cpu/cpufreq/policy{group.start}"
            files |= {
                f"{folder}/affected_cpus": " ".join(map(str, group)),
                f"{folder}/scaling_governor": "ondemand",
                f"{folder}/scaling_cur_freq": policy["min"] * _POLICY_KHZ,
                f"{folder}/cpuinfo_max_freq": policy["max"] * _POLICY_KHZ,
                f"{folder}/scaling_max_freq": policy.get("limit", policy["max"]) * _POLICY_KHZ,
            }
    return files


def _devices(board: dict[str, Any]) -> dict[str, object]:
    files: dict[str, object] = {}
    for name, device in board.get("devices", {}).items():
        folder = f"class/devfreq/{name}"
        files |= {
            f"{folder}/governor": device["governor"],
            f"{folder}/cur_freq": device["mhz"] * _DEVICE_HZ,
            f"{folder}/min_freq": device["steps"][0] * _DEVICE_HZ,
            f"{folder}/max_freq": device["steps"][-1] * _DEVICE_HZ,
            f"{folder}/available_frequencies": " ".join(
                str(mhz * _DEVICE_HZ) for mhz in device["steps"]
            ),
        }
    return files


def _sys(board: dict[str, Any]) -> dict[str, object]:
    files = _policies(board) | _devices(board)
    shown = [
        (name, celsius if celsius == "no answer" else round(celsius * 1000))
        for name, celsius in board.get("sensors", {}).items()
    ]
    for zone, (name, raw) in enumerate([*shown, *board.get("zones", ())]):
        folder = f"class/thermal/thermal_zone{zone}"
        files[f"{folder}/type"] = name
        if raw != "no answer":
            files[f"{folder}/temp"] = raw
    for number, (name, state) in enumerate(board.get("cooling", {}).items()):
        folder = f"class/thermal/cooling_device{number}"
        files |= {f"{folder}/type": name, f"{folder}/cur_state": state}
    for node, cores in enumerate(board.get("nodes", ())):
        kib = _kib(board["memory"]["total"]) // len(board["nodes"])
        folder = f"devices/system/node/node{node}"
        files |= {
            f"{folder}/cpulist": cores,
            f"{folder}/meminfo": f"Node {node} MemTotal: {kib} kB\nNode {node} MemFree: {kib} kB",
        }
    if board.get("is_server"):
        files["class/dmi/id/product_name"] = board["device"]
    else:
        files["firmware/devicetree/base/model"] = f"{board['device']}\0"
    recorded: dict[str, object] = board.get("files", {})
    return files | recorded


def recorded_tree(name: str, folder: Path) -> Path:
    """Write what a board shows below a folder, with tools that say which kernel it has."""
    board = RECORDED[name]
    write_tree(folder / "proc", _proc(board))
    write_tree(folder / "sys", _sys(board))
    df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/root 9000 3000 6000 33% /"
    for tool, words in (("uname", board["kernel"]), ("df", df)):
        path = folder / "bin" / tool
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {quote(words)}\n")
        path.chmod(0o755)
    return folder


def board_of(name: str, workdir: Path) -> Board:
    return Board.model_validate(
        {
            "name": name,
            "target": RECORDED[name].get("target", "armv8-generic"),
            "reach": {"kind": "ssh", "host": "unused"},
            "workdir": str(workdir),
        }
    )


def probed(name: str, folder: Path, shell: str) -> Probe:
    """Run the probing script, as a board gets it, with a recorded board's files in their place."""
    root = recorded_tree(name, folder / "root")
    board = board_of(name, folder / "work")
    # Nothing else of the script differs from what a board runs.
    places = r"(?<![\w.])/(proc|sys)/"
    script = re.sub(places, lambda found: f"{root}/{found[1]}/", probe_script(board))
    words = ["busybox", "sh"] if shell == "busybox" else [shell]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(
        words,
        input=script.encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}"},
    )
    return parse_probe(done.stdout, name, done.stderr)
