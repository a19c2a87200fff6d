"""math-verify in its own process: what it decides, and that it cannot hang the command."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest

from armload.core.errors import MissingToolError
from armload.evaluation.grading.math_verify import Worker

needs_extra = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="the extra `math` is not installed"
)
ENDLESS = r"\boxed{9^{9^{9^{9}}}}"


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(time_limit_s=10)
    yield made
    made.close()


@needs_extra
def test_it_computes_what_the_other_graders_do_not(worker: Worker) -> None:
    assert worker.grade(r"\boxed{9 + 9}", "18").correct
    assert not worker.grade(r"\boxed{17}", "18").correct
    assert worker.grade("no idea", "18").extracted is None


@needs_extra
@pytest.mark.exhaustive(covers=["armload/evaluation/grading"])
def test_an_answer_that_never_ends_is_ended_and_said_and_the_next_one_is_graded(
    worker: Worker,
) -> None:
    found = worker.grade(ENDLESS, "18")
    assert not found.correct
    assert found.failure == "math-verify did not finish within 10 s and was ended"
    assert worker.grade(r"\boxed{18}", "18").correct


@needs_extra
def test_a_process_that_dies_is_said_and_replaced(worker: Worker) -> None:
    assert worker.grade(r"\boxed{18}", "18").correct
    process = worker._process
    assert process is not None
    os.kill(process.pid, 9)
    process.wait()
    assert worker.grade(r"\boxed{18}", "18").failure == "math-verify's process ended with status -9"
    assert worker.grade(r"\boxed{18}", "18").correct


def test_without_the_package_it_says_what_to_install(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="needs the package math-verify"):
        worker.grade("18", "18")
