"""The same work for several boards at once, and work that is divided between them."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from armload.cli.error_output import failed
from armload.cli.execution import run_verb
from armload.cli.streams import promise_document
from armload.cli.verbs.service import ListOptions, list_services
from armload.core.errors import (
    ArmloadError,
    BoardError,
    BusyError,
    CombinedError,
    ConnectError,
    RunError,
)
from armload.core.progress import Progress, Silent
from armload.fleet.threads import BoardTask, Served, TaskResult, on_each, serve
from tests.waiting import wait_until

BOARDS = ("a", "b", "c")

WORK = """
import subprocess, sys
from pathlib import Path
from armload.core.children import known
from armload.core.progress import Silent
from armload.fleet.threads import on_each

def work(name, progress):
    words = [sys.executable, "-c", "import time; time.sleep(600)", MARK]
    with subprocess.Popen(words, start_new_session=True) as process, known(process):
        Path(FOLDER, name).touch()
        process.wait()

on_each(["one", "two"], work, Silent())
"""


def test_a_board_that_is_off_does_not_hide_what_others_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for package in ("serving", "services"):
        monkeypatch.setattr(f"armload.{package}.listing.FIRST_ANSWER_S", 0.1)
    (tmp_path / "boards").mkdir()
    dark = "target: rk3568\nreach: {kind: ssh, host: 127.0.0.1, port: 1}\nworkdir: /tmp/work\n"
    (tmp_path / "boards" / "dark.yaml").write_text(dark)
    for board, stdout, status in (
        ("dark,this-machine", [], 6),
        ("this-machine", [], None),
        ("dark", "connection", 6),
    ):
        assert listed(board) == status
        shown = capsys.readouterr()
        found = json.loads(shown.out)
        assert (found if isinstance(found, list) else found["error"]["kind"]) == stdout
        assert ("1 of 2 boards failed: dark." in shown.err) == ("," in board)


def listed(board: str) -> object:
    try:
        run_verb(list_services, {"board": board, "as_json": True})
    except SystemExit as end:
        return end.code
    return None


def test_an_interruption_leaves_no_program_that_was_started(tmp_path: Path) -> None:
    mark = f"child of {tmp_path}"
    code = f"MARK = {mark!r}\nFOLDER = {str(tmp_path)!r}\n{WORK}"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(list(tmp_path.iterdir())) >= 2, process)
        process.send_signal(2)
        process.wait(timeout=60)
    children = [each for each in psutil.process_iter(["cmdline"]) if _is_marked(each, mark)]
    _, alive = psutil.wait_procs(children, timeout=30)
    left = [each for each in alive if not _is_dead(each)]
    for each in left:
        each.kill()
    assert left == []


def _is_marked(process: psutil.Process, mark: str) -> bool:
    words: list[str] = process.info["cmdline"] or [""]
    return words[-1] == mark


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


CLEANING = """
import subprocess, sys, time
from pathlib import Path
from armload.core.children import known
from armload.core.progress import Silent
from armload.fleet.threads import on_each

def work(name, progress):
    try:
        with progress.step("Running") as step:
            Path(FOLDER, name).touch()
            while True:
                time.sleep(0.01)
                step.update(0)
    except KeyboardInterrupt:
        with subprocess.Popen(["sleep", SECONDS], start_new_session=True) as process:
            with known(process, is_kept=True), progress.step("Fetching") as step:
                status = process.wait()
                step.update(1)
        Path(FOLDER, f"{name} cleaned up {status}").touch()
        raise

on_each(["one", "two"], work, Silent())
"""


@pytest.mark.parametrize(("seconds", "presses"), [("0.5", 1), ("600", 2)])
def test_boards_are_cleaned_up_after_an_interruption_and_a_second_one_does_not_wait(
    seconds: str, presses: int, tmp_path: Path
) -> None:
    code = f"FOLDER = {str(tmp_path)!r}\nSECONDS = {seconds!r}\n{CLEANING}"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(list(tmp_path.iterdir())) >= 2, process)
        for _ in range(presses):
            process.send_signal(signal.SIGINT)
            if presses > 1:
                time.sleep(1)
        assert process.wait(timeout=60) != 0
    cleaned = {each.name for each in tmp_path.iterdir()} >= {
        "one cleaned up 0",
        "two cleaned up 0",
    }
    assert cleaned == (presses == 1)


def test_boards_are_named_by_commas() -> None:
    assert ListOptions.typed({"board": "a,@rk,v*"}).board == ("a", "@rk", "v*")


def test_work_that_fails_for_one_board_is_done_for_the_others() -> None:
    together = threading.Barrier(3, timeout=10)

    def work(name: str, _progress: Progress) -> str:
        together.wait()
        if name == "b":
            raise BoardError("b: no")
        return name * 2

    outcomes = on_each(BOARDS, work, Silent())
    assert [(one.board, one.result) for one in outcomes] == [("a", "aa"), ("b", None), ("c", "cc")]
    assert str(outcomes[1].error) == "b: no"


def test_errors_of_all_boards_are_shown_and_a_document_that_is_owed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    promise_document(wanted=True)
    errors = {"a": ConnectError("a is off.", ""), "b": None, "c": BoardError("c is full.", "")}
    error = CombinedError.of_boards(errors)
    assert error is not None
    ended = failed(error)
    shown = capsys.readouterr()
    assert ended.code == ConnectError.exit_status
    assert json.loads(shown.out)["error"]["message"] == "a is off."
    assert "a is off." in shown.err
    assert "c is full." in shown.err
    assert "2 of 3 boards failed: a, c." in shown.err


def test_the_error_of_the_only_board_is_raised_in_the_calling_thread() -> None:
    def work(name: str, _progress: Progress) -> int:
        assert threading.current_thread() is threading.main_thread()
        raise BoardError(f"{name}: no")

    with pytest.raises(BoardError, match="a: no"):
        on_each(["a"], work, Silent())


@pytest.mark.parametrize("boards", [["a"], ["a", "b"]])
def test_a_fault_in_the_work_for_a_board_is_no_outcome(boards: list[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        on_each(boards, lambda _name, _progress: 1 // 0, Silent())


def test_boards_that_share_a_task_do_not_wait_for_one_that_ended_in_a_fault() -> None:
    took = threading.Event()

    def breaks(_number: int) -> None:
        took.set()
        time.sleep(0.2)
        raise ZeroDivisionError

    def begins_late(_number: int) -> None:
        assert took.wait(10)

    lab = Lab(a=breaks, b=begins_late)
    tasks = [BoardTask(item=number, boards=("a", "b")) for number in range(2)]
    faults: list[BaseException] = []

    def work() -> None:
        try:
            lab.serve(*tasks)
        except ZeroDivisionError as fault:
            faults.append(fault)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert len(faults) == 1


def test_a_program_that_is_started_during_an_interruption_is_ended() -> None:
    code = """
import signal
import subprocess
from armload.core.children import end_all, known
end_all()
with subprocess.Popen(["sleep", "600"], start_new_session=True) as process, known(process):
    print(process.wait(timeout=60))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == -signal.SIGTERM


class Lab:
    """Boards that do numbered tasks; what happens on one is a function of the number."""

    def __init__(self, **does: Callable[[int], None]) -> None:
        self.does = does
        self.done: dict[str, list[int]] = {}
        self.opened: list[str] = []
        self.ended: list[TaskResult[int, str]] = []

    @contextlib.contextmanager
    def open(self, board: str, _progress: Progress) -> Iterator[Callable[[int], str]]:
        self.opened.append(board)
        own = self.done.setdefault(board, [])

        def do(number: int) -> str:
            if board in self.does:
                self.does[board](number)
            own.append(number)
            return f"{number} on {board}"

        yield do

    def serve(self, *tasks: BoardTask[int]) -> Served[int, str]:
        return serve(tasks, self.open, Silent(), ended=self.ended.append)


def shared(count: int) -> list[BoardTask[int]]:
    return [BoardTask(item=number, boards=BOARDS) for number in range(count)]


def fails(error: ArmloadError) -> Callable[[int], None]:
    def fail(_number: int) -> None:
        raise error

    return fail


def waits(_number: int) -> None:
    time.sleep(0.01)


def test_shared_tasks_are_done_once_each_by_whichever_board_is_free() -> None:
    lab = Lab(a=waits, b=waits, c=lambda _: time.sleep(0.3))
    served = lab.serve(*shared(40))
    assert sorted(number for its in lab.done.values() for number in its) == list(range(40))
    assert len(lab.done["c"]) < len(lab.done["a"])
    assert [one.item for one in served.results] == list(range(40))
    assert all(one.result == f"{one.item} on {one.board}" for one in served.results)
    assert sorted(one.item for one in lab.ended) == list(range(40))
    assert served.errors == {}


@pytest.mark.parametrize("error", [ConnectError("b: away"), BusyError("b: in use")])
def test_what_a_board_leaves_that_goes_away_is_done_by_another(error: ArmloadError) -> None:
    lab = Lab(a=waits, b=fails(error), c=waits)
    served = lab.serve(*shared(20))
    assert sorted(lab.done["a"] + lab.done["c"]) == list(range(20))
    assert served.errors == {"b": error}
    assert not any(one.error for one in served.results)


def test_a_board_that_is_done_waits_for_what_another_one_may_leave() -> None:
    took = threading.Event()

    def goes_away_late(_number: int) -> None:
        took.set()
        time.sleep(0.3)
        raise ConnectError("b: away")

    def begins_late(_number: int) -> None:
        assert took.wait(10)

    lab = Lab(a=begins_late, b=goes_away_late)
    tasks = [BoardTask(item=number, boards=("a", "b")) for number in range(2)]
    served = lab.serve(*tasks)
    assert sorted(lab.done["a"]) == [0, 1]
    assert set(served.errors) == {"b"}


def test_what_one_board_cannot_do_is_tried_on_the_others_before_it_failed() -> None:
    full = BoardError("b: full")
    lab = Lab(a=waits, b=fails(full), c=waits)
    served = lab.serve(*shared(12))
    assert served.errors == {"b": full}
    assert not any(one.error for one in served.results)
    assert sorted(lab.done["a"] + lab.done["c"]) == list(range(12))
    broken = RunError("no")
    nowhere = Lab(a=fails(broken), b=fails(broken), c=fails(broken)).serve(*shared(3))
    assert [one.error for one in nowhere.results] == [broken] * 3


def test_a_task_of_one_board_never_moves() -> None:
    lab = Lab(b=fails(ConnectError("b: away")))
    served = lab.serve(
        *(BoardTask(item=number, boards=(name,)) for number, name in enumerate(BOARDS))
    )
    assert lab.done == {"a": [0], "b": [], "c": [2]}
    assert [(one.board, str(one.error)) for one in served.results if one.error] == [
        ("b", "b: away")
    ]


def test_a_task_leaves_its_home_only_when_that_failed() -> None:
    tasks = [BoardTask(item=number, boards=BOARDS, home=home) for number, home in enumerate(BOARDS)]
    slow = Lab(a=lambda _: time.sleep(0.2))
    slow.serve(*tasks)
    assert slow.done == {"a": [0], "b": [1], "c": [2]}
    away = Lab(a=fails(ConnectError("a: away")), b=waits, c=waits)
    served = away.serve(*tasks)
    assert sorted(away.done["b"] + away.done["c"]) == [0, 1, 2]
    assert set(served.errors) == {"a"}


def test_tasks_that_no_board_is_left_for_have_the_error_of_one() -> None:
    lab = Lab(**{name: fails(ConnectError(f"{name}: away")) for name in BOARDS})
    served = lab.serve(*shared(5))
    assert set(served.errors) == set(BOARDS)
    assert all(str(one.error).endswith("away") for one in served.results)
    assert lab.ended == [], "a later command does them"


def test_a_board_that_cannot_be_opened_leaves_all_to_the_others() -> None:
    lab = Lab()

    @contextlib.contextmanager
    def opened(board: str, progress: Progress) -> Iterator[Callable[[int], str]]:
        if board == "b":
            raise BoardError("b: its CPU lacks asimddp")
        with lab.open(board, progress) as do:
            yield do

    served = serve(shared(6), opened, Silent())
    assert sorted(number for its in lab.done.values() for number in its) == list(range(6))
    assert set(served.errors) == {"b"}
