"""One load compared with another, requests as samples."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random

import pytest

from armload.analysis.comparison import Comparison
from armload.analysis.load.comparison import compare_loads
from armload.analysis.load.telemetry import ObservedPoint
from armload.analysis.statistics import surely_above
from armload.report.load.loaded import LoadView
from armload.serving.loads import LoadFolder
from tests import command_line
from tests.unit.served_loads import keep, points
from tests.unit.simulated_server import Asked, Simulated

RATES = (0.1, 0.2)


def kept(folder: Path, server: Simulated, **changed: object) -> LoadFolder:
    found = keep(points(server, RATES), folder)
    found.rewrite_header(found.load.model_copy(update=changed))
    return found


def compared(a: LoadFolder, b: LoadFolder) -> list[Comparison]:
    return compare_loads(*LoadView.of(a).compared, *LoadView.of(b).compared)


def test_a_slower_server_is_found_to_be_slower_at_every_rate(tmp_path: Path) -> None:
    a, b = kept(tmp_path / "a", Simulated()), kept(tmp_path / "b", Simulated(step_s=0.15))
    found = compared(a, b)
    assert [each.level.rate for each in found if each.level] == list(RATES)
    assert {each.finding for each in found} == {"slower"}
    assert [each.key for each in found[0].figures] == [
        "end to end",
        "first token",
        "per token",
    ]
    assert found[0].level is not None
    assert found[0].level.requests == len(a.requests(0))
    assert found[0].figures[2].ratio.ratio == pytest.approx(0.16 / 0.11, rel=0.15)
    assert found[0].sentence.startswith("0.1 requests/s: B is slower: ")


def test_the_same_server_is_not_found_to_differ_from_itself(tmp_path: Path) -> None:
    a, b = kept(tmp_path / "a", Simulated()), kept(tmp_path / "b", Simulated(step_s=0.101))
    assert {each.finding for each in compared(a, b)} == {"not significant"}


def test_one_load_each_near_saturation_is_inconclusive_and_asks_for_repeats(
    tmp_path: Path,
) -> None:
    a, b = (
        keep(points(server, (0.6,)), tmp_path / name)
        for name, server in (("a", Simulated()), ("b", Simulated(step_s=0.11)))
    )
    (found,) = compared(a, b)
    assert (found.finding, found.figures[0].a_runs) == ("inconclusive", 1)
    assert found.figures[0].low_at(0.025) == 0.0
    assert "independent observations. B takes" in found.sentence
    assert found.advice == "Run both loads with --repeats 5."


def test_repeats_of_a_point_are_one_comparison_with_one_sample_each(tmp_path: Path) -> None:
    a, b = (
        keep(
            [served(server, seed) for seed in range(5)],
            tmp_path / name,
        )
        for name, server in (("a", Simulated()), ("b", Simulated(step_s=0.11)))
    )
    (found,) = compared(a, b)
    assert (found.finding, found.figures[0].a_runs) == ("slower", 5)
    assert found.figures[0].ratio.unit == "runs"
    assert "end to end (median over 5 repeats) against" in found.sentence


def served(server: Simulated, seed: int) -> ObservedPoint:
    random, at_s, asked = Random(seed), 0.0, list[Asked]()
    for _ in range(60):
        at_s += random.expovariate(0.6)
        asked.append(Asked(at_s=at_s, answer=random.randint(5, 40)))
    return server.serve(asked, rate=0.6)


@pytest.mark.parametrize(
    ("lows", "slower"),
    [
        # One in 20 of chance each: of two comparisons, the surer one must pass at half of that.
        ([(1.2, 1.1), (0.9, 0.8)], 1),
        ([(1.04, 0.99), (0.9, 0.8)], 0),
        ([(1.2, 1.1), (1.04, 0.99)], 2),
    ],
)
def test_a_gate_over_several_comparisons_has_one_probability_of_error(
    lows: list[tuple[float, float]], slower: int
) -> None:
    assert len(surely_above(1.0, [partial(_low_at, low) for low in lows])) == slower


def _low_at(lows: tuple[float, float], level: float) -> float:
    alone, of_two = lows
    return alone if level >= 0.025 else of_two


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 2}, "seed: A 1, B 2"),
        ({"arrivals": "constant"}, "arrivals: A poisson, B constant"),
        ({"requests_from": "b.jsonl"}, "requests: A questions.jsonl, B b.jsonl"),
        ({"requests_sha256": "1" * 64}, "requests: the content of the file differs"),
    ],
)
def test_loads_of_other_requests_are_not_comparable(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    a, b = kept(tmp_path / "a", Simulated()), kept(tmp_path / "b", Simulated(), **changed)
    (first, _) = compared(a, b)
    assert (first.finding, first.obstacles) == ("not comparable", [said])
    assert f"Not comparable: {said}. For reference" in first.sentence


def test_loads_with_another_cap_on_requests_in_flight_are_not_comparable(tmp_path: Path) -> None:
    a = kept(tmp_path / "a", Simulated())
    capped = [point.model_copy(update={"max_concurrency": 4}) for point in a.load.points]
    b = kept(tmp_path / "b", Simulated(), points=tuple(capped))
    first = compared(a, b)[0]
    said = ["--max-concurrency: A none, B 4"]
    assert (first.finding, first.obstacles) == ("not comparable", said)


def test_loads_without_a_rate_in_common_are_not_comparable(tmp_path: Path) -> None:
    a = keep(points(Simulated(), (0.2,)), tmp_path / "a")
    b = keep(points(Simulated(), (0.5,)), tmp_path / "b")
    (found,) = compared(a, b)
    assert found.finding == "not comparable"
    assert "no rate or number of clients in common" in found.sentence


def test_other_settings_are_noted_and_failures_are_doubts(tmp_path: Path) -> None:
    service = {"slots": 4, "context_tokens": 512}
    a = kept(tmp_path / "a", Simulated())
    b = kept(tmp_path / "b", Simulated(), service=service, board="porch")
    lines = b.entries_file(0).read_text().splitlines()
    broken = {**json.loads(lines[0]), "outcome": "dropped"}
    b.entries_file(0).write_text("\n".join([json.dumps(broken), *lines[1:]]) + "\n")
    first = compared(a, b)[0]
    assert first.level is not None
    assert first.level.requests == len(lines) - 1
    assert first.notes == [
        "Boards: A kitchen, B porch.",
        "Context tokens: A 2048, B 512.",
    ]
    assert first.doubts == [f"B: 1 of {len(lines)} requests failed."]
    assert first.finding == "inconclusive"
    assert "Inconclusive: not all figures are valid. B takes" in first.sentence


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("person")
    (folder / "boards").mkdir()
    for name, server in (("a", Simulated()), ("b", Simulated(step_s=0.2))):
        kept(folder / "loads" / f"20261123T070822Z-load-kitchen-{name}", server)
    return folder


def test_compare_takes_loads_and_its_gate_fails_on_the_slower_one(person: Path) -> None:
    words = ("compare", "load-kitchen-a", "load-kitchen-b", "--fail-if-slower", "5%")
    done = command_line.typed(person, *words, cache=person / "cache")
    assert done.returncode == 11
    assert "B is slower" in done.stdout
    back = command_line.typed(
        person, "compare", "load-kitchen-b", "load-kitchen-a", "--json", cache=person / "cache"
    )
    assert back.returncode == 0
    assert {each["finding"] for each in json.loads(back.stdout)} == {"faster"}


def test_a_load_is_not_compared_with_a_run(person: Path) -> None:
    done = command_line.typed(person, "compare", "load-kitchen-a", "latest", cache=person / "cache")
    assert done.returncode == 2
    assert "a load can only be compared with another load" in done.stderr


def test_show_and_report_take_a_load(person: Path) -> None:
    shown = command_line.typed(person, "show", "latest-load", cache=person / "cache")
    assert shown.returncode == 0
    assert "within the SLO" in shown.stdout
    report = command_line.typed(
        person, "report", "load-kitchen-a", "--json", cache=person / "cache"
    )
    assert report.returncode == 0
    document = json.loads(report.stdout)
    assert Path(document["page"]).is_file()
    assert len(document["table"]) == len(RATES)
