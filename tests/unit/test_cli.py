"""The verbs: the same in both faces, explained, quick to list."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from invoke.collection import Collection
from invoke.tasks import Task
from rich.console import Console

from armload.cli import terminal
from armload.cli.main import namespace
from armload.cli.several import at_once, board_names
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Labelled

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pydantic", "rich", "paramiko", "fabric", "altair", "numpy", "jinja2", "elftools")


def verbs(collection: Collection, prefix: str = "") -> dict[str, Task[Any]]:
    found: dict[str, Task[Any]] = {
        f"{prefix}{name}": task for name, task in collection.tasks.items()
    }
    for name, inner in collection.collections.items():
        found |= verbs(inner, f"{prefix}{name}.")
    return found


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / words[0]), *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("name", sorted(verbs(namespace)))
def test_every_verb_has_one_line_and_an_example_and_explains_its_options(name: str) -> None:
    task = verbs(namespace)[name]
    doc = task.__doc__ or ""
    first = doc.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 80
    assert re.search(rf"Example: armload {re.escape(name)}\b", doc)
    for argument in task.get_arguments():
        assert argument.help, f"{name} --{argument.name}"


def test_invoke_and_armload_show_the_same_verbs() -> None:
    listed = run("invoke", "--list")
    helped = run("armload", "--help")
    assert (listed.returncode, helped.returncode) == (0, 0), listed.stderr + helped.stderr
    for name, task in verbs(namespace).items():
        line = (task.__doc__ or "").splitlines()[0]
        assert re.search(rf"^ +{re.escape(name)} ", listed.stdout, re.MULTILINE)
        assert re.search(rf"^ +{re.escape(name)} ", helped.stdout, re.MULTILINE)
        assert line[:40] in helped.stdout


def test_help_needs_none_of_the_heavy_libraries() -> None:
    code = (
        f"import sys, armload.cli.main;print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("face", ["armload", "invoke"])
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["board.probe", "--board", "vitual"], 2, "No board is called 'vitual'"),
        (["build", "--target", "rk3586"], 2, "No target is called 'rk3586'"),
        (["build", "--source", "llama-cp"], 2, "no source file and no folder of that name"),
        (["build", "--ref", "master"], 2, "is an archive, which has no refs"),
        (["build", "--source", "file:///nowhere/x", "--ref", "x"], 2, "no such repository"),
        (["bench", "--model", "nowhere.gguf"], 2, "nowhere.gguf"),
        (["bench", "--n-predict", "0"], 2, "--n-predict: it must be 1 or more"),
        (["bench", "--n-predict", "abc"], 2, "--n-predict: it must be a whole number"),
        (["build", "--jobs", "many"], 2, "--jobs 'many'"),
        (["bench", "--board", "dayu200", "--context", "100000"], 2, "was trained for"),
        (["bench", "--engine-args", "it's"], 2, "--engine-args"),
        (["show", "--run", "nothing"], 2, "o run"),
        (["bench", "--reference", "nothing"], 2, "o run"),
        (["bench", "--model", "README.md"], 3, 'begins with "# ar" instead of "GGUF"'),
        (["bench", "--model", "/dev/null"], 2, "/dev/null is no regular file"),
        (["bench", "--plan", "none.yaml"], 2, "A plan file holds options of armload bench"),
        (["bench", "--board", "dayu200,virtual"], 2, "Only armload deploy takes several"),
        (["inspect", "README.md"], 3, "compiled for Linux"),
    ],
)
def test_a_mistake_gets_a_sentence_and_a_status_and_no_traceback(
    face: str, words: list[str], status: int, said: str
) -> None:
    done = run(face, *words)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["--help", "show --help", "board.list", "board.list --json"])
def test_a_full_standard_output_is_named(words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(Path(sys.executable).parent / "armload"), *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: No space left on device.")
    assert "ARMLOAD_CACHE" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["--help", "board.list", "board.list --json"])
def test_a_standard_output_that_is_closed_is_no_fault(words: str) -> None:
    program = Path(sys.executable).parent / "armload"
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" {words} >&-', str(program)],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["../x", "boards/x", "."])
def test_a_board_that_no_file_can_be_called_by_gets_no_such_file_proposed(name: str) -> None:
    done = run("armload", "board.probe", "--board", name)
    assert done.returncode == 2
    assert f"No board is called {name!r}" in done.stderr
    assert ".yaml" not in done.stderr


def test_near_names_are_offered() -> None:
    assert "virtual" in run("armload", "board.probe", "--board", "vitual").stderr


def test_readme_names_every_verb_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text()
    table = "\n".join(line for line in readme.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`([a-z.]+)`", table.split("| status |")[0]))
    assert named == set(verbs(namespace))


@pytest.mark.parametrize("words", ["--help", "bench --help", "board.list", "board.list --json"])
def test_a_reader_that_goes_away_is_no_failure(words: str) -> None:
    program = Path(sys.executable).parent / "armload"
    done = subprocess.run(
        ["bash", "-c", f"'{program}' {words} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert (done.stdout.strip(), done.stderr) == ("0", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bnch"], "Did you mean 'bench'"),
        (["frobnicate"], "frobnicate"),
        (["bench", "--bord", "x"], "armload bench --help"),
        (["bench", "-n"], "--n-predict needs a value"),
        (["bench", "--borad", "x"], "Did you mean '--board'"),
        (["bench", "--governor"], "--governor needs a value behind it."),
        (["show", "--run", ""], "--run needs a value, and it is empty."),
        (["show", "--run="], "--run needs a value, and it is empty."),
    ],
)
def test_a_line_that_cannot_be_read_is_a_wrong_argument(words: list[str], said: str) -> None:
    done = run("armload", *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_boards_are_named_by_commas_and_each_once() -> None:
    assert board_names("a, b,a,") == ["a", "b"]
    with pytest.raises(UsageError, match="names no board"):
        board_names(" , ")


def test_work_that_fails_for_one_board_is_done_for_the_others() -> None:
    together = threading.Barrier(3, timeout=10)

    def work(name: str) -> str:
        together.wait()
        if name == "b":
            raise BoardError("b: no")
        return name * 2

    outcomes = at_once(["a", "b", "c"], work)
    assert [(one.name, one.result) for one in outcomes] == [("a", "aa"), ("b", None), ("c", "cc")]
    assert str(outcomes[1].error) == "b: no"


def test_a_fault_in_the_work_for_a_board_is_no_outcome() -> None:
    with pytest.raises(ZeroDivisionError):
        at_once(["a"], lambda name: 1 // 0)


def test_bars_of_parallel_steps_share_one_display() -> None:
    console = Console(force_terminal=True, width=120, file=io.StringIO())
    bars = terminal._Bars(console)
    inside = threading.Barrier(2, timeout=10)

    def work(name: str) -> None:
        with Labelled(bars, name).step("Copying", total=10, unit="B") as step:
            inside.wait()
            step.update(5)
            inside.wait()

    at_once(["a", "b"], work)
    with bars.step("outer"), bars.step("inner"):
        pass
    shown = console.file.getvalue() if isinstance(console.file, io.StringIO) else ""
    assert "a: Copying" in shown
    assert "b: Copying" in shown
    assert bars._bars is None


def test_a_plain_line_tells_the_rate_and_the_time_left_of_what_moved_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal, "_FIRST_LINE_AFTER_S", 3600)
    now_s = 100.0
    monkeypatch.setattr("armload.cli.terminal.time.monotonic", lambda: now_s)
    step = terminal._LineStep(Console(file=io.StringIO()), "Copying", 100e6, "B")
    now_s = 110.0
    step.update(50e6, note="going on from 50.0 MB")
    now_s = 112.0
    step.update(60e6)
    assert step._line() == (
        "Copying: 60.0 MB/100.0 MB (60%, 5.0 MB/s, 8 s left) going on from 50.0 MB"
    )
    step.end()


def test_a_letter_means_the_same_in_every_verb_and_h_is_left_to_help() -> None:
    meanings: dict[str, set[str]] = {}
    for task in verbs(namespace).values():
        for argument in task.get_arguments():
            assert len(argument.names) <= 2
            if len(argument.names) == 2:
                meanings.setdefault(argument.names[1], set()).add(argument.names[0])
    assert all(len(names) == 1 for names in meanings.values()), meanings
    assert "h" not in meanings
    assert meanings["n"] == {"n-predict"}


def test_help_shows_what_a_value_is() -> None:
    shown = run("armload", "bench", "--help").stdout
    assert re.search(r"^  -n, --n-predict N +tokens", shown, re.MULTILINE)
    assert re.search(r"^  -p, --prompt TEXT +the text", shown, re.MULTILINE)
    assert re.search(r"^      --time-limit SECONDS +", shown, re.MULTILINE)
    assert re.search(r"^  -j, --json +print", shown, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(verbs(namespace)))
def test_help_says_what_is_taken_for_an_option_that_is_left_out(name: str) -> None:
    for argument in verbs(namespace)[name].get_arguments():
        if not argument.positional and argument.default and argument.takes_value:
            told = argument.help or ""
            assert told.endswith((f"({argument.default})", f"({argument.default!r})")), told
            assert told.count(f"({argument.default})") <= 1, told


def test_help_names_the_board_that_is_meant_and_what_a_number_counts() -> None:
    for verb in ("deploy", "pull", "board.probe", "board.up", "board.down", "demo", "watch"):
        assert "(virtual)" in run("armload", verb, "--help").stdout
    assert "--older-than DAYS" in run("armload", "board.clean", "--help").stdout


def test_without_a_terminal_no_line_is_empty_and_outer_work_does_not_repeat_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal, "_FIRST_LINE_AFTER_S", 0.01)
    monkeypatch.setattr(terminal, "_PLAIN_LINE_EVERY_S", 0.01)
    monkeypatch.setattr(terminal, "_PLAIN_LINE_AT_LEAST_EVERY_S", 0.01)
    written = io.StringIO()
    lines = terminal._Lines(Console(file=written))

    def sweeps_after(lines_of_compiling: int) -> int:
        deadline = time.monotonic() + 30
        while (said := written.getvalue()).count("Compiling") < lines_of_compiling:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return said.count("Sweep")

    with lines.step("Sweep", total=2, unit="runs") as sweep, lines.step("Compiling"):
        before = sweeps_after(1)
        sweep.update(1)
        assert sweeps_after(20) <= before + 2, "one line under way, and one of what has moved"
    said = written.getvalue().splitlines()
    assert "Sweep: 1/2 runs (50%)" in "\n".join(said)
    for line in said:
        assert re.fullmatch(r"Compiling: (\d+ s so far|done in \d+ s)|Sweep: .*", line), line
