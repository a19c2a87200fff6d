"""What a person sees of work under way, on a terminal and in a pipe."""

from __future__ import annotations

import ctypes
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from operator import call
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, Group

from armload.cli import progress
from armload.cli import terminal as asking
from armload.cli.progress import Bars, _BarStep, _display
from armload.core.progress import Labelled, Progress, Silent, Within
from armload.fleet.threads import on_each
from tests.command_line import run


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on a terminal that can show bars, wherever the tests run."""
    monkeypatch.setenv("TERM", "xterm")


def test_bars_of_parallel_steps_share_one_display() -> None:
    console = Console(force_terminal=True, width=120, file=io.StringIO())
    bars = Bars(console)
    inside = threading.Barrier(2, timeout=10)

    def work(name: str, _progress: Progress) -> None:
        with Labelled(bars, name).step("Copying", total=10, unit="B") as step:
            inside.wait()
            step.update(5)
            inside.wait()

    on_each(["a", "b"], work, Silent())
    with bars.step("outer"), bars.step("inner"):
        pass
    shown = console.file.getvalue() if isinstance(console.file, io.StringIO) else ""
    assert "a: Copying" in shown
    assert "b: Copying" in shown
    assert bars._bars is None


def test_a_plain_line_tells_the_rate_and_the_time_left_of_what_moved_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_AFTER_S", 3600)
    now_s = 100.0
    monkeypatch.setattr("armload.cli.progress.time.monotonic", lambda: now_s)
    step = progress._LineStep(Console(file=io.StringIO()), "Copying", 100e6, "B", lambda _: True)
    now_s = 110.0
    step.update(50e6, note="resuming at 50.0 MB")
    now_s = 112.0
    step.update(60e6, rows=[("speed", "high")])
    assert step._line() == (
        "Copying: 60.0 MB/100.0 MB (60%, 5.0 MB/s, 8 s left); resuming at 50.0 MB"
    )
    step.end()


def test_a_plain_line_of_work_without_a_unit_tells_its_share_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_AFTER_S", 3600)
    now_s = 100.0
    monkeypatch.setattr("armload.cli.progress.time.monotonic", lambda: now_s)
    step = progress._LineStep(Console(file=io.StringIO()), "Compiling", None, "", lambda _: True)
    step.update(20, total=100, note="1 of 3 steps: a.cpp")
    now_s = 110.0
    step.update(60, total=100, note="2 of 3 steps: b.cpp")
    assert step._line() == "Compiling: 60%, 10 s left; 2 of 3 steps: b.cpp"
    step.end()


def test_the_time_left_goes_down_while_nothing_is_done_and_then_the_time_passed_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr("armload.cli.progress.time.monotonic", lambda: now_s)
    bars = Bars(Console(force_terminal=True, width=120, file=io.StringIO()))
    with bars.step("Compiling", total=100) as step:
        assert bars._bars is not None
        (task,) = bars._bars.tasks
        for each in (bars._bars, task):
            monkeypatch.setattr(each, "get_time", lambda: now_s)
        shown = []
        for now_s, completed in ((110, 20), (120, 40), (130, 60), (140, 60), (149, 60), (155, 60)):  # noqa: B007
            step.update(completed)
            shown.append(progress._time_of(task))
    assert shown[-4:] == ["0:20 left", "0:10 left", "0:01 left", "0:55"]


def test_without_a_terminal_no_line_is_empty_and_outer_work_does_not_repeat_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE_AFTER_S", 0.01)
    monkeypatch.setattr(progress, "_PLAIN_LINE_EVERY_S", 0.01)
    monkeypatch.setattr(progress, "_PLAIN_LINE_AT_LEAST_EVERY_S", 0.01)
    written = io.StringIO()
    lines = progress.Lines(Console(file=written))

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


def test_the_parts_of_a_plain_line_are_told_apart() -> None:
    written = io.StringIO()
    step = progress._LineStep(
        Console(file=written), "Running on a", 128, "tokens", lambda _step: True
    )
    step.update(0, note="loading the model (predicted: 11 s)")
    waiting = step._line()
    step.update(64, note="generating")
    moving, still = step._line(), step._line(has_moved=False)
    step.end()
    assert waiting == "Running on a: 0/128 tokens; loading the model (predicted: 11 s); 0 s so far"
    assert re.fullmatch(r"Running on a: 64/128 tokens \(50%.*\); generating", moving)
    assert re.fullmatch(r"Running on a: .*; generating; \d+ s so far", still)


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
from armload.cli import progress
from armload.core.columns import Column
from armload.report.layout import Table, whole
name = sys.argv[1]
terminal.show(whole(f"x/{name}"))
table = Table(Column(heading=name))
terminal.show(table)
terminal.show("word " * 99 + name)
terminal.say(name)
now_s = [0.0]
progress.time.monotonic = lambda: now_s[0]
with terminal.progress().step(name):
    now_s[0] = 2.0
"""


def _drawn(
    width: int,
    completed: float,
    *,
    note: str = "",
    rows: Sequence[tuple[str, str]] = (),
    label: str = "Running on b",
) -> str:
    now_s = 100.0
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system=None,
        width=width,
        get_time=lambda: now_s,
    )
    display = _display(console)
    began_s = time.monotonic() - 65
    task = display.add_task(label, total=96, unit="tokens", beneath=[], began_s=began_s)
    step = _BarStep(display, task)
    step.update(1)
    for count in (completed / 2, completed):
        now_s += 10
        step.update(count, note=note, rows=rows)
    console.print(Group(*display.get_renderables()))
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


def test_rows_stand_beneath_the_bar_in_place_of_the_note_and_none_is_broken() -> None:
    rows = [("rate", "2 requests/s asked"), ("in flight", "word " * 30)]
    figures, *beneath = _drawn(80, 24, note="words", rows=rows).splitlines()
    assert "24/96 tokens" in figures
    assert [line.rstrip()[:20] for line in beneath] == [
        "  rate       2 reque",
        "  in flight  word wo",
    ]
    assert beneath[1].endswith("…")
    assert max(map(len, beneath)) <= 80


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
from armload.cli import progress
progress._FIRST_LINE_AFTER_S = 0.05
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


@pytest.mark.parametrize(
    ("completed", "total", "unit", "words"),
    [
        (1, None, "trials", "1 trial"),
        (2, None, "trials", "2 trials"),
        (1, 1, "runs", "1/1 run"),
        (1, 8, "runs", "1/8 runs"),
        (1, None, "B", "1 B"),
    ],
)
def test_what_is_done_is_counted_in_the_right_number(
    completed: int, total: int | None, unit: str, words: str
) -> None:
    assert progress.done_of(completed, total, unit) == words


def test_ctrl_c_just_before_an_answer_is_read_interrupts_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python looks for signals between its own instructions, of which the two calls have none."""
    press = partial(ctypes.PyDLL(None)["raise"], signal.SIGINT)

    def pressed_and_selected(*files: Any) -> Any:
        return list(map(call, (press, partial(select.select, *files))))[1]

    controller, side = pty.openpty()
    ends_late = threading.Timer(20, os.write, (controller, b"\n"))
    ends_late.start()
    with os.fdopen(side) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(asking, "select", SimpleNamespace(select=pressed_and_selected))
        with pytest.raises(KeyboardInterrupt):
            asking.ask("Which")
    ends_late.cancel()
    os.close(controller)


def test_an_answer_is_asked_for_until_it_is_yes_or_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller, side = pty.openpty()
    with os.fdopen(side) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(controller, b"maybe\nYes\n\n kitchen \n\n")
        assert asking.confirm("Stop it?")
        assert not asking.confirm("Stop it?")
        assert asking.ask("Name", "shed") == "kitchen"
        assert asking.ask("Name", "shed", "the one in the shed") == "shed"
    os.close(controller)
    said = capsys.readouterr().err
    assert said.count("Stop it? [y/n] (Enter: n): ") == 3
    assert "Answer y or n." in said
    assert said.endswith("Name (Enter: shed): Name (Enter: the one in the shed): ")


def test_steps_within_one_that_is_open_show_its_label_and_their_progress() -> None:
    written = io.StringIO()
    lines = progress.Lines(Console(file=written, width=200))
    with lines.step("Preparing kitchen", total=10, unit="B") as step:
        inner = Within(lines, step)
        with inner.step("Copying sha256", total=10, unit="B") as copying:
            copying.update(10)
        with inner.step("Checking sha256 on kitchen"):
            inner.say("reading it back")
            assert isinstance(step, progress._LineStep)
            assert step._line() == "Preparing kitchen: 10 B/10 B"
    assert written.getvalue() == "reading it back\n"
