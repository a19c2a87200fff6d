"""Kinds of requests to a real llama-server on this machine: JSON, tools, embeddings, a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.load.records import RequestRecord
from armload.serving.loads import LoadFolder
from armload.serving.tokenizer import ServiceApi
from tests.person import Person
from tests.system.serving import Serving, serving

pytestmark = pytest.mark.build

SERVICE = (
    *("--model", "word-problems:Q8_0", "--threads", "1", "--slots", "2", "--context", "512"),
    *("--embeddings", "mean"),
)
WIDTH = 256
SCHEMA = {
    "type": "object",
    "properties": {"many": {"type": "boolean"}},
    "required": ["many"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "count", "parameters": SCHEMA}}


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("kinds") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    (person.folder / "answer.json").write_text(json.dumps(SCHEMA))
    return person


@pytest.fixture(scope="module")
def service(ann: Person) -> Iterator[Serving]:
    with serving(ann, *SERVICE) as service:
        yield service


def loaded(
    person: Person, service: Serving, dialect: str, *words: str, status: int = 0
) -> tuple[dict[str, Any], list[RequestRecord]]:
    aim = ("--url", service.about["url"], "--api-key-file", service.about["api_key_file"])
    usual = ("--dialect", dialect, "--concurrency", "2", "--requests", "4", "--json")
    found = json.loads(person.types("load", *aim, *usual, *words, status=status).stdout)
    kept = LoadFolder.read(max((person.folder / "loads").iterdir()))
    return found["points"][0]["metrics"], kept.requests(0)


@pytest.mark.parametrize(
    "dialect",
    [
        "openai-chat",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive(covers=["armload/serving/dialects"]))
            for name in ("llama-server", "openai")
        ),
    ],
)
@pytest.mark.exhaustive(covers=["armload/engines", "armload/serving"])
def test_answers_fit_the_schema_that_they_were_asked_for(
    ann: Person, service: Serving, dialect: str
) -> None:
    schema = ("--json-schema", "answer.json")
    metrics, records = loaded(ann, service, dialect, *schema, "--n-predict", "64", "--stop-at-end")
    assert (metrics["ok"], metrics["failed"]) == (4, {})
    assert {type(json.loads(record.text)["many"]) for record in records} == {bool}
    metrics, _ = loaded(ann, service, dialect, *schema, "--n-predict", "2", status=9)
    assert metrics["failed"] == {"not-json": 4}


@pytest.mark.exhaustive(covers=["armload/engines", "armload/serving"])
def test_tools_that_a_models_template_does_not_know_are_ignored_and_the_outcome_says_so(
    ann: Person, service: Serving
) -> None:
    line = {
        "messages": [{"role": "user", "content": "Ann has 3 apples. Are these many?"}],
        "max_tokens": 16,
        "tools": [TOOL],
        "tool_choice": "required",
    }
    (ann.folder / "tools.jsonl").write_text(json.dumps(line) + "\n")
    words = ("--data", "tools.jsonl")
    metrics, records = loaded(ann, service, "openai-chat", *words, status=9)
    assert metrics["failed"] == {"schema-mismatch": 4}
    assert {record.error for record in records} == {"no tool was called"}


def test_sampling_parameters_and_other_keys_reach_the_server(ann: Person, service: Serving) -> None:
    lines = [
        {"prompt": "Ann has 3 apples.", "max_tokens": 12, "temperature": 2.0, "seed": seed}
        for seed in (1, 1, 2, 3)
    ]
    (ann.folder / "hot.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    bias = ("--extra-body", '{"ignore_eos": true}')
    metrics, records = loaded(ann, service, "openai", "--data", "hot.jsonl", *bias)
    assert metrics["output_tokens"] == 4 * 12
    one, same, *others = (record.text for record in records)
    assert one == same
    assert len({one, *others}) > 1


def test_embeddings_have_the_models_width_and_the_tokens_of_the_prompt(
    ann: Person, service: Serving
) -> None:
    metrics, records = loaded(ann, service, "openai-embeddings", "--prompt-tokens", "20")
    assert (metrics["ok"], metrics["embedded"], metrics["tpot"]) == (4, 4, None)
    assert {record.dimensions for record in records} == {WIDTH}
    api = ServiceApi(service.about["url"].removesuffix("/v1"), service.key)
    for record in records:
        special = (record.prompt_tokens or 0) - (api.count(record.prompt) or 0)
        assert 0 <= special <= 2


@pytest.mark.exhaustive(covers=["armload/engines", "armload/serving"])
def test_a_service_that_a_load_starts_answers_embeddings_where_they_are_asked_for(
    ann: Person, service: Serving
) -> None:
    del service  # the board is in use until it has ended
    ann.add_emulated("other")
    words = (
        *("load", "--board", "other", "--model", "word-problems:Q8_0", "--threads", "1"),
        *("--dialect", "openai-embeddings", "--prompt-tokens", "8"),
    )
    refused = ann.types(*words, "--rate", "8", "--requests", "4", status=2)
    assert "--embeddings model" in refused.stderr
    pooled = ("--embeddings", "last", "--stages", "8:0.5,4:0.5", "--arrivals", "constant")
    found = json.loads(ann.types(*words, *pooled, "--json").stdout)
    assert [point["metrics"]["embedded"] for point in found["points"]] == [4, 2]
    kept = LoadFolder.read(max((ann.folder / "loads").iterdir()))
    assert kept.load.service is not None
    assert kept.load.service["embeddings"] == "last"
    assert all(Path(kept.trace_file(number)).stat().st_size for number in (0, 1))


@pytest.mark.exhaustive(covers=["armload/engines", "armload/serving"])
def test_prompts_of_a_trace_that_begin_alike_are_taken_from_the_servers_cache(
    ann: Person, service: Serving
) -> None:
    lines = [
        {"timestamp": 0, "input_length": 1500, "output_length": 8, "hash_ids": [0, 1, 2]},
        {"timestamp": 4000, "input_length": 1500, "output_length": 8, "hash_ids": [0, 1, 3]},
    ]
    (ann.folder / "trace.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    aim = ("--url", service.about["url"], "--api-key-file", service.about["api_key_file"])
    words = ("--replay", "trace.jsonl", "--length-scale", "0.1", "--dialect", "llama-server")
    cached = ("--extra-body", '{"cache_prompt": true, "id_slot": 0}')
    found = json.loads(ann.types("load", *aim, *words, *cached, "--json").stdout)
    kept = LoadFolder.read(max((ann.folder / "loads").iterdir()))
    first, second = kept.requests(0)
    assert found["points"][0]["metrics"]["ok"] == 2
    assert (second.cached_tokens or 0) >= 2 * 51
    assert (first.prompt_tokens or 0) >= 150
