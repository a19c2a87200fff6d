"""A build host that several workstations use."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.boards.board import Board
from armload.boards.local import LocalHost
from armload.build.backend import BuildRequest
from armload.build.target import Target
from armload.buildhost.remote import RemoteBackend
from armload.core.progress import ProgressStep, Silent
from tests.unit.sources import llama_cpp

TOOLS = {
    "cc": """
case $1 in
  -dumpmachine) echo aarch64-linux-gnu ;;
  -print-file-name=*) file=${0%/*}/${1#*=}; : >"$file"; echo "$file" ;;
  *) echo "cc 1" ;;
esac""",
    "cmake": """
case $1 in
  --version) echo "cmake version 3.30" ;;
  -E) case $2 in tar) exec tar -xf "$4" ;; *) shift 2; exec sha256sum "$@" ;; esac ;;
  -G) mkdir -p "$6/bin" ;;
  --build)
    echo x >>"${0%/*}/../compiled"
    for name in one two; do echo "program $name" >"$2/bin/$name"; done ;;
esac""",
    "make": "echo make 1",
    "rm": 'case "$*" in *stuck*) echo "rm: busy" >&2; exit 1 ;; esac; exec /bin/rm "$@"',
}
TARGET = Target(name="t", cpu="cortex-a55")


class Shown(Silent):
    """Remembers what is said, and does something once when a step begins."""

    def __init__(self, label: str = "", then: Callable[[], object] | None = None) -> None:
        self.said: list[str] = []
        self._label, self._then = label, then

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        if self._then is not None and label.startswith(self._label):
            then, self._then = self._then, None
            then()
        with super().step(label, total=total, unit=unit) as step:
            yield step


class BuildHost:
    """This machine with a compiler that writes two programs at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "there"
        self.compiled = folder / "compiled"
        self.compiled.touch()
        self._source = llama_cpp(folder / "llama", {})
        self._board = Board.model_validate(
            {
                "name": "builder",
                "target": "rk3568",
                "reach": {"kind": "local"},
                "workdir": str(folder / "work"),
                "build_host": {"folder": str(self.folder)},
            }
        )

    def build(self, workstation: Path, progress: Silent | None = None) -> Mapping[str, str]:
        """Build from a workstation's folder, and return what the programs hold."""
        workstation.mkdir(exist_ok=True)
        backend = RemoteBackend(
            LocalHost("builder"), self._board, compiler="native", jobs=1, nice=0
        )
        request = BuildRequest(
            build_id="0123456789ab",
            target=TARGET,
            cpu_flags=(),
            source=self._source,
            engine_commit="1",
            programs=("one", "two"),
            folder=workstation,
            lock=0,
        )
        linked = backend.compile(request, backend.compiler(TARGET), progress or Silent())
        return {name: path.read_text() for name, path in linked.items()}

    def compilations(self) -> int:
        return len(self.compiled.read_text().splitlines())


PROGRAMS = {"one": "program one\n", "two": "program two\n"}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildHost:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    (tools / "c++").symlink_to("cc")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return BuildHost(tmp_path)


def aged(path: Path) -> None:
    two_days_ago = time.time() - 2 * 86_400
    os.utime(path, (two_days_ago, two_days_ago))


def test_two_workstations_fetch_the_same_build_at_the_same_time(
    machine: BuildHost, tmp_path: Path
) -> None:
    other: list[Mapping[str, str]] = []
    meanwhile = Shown("Fetching two", lambda: other.append(machine.build(tmp_path / "b")))
    assert machine.build(tmp_path / "a", meanwhile) == PROGRAMS
    assert other == [PROGRAMS]
    assert machine.compilations() == 1


def test_the_next_build_deletes_what_ended_more_than_a_day_ago(
    machine: BuildHost, tmp_path: Path
) -> None:
    machine.build(tmp_path / "a")
    (run,) = (machine.folder / "runs").iterdir()
    recent = machine.folder / "runs" / "cdefcdefcdef-0001"
    for folder in (recent, machine.folder / "trees" / "cdefcdefcdef"):
        folder.mkdir()
    aged(run)
    aged(machine.folder / "trees" / "cdefcdefcdef")
    assert machine.build(tmp_path / "a") == PROGRAMS
    assert machine.compilations() == 2
    assert {path.name for path in (machine.folder / "runs").iterdir()} == {recent.name, run.name}
    assert len(list((machine.folder / "trees").iterdir())) == 2


def test_an_old_build_that_cannot_be_deleted_is_only_mentioned(
    machine: BuildHost, tmp_path: Path
) -> None:
    (machine.folder / "trees" / "stuck").mkdir(parents=True)
    progress = Shown()
    assert machine.build(tmp_path / "a", progress) == PROGRAMS
    assert "builder: some old builds could not be deleted: rm: busy." in progress.said


def test_a_build_whose_files_were_deleted_starts_again(machine: BuildHost, tmp_path: Path) -> None:
    machine.build(tmp_path / "a")
    shutil.rmtree(machine.folder / "trees")
    assert machine.build(tmp_path / "a") == PROGRAMS
    assert machine.compilations() == 2
