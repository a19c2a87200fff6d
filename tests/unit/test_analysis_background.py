"""Whoever used the CPU besides a run is found in the kernel's counts, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.background import FILE_NAME, MOST_NAMED, read_background_processes
from armload.analysis.conditions_log import Swapped, read_cache, read_governor, read_swapped

WRAPPER = 500


def stat(
    pid: int,
    name: str,
    *,
    parent: int = 1,
    ticks: int = 0,
    childrens: int = 0,
    started: int = 100,
) -> str:
    """Return a line of /proc/PID/stat; its user time is two thirds of all."""
    system = ticks // 3
    return (
        f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 4194560 9813 61 4 0 {ticks - system} {system} "
        f"{childrens} 0 20 0 1 0 {started} 17100800 1293 18446744073709551615 1 1 0 0 0 0 0 4096 "
        "1260 1 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )


def noted(
    folder: Path, before: str, after: str, *, own: str = f"{WRAPPER}", init: str = "init"
) -> Path:
    script = stat(WRAPPER, "sh", ticks=3) + (stat(1, init, parent=0) if init else "")
    text = f"#at 100.00\n{before}{script}#own {own}\n#at 110.00\n{after}{script}#own {own}\n"
    (folder / FILE_NAME).write_text(text)
    return folder


def names(folder: Path) -> list[str]:
    found = read_background_processes(folder)
    assert found is not None
    return [each.name for each in found]


def test_a_neighbours_share_is_of_one_core_over_the_whole_run(tmp_path: Path) -> None:
    found = read_background_processes(
        noted(
            tmp_path,
            stat(7, "stress", ticks=5000) + stat(8, "idle", ticks=900),
            stat(7, "stress", ticks=5930) + stat(8, "idle", ticks=905),
        )
    )
    assert found is not None
    (stress,) = found
    assert (stress.name, stress.processes, stress.kernel) == ("stress", 1, False)
    assert stress.cpu_s == pytest.approx(9.3)
    assert stress.share == pytest.approx(0.93)


@pytest.mark.parametrize(
    "name", ["a b", "a) S 1 (b", "x\n9 (y) R 1 2 3", "", "(", ") ", "#at 1.0\n"]
)
def test_a_name_may_hold_anything(tmp_path: Path, name: str) -> None:
    assert names(noted(tmp_path, stat(7, name), stat(7, name, ticks=300))) == [name]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (
            "/opt/x/ld-linux-x86-64.so.2\0--library-path\0/opt/x/lib\0/opt/x/bin/busy\0-m\0virt\0",
            "busy",
        ),
        ("/lib/ld-linux-aarch64.so.1\0--argv0\0something\0--inhibit-cache\0busy\0", "busy"),
        ("/lib/ld-musl-aarch64.so.1\0--library-path\0", "ld-linux-x86-64"),
        ("", "ld-linux-x86-64"),
    ],
)
def test_what_a_loader_runs_is_named_and_not_the_loader(
    tmp_path: Path, words: str, name: str
) -> None:
    before, after = (stat(7, "ld-linux-x86-64", ticks=ticks) for ticks in (0, 500))
    assert names(noted(tmp_path, before, f"{after}#loader 7\n{words}\n")) == [name]


def test_the_run_our_connection_and_what_they_started_are_left_out(tmp_path: Path) -> None:
    after = (
        stat(501, "llama-completion", parent=WRAPPER, ticks=900)
        + stat(502, "sleep", parent=501, ticks=900)
        + stat(30, "dropbear", ticks=400)
        + stat(31, "sh", parent=30, ticks=400)
        + stat(32, "cat", parent=31, ticks=400)
        + stat(33, "top", parent=30, ticks=200)
    )
    assert names(noted(tmp_path, "", after, own=f"{WRAPPER} 31")) == ["top"]


def test_processes_of_one_name_are_taken_together_and_the_busiest_come_first(
    tmp_path: Path,
) -> None:
    many = "".join(stat(n, "cc1", ticks=100, parent=6) for n in range(10, 14))
    others = "".join(stat(n, f"p{n}", ticks=n) for n in range(20, 30))
    found = read_background_processes(noted(tmp_path, "", many + others))
    assert found is not None
    assert (found[0].name, found[0].processes) == ("cc1", 4)
    assert found[0].share == pytest.approx(0.4)
    assert [each.name for each in found[1:]] == ["p29", "p28", "p27", "p26"]
    assert len(found) == MOST_NAMED


def test_a_kernel_thread_is_told_from_a_program(tmp_path: Path) -> None:
    after = stat(2, "kthreadd", parent=0) + stat(40, "kswapd0", parent=2, ticks=500)
    found = read_background_processes(noted(tmp_path, "", after))
    assert found is not None
    assert [(each.name, each.kernel) for each in found] == [("kswapd0", True)]


def test_children_that_ended_count_for_their_parent_without_what_they_had_used_before(
    tmp_path: Path,
) -> None:
    before = (
        stat(7, "make", ticks=10, childrens=1000)
        + stat(8, "sh", parent=7, ticks=50, childrens=400)
        + stat(9, "cc1", parent=8, ticks=3000)
    )
    after = stat(7, "make", ticks=20, childrens=1000 + 50 + 400 + 3000 + 290)
    found = read_background_processes(noted(tmp_path, before, after))
    assert found is not None
    assert [each.name for each in found] == ["make"]
    assert found[0].cpu_s == pytest.approx(3.0)


def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    before = stat(7, "old", ticks=9000, started=100)
    after = stat(7, "new", ticks=200, started=10_500)
    found = read_background_processes(noted(tmp_path, before, after))
    assert found is not None
    assert [each.name for each in found] == ["new"]
    assert found[0].cpu_s == pytest.approx(2.0)


def test_a_run_that_was_cut_or_noted_nothing_says_that_it_does_not_know(tmp_path: Path) -> None:
    assert read_background_processes(tmp_path) is None
    (tmp_path / FILE_NAME).write_text(f"#at 100.00\n{stat(7, 'a')}#own 1\n")
    assert read_background_processes(tmp_path) is None
    (tmp_path / FILE_NAME).write_bytes(b"\xff\x00#at nonsense\n7 (a) S\n")
    assert read_background_processes(tmp_path) is None


def test_where_a_user_is_shown_their_own_processes_alone_nobody_is_said_to_be_there(
    tmp_path: Path,
) -> None:
    mine = stat(7, "mine", ticks=300)
    assert read_background_processes(noted(tmp_path, "", mine, init="")) is None
    assert names(noted(tmp_path, "", mine)) == ["mine"]
    assert names(noted(tmp_path, mine, mine)) == []


def test_swapped_pages_are_counted_in_bytes(tmp_path: Path) -> None:
    assert read_swapped(tmp_path, 4096) is None
    (tmp_path / "swapped").write_text("5000000000 7\n5000000100 1031\n")
    assert read_swapped(tmp_path, 4096) == Swapped(in_bytes=409_600, out_bytes=4 << 20)
    (tmp_path / "swapped").write_text("0 0 8 16 0 0\n100 200 80 160 8 16\n")
    assert read_swapped(tmp_path, 4096) == Swapped(
        in_bytes=409_600, out_bytes=819_200, zram_in_bytes=80 * 512, zram_out_bytes=160 * 512
    )
    (tmp_path / "swapped").write_text("0 0\n100 200 80 160\n")
    assert read_swapped(tmp_path, 4096) is None
    (tmp_path / "swapped").write_text(" \n \n")
    assert read_swapped(tmp_path, 4096) is None
    (tmp_path / "swapped").write_text("1 2\n")
    assert read_swapped(tmp_path, 4096) is None


@pytest.mark.parametrize(
    ("said", "cache"),
    [("dropped\n", "dropped"), ("as found\n", "as found"), ("", None), ("other", None)],
)
def test_what_became_of_the_page_cache_is_read(
    tmp_path: Path, said: str, cache: str | None
) -> None:
    assert read_cache(tmp_path) is None
    (tmp_path / "cache").write_text(said)
    assert read_cache(tmp_path) == cache


@pytest.mark.parametrize(
    ("lines", "governor"),
    [
        ("schedutil - /p 0\nschedutil performance /p 0\n", "performance"),
        ("a - /p0\na performance /p0\nb - /p1\nb performance /p1\n", "performance"),
        ("a - /p0\na performance /p0\nb - /p1\nb b /p1\n", None),
        ("a - /p0\n", None),
        ("", None),
    ],
)
def test_a_governor_counts_as_set_when_every_cluster_has_it(
    tmp_path: Path, lines: str, governor: str | None
) -> None:
    (tmp_path / "governors").write_text(lines)
    assert read_governor(tmp_path) == governor
