"""llm-serving's protocol before a real llama-server, asked as that project's client asks."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from armload.boards.virtual.process import free_port
from armload.report.load.loaded import LoadView
from armload.serving.loads import LoadFolder
from tests.person import Person
from tests.system.serving import Serving, is_whole, serving

pytestmark = pytest.mark.build

MODEL = "word-problems:Q8_0"
FAST = ("--model", MODEL, "--threads", "1", "--slots", "2", "--context", "256")
PROMPT = "Ann has 3 apples."
ASKED: dict[str, Any] = {
    "inputs": PROMPT,
    "parameters": {"max_new_tokens": 8, "do_sample": "False", "return_full_text": "True"},
}


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("front") / "ann")
    person.environment["XDG_STATE_HOME"] = str(person.folder / "state")
    person.add_emulated("here")
    return person


@pytest.fixture(scope="module")
def service(ann: Person) -> Iterator[Serving]:
    words = (*FAST, "--front", "llm-serving", "--port", str(free_port()))
    with serving(ann, *words) as service:
        yield service


def test_its_answers_are_those_of_the_server_behind_it(service: Serving) -> None:
    front = service.about["front_url"]
    answer = requests.post(f"{front}/models/llama2/generate_stream", json=ASKED, timeout=120)
    *parts, last = [json.loads(line)["data"][0] for line in answer.content.splitlines()]
    whole = service.complete(PROMPT, 8)["choices"][0]["text"]
    assert "".join(part["generated_text"] for part in parts) == last["generated_text"] == whole
    assert (last["generated_tokens"], last["finish_reason"]) == (8, "length")
    assert all(part["tokens"]["id"] > 0 for part in parts)
    once = requests.post(f"{front}/models/llama2/generate", json=ASKED, timeout=120)
    assert once.json()["generated_text"] == whole
    numbers = requests.get(f"{front}/serving/get_request_numbers", timeout=60).text
    assert json.loads(numbers.removeprefix("data: "))["data"] == 0
    info = requests.get(f"{front}/serving/get_serverd_model_info", timeout=60).text
    assert json.loads(info.removeprefix("data: "))["max_batch_total_tokens"] == 2 * 256


def test_a_prompt_longer_than_a_slot_is_told_in_the_answer(service: Serving) -> None:
    long = {**ASKED, "inputs": "apples " * 300}
    front = service.about["front_url"]
    answer = requests.post(f"{front}/models/llama2/generate", json=long, timeout=120)
    assert answer.json()["finish_reason"] == "prompt_out_of_range"


@pytest.mark.exhaustive(covers=["armload/serving"])
def test_a_load_in_that_dialect_is_answered_and_its_records_agree(
    ann: Person, service: Serving
) -> None:
    done = ann.types(
        *("load", "--url", service.about["front_url"], "--dialect", "llm-serving"),
        *("--model", "llama2", "--rate", "4", "--requests", "12", "--arrivals", "seed"),
        *("--data", str(alpaca(ann)), "--n-predict", "6", "--json"),
    )
    assert is_whole(done.stdout)
    document = json.loads(done.stdout)
    (point,) = document["points"]
    assert (point["metrics"]["ok"], point["metrics"]["failed"]) == (12, {})
    (folder,) = (ann.folder / "loads").iterdir()
    (kept,) = LoadView.of(LoadFolder.read(folder)).points
    assert all(1 <= (record.generated_tokens or 0) <= 6 for record in kept.observed.records)


def test_it_ends_with_its_command(ann: Person, service: Serving) -> None:
    service.process.send_signal(signal.SIGINT)
    service.ends(0)
    with pytest.raises(requests.ConnectionError):
        requests.get(service.about["front_url"], timeout=5)


def alpaca(ann: Person) -> Path:
    path = ann.folder / "alpaca.jsonl"
    asked = {"instruction": PROMPT, "input": "", "output": "She has 3."}
    path.write_text(json.dumps(asked) + "\n")
    return path
