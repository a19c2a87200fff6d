"""The highest rate within objectives: on simulated queues, and as it is typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armload.analysis.load.evidence import Evidence, evidence_of
from armload.analysis.load.queue_model import SaturatedRun
from armload.analysis.load.rate_search import RateSearch
from armload.analysis.load.records import Objectives, RequestRecord
from armload.analysis.statistics import Interval
from armload.core.json_lines import write_lines
from armload.core.progress import Silent
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import LlamaServer
from armload.serving.find_rate import find_rate
from armload.serving.load_runner import LoadRunner, StoppingRule
from armload.serving.loads import LoadFolder
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.workload import Listed
from tests.command_line import typed
from tests.queues import Queue, Service
from tests.simulated_search import search
from tests.stub_service import stub_service

similar = pytest.mark.exhaustive(covers=["armload/serving"])

SEEDS = 16
SERVICE_TIMES = 3000.0


@pytest.mark.parametrize(
    ("service", "slots", "limit_s", "true_rate"),
    [
        # As highest_rate finds them, which takes long.
        ("exponential", 4, 1.2, 2.64),
        ("log-normal", 2, 3.0, 1.41),
        ("constant", 1, 3.0, 0.675),
        ("batch", 4, 1.5, 2.87),
    ],
)
def test_a_search_finds_most_of_what_a_queue_sustains_and_seldom_more(
    service: Service, slots: int, limit_s: float, true_rate: float
) -> None:
    queue = Queue(service=service, slots=slots)
    found = [
        search(queue, limit_s, SERVICE_TIMES, np.random.default_rng(900_000 + seed))
        for seed in range(SEEDS)
    ]
    shares = [(each.sustained or 0.0) / true_rate for each in found]
    # Of 16 searches that err in 5%, more than 4 do in 1 of 1,000 cases.
    assert sum(share > 1 for share in shares) <= 4
    assert float(np.median(shares)) >= 0.75
    assert all(each.spent_s <= SERVICE_TIMES + 1e-6 for each in found)
    assert all(each.sustained is None or each.refuted > each.sustained for each in found)


def test_a_short_search_of_a_service_far_quicker_than_its_objective_decides() -> None:
    queue = Queue(service="constant", slots=2)
    found = [search(queue, 33.0, 660.0, np.random.default_rng(seed)) for seed in range(SEEDS)]
    assert sum(each.sustained is not None for each in found) >= SEEDS - 1
    assert float(np.median([each.sustained or 0.0 for each in found])) >= 0.7 * queue.capacity_per_s


def loop(*margins_s: float) -> SaturatedRun:
    return SaturatedRun(
        clients=2, per_s=Interval(low=3.8, high=4.2), spread=0.1, margins_s=margins_s
    )


def test_a_search_begins_below_the_saturated_rate_and_a_tight_objective_lower() -> None:
    loose, tight = (RateSearch(loop(*[margin_s] * 20), 1500.0).next() for margin_s in (10.0, 0.5))
    assert loose is not None
    assert tight is not None
    assert tight.rate < 0.9 * loose.rate < 4.0
    assert loose.warmup_s < loose.length_s <= 1500


def late(count: int, of: int) -> Evidence:
    """Return requests of which so many were late, one by one."""
    are_late = {place * of // count for place in range(count)}
    records = [
        answered(number, float(number), 2.5 if number in are_late else 0.5) for number in range(of)
    ]
    found = evidence_of(records, [], 1.0, 2, Objectives(e2e_s=2.0), now_s=float(of))
    assert found is not None
    return found


def test_a_rate_that_is_given_up_is_followed_by_a_lower_one_in_the_time_that_is_left() -> None:
    found = RateSearch(loop(*[10.0] * 20), 1500.0)
    first = found.next()
    assert first is not None
    found.done(first, "not sustained", late(30, 200), 300.0)
    second = found.next()
    assert second is not None
    assert second.rate < first.rate
    assert second.length_s == pytest.approx(first.length_s - 300.0)
    assert second.looks[-1][1] == first.looks[-1][1]
    assert (found.sustained, found.refuted) == (None, first.rate)


def test_requests_at_a_higher_rate_count_for_a_lower_one() -> None:
    found = RateSearch(loop(*[1.0] * 20), 3000.0)
    first = found.next()
    assert first is not None
    alone, before = late(8, 90), late(4, 300)
    assert found.look(first, len(first.looks) - 1, alone) == "undecided"
    found.done(first, "undecided", before, 100.0)
    second = found.next()
    assert second is not None
    assert found.look(second, len(second.looks) - 1, alone) == "sustained"


def test_a_search_that_had_to_lower_its_rate_has_less_probability_of_error_left() -> None:
    found = RateSearch(loop(*[10.0] * 20), 3000.0)
    first = found.next()
    assert first is not None
    found.done(first, "undecided", late(30, 200), 100.0)
    second = found.next()
    assert second is not None
    found.done(second, "sustained", late(0, 200), 100.0)
    third = found.next()
    assert third is not None
    assert third.rate > second.rate
    assert third.looks[-1][1] < second.looks[-1][1] == first.looks[-1][1]
    assert first.looks[-1][1] + third.looks[-1][1] <= 0.05


def test_a_search_does_not_begin_with_a_rate_for_which_its_time_has_hardly_a_request() -> None:
    assert RateSearch(loop(*[10.0] * 20), 4.0).next() is None


def test_above_a_rate_that_is_sustained_at_once_the_probability_of_error_stays() -> None:
    found = RateSearch(loop(*[0.5] * 20), 200.0)
    first = found.next()
    assert first is not None
    found.done(first, "sustained", None, 10.0)
    second = found.next()
    assert second is not None
    assert second.rate > first.rate
    assert second.looks[-1][1] == first.looks[-1][1]
    assert found.sustained == first.rate


def answered(number: int, due_s: float, took_s: float) -> RequestRecord:
    return RequestRecord(number=number, scheduled_s=due_s, end_s=due_s + took_s, outcome="ok")


def test_requests_that_are_open_count_once_they_have_missed_an_objective() -> None:
    records = [answered(number, float(number), 0.5) for number in (0, 1, 3, 5)]
    found = evidence_of(records, [2.0, 4.0], 1.0, None, Objectives(e2e_s=2.0), now_s=5.5)
    assert found is not None
    # The one of 2 s is late by now; that of 4 s may still be in time, so none after it counts.
    assert [each <= 1 for each in found.severities] == [True, True, False, True]
    assert found.steady.open_at_end == 3


WORDS = ("--find-rate", "--n-predict", "2", "--json")


def check_capacity(found: dict[str, Any], saturated_per_s: float, said: str) -> None:
    most = found["capacity"]["most_per_s"]
    assert most["low"] <= saturated_per_s <= most["high"]
    assert all(point["rate"] <= most["high"] for point in found["points"])
    rate, sentence = found["capacity"]["rate"], found["capacity"]["sentence"]
    if rate is None:
        assert sentence.startswith("Undecided at ") or "fell behind schedule" in said
    else:
        assert 0.3 * saturated_per_s < rate < saturated_per_s
        assert f"Sustains {rate:g} requests/s within the SLO" in sentence
        assert "with 95% confidence" in sentence
        assert "within the SLO, sustained." in said


def test_it_says_beforehand_how_long_it_takes_and_at_the_end_what_is_sustained(
    tmp_path: Path,
) -> None:
    slow = ("--slo", "e2e=2s", "--max-time", "8")
    with stub_service(header_s=0.06, slots=2) as service:
        done = typed(tmp_path, "load", "--url", service.url, *WORDS, *slow)
    assert done.returncode == 0, done.stderr
    said = re.search(r"clients at a time: ([\d.]+) requests/s \(.*\) with all slots", done.stderr)
    assert said is not None, done.stderr
    assert re.search(r"The search takes up to [\d.]+ s\.", done.stderr)
    found = json.loads(done.stdout)
    # How far a search comes in 8 s depends on this machine; what it decides is simulated below.
    if found["capacity"] is None:
        assert "fell behind schedule" in done.stderr
    else:
        check_capacity(found, float(said[1]), done.stderr)
    probe, kept = sorted(
        (LoadFolder.read(folder).load for folder in (tmp_path / "loads").iterdir()),
        key=lambda load: load.finds_rate,
    )
    assert (probe.finds_rate, kept.finds_rate) == (False, True)
    assert [point.concurrency for point in probe.points][:2] == [1, 2]
    seeds = [point.seed for point in kept.points]
    assert len(set(seeds)) == len(seeds)


def sent_late(record: RequestRecord) -> RequestRecord:
    begun_s = (record.begun_s or 0.0) + 10.0
    return record.model_copy(update={"begun_s": begun_s, "end_s": record.end_s + 10.0})


def without_a_port(record: RequestRecord) -> RequestRecord:
    return record.model_copy(update={"outcome": "client-limit"}) if record.number % 2 else record


class SpoilingClient(LoadRunner):
    """A client that spoils its own records, so that no rate seems to be sustained."""

    spoil = staticmethod(sent_late)

    def point(
        self,
        level: LoadLevel,
        stop: StopCondition,
        *,
        draw: int = 0,
        judge: StoppingRule | None = None,
    ) -> LoadFolder:
        kept = super().point(level, stop, draw=draw, judge=judge)
        if judge is not None:
            judge.verdict = "not sustained"
        number = len(kept.load.points) - 1
        spoilt = [self.spoil(record) for record in kept.requests(number)]
        write_lines(kept.entries_file(number), spoilt)
        return kept


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (sent_late, "this client fell behind schedule"),
        pytest.param(
            without_a_port,
            "this machine had no open files or ports left. Raise its limit",
            marks=similar,
        ),
    ],
)
def test_a_rate_that_the_client_spoilt_is_not_held_against_the_service(
    spoil: Callable[[RequestRecord], RequestRecord],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SpoilingClient, "spoil", staticmethod(spoil))
    said: list[str] = []
    searches: list[RateSearch] = []

    class Said(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    class Kept(RateSearch):
        def __init__(self, loop: SaturatedRun, budget_s: float) -> None:
            super().__init__(loop, budget_s)
            searches.append(self)

    monkeypatch.setattr("armload.serving.find_rate.RateSearch", Kept)
    with stub_service(header_s=0.02, slots=2) as service:
        target = LoadTarget(url=service.url, api_key="", model="stub", dialect=LlamaServer())
        ask = Listed([CompletionRequest(prompt="Once upon a time", max_tokens=2)], "stub")
        probing = LoadRunner(target, ask, Arrivals(), 1, Silent())
        loading = SpoilingClient(target, ask, Arrivals(), 1, Silent())
        kept = find_rate(
            *(probing, loading, Objectives(e2e_s=5.0), StopCondition()),
            slots=2,
            max_time_s=4.0,
            progress=Said(),
        )
    (search,) = searches
    assert loading.most_per_s is not None
    assert (search.sustained, search.refuted) == (None, loading.most_per_s.high)
    discarded = [each for each in said if each.startswith("Discarded the ")]
    assert len(discarded) == len(kept.load.points) > 0
    assert all(why in each for each in discarded)


@similar
def test_a_rate_at_which_all_requests_fail_is_not_sustained_and_ends_no_search(
    tmp_path: Path,
) -> None:
    words = (*WORDS, "--slo", "e2e=9s", "--max-time", "4")
    with stub_service(header_s=0.02, status=503, answered=3000, slots=2) as service:
        service.behaviour.answered = 60
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode in (0, 9), done.stderr
    assert "no request succeeded at" in done.stderr


def test_a_search_without_time_for_a_rate_says_so(tmp_path: Path) -> None:
    with stub_service(header_s=0.02, slots=2) as service:
        done = typed(
            *(tmp_path, "load", "--url", service.url, *WORDS, "--slo", "e2e=9s"),
            *("--max-time", "0.01"),
        )
    assert done.returncode == 9, done.stderr
    assert "--max-time leaves no time to try a rate" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rate", "1", "--slo", "ttft=1s"), "--rate cannot be combined with --find-rate"),
        (("--duration", "60", "--slo", "ttft=1s"), "--duration cannot be combined with"),
        (("--requests", "60", "--slo", "ttft=1s"), "--requests cannot be combined with"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = typed(tmp_path, "load", "--url", "http://127.0.0.1:9", "--find-rate", *words)
    assert done.returncode == 2
    assert said in done.stderr
