"""A sweep through gateways during which something fails, four times in each."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.labs import Lab, certificates, check_sweep, runs_of
from tests.networks import Network, network_of_its_own
from tests.outside_data import STORIES, needs_stories
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(covers=["armload/fleet", "armload/bench", "armload/runs"]),
    needs_stories,
]
GATEWAYS = {"hall": ("one", "two"), "cellar": ("three",)}
CELLS, REPEATS = 2, 14
MOMENTS = (1, 4, 7, 10)
"""Runs that have come home before each fault; the last ones come after it."""

CUT_S = 20.0


@dataclass(kw_only=True)
class Sweep:
    """A sweep that is under way."""

    lab: Lab
    tokens: str
    repeats: int
    network: Network | None = None
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = set(runs_of(self.lab.ann))
        self.process = self.start()

    def start(self, *more: str) -> subprocess.Popen[str]:
        model = ("--model", str(STORIES), "-t", "1", "-n", self.tokens)
        return self.lab.ann.start(
            *("bench", "--board", "@lab", "--scheduler", self.lab.address, "--json", *model),
            *(("--share",) if len(self.boards) > 1 else ()),
            *("--repeats", str(self.repeats), *more),
        )

    @property
    def boards(self) -> list[Path]:
        return [
            self.lab.gateways[name].folder / f"{board}-board"
            for name, boards in self.lab.boards.items()
            for board in boards
        ]

    def whole(self) -> list[dict[str, Any]]:
        known = runs_of(self.lab.ann)
        return [known[run] for run in known.keys() - self.before]

    def waits_for(self, home: int) -> None:
        """Wait until so many runs have come home, and something runs on every board."""

        def is_so() -> bool:
            return len(self.whole()) >= home and all(map(is_running, self.boards))

        wait_until(is_so, self.process, within_s=300)

    def ends(self) -> tuple[str, str]:
        """Wait for the end; return the sweep's id and what was said last."""
        out, err = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, err
        assert "Traceback" not in err
        swept: str = json.loads(out)["sweep"]
        return swept, err


def is_running(board: Path) -> bool:
    return any(
        not (path.parent / "exit").exists() and path.read_bytes().count(b"\n") > 5
        for path in board.glob("runs/*/trace.jsonl")
    )


def kill_worker(sweep: Sweep) -> None:
    sweep.lab.kill("hall")
    sweep.lab.start_gateway("hall")


def kill_scheduler(sweep: Sweep) -> None:
    sweep.lab.kill("scheduler")
    sweep.lab.start_scheduler()


def interrupt_command(sweep: Sweep) -> None:
    stopped = {run["id"] for run in sweep.whole() if run["exit"]["kind"] == "stopped"}
    sweep.process.send_signal(signal.SIGINT)
    _, err = sweep.process.communicate(timeout=120)
    assert sweep.process.returncode == 130, err
    assert err.count("Interrupted.") == 1
    new = [
        run
        for run in sweep.whole()
        if run["exit"]["kind"] == "stopped" and run["id"] not in stopped
    ]
    for run in new:
        assert f"{run['board']['name']}: The partial run is kept: armload show {run['id']}" in err
    assert sorted(run["board"]["name"] for run in new) == ["one", "three", "two"]
    sweep.process = sweep.start()


def kill_command(sweep: Sweep) -> None:
    sweep.process.kill()
    sweep.process.communicate()
    sweep.process = sweep.start()


def cut_network(sweep: Sweep) -> None:
    assert sweep.network is not None
    sweep.network.cut(CUT_S)
    assert sweep.process.poll() is None, sweep.process.communicate()


FAULTS: Mapping[str, Callable[[Sweep], None]] = {
    "worker killed": kill_worker,
    "scheduler killed": kill_scheduler,
    "command interrupted": interrupt_command,
    "command killed": kill_command,
    "network cut": cut_network,
}
SAID = {
    "worker killed": ("The worker is gone. Sending the task again.", "left by an interrupted"),
    "scheduler killed": ("was lost. Sending the task again.",),
    "command interrupted": ("Resuming",),
    "command killed": ("Resuming",),
    "network cut": (),
}


@contextmanager
def lab_for(fault: str, folder: Path) -> Iterator[tuple[Lab, Network | None]]:
    with ExitStack() as stack:
        network = None
        if fault == "network cut":
            network = stack.enter_context(network_of_its_own())
            lab = Lab(
                *(folder, GATEWAYS, certificates(folder)),
                sleeping=True,
                host=network.here,
                apart={"hall": network.inside},
            )
        else:
            lab = Lab(folder, GATEWAYS, sleeping=True)
        stack.callback(lab.stop)
        lab.start()
        yield lab, network


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sweep_has_every_run_once_however_often_something_fails(
    fault: str, tmp_path: Path
) -> None:
    with lab_for(fault, tmp_path) as (lab, network):
        # While one gateway is away, the other one's board must not do all that is left.
        tokens = "480,481" if network else "100,101"
        sweep = Sweep(lab=lab, tokens=tokens, repeats=REPEATS, network=network)
        for home in MOMENTS:
            sweep.waits_for(home)
            FAULTS[fault](sweep)
        swept, err = sweep.ends()
        for words in SAID[fault]:
            assert words in err
        kept = check_sweep(lab, swept, CELLS, REPEATS)
        undisturbed = Sweep(lab=lab, tokens=tokens, repeats=1)
        expected = check_sweep(lab, undisturbed.ends()[0], CELLS, 1)
        assert texts(kept) == texts(expected)


def texts(runs: list[dict[str, Any]]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for run in runs:
        found.setdefault(run["plan"]["n_predict"], set()).add(run["text"])
    return found


@pytest.mark.machine
def test_a_sweep_has_every_run_once_however_often_its_board_restarts(tmp_path: Path) -> None:
    lab = Lab(tmp_path, {"hall": ("attic",)}, virtual=True)
    hall = lab.gateways["hall"]
    try:
        lab.start()
        sweep = Sweep(lab=lab, tokens="150,151", repeats=4)
        for home in range(4):
            wait_until(
                lambda home=home: len(sweep.whole()) >= home and is_followed(hall.runs),  # type: ignore[misc]
                sweep.process,
                within_s=600,
            )
            (pid,) = hall.folder.glob("cache/machines/attic-*/qemu.pid")
            psutil.Process(int(pid.read_text())).kill()
        swept, _ = sweep.ends()
        path = lab.ann.folder / "sweeps" / swept / "journal.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        places = sorted((entry["cell"], entry["round"]) for entry in entries)
        assert places == [(cell, number) for cell in range(CELLS) for number in range(4)]
        runs = [runs_of(lab.ann)[entry["run"]] for entry in entries]
        cut = [run for run in runs if run["exit"]["kind"] == "restart"]
        done = [run for run in runs if run["exit"]["kind"] == "done"]
        assert (len(cut), len(done)) == (4, 4)
        expected = texts(done)
        assert all(len(same) == 1 for same in expected.values()), expected
        for run in cut:
            (text,) = expected[run["plan"]["n_predict"]]
            assert text.startswith(run["text"])
        assert not list(hall.runs.glob("*/run.json"))
    finally:
        hall.types("board.down", "--board", "attic", "--yes")
        lab.stop()


def is_followed(runs: Path) -> bool:
    """Say whether a gateway follows a run that has begun, and has not ended."""
    return any(
        path.read_bytes().count(b"\n") > 5 and not (path.parent / "run.json").exists()
        for path in runs.glob("*/seen.jsonl")
    )
