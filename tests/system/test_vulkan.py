"""llama.cpp on a board's Vulkan driver: Mesa's software one, which needs no GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.inspection import is_for_vulkan
from armload.build.target import load_target
from armload.build.vulkan import GLIBC
from armload.buildhost.remote import build_backend
from armload.core.progress import Silent
from tests.init_boards import VULKAN
from tests.system.test_service_verbs_at_boot import Owner

pytestmark = [
    pytest.mark.build,
    pytest.mark.machine,
    pytest.mark.timeout(7200),
    pytest.mark.exhaustive(
        covers=[
            *("armload/build/vulkan.py", "armload/boards/vulkan.py", "armload/build/zig.py"),
            *("armload/engines/placement.py", "toolchains/overlay", "tests/init_boards.py"),
            "toolchains/native/armload_placement.c",
        ]
    ),
]
RUN = ("bench", "--board", "far", "--model", "word-problems:Q8_0", "-n", "8", "--repeats", "1")
BOARD_ERROR, RUN_FAILED = 7, 9
DRIVERS = "/usr/share/vulkan/icd.d"
UNOPTIMISED = """
printf '#!/bin/sh\\nexport GALLIVM_PERF=nopt\\nexec /bin/sh "$@"\\n' >/bin/quick &&
chmod 755 /bin/quick &&
echo /bin/quick >>/etc/shells && sed -i '/^root:/s#:[^:]*$#:/bin/quick#' /etc/passwd
"""
"""Emulated, Mesa takes minutes to optimise each shader."""


@pytest.fixture(scope="module")
def binary() -> Binary:
    """The program; compiling it takes longer than a person's command may take in tests."""
    with build_backend(on="", compiler="", progress=Silent(), vulkan=True) as where:
        (binary,) = build(load_target("rk3568"), backend=where)
    return binary


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path, VULKAN, "root")
    try:
        owner.up()
        with closing(owner.root()) as host:
            assert host.run(UNOPTIMISED).status == 0
        yield owner
    finally:
        owner.machine.cut_the_power()
        (owner.folder / "disk.img").unlink()


def test_a_program_for_gpus_needs_the_board_s_loader_and_an_old_glibc(binary: Binary) -> None:
    assert is_for_vulkan(binary.needed)
    assert tuple(map(int, binary.glibc.split("."))) <= tuple(map(int, GLIBC.split(".")))


def test_a_vulkan_driver_writes_what_the_cpu_writes(binary: Binary, owner: Owner) -> None:
    person = owner.person
    found = json.loads(person.types("board.probe", "--board", "far", "--json").stdout)["vulkan"]
    assert {each["kind"] for each in found["devices"]} == {"software"}
    assert found["library"] == "glibc"

    person.types(*RUN, "--device", "cpu,Vulkan0")
    runs = [json.loads(path.read_text()) for path in person.runs.glob("*/run.json")]
    by_device = {run["plan"]["device"]: run for run in runs}
    cpu, driver = by_device["cpu"], by_device["Vulkan0"]
    assert cpu["text"] == driver["text"] != ""
    assert {cpu["binary"]["sha256"], driver["binary"]["sha256"]} == {binary.sha256}
    assert cpu["placement"] is None
    (device,) = driver["placement"]["devices"]
    assert "llvmpipe" in device["description"]
    on_cpu = sum(each["operations"] for each in driver["placement"]["on_cpu"])
    assert device["operations"] > 10 * on_cpu
    assert driver["limit"]["figures"]["kind"] == "GPU"
    assert driver["prediction"] is None
    assert "computed on" in person.types("show", driver["id"]).stdout

    # It is no GPU, and the CPU does not take its place.
    failed = person.types(*RUN, "--device", "gpu", status=RUN_FAILED)
    assert "the board has no such GPU" in failed.stdout + failed.stderr

    with closing(owner.root()) as host:
        assert host.run(f"mv {DRIVERS} {DRIVERS}.away").status == 0
    refused = person.types(*RUN, "--device", "Vulkan0", "--new", status=BOARD_ERROR)
    assert "it has a Vulkan loader, but no driver" in refused.stderr
