"""Our programs that measure a board and keep others to its cores, here and under an emulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from armload.build.helper import PIN, RATES, WATCH, helper
from armload.build.inspection import inspect
from armload.build.target import machine_architecture
from armload.core.shell import quote
from armload.engines.trace import Trace
from tests.programs import traced
from tests.system.test_build_helper import emulator

similar = pytest.mark.exhaustive(covers=["toolchains/board"])
WHERE = ("cortex-a53", "this machine")
HOLDER = """
import ctypes, mmap, os, sys
held = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
place = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(held)))
if ctypes.CDLL(None).mlock(place, ctypes.c_size_t(len(held))) == 0:
    print("held", flush=True)
    input()
"""


def command(where: str, name: str) -> list[str]:
    if where == "this machine":
        return [str(helper(name, architecture=machine_architecture()).path)]
    return [emulator(), "-cpu", where, str(helper(name).path)]


def told(where: str, *words: str, status: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [*command(where, RATES), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    document: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return document


@pytest.mark.parametrize("name", [RATES, PIN])
def test_they_are_static_and_small(name: str) -> None:
    found = inspect(helper(name).path)
    assert found.is_static
    assert found.size_bytes < 100_000


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_memory_is_read_by_as_many_threads_several_times(where: str, threads: int) -> None:
    available = 200 << 20
    found = told(where, "memory", str(threads), str(available))
    assert found["memory_threads"] == threads
    assert found["memory_passes"] >= 3
    assert 50e6 < found["memory_bytes_per_s"] < 5e12
    assert found["memory_buffer_bytes"] <= available / 4


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    "size", [1, *(pytest.param(n, marks=similar) for n in (4096, 3_000_001, 9 << 20))]
)
def test_storage_is_read_whatever_the_file_is_long(where: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / "a 'file'"
    path.write_bytes(os.urandom(size))
    found = told(where, "storage", str(path))
    assert found["storage_way"] in ("direct", "cache dropped")
    assert found["storage_read_bytes_per_s"] > 0
    assert 0 < found["storage_read_bytes"] <= (256 << 20) + (1 << 20)
    rate, other = found["storage_read_bytes_per_s"], found.get("storage_other_way_bytes_per_s")
    if found["storage_way"] == "direct":
        assert other <= 1.1 * rate + 2
    else:
        assert other is None or other <= rate / 1.1 + 2


def test_a_file_is_put_out_of_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(5_000_001))
    here = "this machine"
    assert told(here, "evict", str(path)) == {"size_bytes": 5_000_001, "left_bytes": 0}
    # What a program has locked in memory stays there, and that is said.
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("memory cannot be locked here")
        left = told(here, "evict", str(path), status=1)
        process.communicate(b"\n")
    assert left["left_bytes"] >= 5_000_001
    assert told(here, "evict", str(path))["left_bytes"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("storage", "/no/such/file"),
        ("evict", "/no/such/file"),
        ("memory", "0", "1000000000"),
        ("memory", "x", "1000000000"),
        ("memory", "1", "4 GB"),
        ("memory", "1", "1000"),
        ("memory", "1"),
        ("memory",),
        (),
    ],
)
def test_what_cannot_be_measured_is_an_error(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*command("this machine", RATES), *words], capture_output=True, check=False
    )
    assert done.returncode != 0
    assert not done.stdout
    assert done.stderr


def test_an_empty_file_gives_no_rate(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert told("this machine", "storage", str(tmp_path / "empty"), status=1) == {}


def library_program(folder: Path) -> Path:
    """Compile the engine's trace library with a program that takes two steps."""
    return traced(
        folder,
        '#include "armload_step.h"\n'
        "int main(void) {\n"
        "    struct armload_step step = { .tokens = 1, .prompt_tokens = 1, .sequences = 1 };\n"
        "    armload_trace_begin(1);\n"
        "    armload_trace_write(&step);\n"
        "    armload_trace_write(&step);\n"
        "}\n",
        "engine",
    )


@pytest.mark.parametrize("source", ["engine", "watch"])
def test_a_trace_says_which_cores_report_a_frequency_and_which_may_be_used(
    source: str, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a /sys of its own takes root")
    cpus = tmp_path / "cpu"
    for number in (0, 1, 2, 3, 5, 191):
        place = cpus / f"cpu{number}" / "cpufreq"
        place.mkdir(parents=True)
        (place / "scaling_cur_freq").write_text(f"{number}000\n")
    last = (os.cpu_count() or 1) - 1
    watch = [*command("this machine", WATCH), "--", "echo", "a"]
    words = watch if source == "watch" else [str(library_program(tmp_path))]
    seen = f"mount --make-rprivate / && mount --bind {quote(cpus)} /sys/devices/system/cpu"
    subprocess.run(
        [
            *("unshare", "-m", "sh", "-c", f'{seen} && exec "$@"', "sh"),
            *command("this machine", PIN),
            *(f"{1 << last:x}", *words),
        ],
        env=os.environ | {"ARMLOAD_TRACE": str(tmp_path / "trace.jsonl")},
        check=True,
    )
    first, *lines = (tmp_path / "trace.jsonl").read_text().splitlines()
    header = Trace.model_validate_json(first)
    assert (header.khz_cores, header.allowed_cores) == ("0-3,5,191", str(last))
    # A look at the memory may come before the first step.
    step = next(line for line in map(json.loads, lines) if "step" in line)
    assert step["cpu_khz"] == [0, 1000, 2000, 3000, 5000, 191000]


def test_a_program_is_kept_to_the_cores_of_its_mask() -> None:
    last = (os.cpu_count() or 1) - 1
    pin = command("this machine", PIN)
    words = [*pin, f"{1 << last:x}", "grep", "Cpus_allowed_list", "/proc/self/status"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Cpus_allowed_list:", str(last)]
    ends = {
        ("1", "sh", "-c", "exit 7"): 7,
        ("1", "/no/such/program"): 127,
        ("1", "/"): 126,
        ("g", "true"): 2,
        ("", "true"): 2,
        ("f" * 300, "true"): 2,
        ("1",): 2,
        (f"{1 << 1000:x}", "true"): 1,
    }
    for mask_and_words, status in ends.items():
        done = subprocess.run([*pin, *mask_and_words], capture_output=True, text=True, check=False)
        assert done.returncode == status, mask_and_words
