"""The same work for several boards at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from armload.cli.parallel import at_once
from armload.cli.verbs.serve import ListOptions, list_services
from armload.core.errors import BoardError, UsageError
from tests.waiting import wait_until

WORK = """
import subprocess, sys
from pathlib import Path
from armload.cli.parallel import at_once
from armload.core.children import known

def work(name):
    words = [sys.executable, "-c", "import time; time.sleep(600)", MARK]
    with subprocess.Popen(words, start_new_session=True) as process, known(process):
        Path(FOLDER, name).touch()
        process.wait()

at_once(["one", "two"], work)
"""


def test_a_board_that_is_off_does_not_hide_what_others_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("armload.serving.listing.FIRST_ANSWER_S", 0.1)
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


def listed(board: str) -> int | None:
    try:
        list_services(Context(), board=board, json=True)
    except Exit as end:
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


def test_boards_are_named_by_commas_and_each_once() -> None:
    assert ListOptions.typed({"board": "a, b,a,"}).board == ("a", "b")
    with pytest.raises(UsageError, match="--board: this names no board"):
        ListOptions.typed({"board": " , "})


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
