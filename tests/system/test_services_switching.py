"""Which version of a service is in force, with a real supervisor, through every power cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board, LocalReach
from armload.boards.boot import BootFacts
from armload.boards.host import Completed
from armload.boards.local import LocalHost
from armload.build.helper import SUPERVISE, helper
from armload.build.target import machine_architecture
from armload.core.errors import BoardError, InterruptionError, RunError, UsageError
from armload.core.shell import join, quote, render
from armload.services import asking, updating
from armload.services.asking import wait_until_ready
from armload.services.folder import switch
from armload.services.init_systems import Cron, InitSystem
from armload.services.installing import install_unit
from armload.services.making import MadeVersion
from armload.services.reaching import ReachedService
from armload.services.setting_up import BoardInit, unit_of
from armload.services.state import installed_service
from armload.services.switching import put_on_trial, rolled_back, settled
from armload.services.unit import UnitFacts, UnitFile, mark, sealed
from armload.services.version import AnsweredSpeeds, ServiceLayout, ServiceVersion
from tests.golden.results import value
from tests.supervised import Heard, ServiceFolder, is_gone
from tests.system.test_supervise_pass import posted, streamed
from tests.waiting import wait_until

RECORD = value("installed", dict)["record"]
MOST_CUTS = 30
COVERED = ["armload/services", "deploy/service", "toolchains/board"]


class PowerCutHost(LocalHost):
    """A board whose power fails before a chosen change of its files, or signal.

    Attributes:
        left: a file with the number of changes until then; none for never.
    """

    left: Path | None = None
    is_off = False

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if self.left is None:
            return super().run(command, stdin=stdin, timeout_s=timeout_s)
        if not self.is_off:
            file = quote(self.left)
            counting = (
                f"count() {{ read -r left <{file}; left=$((left - 1)); echo $left >{file}; "
                '[ "$left" -gt 0 ] || { command kill -9 $$; exit 9; }; }\n'
            )
            for word in ("mv", "rm", "ln", "kill"):
                counting += f'{word}() {{ count; command {word} "$@"; }}\n'
            done = super().run(counting + command, stdin=stdin, timeout_s=timeout_s)
            self.is_off = int(self.left.read_text()) <= 0
            if not self.is_off:
                return done
        raise BoardError("The power has failed.")


class Kitchen:
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
        program = str(workdir / "bin" / "0123456789ab" / "supervise")
        Path(program).parent.mkdir(parents=True)
        shutil.copy(helper(SUPERVISE, architecture=machine_architecture()).path, program)
        self.versions = ServiceFolder(folder, [program])
        values = {"name": "tutor", "supervise": program, "folder": self.layout.folder}
        (folder / "run").write_text(render("service/run.sh.j2", values))
        self.progress = Heard()
        self.init: InitSystem = Cron(BootFacts())

    def add(self, name: str, start: str = "", memory_bytes: int = 100_000_000) -> None:
        """Write a version: one that answers, or one that runs a script."""
        if start:
            self.versions.version(name, start, failures=2)
        else:
            self.versions.server(name, failures=2)
        own = {"id": name, "service": "tutor", "init": "cron", "memory_limit_bytes": memory_bytes}
        record = {**RECORD, **own}
        path = self.versions.folder / "versions" / name / "service.json"
        path.write_text(json.dumps(record) + "\n")

    def made(self, name: str, load_s: float) -> MadeVersion:
        """Return a version as an update makes it; the supervisor holds its port."""
        place = self.versions.folder / "versions" / name
        self.versions.behind(name, load_s, failures=2)
        files = {each.name: each.read_text() for each in place.iterdir()}
        shutil.rmtree(place)
        record = {**RECORD, "id": name, "service": "tutor", "init": "cron"}
        return MadeVersion(
            record=ServiceVersion.model_validate(record),
            files={**files, "service.json": json.dumps(record) + "\n"},
            supervise=PurePosixPath(self.versions.words[0]),
            notes=(),
            holds_port=True,
        )

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
        """Start the version in force, and wait until it, or the one behind it, answers."""
        self.host.left, self.host.is_off = None, False
        process = self.versions.start()
        self.versions.waits_for(state="ready", pid=process.pid)

    def fails_after(self, changes: int) -> None:
        self.host.left = Path(self.layout.workdir / "left")
        self.host.left.write_text(f"{changes}\n")

    def loses_power(self) -> None:
        state = self.versions.state()
        if state and not is_gone(state["pid"]):
            os.kill(state["pid"], signal.SIGKILL)
        self.versions.close()
        if state and state["child"]:
            wait_until(lambda: is_gone(state["child"]))

    def reached(self) -> ReachedService:
        state = installed_service(self.host, self.layout.workdir, "tutor")
        assert state.record is not None
        return ReachedService(
            host=self.host,
            board=Board(
                name="kitchen",
                target="host",
                reach=LocalReach(kind="local"),
                workdir=self.layout.workdir,
            ),
            state=state,
            record=state.record,
            layout=self.layout,
            chosen=BoardInit(BootFacts(), self.init),
            unit=unit_of(self.layout, state.record),
        )

    @property
    def answers(self) -> str:
        """The version that answers now."""
        state = installed_service(self.host, self.layout.workdir, "tutor")
        assert state.condition == "ready"
        assert state.state is not None
        return state.state.version


class Limiting(Cron):
    """An init whose unit has a memory limit.

    Attributes:
        folder: of the unit, and of the limit of what runs.
        when: the kernel takes a new limit.
    """

    folder: Path
    when: str

    def files(self, unit: UnitFacts) -> tuple[UnitFile, ...]:
        text = sealed(f"# {mark(unit)}\n{unit.memory_max_bytes}\n")
        path = PurePosixPath(self.folder / "unit")
        return (UnitFile(path=path, content=text, mode=0o644),)

    def entry(self, unit: UnitFacts) -> str:
        del unit
        return ""

    def _taken(self) -> str:
        return f"tail -n 1 {quote(self.folder / 'unit')} >{quote(self.folder / 'limit')}"

    def enable(self, unit: UnitFacts) -> str:
        del unit
        return self._taken() if self.when == "reload" else "true"

    def restart(self, unit: UnitFacts) -> str:
        return f"{self._taken()}\n{super().restart(unit)}"

    def memory_limit(self, _unit: UnitFacts) -> str:
        return f"cat {quote(self.folder / 'limit')}"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kitchen]:
    monkeypatch.setattr(asking, "_LOOK_EVERY_S", 0.05)
    made = Kitchen(tmp_path)
    yield made
    made.host.left = None
    made.loses_power()


def test_a_rollback_is_confirmed_once_the_former_version_answers(board: Kitchen) -> None:
    board.add("a")
    board.add("b")
    board.notes("b", former="a")
    board.boots()
    done = rolled_back(board.reached(), board.progress, 0.0)
    assert (done.version, done.former, board.answers) == ("a", "b", "a")
    assert board.noted == ("a", "b", "-")
    assert rolled_back(board.reached(), board.progress, 0.0).version == board.answers == "b"


@pytest.mark.parametrize("fault", ["exit 3", "crash"])
def test_a_former_version_that_fails_gives_way_again(board: Kitchen, fault: str) -> None:
    board.add("b")
    if fault == "crash":
        board.add("a")
        start = board.versions.folder / "versions" / "a" / "start"
        start.write_text(f"(sleep 1.5; kill -9 $$) &\n{start.read_text()}")
    else:
        board.add("a", f"echo no such option; {fault}")
    board.notes("b", former="a")
    board.boots()
    with pytest.raises(RunError) as failed:
        rolled_back(board.reached(), board.progress, 60.0)
    assert ("signal 9" if fault == "crash" else "exit 3") in failed.value.message
    assert ("no such option" in failed.value.message) is (fault == "exit 3")
    assert "goes back to its version b" in board.progress.said
    assert (board.answers, board.noted) == ("b", ("b", "a", "-"))


def test_without_a_former_version_nothing_is_rolled_back(board: Kitchen) -> None:
    board.add("a")
    for former in ("", "a", "gone"):
        board.notes("a", former=former)
        board.versions.start()
        board.versions.waits_for(state="ready")
        with pytest.raises(UsageError, match="no previous version"):
            rolled_back(board.reached(), board.progress, 0.0)
        board.loses_power()


def updates(board: Kitchen) -> None:
    """Put version b in force as an update does that has tried it."""
    service = board.reached()
    put_on_trial(service, "b", confirmed="a")
    wait_until_ready(board.host, board.layout, "b", board.progress, service.state.state)
    switch(board.host, board.layout, "b", former="a", confirmed=True, removed=["x"])


def rolls_back(board: Kitchen) -> None:
    rolled_back(board.reached(), board.progress, 0.0)


@pytest.mark.exhaustive(covers=COVERED)
@pytest.mark.parametrize("then", ["settled", "rolled back"])
@pytest.mark.parametrize("begun", ["update", "rollback", "undone update"])
def test_after_a_power_cut_at_any_change_every_verb_finds_its_way(
    board: Kitchen, tmp_path: Path, begun: str, then: str
) -> None:
    for name in ("a", "b", "x"):
        board.add(name)
    before = {
        "update": ("a", "x", ""),
        "rollback": ("b", "a", ""),
        "undone update": ("b", "x", "a"),
    }[begun]
    command = updates if begun == "update" else rolls_back
    seen = set()
    for changes in range(1, MOST_CUTS):
        if not (board.versions.folder / "versions" / "x").exists():
            board.add("x")
        board.notes(*before)
        board.boots()
        board.fails_after(changes)
        try:
            command(board)
        except BoardError:
            is_cut = True
        else:
            is_cut = False
        board.loses_power()
        cut = board.noted
        seen.add(cut)
        board.boots()
        assert board.answers == cut[0]
        version, former, trial = cut
        if then == "settled":
            expected = {
                "update": "b" if (version, former) == ("b", "a") else "a",
                "rollback": version,
                "undone update": "a",
            }[begun]
            now = settled(board.reached(), board.progress).record.id
        elif cut == ("a", "x", "-") and begun == "update":
            expected = "x"  # nothing of the update has been noted
            now = rolled_back(board.reached(), board.progress, 0.0).version
        else:
            # What is confirmed but for a note goes there and back, as it does after that.
            is_done = version == "a" and former == "b"
            expected = version if version == trial else "b" if is_done else "a"
            now = rolled_back(board.reached(), board.progress, 0.0).version
        assert (now, board.answers) == (expected, expected), (changes, cut)
        assert board.noted[0] == expected
        assert board.noted[2] == "-"
        assert board.noted[1] != expected
        board.loses_power()
        if not is_cut:
            break
    assert not is_cut
    assert len(seen) >= 3


def test_what_was_cut_before_its_signal_is_started(board: Kitchen) -> None:
    board.add("a")
    board.add("b")
    for begun, former in (("update", "-"), ("rollback", "a")):
        board.notes("b", former=former.replace("-", ""))
        board.boots()
        switch(board.host, board.layout, "a", trial="b" if begun == "rollback" else "")
        if begun == "update":
            (board.versions.folder / "trial").write_text("a\n")
        assert board.reached().state.interrupted == ("note" if begun == "update" else "rollback")
        assert settled(board.reached(), board.progress).record.id == "a"
        wait_until(lambda: board.versions.state()["version"] == "a")
        board.versions.waits_for(state="ready")
        assert board.noted[2] == "-"
        board.loses_power()


def test_an_old_version_that_is_gone_does_not_stand_in_the_way_of_an_update(
    board: Kitchen,
) -> None:
    board.add("a", "echo its model is gone; exit 1")
    board.add("b")
    board.notes("b", trial="a")
    board.boots()
    assert settled(board.reached(), board.progress).record.id == "b"
    wanted = {"state": "ready", "version": "b"}.items()
    wait_until(lambda: wanted <= board.versions.state().items())
    assert board.noted == ("b", "-", "-")
    assert "its model is gone" in board.progress.said
    assert "keeps its version b" in board.progress.said


def test_the_board_goes_back_by_itself_and_the_note_of_it_is_settled(board: Kitchen) -> None:
    board.add("a")
    board.add("b", "exit 1")
    board.notes("b", former="x", trial="a")
    board.boots()
    assert (board.answers, board.noted) == ("a", ("a", "x", "-"))
    assert settled(board.reached(), board.progress).record.id == "a"


def test_a_supervisor_that_has_given_up_is_not_waited_for(board: Kitchen) -> None:
    board.add("a", "echo no such file; exit 1")
    board.notes("a")
    assert board.versions.run()[0] == 69
    with pytest.raises(RunError, match=r"exit 1\. Its last output:\n(.*\n)*  no such file"):
        wait_until_ready(board.host, board.layout, "a", board.progress)


def test_loading_is_waited_for_as_long_as_its_supervisor_does(
    board: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_BEGINS_WITHIN_S", 0)
    monkeypatch.setattr(asking, "_FINISHES_WITHIN_S", 0)
    monkeypatch.setattr(ServiceVersion, "load_limit_s", 1)
    board.add("a", "echo reading; exec sleep 1000")
    board.notes("a")
    board.versions.start()
    board.versions.logs("reading")
    began_s = time.monotonic()
    with pytest.raises(RunError, match=r"loading for .*Its last output:\n  reading"):
        wait_until_ready(board.host, board.layout, "a", board.progress)
    assert time.monotonic() - began_s > 1


_ENDS_IN_MID_ANSWER = """
import http.server, os, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 401)
        self.end_headers()
    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        print("out of luck", flush=True)
        os._exit(3)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


def test_a_server_that_ends_in_mid_answer_is_told_with_its_last_words(board: Kitchen) -> None:
    words = [sys.executable, "-S", "-c", _ENDS_IN_MID_ANSWER, str(board.versions.port)]
    board.add("a", f"exec {join(words)}")
    board.notes("a")
    board.boots()
    record = board.reached().record
    with pytest.raises(RunError, match=r"server ended: exit 3\. Its last output:\n(.*\n)*  .*luck"):
        asking.ask(board.host, board.layout, record, "key", board.progress, board.versions.port)


@pytest.mark.parametrize(
    "fault",
    [
        "",
        *(
            pytest.param(fault, marks=pytest.mark.exhaustive(covers=COVERED))
            for fault in ("too slow", "interrupted")
        ),
    ],
)
def test_an_update_beside_the_old_version_loses_no_request(
    board: Kitchen, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    speeds = AnsweredSpeeds(models=())
    asked = []

    def ask(*_: object, port: int | None = None) -> AnsweredSpeeds:
        asked.append(port)
        if fault == "too slow" and port:
            raise RunError("It cannot go on.")
        if fault == "interrupted" and not port:
            raise KeyboardInterrupt
        return speeds

    monkeypatch.setattr(updating, "ask", ask)
    monkeypatch.setattr(updating, "_fits_beside", lambda _: True)
    monkeypatch.setattr(updating, "install_unit", lambda *_, **__: "same")
    board.versions.behind("a")
    record = {**RECORD, "id": "a", "service": "tutor", "init": "cron"}
    (board.versions.folder / "versions/a/service.json").write_text(json.dumps(record) + "\n")
    board.notes("a")
    board.boots()
    made = board.made("b", load_s=2.0)
    change = updating._Change(board.reached(), made, None, "", 0.1, 0.0, board.progress)
    done, answered = threading.Event(), [0]

    def keeps_asking() -> None:
        while not done.is_set():
            assert posted(board.versions, b"one")[:2] == (200, b"one")
            assert len(streamed(board.versions, 5)) == 5
            answered[0] += 1

    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(keeps_asking) for _ in range(3)]
        wait_until(lambda: answered[0] > 0)
        try:
            if fault:
                words = "keeps its version a" if fault == "interrupted" else "cannot go on"
                with pytest.raises((RunError, InterruptionError), match=words):
                    updating._carried_out(change, overwrite=False)
            else:
                updated = updating._carried_out(change, overwrite=False)
                assert (updated.tried, updated.silent_s) == ("beside", 0.0)
            before = answered[0]
            wait_until(lambda: answered[0] > before + 3)
        finally:
            done.set()
        for each in threads:
            each.result()
    assert len(asked) == (1 if fault == "too slow" else 2)
    expected = ("a", "-", "-") if fault else ("b", "a", "-")
    assert (board.answers, board.noted) == (expected[0], expected)
    assert not (board.versions.folder / "versions" / "try").exists()
    assert (board.versions.folder / "versions" / "b").exists() is not bool(fault)


@pytest.mark.parametrize("when", ["reload", "restart"])
def test_a_version_that_needs_more_memory_gets_it_before_it_starts(
    board: Kitchen, tmp_path: Path, when: str
) -> None:
    init = Limiting(BootFacts())
    init.folder, init.when = tmp_path, when
    board.init = init
    board.add("a")
    board.add("b", memory_bytes=300_000_000)
    board.notes("a")
    board.boots()
    service = board.reached()
    install_unit(board.host, *service.chosen, service.unit, overwrite=False)
    (tmp_path / "limit").write_text(f"{service.unit.memory_max_bytes}\n")
    supervisor = board.versions.state()["pid"]
    put_on_trial(service, "b", confirmed="a")
    wait_until_ready(board.host, board.layout, "b", board.progress, service.state.state)
    larger = board.reached().unit.memory_max_bytes
    assert larger == (service.unit.memory_max_bytes or 0) + 200_000_000
    assert int((tmp_path / "limit").read_text()) == larger
    assert (board.versions.state()["pid"] == supervisor) == (when == "reload")
    board.notes("b", former="a")
    back = rolled_back(board.reached(), board.progress, 0.0)
    assert (back.version, board.answers) == ("a", "a")
    assert (tmp_path / "unit").read_text().splitlines()[-1] == str(service.unit.memory_max_bytes)
