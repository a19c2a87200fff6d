"""Which version of a service is in force, with a real supervisor, through every cut of the power."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import LocalReach, parse_board
from armload.boards.boot import BootFacts
from armload.boards.host import Completed
from armload.boards.local import LocalHost
from armload.build.helper import SUPERVISE, helper
from armload.build.target import machine_architecture
from armload.core.errors import BoardError, RunError, UsageError
from armload.core.progress import Silent
from armload.core.shell import join, quote, render
from armload.services import asking, switching
from armload.services.asking import wait_until_ready
from armload.services.folder import switch
from armload.services.init_systems import Cron
from armload.services.reaching import ReachedService
from armload.services.setting_up import BoardInit, unit_of
from armload.services.state import installed_service
from armload.services.switching import go_back, put_on_trial, rolled_back, settled
from armload.services.version import ServiceLayout, ServiceVersion
from tests.golden.results import value
from tests.supervised import ServiceFolder, is_gone
from tests.waiting import wait_until

RECORD = value("installed", dict)["record"]
MOST_CUTS = 30


class Heard(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said = ""

    def say(self, text: str) -> None:
        self.said += f"{text}\n"


class PowerCutHost(LocalHost):
    """A board whose power fails before a chosen change of its files, or signal."""

    left = 0
    """Until it fails; 0 for never."""

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if self.left < 0:
            raise BoardError("The power has failed.")
        if not self.left:
            return super().run(command, stdin=stdin, timeout_s=timeout_s)
        words = ["mv", "rm", "ln", "kill", "setsid"]
        counting = (
            f"left={self.left}\n"
            'count() { left=$((left - 1)); [ "$left" -gt 0 ] || command kill -9 $$; }\n'
            + "".join(f'{word}() {{ count; command {word} "$@"; }}\n' for word in words)
            + f"trap 'echo; echo left \"$left\"' EXIT\n{command}\n"
        )
        done = super().run(f"({counting})", stdin=stdin, timeout_s=timeout_s)
        text, _, left = done.stdout.decode().rpartition("\nleft ")
        if not left.strip().isdecimal():
            self.left = -1
            raise BoardError("The power has failed.")
        self.left = int(left)
        return Completed(status=done.status, stdout=text.encode(), stderr=done.stderr)


class Board:
    """A service on this machine, whose init is a person who types.

    Attributes:
        host: where its commands run.
        versions: in its folder.
        said: by commands.
    """

    def __init__(self, workdir: Path) -> None:
        self.host = PowerCutHost("kitchen")
        self.layout = ServiceLayout(workdir=PurePosixPath(workdir), name="tutor")
        folder = Path(self.layout.folder)
        folder.parent.mkdir(parents=True)
        program = str(helper(SUPERVISE, architecture=machine_architecture()).path)
        self.versions = ServiceFolder(folder, [program])
        values = {"name": "tutor", "supervise": program, "folder": self.layout.folder}
        (folder / "run").write_text(render("service/run.sh.j2", values))
        self.progress = Heard()

    def add(self, name: str, start: str = "") -> None:
        """Write a version: one that answers, or one that runs a script."""
        if start:
            self.versions.version(name, start, failures=2)
        else:
            self.versions.server(name, failures=2)
        record = {**RECORD, "id": name, "service": "tutor", "init": "cron"}
        path = self.versions.folder / "versions" / name / "service.json"
        path.write_text(json.dumps(record) + "\n")

    def notes(self, version: str, former: str = "", trial: str = "") -> None:
        for name, text in (("version", version), ("former", former), ("trial", trial)):
            path = self.versions.folder / name
            path.unlink(missing_ok=True)
            if text:
                path.write_text(f"{text}\n")

    @property
    def noted(self) -> tuple[str, ...]:
        """The versions in force, before it, and on which a trial falls back; "-" for none."""
        paths = [self.versions.folder / name for name in ("version", "former", "trial")]
        return tuple(path.read_text().strip() if path.exists() else "-" for path in paths)

    def boots(self) -> None:
        self.host.left = 0
        self.versions.start()
        self.versions.waits_for(state="ready", pid=self.versions.process.pid)

    def loses_power(self) -> None:
        state = self.versions.state()
        if state and not is_gone(state["pid"]):
            os.kill(state["pid"], signal.SIGKILL)
        self.versions.close()
        if state and state["child"]:
            wait_until(lambda: is_gone(state["child"]))

    def reached(self) -> ReachedService:
        board = parse_board({"workdir": str(self.layout.workdir)}, "kitchen", LocalReach())
        state = installed_service(self.host, self.layout.workdir, "tutor")
        assert state.record is not None
        return ReachedService(
            host=self.host,
            board=board,
            state=state,
            record=state.record,
            layout=self.layout,
            chosen=BoardInit(BootFacts(), Cron()),
            unit=unit_of(self.layout, state.record),
        )

    @property
    def answers(self) -> str:
        """The version that answers now."""
        state = installed_service(self.host, self.layout.workdir, "tutor")
        assert state.condition == "ready"
        assert state.state is not None
        return state.state.version


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setattr(asking, "_LOOK_EVERY_S", 0.05)
    made = Board(tmp_path)
    yield made
    made.host.left = 0
    made.loses_power()
