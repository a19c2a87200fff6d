"""What a board does before a run: it cools, forgets its files, keeps the program to its cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from armload.analysis.conditions_log import read_cache
from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import FoundCluster, probe
from armload.core.errors import BoardError
from armload.core.progress import Silent
from armload.engines.engine import Settings
from armload.runs.prepare import Prepared, as_wanted, cool_down
from tests.contract.launching import ran
from tests.contract.settings.kernel import Kernel, board_host


def prepared(host: Host, board: Board, settings: Settings, model: PurePosixPath) -> Prepared:
    found = probe(host, board)
    return as_wanted(host, board, settings, found=found, reads=[model], progress=Silent())


def test_a_hot_board_is_waited_for(host: Host, board: Board, kernel: Kernel) -> None:
    kernel.shows(0, "soc-thermal", "61000\n")
    kernel.shows(1, "ddr", "40000\n")
    notes: list[str] = []

    class Shown(Silent):
        @contextlib.contextmanager
        def step(
            self, label: str, *, total: float | None = None, unit: str = ""
        ) -> Iterator[Noted]:
            notes.append(label)
            assert (total, unit) == (6, "degrees")
            yield Noted()

    class Noted:
        def update(self, completed: float, *, note: str = "", **_more: object) -> None:
            notes.append(f"{completed:g} {note.partition(',')[0]}")
            kernel.shows(0, "soc-thermal", "58000\n" if completed == 0 else "55000\n")

    assert cool_down(host, board, 55, Shown(), every_s=0.01) == 55
    assert notes == ["Cooling bench-board to 55 °C", "0 61.0 °C", "3 58.0 °C"]
    assert cool_down(host, board, 55, Shown(), every_s=0.01) == 55
    assert len(notes) == 3


def test_a_zone_that_never_changes_while_others_cool_is_not_waited_for(
    host: Host, board: Board, kernel: Kernel
) -> None:
    kernel.shows(0, "soc-thermal", "80000\n")
    kernel.shows(1, "dummy", "70000\n")
    said: list[str] = []

    class Shown(Silent):
        def say(self, message: str) -> None:
            said.append(message)

        @contextlib.contextmanager
        def step(
            self, label: str, *, total: float | None = None, unit: str = ""
        ) -> Iterator[Cooling]:
            del label, total, unit
            yield Cooling()

    class Cooling:
        def update(self, completed: float, **_more: object) -> None:
            del completed
            kernel.shows(0, "soc-thermal", "50000\n")

    cooled = cool_down(host, board, 55, Shown(), every_s=0.01, constant_after_s=0.02)
    assert cooled == 50
    assert said == ["bench-board: ignoring sensor dummy, which shows a constant 70 °C."]
    chosen = board.model_copy(update={"sensors": ("dummy",)})
    with pytest.raises(BoardError, match=r"still at 70\.0 °C \(dummy\)") as caught:
        cool_down(host, chosen, 55, Silent(), limit_s=0.05, every_s=0.02, constant_after_s=0.01)
    assert "'sensors' in boards/bench-board.yaml" in caught.value.remedy
    absent = board.model_copy(update={"sensors": ("cpu",)})
    with pytest.raises(BoardError, match="no working sensor is called cpu") as caught:
        cool_down(host, absent, 55, Silent())
    assert caught.value.remedy == "Available: soc-thermal, dummy."


def test_a_board_that_stays_hot_or_has_no_sensor_is_told_in_words(
    host: Host, board: Board, kernel: Kernel
) -> None:
    with pytest.raises(BoardError, match="exposes no temperature sensor"):
        cool_down(host, board, 55, Silent())
    kernel.shows(0, "soc-thermal", "61000\n")
    with pytest.raises(BoardError, match=r"still at 61\.0 °C \(soc-thermal\) after 0 s") as caught:
        cool_down(host, board, 55, Silent(), limit_s=0.1, every_s=0.05)
    assert "--cool-to" in caught.value.remedy


def test_a_cold_run_lets_the_board_forget_its_files(
    host: Host, board: Board, kernel: Kernel, tmp_path: Path
) -> None:
    model = PurePosixPath(tmp_path / "m.gguf")
    Path(model).write_bytes(os.urandom(1_000_000))
    ready = prepared(host, board, Settings(cold=True), model)
    local = ran(host, board.workdir, tmp_path / "run", "true", setup=ready.setup)
    assert read_cache(local) == "dropped"
    assert kernel.drop_caches.read_text() == "3\n"
    warm = prepared(host, board, Settings(), model)
    assert read_cache(ran(host, board.workdir, tmp_path / "warm", "true", setup=warm.setup)) is None


def test_where_not_all_may_be_forgotten_the_model_is(
    tmp_path: Path, board: Board, kernel: Kernel, shell: str
) -> None:
    path = tmp_path / "a model's $(id).gguf"
    path.write_bytes(os.urandom(3_000_000))
    with board_host(tmp_path / "server", shell, kernel, read_only=True) as host:
        ready = prepared(host, board, Settings(cold=True), PurePosixPath(path))
        local = ran(host, board.workdir, tmp_path / "evicted", "true", setup=ready.setup)
        assert read_cache(local) == "evicted"
        assert kernel.drop_caches.read_text() == "0\n"
        path.unlink()
        gone = ran(host, board.workdir, tmp_path / "gone", "true", setup=ready.setup)
        assert read_cache(gone) == "as found"


def test_the_slow_cores_of_a_mixed_board_are_left_alone_and_that_is_said(
    host: Host, board: Board, tmp_path: Path
) -> None:
    said: list[str] = []

    class Saying(Silent):
        def say(self, message: str) -> None:
            said.append(message)

    mixed = probe(host, board).model_copy(
        update={
            "clusters": (
                FoundCluster(cores=1, numbers=(0,), name="Cortex-A55", is_little=True),
                FoundCluster(cores=1, numbers=(1,), name="Cortex-A76"),
            )
        }
    )
    settings = Settings(prefers_fast=True)
    ready = as_wanted(*(host, board, settings), found=mixed, reads=[], progress=Saying())
    assert ready.context.cores == "1"
    (sentence,) = said
    assert sentence == (
        "bench-board: using its 1 Cortex-A76 (cores 1), because slower cores would hold them up. "
        "--cpus 0-1 uses all."
    )
    words = (*ready.context.launcher, "grep", "Cpus_allowed_list", "/proc/self/status")
    local = ran(host, board.workdir, tmp_path / "run", *words, setup=ready.setup)
    assert (local / "stdout").read_text().split() == ["Cpus_allowed_list:", "1"]


def test_a_board_without_taskset_gets_a_program_of_ours(
    tmp_path: Path, board: Board, kernel: Kernel, shell: str
) -> None:
    without = frozenset({"taskset"})
    model = PurePosixPath(tmp_path / "m.gguf")
    Path(model).write_bytes(os.urandom(1_000_000))
    with board_host(tmp_path / "server", shell, kernel, without=without) as host:
        ready = prepared(host, board, Settings(cpus="0"), model)
        assert ready.context.launcher[0].endswith("/pin")
        words = (*ready.context.launcher, "grep", "Cpus_allowed_list", "/proc/self/status")
        local = ran(host, board.workdir, tmp_path / "run", *words, setup=ready.setup)
        assert (local / "stdout").read_text().split() == ["Cpus_allowed_list:", "0"]
