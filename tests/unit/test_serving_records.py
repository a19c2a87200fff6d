"""A load's folder: found again, readable after a crash, and exported for other programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from armload.analysis.load.records import Load, LoadPoint, Objectives
from armload.core.errors import UsageError
from armload.serving.exports import export, read_formats
from armload.serving.loads import LoadFolder
from tests.unit.test_analysis_load_metrics import record


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kept(name: str = "20260101T000000Z-load-kitchen-aaaa") -> LoadFolder:
    made = LoadFolder.begin(
        Load(
            id=name,
            started_utc="2026-01-01T00:00:00+00:00",
            armload="0",
            url="http://127.0.0.1:1",
            model="m",
            dialect="openai",
            arrivals="gamma:0.5",
            seed=1,
            requests_from="a file",
        )
    )
    point = LoadPoint(
        rate=0.5,
        requests=3,
        started_utc="2026-01-01T00:00:00+00:00",
        began_client_s=5.0,
    )
    made.add_point(point)
    made.add(record(1, outcome="dropped", error="gone", prompt="q1"))
    made.add(record(2, prompt="q2", text=' a "b",\n'))
    made.add(record(0, prompt="q0", text="c"))
    made.update(point, "0" * 64)
    return made


def test_a_load_is_read_as_it_was_written_with_its_requests_in_order() -> None:
    made = kept()
    found = LoadFolder.find("latest")
    assert found.load == made.load
    assert found.load.requests_sha256 == "0" * 64
    assert [each.number for each in found.requests(0)] == [0, 1, 2]
    assert found.requests(0)[2].chunks == record(2).chunks


def test_csv_has_a_line_for_each_request() -> None:
    (path,) = export(kept(), ("csv",), None)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["number"] for row in rows] == ["0", "1", "2"]
    assert [row["outcome"] for row in rows] == ["ok", "dropped", "ok"]
    assert float(rows[0]["ttft_s"]) == pytest.approx(0.5)
    assert float(rows[0]["tpot_s"]) == pytest.approx(0.1)
    assert rows[1]["e2e_s"] == ""
    assert rows[1]["error"] == "gone"


@pytest.mark.parametrize("error", ["=HYPERLINK(0)", "@SUM(1)", "-1", 'a "b", c\r\nd\re'])
def test_csv_keeps_an_error_in_one_field_and_makes_it_no_formula(error: str) -> None:
    made = kept("20260101T000000Z-load-kitchen-bbbb")
    point = made.load.points[0]
    made.add_point(point)
    made.add(record(3, outcome="dropped", error=error, prompt="q"))
    made.update(point, "0" * 64)
    (path,) = export(made, ("csv",), None)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(None not in row for row in rows)
    found = rows[-1]["error"]
    assert found in {error, f"'{error}"}
    assert found[0] not in "=+-@"


def test_vllms_keys_have_vllms_meaning() -> None:
    (path,) = export(kept(), ("vllm",), Objectives(ttft_s=1.0))
    found = json.loads(path.read_text())
    assert (found["num_prompts"], found["completed"], found["failed"]) == (3, 2, 1)
    assert (found["request_rate"], found["burstiness"]) == (0.5, 0.5)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (20, 10)
    assert found["request_throughput"] == pytest.approx(2 / 2.9)
    assert found["request_goodput"] == pytest.approx(2 / 2.9)
    assert found["total_token_throughput"] == pytest.approx(30 / 2.9)
    assert found["mean_ttft_ms"] == pytest.approx(498)  # from sending
    assert found["median_tpot_ms"] == pytest.approx(100)
    assert found["p99_e2el_ms"] == pytest.approx(898)
    assert [len(each) for each in (found["ttfts"], found["itls"], found["errors"])] == [3, 3, 3]


def test_the_seeds_file_has_its_name_its_keys_and_the_order_of_the_ends() -> None:
    (path,) = export(kept(), ("seed",), None)
    assert path.name == "result_0.5_x.json"
    found = json.loads(path.read_text())
    assert [each["input"] for each in found] == ["q0", "q2"]
    assert found[1]["resp_text"] == ' a "b",\n'
    assert found[0]["res_time"] == pytest.approx(0.898)
    assert found[0]["first_token_time"] == pytest.approx(0.498)
    assert set(found[0]) == {"input", "resp_text", "res_time", "first_token_time"}


def test_the_seeds_file_of_a_rate_has_all_its_repeats_without_their_warmup() -> None:
    made = kept()
    repeat = made.load.points[0]
    made.add_point(repeat)
    made.add(record(0, prompt="warm", is_warmup=True))
    made.add(record(1, prompt="again"))
    made.update(repeat, "0" * 64)
    (path,) = export(made, ("seed",), None)
    assert [each["input"] for each in json.loads(path.read_text())] == ["q0", "q2", "again"]


def test_a_closed_loop_has_no_rate_to_name_the_seeds_file_by() -> None:
    with pytest.raises(UsageError, match="by rates"):
        read_formats(["vllm", "seed"], has_rates=False)


def test_formats_are_named_or_refused() -> None:
    assert read_formats(["csv", "vllm", "csv"], has_rates=False) == ("csv", "vllm")
    assert read_formats([], has_rates=True) == ()
    with pytest.raises(UsageError, match="'xml' is not a format"):
        read_formats(["csv", "xml"], has_rates=True)
