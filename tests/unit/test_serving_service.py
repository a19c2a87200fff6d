"""A service that several commands of this machine use."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from armload.analysis.run import Run
from armload.boards.local import LocalHost
from armload.core.errors import ConnectError, DataError, RunError
from armload.core.progress import Silent
from armload.core.workspace import runs_folder
from armload.deploy.heartbeat import ServiceState
from armload.runs import fetch as module
from armload.runs import store
from armload.serving import following
from armload.serving import service as service_module
from armload.serving.service import Service, trace_between
from tests.unit.runs import quick_run

RUN = quick_run()

HEADER = {"format": 2, "start_ns": 0}


def attended() -> Service:
    """A service on a board that is not asked for anything."""
    board = SimpleNamespace(name="kitchen")
    connection = SimpleNamespace(beside=None, board=board, host=None)
    it: Any = SimpleNamespace(
        connection=connection,
        folder=PurePosixPath("/work") / RUN.id,
        was_running=False,
        job=None,
        servers=None,
    )
    engine: Any = SimpleNamespace(model=SimpleNamespace(name="tiny"), plan=None)
    return Service(it, engine, "a-key", boot_id="b")


def test_two_commands_fetch_a_service_that_dies_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fetched: list[str] = []

    def fetched_slowly(*_: object, **__: object) -> Run:
        fetched.append(RUN.id)
        time.sleep(0.3)
        store.save(RUN, runs_folder() / RUN.id)
        return RUN

    monkeypatch.setattr(module, "_fetched", fetched_slowly)
    monkeypatch.setattr(service_module, "mark_fetched", lambda *_: None)
    services = [attended(), attended()]
    for each in services:
        monkeypatch.setattr(each._heartbeat, "ask", lambda **_: ServiceState(condition="ended"))

    def check(service: Service) -> str:
        with pytest.raises(RunError, match="no longer serves") as error:
            service.check()
        return error.value.remedy

    with ThreadPoolExecutor() as pool:
        remedies = list(pool.map(check, services))
    assert fetched == [RUN.id]
    assert all(RUN.id in remedy for remedy in remedies)


def test_a_board_that_restarts_under_serve_is_waited_for_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "_LOOK_EVERY_S", 0.01)
    answers: list[Exception] = [
        ConnectError("kitchen: the connection dropped."),
        ConnectError("kitchen: the connection dropped."),
        RunError("kitchen no longer serves tiny: the board restarted."),
    ]

    class Restarting:
        def check(self, *, is_certain: bool = False) -> None:
            assert is_certain == (len(answers) < 3)
            raise answers.pop(0)

    said: list[str] = []
    progress = Silent()
    monkeypatch.setattr(progress, "say", said.append)
    with pytest.raises(RunError, match="the board restarted"):
        following.follow(cast("Service", Restarting()), progress, log=lambda _: None)
    assert len(said) == 1


def step(number: int) -> dict[str, int]:
    """Return the step that takes the second of that number."""
    return {"step": number, "start_ns": number * 10**9, "end_ns": (number + 1) * 10**9}


def written(path: Path, *lines: object) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def between(folder: Path, from_s: float, to_s: float) -> list[dict[str, object]]:
    lines = trace_between(LocalHost("here"), PurePosixPath(folder), from_s, to_s)
    return [json.loads(line) for line in lines]


def test_steps_that_touch_the_span_come_behind_the_first_line(tmp_path: Path) -> None:
    written(tmp_path / "trace.jsonl", HEADER, *map(step, range(10)))
    assert between(tmp_path, 2.5, 4.5) == [HEADER, step(2), step(3), step(4)]
    ended_s = step(2)["end_ns"] / 1e9
    assert between(tmp_path, ended_s, ended_s)[:2] == [HEADER, step(2)]


def test_both_files_are_read_and_the_first_line_comes_once(tmp_path: Path) -> None:
    written(tmp_path / "trace.jsonl.1", HEADER, *map(step, range(3, 6)))
    written(tmp_path / "trace.jsonl", HEADER, *map(step, range(5, 9)))
    assert between(tmp_path, 4.5, 7.5) == [HEADER, *map(step, range(4, 8))]


def test_the_last_word_on_the_weights_before_the_span_is_told(tmp_path: Path) -> None:
    early, late = {"weights": "mapped"}, {"weights": "streamed"}
    lines = (HEADER, early, step(0), late, step(1), step(2))
    written(tmp_path / "trace.jsonl", *lines)
    assert between(tmp_path, 2.5, 9) == [HEADER, late, step(2)]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    written(tmp_path / "trace.jsonl", HEADER, step(0))
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write('{"step":1,"start_')
    assert between(tmp_path, 0, 9) == [HEADER, step(0)]


def test_a_service_that_has_done_nothing_has_no_trace(tmp_path: Path) -> None:
    assert between(tmp_path, 0, 9) == []


@pytest.mark.parametrize(
    "line", ['{"step": "1"}', '{"a": ' + "[" * 10_000 + "}", "7}", '{"step": -1}']
)
def test_a_line_that_no_engine_writes_is_told(tmp_path: Path, line: str) -> None:
    written(tmp_path / "trace.jsonl", HEADER)
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(DataError, match="no engine writes"):
        between(tmp_path, 0, 9)
