"""Each finding has figures that can be read back, and words of its own."""

from __future__ import annotations

import pytest

from armload.analysis.finding import Finding, RunFinding, kinds_of
from armload.analysis.limit_findings import Limit, LimitFinding
from armload.analysis.verdict import Verdict
from tests.unit.findings import EXAMPLES, LIMITS


@pytest.mark.parametrize("found", EXAMPLES)
def test_a_verdict_keeps_figures_and_words_of_a_finding(found: RunFinding) -> None:
    verdict = Verdict.of([found])
    assert verdict.reasons == (found.sentence,)
    (doubt,) = verdict.findings
    assert (doubt.name, doubt.figures) == (found.name, found)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


@pytest.mark.parametrize("found", LIMITS)
def test_a_limit_keeps_its_figures_and_words(found: LimitFinding) -> None:
    limit = Limit.of(found)
    assert (limit.cause, limit.figures, limit.sentence) == (found.cause, found, found.fact())
    assert Limit.model_validate_json(limit.model_dump_json()) == limit


@pytest.mark.parametrize("family", [EXAMPLES, LIMITS])
def test_no_two_cases_are_written_alike(family: tuple[Finding, ...]) -> None:
    assert len({each.sentence for each in family}) == len(family)


def test_every_kind_of_finding_and_limit_has_an_example() -> None:
    assert {type(each) for each in EXAMPLES} == {*kinds_of(RunFinding)}
    assert {type(each) for each in LIMITS} == {*kinds_of(LimitFinding)}


def test_whoever_cannot_repeat_a_run_gets_no_advice() -> None:
    advised = [each for each in EXAMPLES if each.advice()]
    assert Verdict.of(advised, advises=False).reasons == tuple(each.fact() for each in advised)
