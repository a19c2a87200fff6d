"""Two people who share one virtual board, and what they do and see."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.outside_data import shared
from tests.person import Person
from tests.waiting import wait_until

ENGINE_RUNS = "pidof llama-completion >/dev/null"
# Runs on the board, where no line is too slow for it.
CATCH_ENGINE = """
traces() {{ set -- */trace.jsonl; [ -e "$1" ] || shift; found=$#; for newest; do :; done; }}
rm -f {held}; mkdir -p {runs}; cd {runs} || exit 1
traces; before=$found
(
  trap '' HUP
  until traces; [ $found -gt $before ]; do sleep 0.1; done
  until [ "$(wc -l <$newest)" -ge {lines} ]; do sleep 0.1; done
  pid=$(pidof llama-completion) && kill -STOP $pid && echo $pid >{held}
) </dev/null >/dev/null 2>&1 &
echo $! >{held}.catcher
"""
LET_ENGINE_GO = """
{{ kill $(cat {held}.catcher); kill -CONT $(cat {held}); }} 2>/dev/null
rm -f {held} {held}.catcher
"""
WORKDIR = "/data/local/tmp/armload"
RUNS = f"{WORKDIR}/runs"
# After its engine has ended, a run looks at the board once more.
ALL_RUNS_ENDED = f'[ -z "$(for run in {RUNS}/*/; do [ -e "$run/exit" ] || echo "$run"; done)" ]'
MODELS = f"{WORKDIR}/models"
HELD = "/data/local/tmp/held"


@contextmanager
def two_people(folder: Path) -> Iterator[tuple[Person, Person]]:
    """Two people with a workstation each; the second reaches the board of the first by SSH."""
    ann, bob = Person(folder / "ann"), Person(folder / "bob")
    try:
        share(ann, bob)
        yield ann, bob
    finally:
        ann.types("board.down", "--board", "mine", "--yes")


def share(ann: Person, bob: Person) -> None:
    """Give the second the board of the first, which is up after this, where it is reached now."""
    add_by_ssh(bob, "mine", switched_on(ann))


def switched_on(person: Person) -> dict[str, Any]:
    """Return how the board ``mine`` is reached, which is up."""
    shown: dict[str, Any] = json.loads(person.types("board.up", "--board", "mine", "--json").stdout)
    return shown


def add_by_ssh(
    person: Person, name: str, shown: dict[str, Any], *, port: int = 0, workdir: str = WORKDIR
) -> None:
    """Give a person a virtual board that is up as one that is reached by SSH.

    Args:
        person: who gets it.
        name: that it has there.
        shown: how it is reached.
        port: another one that leads there.
        workdir: a folder there that the user may write.
    """
    person.add_board(
        name,
        f"target: rk3568\nworkdir: {workdir}\nreach:\n  kind: ssh\n"
        f"  host: {shown['host']}\n  port: {port or shown['port']}\n  user: {shown['user']}\n"
        f"  key: {shown['key']}\n",
    )
    person.types("board.trust", "--board", name, "--yes")


class HeldEngine:
    """The engine of the next run on a board: it stops by itself, and goes on when it may.

    What a test does meanwhile finds the run under way, however quick the machine is.

    Args:
        person: who has a board called ``mine``.
        steps: that it does before it stops.
    """

    def __init__(self, person: Person, *, steps: int = 0) -> None:
        self._person = person
        lines = steps + 1  # the first is the trace's header
        person.on_board(CATCH_ENGINE.format(held=HELD, runs=RUNS, lines=lines))

    def waited_for(self, process: subprocess.Popen[str]) -> None:
        """Wait until the engine has stopped; the process that brings it there must go on."""
        self._person.waits_on_board(f"[ -s {HELD} ]", process)

    def goes_on(self) -> None:
        """Let it go on; harmless when it has, or never began."""
        self._person.on_board(LET_ENGINE_GO.format(held=HELD))


@contextmanager
def held_engine(person: Person, *, steps: int = 0) -> Iterator[HeldEngine]:
    """Hold the engine of the next run, at the latest until the block ends."""
    engine = HeldEngine(person, steps=steps)
    try:
        yield engine
    finally:
        engine.goes_on()


def checked(run: dict[str, Any], tokens: int) -> None:
    assert run["exit"]["kind"] == "done"
    assert [step["step"] for step in run["steps"]] == list(range(tokens))


def said_by(process: subprocess.Popen[str], pattern: str) -> None:
    assert process.stderr is not None
    said = ""
    while re.search(pattern, said) is None:
        heard = process.stderr.readline()
        assert heard, f"it ended before {pattern!r}:\n{said}"
        said += heard


def board_is_clean(ann: Person) -> None:
    probed = json.loads(ann.types("board.probe", "--board", "mine", "--json").stdout)
    assert probed["in_use_by"] == []
    assert ann.on_board("pidof llama-completion || true").strip() == ""


def benches(tokens: int, *more: str, model: str = "") -> tuple[str, ...]:
    """Return the words of a run that is quick enough on busy machines: tiny, on one thread."""
    chosen = model or str(shared("stories260K.gguf"))
    single = ("--repeats", "1", "--threads", "1", "--json")
    return ("bench", "--board", "mine", "--model", chosen, "-n", str(tokens), *single, *more)


def power_cut(ann: Person) -> None:
    (state,) = (ann.folder / "cache" / "machines").glob("mine-*/qemu.pid")
    os.kill(int(state.read_text()), signal.SIGKILL)
    wait_until(lambda: ann.machine() is None)
