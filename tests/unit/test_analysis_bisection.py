"""Which commit made it slower: decisions from samples, on recorded times of real runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from armload.analysis.bisection import (
    MOST_PAIRS,
    BisectionGoal,
    FoundCommits,
    JudgedCommit,
    Sample,
    WrongEndpointsError,
    search,
)
from armload.analysis.confidence_sequence import decide, ratio_of_pairs
from armload.core.errors import InconclusiveError
from tests.simulated_bisection import COMMITS, Commits, Line, recorded_times_s, searched


@pytest.mark.parametrize("slowdown", [0.06, 0.15, 0.0])
@pytest.mark.parametrize(("share", "searches"), [(1.0, 100), (0.25, 500)])
def test_a_search_is_wrong_no_more_often_than_it_says(
    slowdown: float, share: float, searches: int
) -> None:
    times_s = recorded_times_s(share)
    outcomes = Counter(searched(times_s, each, slowdown).outcome for each in range(searches))
    wrong = outcomes["wrong"]
    if not slowdown:
        # Whatever is found where nothing is slower is wrong.
        wrong = searches - outcomes["nothing"] - outcomes["inconclusive"]
    assert wrong <= 0.05 * searches
    if slowdown and share < 1:
        assert outcomes["right"] >= 0.95 * searches


def test_the_ratio_is_that_of_the_commit_and_its_parent() -> None:
    found = [searched(recorded_times_s(0.25), each, 0.15).found for each in range(100)]
    ratios = [each.ratio for each in found if each and each.ratio]
    held = sum(each.low <= 1.15 <= each.high for each in ratios)
    assert len(ratios) >= 95
    assert held >= 0.95 * len(ratios) - 3


def test_decisions_over_a_growing_list_are_wrong_no_more_often_than_stated() -> None:
    error, wrong, times = 0.05, 0, 2000
    for number in range(times):
        lots = random.Random(number)
        shifts: list[float] = []
        while len(shifts) < MOST_PAIRS:
            shifts.append(lots.gauss(0, 1))
            if decide(shifts, error) == "above":
                wrong += 1
                break
    assert 0.01 * times < wrong <= error * times + 2 * (times * error) ** 0.5


def test_a_trend_of_the_board_does_not_decide() -> None:
    rising_s = [1.01**number for number in range(400)]
    wanted = BisectionGoal(good="0", bad=str(COMMITS), slower=0.05)
    for number in range(40):
        commits = Commits(rising_s, random.Random(0), slow=13, slowdown=0.15)
        commits._at = 0
        found = search(wanted, Line(), commits.sample, seed=str(number))
        assert found.commits == ("13",)
        same = Commits(rising_s, random.Random(0), slow=13, slowdown=0.0)
        same._at = 0
        with pytest.raises((WrongEndpointsError, InconclusiveError)):
            search(wanted, Line(), same.sample, seed=str(number))


def _steady(
    slow: int, slowdown: float = 0.1, unbuilt: Sequence[int] = ()
) -> Callable[[str], Sample]:
    return Commits([1.0], random.Random(0), slow=slow, slowdown=slowdown, unbuilt=unbuilt).sample


WANTED = BisectionGoal(good="0", bad="16", slower=0.05)


def _search(measure: Callable[[str], Sample], wanted: BisectionGoal = WANTED) -> FoundCommits:
    return search(wanted, Line(), measure, seed="0")


@pytest.mark.parametrize("slow", range(1, 17))
def test_without_noise_every_place_is_found_in_as_many_steps_as_git_takes(slow: int) -> None:
    found = _search(_steady(slow))
    assert found.commits == (str(slow),)
    assert found.parent == str(slow - 1)
    assert found.is_confirmed
    assert found.ratio is not None
    assert found.ratio.ratio == pytest.approx(1.1)
    assert 4 <= len(found.judged) <= 5


def test_commits_that_do_not_build_are_skipped_and_kept_away_from() -> None:
    wanted, unbuilt = BisectionGoal(good="0", bad="64", slower=0.05), range(28, 37)
    tried = set[int]()
    for number in range(20):
        said: list[JudgedCommit] = []
        measure = _steady(50, unbuilt=unbuilt)
        found = search(wanted, Line(), measure, seed=str(number), said=said.append)
        assert found.commits == ("50",)
        assert found.judged == tuple(said)
        assert (said[0].verdict, said[0].reason) == ("skipped", "error: not yet")
        skipped = [each for each in said if each.verdict == "skipped"]
        assert {int(each.commit) for each in skipped} <= set(unbuilt)
        tried.add(len(skipped))
    assert min(tried) == 1
    assert max(tried) < len(unbuilt)


def test_where_the_commits_beside_it_are_skipped_all_of_them_are_named() -> None:
    found = _search(_steady(11, unbuilt=(9, 10, 11)))
    assert sorted(map(int, found.commits)) == [9, 10, 11, 12]
    assert found.parent == ""
    assert found.ratio is None
    assert found.endpoints is not None


def test_two_commits_that_follow_on_one_another_need_no_further_runs() -> None:
    wanted = BisectionGoal(good="10", bad="11", slower=0.05)
    found = _search(_steady(11), wanted)
    assert found.commits == ("11",)
    assert found.ratio == found.endpoints
    assert found.judged == ()


def test_a_slowdown_that_many_commits_share_is_not_blamed_on_one() -> None:
    def sample(commit: str) -> Sample:
        return Sample(commit=commit, run="run", cost_s=1 + 0.01 * int(commit))

    assert not _search(sample).is_confirmed


def test_exchanged_commits_are_told_from_ones_that_are_alike() -> None:
    with pytest.raises(WrongEndpointsError, match="faster than the good one") as faster:
        _search(_steady(11, slowdown=-0.1))
    assert "Swap --good and --bad" in faster.value.remedy
    with pytest.raises(
        WrongEndpointsError, match=r"not slower than the good one by 5%: it takes 1\.000"
    ):
        _search(_steady(11, slowdown=0.0))


def test_runs_that_differ_too_much_are_inconclusive() -> None:
    lots = random.Random(0)

    def sample(commit: str) -> Sample:
        return Sample(
            commit=commit, run="run", cost_s=lots.lognormvariate(0, 1) * 1.025 ** (commit == "16")
        )

    with pytest.raises(InconclusiveError, match=f"{MOST_PAIRS} pairs of runs.+ by 5%: it takes "):
        _search(sample)


@pytest.mark.parametrize(("commit", "name"), [(0, "good"), (16, "bad")])
def test_ends_that_do_not_build_are_refused(commit: int, name: str) -> None:
    with pytest.raises(WrongEndpointsError, match=f"The {name} commit {commit} cannot be built"):
        _search(_steady(11, unbuilt=(commit,)))


def test_a_good_commit_that_fails_is_refused() -> None:
    with pytest.raises(WrongEndpointsError, match="The good commit 0 fails: killed"):
        _search(lambda commit: Sample(commit=commit, run="run", failure="killed"))


def test_the_first_that_fails_is_found_with_one_run_each() -> None:
    def sample(commit: str) -> Sample:
        failure = "killed" if int(commit) >= 5 else ""
        return Sample(commit=commit, run="run", cost_s=1, failure=failure)

    found = _search(sample)
    assert (found.effect, found.commits, found.parent) == ("fails", ("5",), "4")
    assert found.runs == 2 + len(found.judged) <= 7
    assert found.error is None


def test_a_commit_whose_run_fails_is_skipped_when_speed_is_the_question() -> None:
    steady = _steady(11)

    def sample(commit: str) -> Sample:
        made = steady(commit)
        return made.model_copy(update={"failure": "killed"}) if commit == "8" else made

    found = _search(sample)
    assert found.commits == ("11",)
    assert found.judged[0].reason == "killed"


def test_the_first_other_text_is_found() -> None:
    def sample(commit: str) -> Sample:
        return Sample(commit=commit, run="run", cost_s=1, text_sha256=str(int(commit) >= 9))

    found = _search(sample, WANTED.model_copy(update={"text_differs": True}))
    assert (found.effect, found.commits) == ("text differs", ("9",))


def test_texts_that_differ_each_time_or_never_cannot_be_searched() -> None:
    wanted = WANTED.model_copy(update={"text_differs": True})
    lots = random.Random(0)
    with pytest.raises(WrongEndpointsError, match="a different text on each run"):
        _search(lambda each: Sample(commit=each, run="r", text_sha256=str(lots.random())), wanted)
    with pytest.raises(WrongEndpointsError, match="the same text"):
        _search(lambda each: Sample(commit=each, run="r", text_sha256="a"), wanted)


def test_one_failure_of_a_good_commit_does_not_end_a_search() -> None:
    steady, asked = _steady(11), Counter[str]()

    def sample(commit: str) -> Sample:
        asked[commit] += 1
        made = steady(commit)
        is_lost = commit == "0" and asked[commit] == 5
        return made.model_copy(update={"failure": "killed"}) if is_lost else made

    assert _search(sample).commits == ("11",)


def test_the_ratio_of_few_pairs_has_no_interval() -> None:
    few, many = ratio_of_pairs([(1, 1.1)] * 3), ratio_of_pairs([(1, 1.1)] * 8)
    assert few.unit == "none"
    assert few.low == 0
    assert many.low == pytest.approx(1.1)
    assert many.high == pytest.approx(1.1)
