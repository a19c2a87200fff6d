"""The highest rate within objectives: on a simulated server, and as it is typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from armload.analysis.load.capacity import is_sustained
from armload.analysis.load.metrics import metrics_of
from armload.analysis.load.records import Objectives, RequestRecord
from armload.core.progress import Silent
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.llama_server import LlamaServer
from armload.serving.find_rate import (
    NARROW_FROM,
    Bracket,
    RateVerdict,
    bracket_of,
    duration_s,
    find_rate,
    search,
)
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.workload import Listed
from tests.command_line import typed
from tests.stub_service import stub_service
from tests.unit.simulated_server import Asked, Simulated


@pytest.mark.parametrize("true_rate", [0.15, 0.4, 0.99])
def test_the_rate_is_found_within_the_search_s_precision(true_rate: float) -> None:
    tried = bracket_of(1.0).tried(lambda rate: rate <= true_rate)
    met = [rate for rate in tried if rate <= true_rate]
    assert true_rate / NARROW_FROM <= max(met, default=1 / 8) <= true_rate
    assert len(tried) <= 6


def test_a_simulated_server_is_found_to_sustain_what_its_slots_can_do() -> None:
    server = Simulated(slots=4, prompt_token_s=0.0)
    # Twenty tokens in steps of at most 0.14 s: four slots answer 4 / (20 * 0.14) requests/s.
    most_per_s = 4 / (20 * 0.14)

    def met(rate: float) -> bool:
        asked = [Asked(at_s=number / rate) for number in range(100)]
        observed = server.serve(asked, rate=rate)
        found = metrics_of(observed.point, observed.records, Objectives(ttft_s=1.0)).goodput
        return found is not None and is_sustained(found, surely=True)

    tried = bracket_of(most_per_s).tried(met)
    best = max(rate for rate in tried if met(rate))
    assert most_per_s / NARROW_FROM**2 < best < most_per_s * 1.05


def test_a_search_that_always_fails_takes_longest() -> None:
    bracket = Bracket(low=0.1, high=1.0)
    longest_s = duration_s(bracket, 100, met=False)
    assert longest_s > duration_s(bracket, 100, met=True)
    assert longest_s == sum(100 / rate for rate in bracket.tried(lambda _: False))


def test_forty_requests_can_show_a_rate_to_be_sustained_and_fewer_cannot() -> None:
    for count, is_sure in ((40, True), (30, False)):
        asked = [Asked(at_s=10.0 * number) for number in range(count)]
        observed = Simulated().serve(asked, rate=0.1)
        found = metrics_of(observed.point, observed.records, Objectives(ttft_s=5)).goodput
        assert found is not None
        assert is_sustained(found, surely=True) is is_sure
        assert is_sustained(found, surely=False)


def test_a_service_that_does_more_than_the_closed_loop_shows_is_searched_above() -> None:
    def decide(rate: float) -> RateVerdict:
        return RateVerdict(met=rate <= 150, keeps_up=rate <= 160)

    rates = search(bracket_of(4.0), decide)
    highest = max(rate for rate in rates if rate <= 150)
    lowest = min(rate for rate in rates if rate > 150)
    assert lowest <= NARROW_FROM * highest
    assert len(rates) < 20


def test_a_search_ends_where_requests_no_longer_show_what_is_sustained() -> None:
    rates = search(bracket_of(4.0), lambda rate: RateVerdict(met=True, keeps_up=rate <= 4.0))
    assert rates == bracket_of(4.0).tried(lambda _: True)


def test_it_says_beforehand_how_long_it_takes_and_at_the_end_what_is_sustained(
    tmp_path: Path,
) -> None:
    words = ("--find-rate", "--slo", "e2e=20s", "--requests", "40", "--n-predict", "2", "--json")
    with stub_service(header_s=0.1) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"4 clients at a time: [\d.]+ requests/s. About [45] rates of 40 requests each", done.stderr
    )
    found = json.loads(done.stdout)
    rates = [point["rate"] for point in found["points"]]
    assert rates == sorted(rates)
    assert found["capacity"]["rate"] == rates[-1]
    assert found["capacity"]["sentence"].startswith(
        f"Sustains {rates[-1]:g} requests/s, with 95% confidence, or more within the SLO"
    )
    probe, search = sorted(
        (LoadFolder.read(folder).load for folder in (tmp_path / "loads").iterdir()),
        key=lambda load: load.finds_rate,
    )
    assert (probe.finds_rate, search.finds_rate) == (False, True)
    assert [point.concurrency for point in probe.points] == [4]


class LateAtFirst(LoadRunner):
    """A client that is late by ten seconds at the first rate."""

    is_late = True

    def point(
        self, pace: LoadLevel, extent: StopCondition
    ) -> tuple[LoadFolder, list[RequestRecord]]:
        kept, records = super().point(pace, extent)
        late_s, self.is_late = 10.0 if self.is_late else 0.0, False
        return kept, [
            record.model_copy(
                update={
                    "begun_s": (record.begun_s or 0.0) + late_s,
                    "end_s": record.end_s + late_s,
                }
            )
            for record in records
        ]


def test_a_rate_at_which_the_client_was_late_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with stub_service(header_s=0.02) as service:
        target = LoadTarget(url=service.url, api_key="", model="stub", dialect=LlamaServer())
        ask = Listed([CompletionRequest(prompt="Once upon a time", max_tokens=2)], "stub")
        probing, loading = (
            kind(target, ask, Arrivals(), 1, Silent()) for kind in (LoadRunner, LateAtFirst)
        )
        kept = find_rate(
            *(probing, loading, Objectives(e2e_s=5.0), StopCondition(requests=40)),
            slots=4,
            progress=Silent(),
        )
    first, second, third, *_ = [point.rate for point in kept.load.points]
    assert first == second
    assert third is not None
    assert third > (second or 0.0)


def test_a_rate_at_which_all_requests_fail_is_not_sustained_and_ends_no_search(
    tmp_path: Path,
) -> None:
    words = ("--find-rate", "--slo", "e2e=9s", "--requests", "40", "--n-predict", "2", "--json")
    with stub_service(header_s=0.02, status=503, answered=12) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 0, done.stderr
    assert "no request succeeded at" in done.stderr
    found = json.loads(done.stdout)
    assert len(found["points"]) > 3
    assert found["capacity"]["rate"] is None


def test_what_each_rate_has_shown_is_said_when_it_ends(tmp_path: Path) -> None:
    words = ("--find-rate", "--slo", "e2e=1ms", "--requests", "40", "--n-predict", "2")
    with stub_service(header_s=0.02) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"requests/s: 0% of the requests within the SLO, not sustained", done.stderr)
    assert len(lines) >= 4
    assert "Does not sustain" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rate", "1", "--slo", "ttft=1s"), "--rate cannot be combined with --find-rate"),
        (("--duration", "60", "--slo", "ttft=1s"), "--duration cannot be combined with"),
        ((), "--slo is missing"),
        (("--slo", "ttft=1s", "--requests", "20"), "needs 40 or more"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = typed(tmp_path, "load", "--url", "http://127.0.0.1:9", "--find-rate", *words)
    assert done.returncode == 2
    assert said in done.stderr
