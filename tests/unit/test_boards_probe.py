"""What boards say is read right."""

from __future__ import annotations

import pytest

from armload.boards.probe import FoundCluster, free_bytes, parse_probe
from armload.core.errors import BoardError

A55 = "fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"


def core(number: int, features: str = A55, part: str = "0xd05") -> str:
    return (
        f"processor\t: {number}\nBogoMIPS\t: 48.00\nFeatures\t: {features}\n"
        f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x2\n"
        f"CPU part\t: {part}\nCPU revision\t: 0\n\n"
    )


def output(cpuinfo: str, **changed: str) -> bytes:
    parts = {
        "workdir": "writable\nexecutable\n",
        "df": "Filesystem     1024-blocks     Used Available Capacity Mounted on\n"
        "/dev/block/by name   25803000 3145728  21324044      13% /data\n",
        "uname": "5.10.110 aarch64\n",
        "proc": "0d5e7a0c-5a3c-4b6e-9c39-6a5f0b9d2c11\n812.31 3011.02\n"
        "0.52 0.40 0.31 1/412 2213\n"
        "MemTotal:        1999652 kB\nMemFree:          902332 kB\n"
        "MemAvailable:    1433116 kB\nSwapTotal:       1048576 kB\nSwapFree:        1040384 kB\n"
        + cpuinfo,
        "governors": "schedutil\nschedutil\n",
        "max_khz": "1992000\n1992000\n",
        "temperatures": "41875\n43125\n",
        "tools": "cat\ntail\n",
        "end": "",
        **changed,
    }
    return "".join(f"#armload {name}\n{text}" for name, text in parts.items()).encode()


def test_a_boards_answer_is_read() -> None:
    found = parse_probe(output(core(0) + core(1)), "b")
    assert found.machine == "aarch64"
    assert found.cores == 2
    assert "asimddp" in found.cpu_features
    assert found.clusters == (FoundCluster(cores=2, name="Cortex-A55"),)
    assert (found.workdir_writable, found.workdir_executable) == (True, True)
    conditions = found.conditions
    assert conditions.kernel == "5.10.110"
    assert conditions.memory_total_bytes == 1999652 * 1024
    assert conditions.memory_available_bytes == 1433116 * 1024
    assert conditions.swap_used_bytes == 8192 * 1024
    assert conditions.workdir_free_bytes == 21324044 * 1024
    assert conditions.governors == ("schedutil",)
    assert conditions.celsius == pytest.approx(43.125)
    assert (conditions.uptime_s, conditions.load_1min) == (812.31, 0.52)


def test_unequal_cores_are_told_apart_and_share_only_common_features() -> None:
    cpuinfo = core(0) + core(1, features=f"{A55} i8mm", part="0xd0b") + core(2, part="0xfff")
    found = parse_probe(output(cpuinfo), "b")
    assert [cluster.name for cluster in found.clusters] == [
        "Cortex-A55",
        "Cortex-A76",
        "implementer 0x41 part 0xfff",
    ]
    assert "i8mm" not in found.cpu_features


def test_what_a_board_lacks_is_left_out() -> None:
    found = parse_probe(
        output(core(0), governors="", temperatures="", workdir="", df="", max_khz=""), "b"
    )
    assert found.conditions.governors == ()
    assert found.conditions.celsius is None
    assert found.conditions.workdir_free_bytes == 0
    assert not found.workdir_writable


def test_degrees_without_thousandths_are_understood() -> None:
    found = parse_probe(output(core(0), temperatures="47\nno number\n"), "b")
    assert found.conditions.celsius == 47


@pytest.mark.parametrize("cut", [b"#armload end", b"#armload proc"])
def test_an_answer_cut_short_is_refused(cut: bytes) -> None:
    whole = output(core(0))
    with pytest.raises(BoardError, match="halfway"):
        parse_probe(whole[: whole.index(cut)], "b")


def test_a_system_that_is_not_linux_is_refused() -> None:
    with pytest.raises(BoardError, match="does not look like Linux"):
        parse_probe(output(core(0), proc=""), "b")


@pytest.mark.parametrize(
    ("lines", "kib"),
    [
        (["Filesystem 1K-blocks Used Available Use% Mounted on", "tmpfs 100 40 60 40% /tmp"], 60),
        (
            [
                "Filesystem 1K-blocks Used Available Use% Mounted on",
                "/dev/a/long/name",
                "  9 4 5 45% /x y",
            ],
            5,
        ),
        (["Filesystem 1K-blocks Used Available Use% Mounted on", "tmpfs 100 101 -1 100% /"], 0),
        ([], 0),
    ],
)
def test_free_space_is_read_from_df(lines: list[str], kib: int) -> None:
    assert free_bytes(lines) == kib * 1024
