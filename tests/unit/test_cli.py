"""The verbs: the same in both faces, explained, quick to list."""

from __future__ import annotations

import contextlib
import io
import os
import pty
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

from armload.cli import program, terminal
from armload.cli.flags import grouped
from armload.cli.parallel import at_once, board_names
from armload.cli.program import namespace
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Labelled
from tests.command_line import BOUND_BY_PERMISSIONS

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
        "import sys, armload.cli.program;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


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
        (["bench", "--precision", "5%", "--repeats", "3"], 2, "Leave one out"),
        (["bench", "--precision", "5%", "--threads", "1,2"], 2, "Leave one out"),
        (["bench", "--precision", "5"], 2, "a percentage is needed"),
        (["bench", "--precision-time", "soon"], 2, "--precision-time"),
        (["show", "--run", "nothing"], 2, "o run"),
        (["show", "nothing"], 2, "o run"),
        (["bench", "--reference", "nothing"], 2, "o run"),
        (["bench", "--model", "README.md"], 3, 'begins with "# ar" instead of "GGUF"'),
        (["bench", "--model", "/dev/null"], 2, "/dev/null is no regular file"),
        (["bench", "--plan", "none.yaml"], 2, "A plan file holds options of armload bench"),
        (["bench", "--board", "dayu200,virtual"], 2, "Only armload deploy takes several"),
        (["inspect", "README.md"], 3, "compiled for Linux"),
        (["inspect", "docs"], 2, "docs is a folder, not a file"),
        (["bench", "--model", "docs"], 2, "docs is a folder, not a file"),
        (["bench", "--plan", "docs"], 2, "docs is a folder, not a file"),
        (["bench", "--model", "m" * 300], 2, "There is no model m"),
    ],
)
def test_a_mistake_gets_a_sentence_and_a_status_and_no_traceback(
    words: list[str], status: int, said: str
) -> None:
    done = run("armload", *words)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", ["bench --n-predict abc", "board.probe --board vitual", "bench --model README.md"]
)
def test_invoke_tells_a_mistake_in_the_same_words(words: str) -> None:
    one, other = (run(face, *words.split()) for face in ("armload", "invoke"))
    assert (other.stderr, other.returncode) == (one.stderr, one.returncode) != ("", 0)


EACH_LINE = """
import sys
from armload.cli.main import main
for line in sys.argv[1:]:
    sys.argv = ["armload", *line.split()]
    try:
        main()
        print("status 0", file=sys.stderr)
    except SystemExit as end:
        print("status", end.code or 0, file=sys.stderr)
"""


def test_a_file_that_may_not_be_read_has_one_status_in_every_verb(tmp_path: Path) -> None:
    board = f"target: rk3568\nreach: {{kind: local}}\nworkdir: {tmp_path / 'work'}\n"
    run_id = "20261122T000000Z-kitchen-model-abcd"
    for name in ("boards/kitchen.yaml", "boards/locked.yaml", "file", f"runs/{run_id}/run.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(board)
        path.chmod(0o644 if name.endswith("kitchen.yaml") else 0)
    (tmp_path / "folder").mkdir()
    for name in ("folder/file", "folder/include/llama.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(board)
    (tmp_path / "folder").chmod(0)
    lines = [
        "board.probe --board locked",
        f"show --run {run_id}",
        f"report {run_id}",
        "build --source folder",
        *(
            f"{verb} {file}"
            for file in ("file", "folder/file")
            for verb in (
                "bench --board kitchen --plan",
                "bench --board kitchen --model",
                "deploy --board kitchen --model",
                "model.inspect",
                "inspect",
            )
        ),
        "watch --board kitchen --put file -- date",
        "watch --board kitchen --put folder/file -- date",
        f"compare {run_id} {run_id}",
        "compare file file",
        "compare folder/file file",
    ]
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, sys.executable, "-c", EACH_LINE, *lines],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    said = re.split(r"^status ", done.stderr, flags=re.MULTILINE)
    statuses = [rest.partition("\n")[0] for rest in said[1:]]
    assert dict(zip(lines, statuses, strict=True)) == dict.fromkeys(lines, "1"), done.stderr
    for line, words in zip(lines, said, strict=False):
        assert "Permission denied" in words, line
        assert "permissions" in words, line


def test_a_home_of_somebody_elses_is_in_the_way_only_where_it_is_needed(tmp_path: Path) -> None:
    board = "target: rk3568\nreach: {kind: ssh, host: 127.0.0.1, port: 1}\nworkdir: /tmp/work\n"
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "far.yaml").write_text(board)
    (tmp_path / "home").mkdir(0)
    statuses = {
        "board.list": "0",
        "show": "0",
        "board.trust --board far": "1",
        "build --list": "1",
        "clean": "1",
        "model.inspect demo": "1",
        "board.up --board virtual": "1",
    }
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(("XDG_", "ARML"))}
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, sys.executable, "-c", EACH_LINE, *statuses],
        cwd=tmp_path,
        env=kept | {"HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    said = re.split(r"^status ", done.stderr, flags=re.MULTILINE)
    found = [rest.partition("\n")[0] for rest in said[1:]]
    assert dict(zip(statuses, found, strict=True)) == statuses, done.stderr
    for (line, status), words in zip(statuses.items(), said, strict=False):
        assert ("Permission denied" in words and "ARMLOAD_CACHE" in words) == (status == "1"), line
        assert ".yaml" not in words.replace("boards/far.yaml", ""), line


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
    step.update(50e6, note="resuming at 50.0 MB")
    now_s = 112.0
    step.update(60e6)
    assert step._line() == (
        "Copying: 60.0 MB/100.0 MB (60%, 5.0 MB/s, 8 s left) resuming at 50.0 MB"
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
    assert re.search(r"^  -p, --prompt TEXT +text", shown, re.MULTILINE)
    assert re.search(r"^      --time-limit SECONDS +", shown, re.MULTILINE)
    assert re.search(r"^  -j, --json +print", shown, re.MULTILINE)
    headings = re.findall(r"^(\w+):$", shown, re.MULTILINE)
    assert headings == ["Plan", "Repeats", "Engine", "Board", "Conditions", "Build", "Output"]
    assert shown.rstrip().splitlines()[-1].startswith("  -h, --help")


@pytest.mark.parametrize("name", sorted(verbs(namespace)))
def test_help_says_what_is_taken_for_an_option_that_is_left_out(name: str) -> None:
    for argument in verbs(namespace)[name].get_arguments():
        if not argument.positional and argument.default and argument.takes_value:
            told = argument.help or ""
            assert told.endswith((f"({argument.default})", f"({argument.default!r})")), told
            assert told.count(f"({argument.default})") <= 1, told


@pytest.mark.parametrize("name", sorted(verbs(namespace)))
def test_help_lists_each_option_once_and_many_options_under_several_headings(name: str) -> None:
    options = [each for each in verbs(namespace)[name].get_arguments() if not each.positional]
    groups = grouped(options)
    listed = [option.names[0] for group in groups.values() for option in group]
    assert sorted(listed) == sorted(option.names[0] for option in options)
    assert max(len(group) for group in groups.values()) <= 11
    assert (len(groups) > 1) == (len(options) > 9)


def test_help_of_build_says_what_is_taken_for_each_option_with_a_value() -> None:
    listing = run("armload", "build", "--help").stdout.partition("Build:")[2]
    entries = re.split(r"^ +(?:-\w, )?--", listing, flags=re.MULTILINE)[1:]
    told = {entry.split()[0]: " ".join(entry.split()) for entry in entries}
    for name in ("target", "programs", "source", "ref", "compiler", "on", "jobs", "nice"):
        assert re.search(r"\([^()]+\)( Output:)?$", told[name]), told[name]


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


def test_nothing_that_is_told_is_markup_an_emoji_or_broken_in_a_pipe(tmp_path: Path) -> None:
    name = "a:smile:[red]z[oops] [bold]" + "long" * 40 + ".gguf"
    (tmp_path / name).write_bytes(b"GGUF no model" * 9)
    for argument in (name, f"missing {name}"):
        asked = run("armload", "model.inspect", argument, cwd=tmp_path)
        assert asked.returncode in (2, 3), asked.stderr
        assert argument in asked.stderr
    shown = run(sys.executable, "-c", _SHOWN, name, cwd=tmp_path)
    assert shown.stdout.splitlines() == [f"x/{name}", name, "word " * 99 + name]
    assert shown.stderr.splitlines() == [name, f"{name}: done in 2 s"]


_SHOWN = """
import sys
from pathlib import Path
from armload.cli import terminal
from armload.report.layout import Column, Rows, whole
name = sys.argv[1]
terminal.show(whole(f"x/{name}"))
table = Rows(Column(heading=name))
terminal.show(table)
terminal.show("word " * 99 + name)
terminal.say(name)
now_s = [0.0]
terminal.time.monotonic = lambda: now_s[0]
with terminal.progress().step(name):
    now_s[0] = 2.0
"""


def _drawn(width: int, completed: float, *, note: str = "", label: str = "Running on b") -> str:
    now_s = 100.0
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system=None,
        width=width,
        get_time=lambda: now_s,
    )
    display = terminal._display(console)
    began_s = time.monotonic() - 65
    task = display.add_task(label, total=96, unit="tokens", note=note, began_s=began_s)
    for count in (completed / 2, completed):
        now_s += 10
        display.update(task, completed=count)
    for each in display.get_renderables():
        console.print(each)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("label", ["Running on virtual-dayu200", "Copying " + "long" * 30])
def test_at_eighty_columns_bar_rate_and_time_left_stay_while_tokens_run(label: str) -> None:
    shown = _drawn(80, 24, note="and it said so many words to the man at sea", label=label)
    figures, note = shown.splitlines()
    assert re.search(r"━+.* 24/96 tokens 1\.2/s 1:00 left", figures), shown
    assert note.strip() == "and it said so many words to the man at sea"
    assert label[:20] in figures
    figures, note = _drawn(40, 24, note="x" * 60, label=label).splitlines()
    assert figures.rstrip().endswith("25% 1:00 left")
    assert note.endswith("…")
    assert max(len(figures.rstrip()), len(note)) <= 40


def test_a_step_that_has_counted_to_its_end_goes_on_until_it_ends() -> None:
    shown = _drawn(80, 96)
    assert "✓" not in shown
    assert "1:05" in shown, "the time that passes"


def test_what_a_program_writes_does_not_steer_the_terminal() -> None:
    shown = _drawn(80, 24, note="\x1b[2J\x9b2Jwords\a")
    assert not set("\x1b\x9b\a") & set(shown)
    assert "words" in shown


_WORKING = """
import sys
from armload.cli import terminal
terminal._FIRST_LINE_AFTER_S = 0.05
with terminal.progress().step("Working"):
    sys.stdin.readline()
terminal.say("a word " * 30)
"""


@pytest.mark.parametrize("kind", ["dumb", "xterm"])
def test_any_terminal_shows_that_something_goes_on(kind: str) -> None:
    person, end = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-c", _WORKING],
        env=environment | {"TERM": kind},
        stdin=subprocess.PIPE,
        stdout=end,
        stderr=end,
    ) as process:
        os.close(end)
        heard = b""
        while b"Working" not in heard:
            heard += os.read(person, 4096)
        process.communicate(b"\n")
    while b"a word" not in heard:
        heard += os.read(person, 4096)
    os.close(person)
    assert (b"\x1b" in heard) == (kind == "xterm"), heard
    if kind == "dumb":
        assert re.search(rb"Working: \d+ s so far\r\n", heard), heard
        assert max(map(len, heard.splitlines())) <= 80


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("verb", ["", *sorted(verbs(namespace))])
def test_help_fits_the_terminal_and_breaks_no_word_and_no_example(
    verb: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "argv", ["armload", *([verb] if verb else []), "--help"])
    with contextlib.suppress(SystemExit):
        program.run()
    shown = capsys.readouterr().out
    if verb:
        task = verbs(namespace)[verb]
        example = "Example: " + (task.__doc__ or "").partition("Example: ")[2].splitlines()[0]
        assert example in shown.splitlines()
        for argument in task.get_arguments():
            assert set((argument.help or "").split()) <= set(shown.split()), argument.name
    for line in shown.splitlines():
        assert len(line) <= width or line.startswith(("Example: ", "Usage: ")), line
