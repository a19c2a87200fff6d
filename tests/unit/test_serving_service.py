"""A service that several commands of this machine use."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from armload.analysis.run import Run
from armload.cli import present_service
from armload.core.errors import ConnectError, RunError
from armload.core.workspace import runs_folder
from armload.deploy.heartbeat import ServiceState
from armload.runs import fetch as module
from armload.runs import store
from armload.serving.service import Service
from tests.unit.runs import quick_run

RUN = quick_run()


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

    def fetch(*_: object, **__: object) -> tuple[Run, Path]:
        fetched.append(RUN.id)
        time.sleep(0.3)
        folder = runs_folder() / RUN.id
        store.save(RUN, folder)
        return RUN, folder

    monkeypatch.setattr(module, "fetch", fetch)
    monkeypatch.setattr(module, "mark_fetched", lambda *_: None)
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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(present_service, "_LOOK_EVERY_S", 0.01)
    answers: list[Exception] = [
        ConnectError("kitchen: the connection dropped."),
        ConnectError("kitchen: the connection dropped."),
        RunError("kitchen no longer serves tiny: the board restarted."),
    ]

    class Restarting:
        def check(self, *, is_certain: bool = False) -> None:
            assert is_certain == (len(answers) < 3)
            raise answers.pop(0)

    with pytest.raises(RunError, match="the board restarted"):
        present_service._follow(cast("Service", Restarting()))
    assert "Waiting for the board" in capsys.readouterr().err
