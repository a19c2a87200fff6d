"""A program under ``watch`` is seen whole, on a real shell of each kind."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath

import pytest

from armload.analysis.run import Run
from armload.boards.board import Board, LocalReach
from armload.boards.host import Host
from armload.build.helper import WATCH
from armload.core.progress import Silent
from armload.core.shell import quote
from armload.deploy.collect import collect
from armload.deploy.deployment import deploy
from armload.deploy.exit_reason import Exit, explain
from armload.deploy.follow import CutShortError, end_orphan, follow, stop
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.own_programs import program_of_the_shell
from armload.deploy.payload import read_payload
from armload.engines.watched.engine import PROGRAM_ID_FILE
from armload.engines.watched.read import read_watching
from armload.runs.assemble import assemble
from tests.engine_stand_in import compiled_engine
from tests.programs import without_loader
from tests.unit.watched import watched_job
from tests.waiting import wait_until

TOKENS = 30
LEAST_BYTES = 39 << 20
"""Of the stand-in's 40 MiB; the kernel counts pages a little late."""


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_engine(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def board(tmp_path: Path) -> Board:
    reach = LocalReach(kind="local")
    workdir = PurePosixPath(tmp_path / "work dir's $(id)")
    return Board(name="bench-board", target="host", reach=reach, workdir=workdir)


@pytest.fixture
def watched(host: Host, board: Board, engine: Path, tmp_path: Path) -> Watching:
    return Watching(host, board, engine, tmp_path)


class Watching:
    """Runs the engine under ``watch`` and brings home what is left of it."""

    def __init__(self, host: Host, board: Board, engine: Path, folder: Path) -> None:
        self.host = host
        self.layout = Layout(workdir=board.workdir)
        self.engine = engine
        self._folder = folder
        self._count = 0
        self._watch = program_of_the_shell(host, self.layout, WATCH, os.uname().machine, Silent())

    def launched(
        self, *words: str, program: str = "", limit_s: float = 60.0, settings: tuple[str, ...] = ()
    ) -> PurePosixPath:
        self._count += 1
        folder = self.layout.run(f"run-{self._count}")
        started = program or str(self.engine)
        launch(
            self.host,
            run_folder=folder,
            argv=[str(self._watch), "-p", PROGRAM_ID_FILE, *settings, "--", started, *words],
            trace=True,
            time_limit_s=limit_s,
            job=b"{}",
            program=started,
        )
        return folder

    def brought(self, folder: PurePosixPath) -> Path:
        local = self._folder / f"local-{folder.name}"
        collect(self.host, folder, local)
        return local

    def run(
        self,
        *words: str,
        program: str = "",
        limit_s: float = 60.0,
        settings: tuple[str, ...] = (),
    ) -> Path:
        folder = self.launched(*words, program=program, limit_s=limit_s, settings=settings)
        follow(self.host, folder, lambda now: None)
        return self.brought(folder)

    def __call__(self, *words: str, reads: str = "text", limit_s: float = 60.0) -> Run:
        local = self.run(*words, limit_s=limit_s)
        return assembled(local, reads)


def assembled(local: Path, reads: str) -> Run:
    return assemble(watched_job(reads), local)


def ending(local: Path) -> Exit:
    return explain(local, memory_total_bytes=1 << 40)


def wait_for_output(folder: PurePosixPath) -> None:
    stdout = Path(folder / "stdout")
    wait_until(lambda: stdout.exists() and stdout.stat().st_size > 10)


def descendants(pid: int) -> list[int]:
    """Return the processes below one, by what the kernel says of each process's parent."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_each_write_is_one_token_and_every_byte_comes_home(watched: Watching) -> None:
    run = watched("demo", str(TOKENS), "qwen/config.json", reads="mnn")
    assert run.exit.kind == "done", run.exit
    assert len(run.steps) == TOKENS - 1
    assert run.text.startswith("The large house by the sea")
    assert run.summary.decode_tps == TOKENS / 2
    assert run.summary.token_s is not None
    # The stand-in does not decode for as long as it says.
    assert not [note for note in run.notes if "times per token:" in note]
    assert run.steps[0].start_ns < run.steps[-1].end_ns


def test_memory_is_the_program_s_and_not_that_of_watch(watched: Watching) -> None:
    local = watched.run("demo", str(TOKENS))
    noted = read_watching(local / "trace.jsonl")
    assert noted.end is not None
    assert noted.end.max_rss_bytes >= LEAST_BYTES
    assert max(write.rss_bytes for write in noted.writes) >= LEAST_BYTES
    assert noted.writes[-1].cpu_ns is not None
    run = assembled(local, "mnn")
    assert run.memory is not None
    assert LEAST_BYTES <= run.memory.max_rss_bytes < 5 * LEAST_BYTES
    slow = watched.launched("ask")
    wait_until(lambda: Path(slow / "memory").exists() and Path(slow / "watched").exists())
    status = Path(f"/proc/{Path(slow / 'watched').read_text().strip()}/status").read_text()
    peak_kib = status.partition("VmPeak:")[2].split()[0]
    wait_until(lambda: Path(slow / "memory").read_text().startswith(f"{peak_kib} "))
    stop(watched.host, slow)


def test_bytes_that_are_no_text_are_passed_on_unchanged(watched: Watching) -> None:
    local = watched.run("dirty")
    assert (local / "stdout").read_bytes() == b"\0\377\376 so\n\0\303\251"
    noted = read_watching(local / "trace.jsonl")
    assert [write.bytes for write in noted.writes] == [8, 1, 1]
    run = assembled(local, "text")
    assert run.text == "\0\ufffd\ufffd so\n\0é"


def test_large_output_is_whole(watched: Watching) -> None:
    local = watched.run("much", "600000")
    assert (local / "stdout").stat().st_size == 600_000
    noted = read_watching(local / "trace.jsonl")
    assert sum(write.bytes for write in noted.writes) == 600_000


def test_a_program_that_dies_of_a_signal_keeps_what_it_wrote(watched: Watching) -> None:
    local = watched.run("die")
    end = ending(local)
    assert (end.kind, end.status) == ("illegal instruction", 132)
    run = assembled(local, "mnn")
    assert run.text == "The large house"
    assert not run.verdict.valid
    noted = read_watching(local / "trace.jsonl")
    assert noted.end is not None
    assert noted.end.status == 132


def test_an_exit_status_is_the_program_s(watched: Watching) -> None:
    end = ending(watched.run("other"))
    assert (end.kind, end.status) == ("exit status", 4)


def test_a_program_that_hangs_is_ended_at_its_limit_with_its_children(watched: Watching) -> None:
    folder = watched.launched("hang", limit_s=2)
    wait_for_output(folder)
    program = int(Path(folder / "watched").read_text())
    wait_until(lambda: len(descendants(program)) == 1)
    processes = [program, *descendants(program)]
    follow(watched.host, folder, lambda now: None)
    assert ending(watched.brought(folder)).kind == "time limit"
    wait_until(lambda: all(map(is_gone, processes)))


def test_a_stopped_program_ends_at_once_where_it_listens(watched: Watching) -> None:
    folder = watched.launched("ask")
    wait_for_output(folder)
    program = int(Path(folder / "watched").read_text())
    stop(watched.host, folder)
    local = watched.brought(folder)
    end = ending(local)
    assert (end.kind, end.status) == ("stopped", 143)
    assert is_gone(program)
    assert (local / "stdout").read_bytes() == b"The large house"


def test_a_watch_that_is_killed_takes_the_program_along(watched: Watching) -> None:
    folder = watched.launched("hang")
    wait_for_output(folder)
    program = int(Path(folder / "watched").read_text())
    wait_until(lambda: len(descendants(program)) == 1)
    processes = [program, *descendants(program)]
    wait_until(lambda: Path(folder / "pid").is_file() and Path(folder / "pid").read_text() != "")
    os.kill(int(Path(folder / "pid").read_text()), 9)
    wait_until(lambda: all(map(is_gone, processes)))
    follow(watched.host, folder, lambda now: None)
    local = watched.brought(folder)
    assert ending(local).status == 137
    assert assembled(local, "mnn").text == "The large house"


def test_a_run_without_its_script_loses_the_program_too(watched: Watching) -> None:
    folder = watched.launched("hang")
    wait_for_output(folder)
    program = int(Path(folder / "watched").read_text())
    os.kill(int(Path(folder / "wrapper").read_text()), 9)
    with pytest.raises(CutShortError):
        follow(watched.host, folder, lambda now: None)
    end_orphan(watched.host, folder)
    wait_until(lambda: is_gone(program))


def test_a_program_that_cannot_start_is_told_apart(watched: Watching, tmp_path: Path) -> None:
    assert ending(watched.run(program="/no/such/program")).kind == "not found"
    path = without_loader(tmp_path / "dynamic")
    assert ending(watched.run(program=str(path))).kind == "no loader"
    path.chmod(0o644)
    assert ending(watched.run(program=str(path))).kind == "not permitted"
    path.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\x00\x08\x00" + bytes(400))
    path.chmod(0o755)
    assert ending(watched.run(program=str(path))).kind == "wrong format"


def test_the_program_gets_its_settings_and_not_the_trace_s(watched: Watching) -> None:
    folder = watched.launched("settings", settings=("-e", "LD_LIBRARY_PATH=/a dir:/b"))
    follow(watched.host, folder, lambda now: None)
    assert (watched.brought(folder) / "stdout").read_text() == "none /a dir:/b\n"


def test_words_reach_the_program_unchanged(watched: Watching, tmp_path: Path) -> None:
    file = tmp_path / "odd $(id) ' name\n"
    file.write_text("content")
    assert (watched.run("file", str(file)) / "stdout").read_text() == "content"


def test_a_folder_is_put_there_once_with_names_and_rights(
    host: Host, board: Board, tmp_path: Path, engine: Path
) -> None:
    model = tmp_path / "my model"
    (model / "sub dir").mkdir(parents=True)
    (model / "config.json").write_text('{"llm_weight": "sub dir/w.bin"}')
    weights = os.urandom(300_000)
    (model / "sub dir" / "w.bin").write_bytes(weights)
    (model / "empty").write_bytes(b"")
    tool = model / "tool.sh"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    layout = Layout(workdir=board.workdir)
    things = [read_payload(path, Silent()) for path in (model, engine)]

    def put() -> bool:
        return deploy(host, board, things, Silent()).sent

    assert put()
    there = things[0].folder(layout) / "my model"
    assert b"".join(host.read(there / "sub dir" / "w.bin")) == weights
    assert host.run(f"[ -x {quote(there / 'tool.sh')} ]").status == 0
    assert host.run(f"[ -x {quote(there / 'config.json')} ]").status == 1
    assert host.run(f"[ -f {quote(there / 'empty')} ]").status == 0
    assert things[1].folder(layout).parent == layout.workdir / "bin"
    assert not put()
    host.write(there / "sub dir" / "w.bin", [b"short"])
    assert put()
    assert b"".join(host.read(there / "sub dir" / "w.bin")) == weights


def test_a_trace_on_storage_that_is_full_does_not_stop_the_program(
    watched: Watching, tmp_path: Path
) -> None:
    """Standard output counts more than the notes: only the notes end."""
    script = f"ARMLOAD_TRACE=/dev/full {quote(watched._watch)} {quote(str(watched.engine))} demo 3"
    done = watched.host.run(script)
    assert done.status == 0
    assert b"the trace: cannot be written: No space left" in done.stderr
    assert done.stdout.count(b"The large house") == 1


@pytest.mark.parametrize(
    ("output", "reason"),
    [(">/dev/full", b"No space left"), ("| sleep 0", b"Broken pipe")],
    ids=["full storage", "a reader that has gone"],
)
def test_a_program_whose_output_cannot_be_passed_on_is_watched_to_its_end(
    watched: Watching, tmp_path: Path, output: str, reason: bytes
) -> None:
    trace, done, status = (tmp_path / name for name in ("trace.jsonl", "done", "status"))
    program = f"sh -c 'for n in 1 2 3; do sleep 0.3; echo $n; done; echo whole >{done.name}'"
    watch = f"ARMLOAD_TRACE={trace.name} {quote(watched._watch)} -- {program}"
    script = f"cd {quote(tmp_path)} && {{ {watch}; echo $? >{status.name}; }} {output}"
    said = watched.host.run(script)
    assert done.read_text() == "whole\n"
    assert status.read_text() == "1\n"
    assert said.stderr.count(b"cannot be passed on") == 1
    assert reason in said.stderr
    noted = read_watching(trace)
    assert noted.end is not None
    assert noted.end.status == 0


def test_the_notes_are_lines_of_json_with_the_clock_in_order(watched: Watching) -> None:
    lines = (watched.run("demo", "5") / "trace.jsonl").read_text().splitlines()
    contents = [json.loads(line) for line in lines]
    assert contents[0]["source"] == "watch"
    ends = [content["end_ns"] for content in contents if "end_ns" in content]
    assert ends == sorted(ends)
    starts = [content["start_ns"] for content in contents if "step" in content]
    assert starts == [contents[0]["start_ns"], *ends[: len(starts) - 1]]


def test_a_program_that_asks_is_given_a_file_to_its_end(watched: Watching, tmp_path: Path) -> None:
    given = tmp_path / "given to it"
    given.write_text("Hello.\nexit\nmore\n")
    settings = ("-i", str(given))
    local = watched.run("asks", settings=settings)
    assert (local / "stdout").read_text() == "user 1: robot: Hello.\nuser 2: "
    assert ending(local).status == 0
    given.write_text("Hello.")
    local = watched.run("asks", settings=settings)
    assert (local / "stdout").read_text() == "user 1: robot: Hello.user 2: "
    assert ending(local).status == 5
    assert ending(watched.run("asks")).status == 5, "nothing is given unasked"


def test_a_program_that_never_reads_what_it_is_given_ends_all_the_same(
    watched: Watching, tmp_path: Path
) -> None:
    given = tmp_path / "much"
    given.write_bytes(b"line\n" * 1_000_000)
    local = watched.run("much", "10", settings=("-i", str(given)))
    assert (local / "stdout").read_text() == "0123456789"
    assert ending(local).status == 0


def test_an_input_that_is_missing_is_named_and_nothing_is_started(watched: Watching) -> None:
    local = watched.run("much", "10", settings=("-i", "/nowhere/at all"))
    assert ending(local).status == 126
    assert "/nowhere/at all: cannot be read: No such file" in (local / "stderr").read_text()
    assert (local / "stdout").read_text() == ""
