"""A search for a slow commit among real builds of llama.cpp, interrupted and resumed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from armload.core.places import cache_folder
from armload.fleet.bisect import BisectionFolder
from armload.runs import store
from tests.command_line import BIN, typed
from tests.llama_commits import LlamaRepository
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.timeout(2400),
    pytest.mark.exhaustive(
        covers=["armload/fleet/bisect.py", "armload/analysis/bisection.py", "armload/build"]
    ),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

SLOW, BROKEN = 6, 4
"""Of eight commits, and so near to one another that both are tried."""


def test_the_slow_commit_is_found_by_a_command_that_was_interrupted(
    stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = LlamaRepository(
        tmp_path / "llama.cpp", 9, slow=SLOW, delay_us=300, broken=frozenset({BROKEN})
    )
    monkeypatch.setenv("ARMLOAD_CACHE", str(cache_folder()))
    workspace = tmp_path / "workspace"
    (workspace / "boards").mkdir(parents=True)
    # Other tests use this machine meanwhile.
    board = f"extends: this-machine\nworkdir: {tmp_path / 'board'}\n"
    (workspace / "boards" / "own.yaml").write_text(board)
    monkeypatch.chdir(workspace)
    words = ["bisect", "--board", "own", "--model", str(stories), "-n", "32", "-t", "1"]
    words += ["--source", str(lab.folder), "--good", lab.commits[0], "--bad", "main", "--json"]

    first = subprocess.Popen([str(BIN / "armload"), *words], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(_samples()) >= 6, first, within_s=3600)
        first.send_signal(signal.SIGINT)
        assert first.wait(120) == 130
    finally:
        first.kill()
        first.wait()
    done_before = _samples()

    done = typed(workspace, *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["found"]
    assert found["commits"] == [lab.commits[SLOW]]
    assert found["parent"] == lab.commits[SLOW - 1]
    assert found["ratio"]["low"] > 1.05
    verdicts = {each["commit"]: each["verdict"] for each in found["judged"]}
    assert verdicts[lab.commits[BROKEN]] == "skipped"
    assert verdicts[lab.commits[SLOW]] == "bad"

    (folder,) = BisectionFolder.kind.folders()
    journal = BisectionFolder.read(folder)
    assert [each.model_dump() for each in journal.entries[: len(done_before)]] == done_before
    runs = [each.run for each in journal.entries if each.run]
    assert len(set(runs)) == len(runs) == found["runs"]
    for sample in journal.entries:
        if sample.run:
            assert store.load(Path("runs") / sample.run).binary.engine_commit == sample.commit[:12]


def _samples() -> list[dict[str, Any]]:
    folders = BisectionFolder.kind.folders()
    return (
        [each.model_dump() for each in BisectionFolder.read(folders[0]).entries] if folders else []
    )
