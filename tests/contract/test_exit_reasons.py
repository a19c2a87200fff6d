"""Every way in which a real program ends, told by a real shell of each kind."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armload.analysis.conditions_log import storage_was_full
from armload.boards.host import Host
from armload.build.target import machine_architecture
from armload.core.shell import quote
from armload.deploy.collect import collect
from armload.deploy.exit_reason import Exit, explain
from armload.deploy.exit_record import read_peaks
from armload.deploy.follow import CutShortError, ProgressUpdate, end_orphan, follow
from armload.deploy.launch import launch
from armload.deploy.layout import PROGRAM_FOLDER, Layout
from tests.faults import At, mounted
from tests.programs import compiled, without_loader

LIMIT_S = 60.0

PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tell(const char *word) {
    putchar('"');
    for (; *word; word++) {
        unsigned char c = (unsigned char)*word;
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c < 32) printf("\\u%04x", c);
        else putchar(c);
    }
    puts("\"");
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "illegal")) __builtin_trap();
    if (argc > 1 && !strcmp(argv[1], "abort")) { fputs("no such tensor\n", stderr); abort(); }
    if (argc > 1 && !strcmp(argv[1], "crash")) { fputs("now\n", stderr); *(volatile int *)8 = 1; }
    for (int i = 1; i < argc; i++) tell(argv[i]);
    return 0;
}
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static program of this machine's, which tells its arguments as lines of JSON."""
    folder = tmp_path_factory.mktemp("program")
    return compiled(folder, PROGRAM, architecture=machine_architecture())


@pytest.fixture
def ended(host: Host, workdir: PurePosixPath, tmp_path: Path) -> Endings:
    return Endings(host, workdir, tmp_path)


class Endings:
    """Runs programs to their ends and says how those were."""

    def __init__(self, host: Host, workdir: PurePosixPath, folder: Path) -> None:
        self.host = host
        self.workdir = workdir
        self._folder = folder
        self._count = 0

    def __call__(self, *argv: str, limit_s: float = LIMIT_S) -> Exit:
        return explain(self.run(*argv, limit_s=limit_s), memory_total_bytes=1 << 40)

    def run(self, *argv: str, limit_s: float = LIMIT_S) -> Path:
        folder = self.launched(*argv, limit_s=limit_s)
        follow(self.host, folder, lambda now: None)
        local = self._folder / f"local-{self._count}"
        collect(self.host, folder, local)
        return local

    def launched(self, *argv: str, limit_s: float = LIMIT_S) -> PurePosixPath:
        self._count += 1
        folder = Layout(workdir=self.workdir).run(f"run-{self._count}")
        launch(
            self.host,
            run_folder=folder,
            argv=argv,
            trace=True,
            time_limit_s=limit_s,
            job=b"{}",
        )
        return folder


def test_a_good_end_and_a_reason_for_a_bad_one(ended: Endings) -> None:
    assert ended("true").kind == "done"
    bad = ended("sh", "-c", "echo first >&2; echo no such model >&2; exit 3")
    assert (bad.kind, bad.status) == ("exit status", 3)
    assert "first / no such model" in bad.meaning


def test_an_illegal_instruction_an_abort_and_a_crash(ended: Endings, program: Path) -> None:
    illegal = ended(str(program), "illegal")
    assert (illegal.kind, illegal.status) == ("illegal instruction", 132)
    gave_up = ended(str(program), "abort")
    assert (gave_up.kind, gave_up.status) == ("abort", 134)
    assert "no such tensor" in gave_up.meaning
    crashed = ended(str(program), "crash")
    assert (crashed.kind, crashed.status) == ("crash", 139)
    assert "SIGSEGV" in crashed.meaning
    assert "now" in crashed.meaning


def test_a_kill_from_outside_is_not_called_a_lack_of_memory(ended: Endings) -> None:
    assert ended("sh", "-c", "kill -KILL $$").kind == "killed"
    assert ended("sh", "-c", "kill -USR1 $$").kind == "signal"


def test_a_program_that_is_not_there(ended: Endings) -> None:
    gone = ended("/no/such/program")
    assert (gone.kind, gone.status) == ("not found", 127)


def test_a_program_whose_loader_is_not_there(ended: Endings, tmp_path: Path) -> None:
    lost = ended(str(without_loader(tmp_path / "dynamic")))
    assert lost.kind == "no loader"
    assert "-static" in lost.remedy


def test_a_program_without_the_right_to_run(ended: Endings, program: Path, tmp_path: Path) -> None:
    path = tmp_path / "tell"
    shutil.copy(program, path)
    path.chmod(0o644)
    refused = ended(str(path))
    assert (refused.kind, refused.status) == ("not permitted", 126)
    assert "is not executable" in refused.meaning


def test_a_program_for_another_kind_of_machine(ended: Endings, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\x00\x08\x00" + bytes(400))
    path.chmod(0o755)
    assert ended(str(path)).kind == "wrong format"


def test_a_folder_that_forbids_programs(ended: Endings, program: Path, tmp_path: Path) -> None:
    place = PurePosixPath(tmp_path / "noexec")
    with mounted(ended.host, place, "size=4m,noexec"):
        ended.host.write(place / "tell", [program.read_bytes()])
        ended.host.run(f"chmod 755 {quote(place / 'tell')}")
        refused = ended(str(place / "tell"))
        assert (refused.kind, refused.status) == ("not permitted", 126)
        assert "noexec" in refused.remedy


def test_storage_that_is_full_loses_no_ending(ended: Endings, workdir: PurePosixPath) -> None:
    with mounted(ended.host, workdir, "size=1m"):
        full = ended.run(
            "sh", "-c", "while echo 0123456789abcdef0123456789abcdef; do :; done; exit 4"
        )
        ending = explain(full)
        assert (ending.kind, ending.status) == ("no space", 4)
        assert "board.clean" in ending.remedy
        assert (full / "stdout").stat().st_size > 500_000


def test_storage_that_is_full_for_a_while_is_noted(
    ended: Endings, workdir: PurePosixPath, tmp_path: Path
) -> None:
    """No program says so of its output, and the memory that was noted before stays."""
    with mounted(ended.host, workdir, "size=1m"):
        wait = "until [ -e {} ]; do sleep 0.1; done"
        fill = "cat /dev/zero >more 2>/dev/null"
        script = (
            f"{wait.format('../memory')}; {fill}; {wait.format('../full')}; rm more; echo enough"
        )
        local = ended.run("sh", "-c", script, limit_s=20)
        assert explain(local).kind == "done"
        assert storage_was_full(local)
        assert read_peaks(local) is not None
        assert (local / "stdout").read_text() == "enough\n"
    assert not storage_was_full(ended.run("sleep", "1.2"))


def test_the_board_itself_ends_a_run_that_takes_too_long(ended: Endings) -> None:
    late = ended("sleep", "600", limit_s=1)
    assert (late.kind, late.status) == ("time limit", 124)
    assert late.meaning == "stopped by its time limit"


def test_a_run_without_its_script_is_lost_and_its_program_ended(
    ended: Endings, tmp_path: Path
) -> None:
    folder = ended.launched("sleep", "600")
    killed: list[int] = []

    def kill(now: ProgressUpdate) -> None:
        if not killed:
            killed.append(int(Path(folder / "wrapper").read_text()))
            os.kill(killed[0], 9)

    with pytest.raises(CutShortError) as caught:
        follow(ended.host, folder, kill)
    assert caught.value.cut == "lost"
    program = int(Path(folder / "pid").read_text())
    end_orphan(ended.host, folder)
    end_orphan(ended.host, folder)
    while Path(f"/proc/{program}/cwd").exists():  # a signal is not the end yet
        time.sleep(0.05)
    progress = At(0, lambda: None)
    collect(ended.host, folder, tmp_path / "lost", progress)
    assert progress.said == []
    assert explain(tmp_path / "lost", cut="lost").kind == "lost"


def test_large_output_comes_home_whole_whatever_is_in_it(ended: Endings, tmp_path: Path) -> None:
    data = os.urandom(600_000)
    (tmp_path / "data").write_bytes(data)
    script = f"cat '{tmp_path}/data'; cat '{tmp_path}/data' >&2; : >'odd name'; : >-x"
    local = ended.run("sh", "-c", script)
    assert (local / "stdout").read_bytes() == data
    assert (local / "stderr").read_bytes() == data
    assert (local / PROGRAM_FOLDER / "odd name").exists()
    assert [path.name for path in local.iterdir() if path.name.endswith(".part")] == []


WORDS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=60)
AWKWARD = [
    "-",
    "--help",
    "-x y",
    "$(id) `id` ${HOME}",
    "a b",
    "q'\"\\",
    "é 漢 🙂\n%s\r\n\t",
    "",
    "*",
    "~",
]


@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(words=st.lists(WORDS, max_size=4))
def test_every_prompt_reaches_the_program_unchanged(
    ended: Endings, program: Path, words: list[str]
) -> None:
    sent = [*AWKWARD, *words]
    said = (ended.run(str(program), *sent) / "stdout").read_bytes().decode()
    assert [json.loads(line) for line in said.removesuffix("\n").split("\n")] == sent
