"""The verb ``compare``, as a person types it."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from armload.analysis.precision import TooFewRepeats
from armload.analysis.run import Run
from armload.analysis.summary import summarise
from armload.analysis.verdict import Verdict
from armload.engines.trace import Step
from armload.runs import store
from tests.command_line import BIN, typed
from tests.unit.runs import quick_run, storage_run
from tests.unit.sweeps import Q4, made_run


def a_run(name: str, times: float, *doubts: str, tokens: int = 32) -> Run:
    run = quick_run(tokens=tokens)
    level = times * random.Random(name).gauss(1, 0.004)
    steps = tuple(_stretched(step, level) for step in run.steps)
    return run.model_copy(
        update={
            "id": f"20260101T000000Z-kitchen-{name}",
            "steps": steps,
            "summary": summarise(run.trace, steps),
            "verdict": Verdict(valid=not doubts, reasons=doubts),
        }
    )


def _stretched(step: Step, times: float) -> Step:
    took_ns = round((step.end_ns - step.start_ns) * times)
    return step.model_copy(update={"end_ns": step.start_ns + took_ns})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("person")
    (folder / "boards").mkdir()
    for run in [
        *(a_run(f"a{number}", 1.0) for number in range(5)),
        *(a_run(f"b{number}", 1.08) for number in range(5)),
        *(a_run(f"c{number}", 1.08) for number in range(4)),
        *(a_run(f"d{number}", 1.5) for number in range(4)),
        a_run("c4", 1.08, "Contended."),
        a_run("d4", 1.5, "Unsteady."),
        storage_run(),
    ]:
        store.save(run, folder / "runs" / run.id)
    return folder


def side(label: str, *, more: str = "") -> str:
    return ",".join(f"kitchen-{label}{number}" for number in range(5)) + more


def test_a_side_is_filtered_by_board_with_the_letter_that_other_verbs_have(tmp_path: Path) -> None:
    four, one = made_run(Q4, 4), made_run(Q4, 1)
    for run in (four, one):
        store.save(run, tmp_path / "runs" / run.id)
    done = typed(tmp_path, "compare", "-b", "kitchen", four.id, one.id)
    assert "B is slower" in done.stdout, done.stderr
    done = typed(tmp_path, "compare", four.id, one.id, "-b", "attic")
    assert done.returncode == 2
    assert "attic" in done.stderr


@pytest.mark.parametrize(
    ("a", "b", "allowed", "status"),
    [("a", "b", "3%", 11), ("a", "b", "3", 11), ("a", "b", "20%", 0), ("b", "a", "0%", 0)],
)
def test_the_gate_shuts_for_a_sure_slow_down_only(
    folder: Path, a: str, b: str, allowed: str, status: int
) -> None:
    done = typed(folder, "compare", side(a), side(b), "--fail-if-slower", allowed)
    assert done.returncode == status, done.stderr
    assert ("Slower than" in done.stderr) == (status == 11)


@pytest.mark.parametrize(
    ("a", "b", "doubted"), [("a", "c", "B"), ("c", "a", "A"), ("c", "d", "A and B")]
)
def test_a_gate_is_inconclusive_where_a_run_is_not_valid(
    folder: Path, a: str, b: str, doubted: str
) -> None:
    done = typed(folder, "compare", side(a), side(b), "--fail-if-slower", "3%")
    assert done.returncode == 12, done.stderr
    assert "inconclusive" in done.stderr
    assert "Contended." not in done.stderr, "the report says it"
    assert "Repeat the runs that it names" in " ".join(done.stderr.split())
    said = " ".join(done.stdout.split())
    assert "kitchen-c4: Contended." in said
    assert f"Inconclusive: not all runs of {doubted} are valid. B takes" in said
    # No row names a winner either, and the sentence stands before the figures.
    assert "slower" not in said
    assert "faster" not in said
    assert said.index("Inconclusive:") < said.index("95% CI")


def test_the_report_precedes_the_gate_s_error_in_a_file_of_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = (BIN / "armload", "compare", side("a"), side("c"), "--fail-if-slower", "3%")
    done = subprocess.run(
        words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert 0 < done.stdout.index("95% CI") < done.stdout.index("error: ")


def test_the_gate_judges_runs_that_are_merely_imprecise_as_the_finding_does(
    tmp_path: Path,
) -> None:
    imprecise = Verdict.of([TooFewRepeats(runs=5, needed_runs=6)])
    for run in [
        *(a_run(f"a{number}", 1.0) for number in range(5)),
        *(a_run(f"b{number}", 1.08) for number in range(5)),
    ]:
        judged = run.model_copy(update={"verdict": imprecise})
        store.save(judged, tmp_path / "runs" / run.id)
    for a, b, finding, status in (("a", "b", "slower", 11), ("b", "a", "faster", 0)):
        done = typed(tmp_path, "compare", side(a), side(b), "--fail-if-slower", "3%")
        assert f"B is {finding}" in done.stdout, done.stderr
        assert "warning: " in done.stdout
        assert done.returncode == status, done.stderr


def test_a_gate_over_several_plans_asks_more_of_each(tmp_path: Path) -> None:
    for label, times, tokens in (("a", 1.0, 32), ("b", 1.08, 32), ("e", 1.0, 16), ("f", 1.0, 16)):
        for number in range(5):
            run = a_run(f"{label}{number}", times, tokens=tokens)
            store.save(run, tmp_path / "runs" / run.id)
    (alone,) = json.loads(typed(tmp_path, "compare", side("a"), side("b"), "--json").stdout)
    allowed = f"{(alone['figures'][0]['ratio']['low'] - 1.0002):.4%}"
    words = ("--fail-if-slower", allowed)
    assert typed(tmp_path, "compare", side("a"), side("b"), *words).returncode == 11
    both = (f"{side('a')},{side('e')}", f"{side('b')},{side('f')}")
    assert typed(tmp_path, "compare", *both, *words).returncode == 0
    assert typed(tmp_path, "compare", *both, "--fail-if-slower", "3%").returncode == 11


def test_a_doubt_that_several_runs_have_is_told_once(folder: Path, tmp_path: Path) -> None:
    said = typed(folder, "compare", "kitchen-c4", "kitchen-d4").stdout
    assert said.count("warning: ") == 2
    same = [a_run(f"e{number}", 1.0, "Too few repeats.") for number in range(4)]
    for run in (a_run("a0", 1.0), *same):
        store.save(run, tmp_path / "runs" / run.id)
    words = ("compare", "kitchen-a0", ",".join(run.id for run in same))
    said = typed(tmp_path, *words).stdout
    assert said.count("Too few repeats.") == said.count("warning: ") == 1
    assert f"{same[2].id} and 1 more: Too few repeats." in " ".join(said.split())
    assert "Inconclusive: no run of B is valid." in " ".join(said.split())
    refused = typed(tmp_path, *words, "--fail-if-slower", "3%")
    assert refused.returncode == 12
    assert (refused.stdout + refused.stderr).count("Too few repeats.") == 1


def test_a_single_run_that_is_not_valid_is_told_in_the_singular(folder: Path) -> None:
    said = typed(folder, "compare", "kitchen-a1", "kitchen-d4").stdout
    assert "Inconclusive: the run of B is not valid." in " ".join(said.split())
    both = typed(folder, "compare", "kitchen-c4", "kitchen-d4").stdout
    assert "Inconclusive: the runs of A and B are not valid." in " ".join(both.split())
