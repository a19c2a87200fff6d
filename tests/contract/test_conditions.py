"""What a board's own shell notes around a run, on every kind of host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pytest

from armload.analysis.background import read_background_processes
from armload.analysis.conditions_log import read_swapped
from armload.boards.board import Board
from armload.boards.folder import mount_of
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.boards.rates import LITTLE, Rates
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.core.shell import quote
from armload.deploy.layout import Layout
from armload.deploy.rates import Missing, measure, measured_rates
from armload.engines.engine import Settings
from armload.runs.prepare import as_wanted
from armload.services.state import ServiceOnBoard, SupervisorState, held_bytes
from tests.contract.launching import ran

AWKWARD = "a) S (b\n7 (c"
"""A name that looks like the end and the beginning of a line of /proc/PID/stat."""


@pytest.fixture
def model(tmp_path: Path) -> PurePosixPath:
    path = tmp_path / "a model's $(id).gguf"
    path.write_bytes(os.urandom(3_000_000))
    return PurePosixPath(path)


@contextmanager
def neighbour(folder: Path, name: str, *loader: str) -> Iterator[None]:
    """Let a process of that name use all the CPU that it can get, until the block ends.

    Args:
        loader: a dynamic loader with its options, by which the program is run.
    """
    program = folder / name
    shutil.copy("/bin/sh", program)
    with subprocess.Popen([*loader, str(program), "-c", "while :; do :; done"]) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_board_tells_its_state_in_one_command(host: Host, board: Board) -> None:
    now = probe(host, board).conditions
    assert [core for each in now.clusters for core in each.cores] == list(
        range(os.cpu_count() or 1)
    )
    mounts = Path("/proc/mounts").read_text().splitlines()
    below = mount_of(PurePosixPath(board.workdir), mounts)  # none where the root is no mount point
    assert now.workdir_filesystem == (None if below is None else below.filesystem)
    assert all(sensor.name for sensor in now.sensors)


def test_a_neighbour_with_an_awkward_name_is_named_and_the_run_is_not(
    host: Host, board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done"
    ourselves = tmp_path / "ourselves"
    shutil.copy("/bin/sh", ourselves)
    with neighbour(tmp_path, AWKWARD):
        words = ("sh", "-c", f"'{ourselves}' -c '{busy}'; sleep 1")
        local = ran(host, board.workdir, tmp_path / "run", *words)
    background_processes = read_background_processes(local)
    monkeypatch.setattr("armload.analysis.background.MOST_NAMED", 1000)  # others may be busier
    every = read_background_processes(local)
    assert background_processes is not None
    assert every is not None
    (found,) = (each for each in every if each.name == AWKWARD)
    assert found.processes == 1
    assert not found.kernel
    assert 0.01 < found.share < 1.2
    line = {"sshd", "sshd-session", "dropbear"}
    assert not {"ourselves", *line} & {each.name for each in background_processes}


def test_a_neighbour_that_a_loader_runs_is_called_by_its_own_name(
    host: Host, board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = next(Path("/lib64").glob("ld-*"), None)
    if loader is None:
        pytest.skip("this machine's programs have no loader in /lib64")
    monkeypatch.setattr("armload.analysis.background.MOST_NAMED", 1000)  # others may be busier
    with neighbour(tmp_path, "a neighbour", str(loader), "--library-path", "/nowhere"):
        local = ran(host, board.workdir, tmp_path / "run", "sleep", "1")
    found = {each.name for each in read_background_processes(local) or ()}
    assert "a neighbour" in found
    assert loader.name[:15] not in found


def test_what_was_swapped_is_counted(host: Host, board: Board, tmp_path: Path) -> None:
    local = ran(host, board.workdir, tmp_path / "run", "true")
    counted = "pswpin" in Path("/proc/vmstat").read_text()
    assert (read_swapped(local, 4096) is not None) == counted


def test_rates_are_measured_once_per_boot(host: Host, board: Board, model: PurePosixPath) -> None:
    found = probe(host, board)
    assert found.rates == Rates()
    former = board.workdir / ".rates.of-a-former-boot"
    host.write(former, [b'{"memory_bytes_per_s":1}\n'])
    rates = measured_rates(host, board, found, Silent(), file=model)
    assert rates.memory_bytes_per_s is not None
    assert rates.memory_bytes_per_s > 50_000_000
    assert rates.memory_threads == found.cores
    assert rates.storage_read_bytes_per_s is not None
    assert rates.storage_way in ("direct", "cache dropped")
    assert host.run(f"[ -e {quote(former)} ]").status == 1
    assert (rates.storage_other_way_bytes_per_s is None) <= (rates.storage_way != "direct")
    assert rates.memory_others_cpu is not None
    assert rates.storage_others_cpu is not None
    assert rates.storage_others_read_bytes is not None
    assert probe(host, board).rates == rates


def kept_rates(host: Host, board: Board, *lines: Mapping[str, object]) -> PurePosixPath:
    """Leave what would have been measured in this boot; return the file."""
    boot_id = probe(host, board).conditions.boot_id
    file = board.workdir / f".rates.{boot_id}"
    host.write(file, [f"{json.dumps(line)}\n".encode() for line in lines])
    return file


ALONE = {"memory_bytes_per_s": 1000, "memory_threads": 1, "memory_others_cpu": 0.02}
BESIDE = ALONE | {"memory_others_cpu": 2.5}
STORAGE = {
    "storage_read_bytes_per_s": 2000,
    "storage_way": "direct",
    "storage_read_bytes": 1000,
    "storage_others_cpu": 0.0,
    "storage_others_read_bytes": 10,
}


def test_what_was_measured_alone_is_not_measured_again_in_that_boot(
    host: Host, board: Board, model: PurePosixPath
) -> None:
    file = kept_rates(host, board, ALONE, STORAGE)
    before = host.run(f"cat {quote(file)}").text
    known = probe(host, board)
    assert measured_rates(host, board, known, Silent(), file=model) == known.rates
    assert known.rates.memory_bytes_per_s == 1000
    assert host.run(f"cat {quote(file)}").text == before


@pytest.mark.parametrize(
    "others", [{"storage_others_cpu": 0.5}, {"storage_others_read_bytes": 500}]
)
def test_what_was_measured_beside_others_is_measured_again_and_the_best_of_them_counts(
    host: Host, board: Board, model: PurePosixPath, others: Mapping[str, object]
) -> None:
    file = kept_rates(host, board, BESIDE, {**STORAGE, **others})
    before = probe(host, board)
    rates = measured_rates(host, board, before, Silent(), file=model)
    assert rates.memory_bytes_per_s is not None
    assert rates.memory_bytes_per_s > 50_000_000
    assert rates.storage_read_bytes_per_s is not None
    assert rates.storage_read_bytes_per_s > 2000
    assert len(host.run(f"cat {quote(file)}").text.splitlines()) == 4
    assert probe(host, board).rates == rates


def test_a_busy_neighbour_is_seen_while_rates_are_measured(
    host: Host, board: Board, model: PurePosixPath, tmp_path: Path
) -> None:
    found = probe(host, board)
    progress = Told()
    with neighbour(tmp_path, "neighbour"):
        rates = measured_rates(host, board, found, progress, file=model)
    assert rates.memory_others_cpu is not None
    assert rates.memory_others_cpu > LITTLE
    assert not rates.memory_is_settled
    assert not rates.storage_is_settled
    assert any("measured again next time" in line for line in progress.said)


class Told(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_without_a_model_storage_is_measured_on_a_file_that_is_removed_again(
    host: Host, board: Board
) -> None:
    rates, missing = measure(host, board, probe(host, board), Silent())
    assert missing == Missing()
    assert rates.storage_read_bytes_per_s
    assert not host.run(f"ls -A {quote(board.workdir)} | grep rates.file || :").text


def test_storage_is_not_filled_to_measure_it(host: Host, board: Board) -> None:
    found = probe(host, board)
    scarce = found.conditions.model_copy(update={"workdir_free_bytes": 100 << 20})
    found = found.model_copy(update={"conditions": scarce})
    rates, missing = measure(host, board, found, Silent())
    assert rates.storage_read_bytes_per_s is None
    assert rates.memory_bytes_per_s
    assert missing.memory == ""
    assert missing.storage.startswith("there is no model on the board to read, and 64 MiB")


def test_storage_is_measured_on_a_model_that_lies_there_when_none_is_named(
    host: Host, board: Board, model: PurePosixPath
) -> None:
    there = Layout(workdir=board.workdir).model("0" * 64, "m.gguf")
    host.run(f"mkdir -p {quote(there.parent)} && cp {quote(model)} {quote(there)}")
    both, missing = measure(host, board, probe(host, board), Silent())
    assert missing == Missing()
    assert both.memory_bytes_per_s
    assert both.storage_read_bytes_per_s


def test_what_cannot_be_measured_stops_nothing(
    emulated: Host, board: Board, model: PurePosixPath
) -> None:
    """The launcher of these hosts cannot run programs of the boards' CPU."""
    if os.uname().machine == "aarch64":
        pytest.skip("here it can")
    found = probe(emulated, board)
    rates, missing = measure(emulated, board, found, Silent(), file=model)
    assert rates == Rates()
    assert "annot execute" in missing.memory or "rates" in missing.memory, "the shell's words"


def test_a_program_is_kept_to_its_cores(
    host: Host, board: Board, model: PurePosixPath, tmp_path: Path
) -> None:
    last = (os.cpu_count() or 1) - 1
    settings = Settings(cpus=str(last))
    found = probe(host, board)
    setting = as_wanted(host, board, settings, found=found, reads=[model], progress=Silent())
    own = setting.context.launcher[0] != "taskset"
    assert own == ("taskset" not in found.tools)
    words = ("grep", "Cpus_allowed_list", "/proc/self/status")
    local = ran(host, board.workdir, tmp_path / "run", *setting.context.launcher, *words)
    assert (local / "stdout").read_text().split() == ["Cpus_allowed_list:", str(last)]


def test_cores_that_a_board_does_not_have_are_refused_before_anything_is_done(
    host: Host, board: Board, model: PurePosixPath
) -> None:
    found = probe(host, board)
    with pytest.raises(UsageError, match="has no core 1000") as caught:
        as_wanted(
            *(host, board, Settings(cpus="0,1000")),
            found=found,
            reads=[model],
            progress=Silent(),
        )
    assert "It has: 0" in caught.value.remedy
    with pytest.raises(UsageError, match="--cpus 0 is 1 core"):
        as_wanted(
            *(host, board, Settings(cpus="0", threads=2)),
            found=found,
            reads=[model],
            progress=Silent(),
        )
    assert probe(host, board).rates == Rates()


def test_what_a_service_holds_is_told_as_it_is_now(host: Host) -> None:
    program = "import time; held = b'x' * 40_000_000; print(flush=True); time.sleep(60)"
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        noted = SupervisorState(state="ready", child=server.pid, memory_bytes=966_700)
        service = ServiceOnBoard(name="tutor", state=noted, is_alive=True, up_s=100)
        now = held_bytes(host, service)
        assert now is not None
        assert 40_000_000 < now < 80_000_000
        server.kill()
        server.wait()
        assert held_bytes(host, service) == 966_700
        assert held_bytes(host, service.model_copy(update={"is_alive": False})) is None
