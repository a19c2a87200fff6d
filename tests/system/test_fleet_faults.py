"""A sweep through gateways that are killed, a scheduler that is, and a command that is."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.labs import Lab, check_sweep, runs_of
from tests.waiting import wait_until

STORIES = Path(__file__).parents[3] / "shared" / "data" / "stories260K.gguf"
pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(covers=["armload/fleet", "armload/bench", "armload/runs"]),
    pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES.name} is not there"),
]
GATEWAYS = {"hall": ("one", "two"), "cellar": ("three",)}
CELLS, REPEATS = 2, 4


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"), GATEWAYS, sleeping=True)
    made.start()
    yield made
    made.stop()


def sweep(lab: Lab, tokens: str) -> tuple[str, ...]:
    model = ("--model", str(STORIES), "-t", "1", "-n", tokens, "--repeats", str(REPEATS))
    return ("bench", "--board", "@lab", "--share", "--scheduler", lab.address, *model, "--json")


def begun(lab: Lab, *words: str) -> subprocess.Popen[str]:
    """Start a sweep, and wait until all boards run something after its first run came home."""
    before = len(runs_of(lab.ann))
    process = lab.ann.start(*words)

    def all_run() -> bool:
        return len(runs_of(lab.ann)) > before and all(
            is_running(lab.gateways[name].folder / f"{board}-board")
            for name, boards in GATEWAYS.items()
            for board in boards
        )

    wait_until(all_run, process, within_s=300)
    return process


def is_running(board: Path) -> bool:
    return any(
        not (path.parent / "exit").exists() and path.read_bytes().count(b"\n") > 5
        for path in board.glob("runs/*/trace.jsonl")
    )


def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    swept: str = json.loads(out)["sweep"]
    return swept, err


def test_a_worker_that_is_killed_and_started_again_takes_up_its_runs(lab: Lab) -> None:
    process = begun(lab, *sweep(lab, "100,101"))
    lab.kill("hall")
    lab.start_gateway("hall")
    swept, err = finished(process)
    check_sweep(lab, swept, CELLS, REPEATS)
    assert "The worker is gone. Sending the task again." in err
    assert "left by an interrupted command" in err


def test_a_scheduler_that_is_killed_and_started_again_is_found_again(lab: Lab) -> None:
    process = begun(lab, *sweep(lab, "102,103"))
    lab.kill("scheduler")
    lab.start_scheduler()
    swept, _ = finished(process)
    check_sweep(lab, swept, CELLS, REPEATS)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_interrupted_or_killed_is_resumed(lab: Lab, kind: signal.Signals) -> None:
    words = sweep(lab, "104,105" if kind == signal.SIGINT else "106,107")
    process = begun(lab, *words)
    process.send_signal(kind)
    _, err = process.communicate(timeout=120)
    if kind == signal.SIGINT:
        assert process.returncode == 130, err
        assert err.count("Interrupted.") == 1
        for board in ("one", "two", "three"):
            assert f"{board}: The partial run is kept: armload show" in err
        stopped = [run for run in runs_of(lab.ann).values() if run["exit"]["kind"] == "stopped"]
        assert sorted(run["board"]["name"] for run in stopped) == ["one", "three", "two"]
    swept, err = finished(lab.ann.start(*words))
    assert "Resuming" in err
    check_sweep(lab, swept, CELLS, REPEATS)
