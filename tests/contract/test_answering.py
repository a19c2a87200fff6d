"""Answers to a list of items are kept, whatever ends a run, and only the rest is asked again."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from armload.core.errors import RunError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.engines.answers import read_answers
from armload.engines.scorer import ANSWERS, SCORER
from armload.evaluation.scorer_run import Item, answer_items_there, answers_in
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.reach import ConnectedBoard
from armload.runs.request import Request
from armload.runs.session import Session, session
from tests.unit.samples import binary

ITEMS: list[Item] = [{"id": str(n), "kind": "tokenize", "text": "a"} for n in range(5)]

STUB = """#!/bin/sh
while [ "$1" != --items ]; do shift; done
answered=0
while read -r line; do
    if [ $answered = {most} ]; then {end}; fi
    id=${{line#*: \\"}}
    printf '{{"id":"%s","kind":"tokenize","tokens":[1]}}\\n' "${{id%%\\"*}}"
    answered=$((answered + 1))
done < "$2"
exit 0
"""
"""Takes the place of the scorer: answers some items, and then does as it is told."""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a board, this machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "here.yaml").write_text(
        f"target: host\nreach: {{kind: local}}\nworkdir: {tmp_path}/board\n"
    )
    return tmp_path


@contextmanager
def stub(folder: Path, *, most: int, end: str) -> Iterator[tuple[Session, Model]]:
    """Reach the board with a stub for a scorer, and with a model that it does not look at."""
    program = folder / SCORER
    program.write_bytes(STUB.format(most=most, end=end).encode() + b"\0llama\0")
    # As one program to armload, however it ends.
    like_all = binary(program, sha256=sha256_of(program)).model_copy(
        update={"architecture": platform.machine(), "target": "host"}
    )
    known = model_called("word-problems:Q2_K", Silent())
    with session(Request(board="here", wait_s=0), (), Silent()) as where:
        yield replace(where, binaries={SCORER: like_all}), known


def answered(folder: Path, *, most: int, end: str = "exit 3", new: bool = False) -> Path:
    with stub(folder, most=most, end=end) as (where, known):
        board = ConnectedBoard(where, Silent())
        return answer_items_there(board, known, ITEMS, ScorerSettings(), Silent(), new=new)


def asked(folder: Path) -> Counter[str]:
    """Return how often each item was answered, by all runs together."""
    outputs: Sequence[Path] = [*folder.glob(f"runs/*/{ANSWERS}")]
    return Counter(answer.id for path in outputs for answer in read_answers(path))


ONCE = Counter({str(item["id"]): 1 for item in ITEMS})


def test_runs_that_end_early_are_followed_by_others_for_the_rest(workspace: Path) -> None:
    folder = answered(workspace, most=2)
    assert asked(workspace) == ONCE
    assert len([*workspace.glob("runs/*")]) == 3
    assert sorted(answers_in(folder)) == sorted(ONCE)


def test_a_run_without_an_answer_ends_it_and_says_where_to_look(workspace: Path) -> None:
    with pytest.raises(RunError, match="here: none of 5 items was answered: ") as caught:
        answered(workspace, most=0)
    assert "armload show" in caught.value.remedy


def test_after_ctrl_c_the_same_command_asks_the_rest(workspace: Path) -> None:
    waits = "while [ ! -e gate ]; do sleep 0.1; done"
    end = waits.replace("gate", str(workspace / "gate"))
    interrupted = multiprocessing.get_context("fork").Process(
        target=answered, args=(workspace,), kwargs={"most": 2, "end": end}
    )
    interrupted.start()
    assert interrupted.pid is not None
    while not any(
        path.read_bytes().count(b"\n") == 2 for path in workspace.glob(f"board/runs/*/{ANSWERS}")
    ):
        time.sleep(0.05)
    os.kill(interrupted.pid, signal.SIGINT)
    interrupted.join()
    assert sum(asked(workspace).values()) == 2
    (workspace / "gate").touch()
    folder = answered(workspace, most=2, end=end)
    assert asked(workspace) == ONCE
    assert sorted(answers_in(folder)) == sorted(ONCE)


def test_what_is_answered_is_not_asked_again_unless_it_is_to_be_new(workspace: Path) -> None:
    first = answered(workspace, most=9)
    assert answered(workspace, most=9) == first
    assert asked(workspace) == ONCE
    second = answered(workspace, most=9, new=True)
    assert second != first
    assert json.loads((second / "run.json").read_text())["result"]["answers"] == len(ITEMS)
    assert answered(workspace, most=9) == second
