"""``armload load`` with traces, stages, embeddings and answers in JSON, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.serving.loads import LoadFolder
from tests.command_line import typed
from tests.documents import validator
from tests.stub_service import StubService, stub_service


def sent(folder: Path, service: StubService, *words: str, status: int = 0) -> dict[str, Any]:
    done = typed(folder, "load", "--url", service.url, *words, "--json")
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    validator("load-1.json").validate(found)
    return found


def shown(folder: Path) -> str:
    done = typed(folder, "show", "latest-load")
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_trace_is_replayed_with_its_times_and_lengths_to_scale(tmp_path: Path) -> None:
    rows = [(0, 100, 30), (1000, 40, 10), (1200, 200, 50), (9000, 10, 1), (90_000, 1, 1)]
    lines = [
        {"timestamp": time_ms, "input_length": prompt, "output_length": answer, "hash_ids": [0]}
        for time_ms, prompt, answer in rows
    ]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    scales = ("--time-scale", "0.1", "--length-scale", "0.1", "--duration", "5")
    with stub_service() as service:
        found = sent(tmp_path, service, "--replay", "trace.jsonl", *scales)
    bodies = [body for _, body in service.bodies[-4:]]
    assert [body["max_tokens"] for body in bodies] == [3, 1, 5, 1]
    assert [len(body["prompt"].split()) for body in bodies] == [10, 4, 20, 1]
    assert bodies[2]["prompt"].startswith(bodies[0]["prompt"]), "one block, one beginning"
    assert found["arrivals"] == "trace"
    assert found["requests_from"] == (
        "trace.jsonl (Mooncake), times scaled by 0.1, lengths scaled by 0.1"
    )
    (point,) = found["points"]
    assert point["metrics"]["ok"] == 4
    assert point["stage"]["is_replay"]
    assert point["rate"] == 4 / 5
    (folder,) = (tmp_path / "loads").iterdir()
    times = [record.scheduled_s for record in LoadFolder.read(folder).requests(0)]
    assert times == pytest.approx([0.0, 0.1, 0.12, 0.9])


def test_a_trace_whose_times_go_backwards_is_refused_with_the_line(tmp_path: Path) -> None:
    text = "Timestamp,Model,Request tokens,Response tokens\n5,a,1,1\n4,a,1,1\n"
    (tmp_path / "burst.csv").write_text(text)
    with stub_service() as service:
        done = typed(tmp_path, "load", "--url", service.url, "--replay", "burst.csv")
        assert service.seen == []
    assert done.returncode == 3, done.stderr
    assert "burst.csv, line 3: its time is 1 s before" in " ".join(done.stderr.split())


def test_stages_have_a_line_each_and_one_document(tmp_path: Path) -> None:
    words = ("--stages", "20:0.5,20-40:0.5", "--arrivals", "constant", "--n-predict", "2")
    slo = ("--slo", "ttft=30s")
    with stub_service() as service:
        found = sent(tmp_path, service, *words, *slo)
    table = shown(tmp_path)
    assert "20/s (0 to 0.5 s)" in table
    assert "20 to 40/s (0.5 to 1 s)" in table
    assert "No confidence intervals" in table
    assert [point["metrics"]["ok"] for point in found["points"]] == [10, 15]
    assert [point["metrics"]["goodput"]["verdict"] for point in found["points"]] == [
        "undecided",
        "undecided",
    ]
    assert found["capacity"] is None


def test_embeddings_have_a_time_and_tokens_and_no_figures_of_decoding(tmp_path: Path) -> None:
    words = (
        *("--dialect", "openai-embeddings", "--rate", "20", "--requests", "6"),
        *("--prompt-tokens", "12", "--slo", "e2e=30s", "--arrivals", "constant"),
    )
    with stub_service(first_s=0.02) as service:
        found = sent(tmp_path, service, *words, "--export", "csv,vllm")
    table = shown(tmp_path)
    assert "neither a first token nor a time per token" in table
    assert (table.count("first token"), table.count("per token"), table.count("output")) == (
        1,
        1,
        0,
    )
    (point,) = found["points"]
    metrics = point["metrics"]
    assert (metrics["ok"], metrics["embedded"], metrics["prompt_tokens"]) == (6, 6, 72)
    assert metrics["goodput"]["good"] == 6
    assert {each["kind"] for each in metrics["findings"]} <= {"client late"}
    assert metrics["from_scheduled"]["e2e"]["percentiles"]["p50"]["value_s"] >= 0.02
    for absent in ("tpot", "itl", "output_tokens", "output_tokens_per_s"):
        assert metrics[absent] is None
    assert metrics["from_scheduled"]["ttft"] is None
    kept = LoadFolder.read(max((tmp_path / "loads").iterdir()))
    assert {record.dimensions for record in kept.requests(0)} == {8}
    page = (kept.folder / "report.html").read_text()
    assert "neither a first token" in page


def test_answers_that_do_not_fit_a_schema_are_failures_of_their_own_kind(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text('{"type": "object", "required": ["age"]}')
    words = ("--rate", "40", "--requests", "4", "--json-schema", "answer.json", "--n-predict", "5")
    with stub_service(pieces=("{", '"age"', ": ", "7", "}")) as service:
        found = sent(tmp_path, service, *words, "--extra-body", '{"top_p": 0.9, "seed": 4}')
        body = service.bodies[-1][1]
        service.behaviour.pieces = ("{", "}")
        wrong = sent(tmp_path, service, *words, status=9)
        service.behaviour.pieces = ("So: ", "{", "}")
        none = sent(tmp_path, service, *words, status=9)
    assert found["points"][0]["metrics"]["ok"] == 4
    assert (body["top_p"], body["seed"], body["temperature"]) == (0.9, 4, 0)
    assert found["requests_from"].endswith(
        'answers that fit answer.json, with {"top_p": 0.9, "seed": 4}'
    )
    assert wrong["points"][0]["metrics"]["failed"] == {"schema-mismatch": 4}
    assert none["points"][0]["metrics"]["failed"] == {"not-json": 4}
