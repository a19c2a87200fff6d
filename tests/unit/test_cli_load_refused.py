"""``armload load``: what is refused before anything is sent, in words that say why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.boards.virtual.process import free_port
from armload.cli.execution import run_verb
from armload.cli.verbs.load import load
from armload.cli.verbs.serve import serve
from tests.command_line import typed
from tests.stub_service import stub_service


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "Give one of --rate, --concurrency, --stages and --replay"),
        ({"rate": "1", "concurrency": "1"}, "Give one of --rate, --concurrency"),
        ({"rate": "1", "stages": "1:60"}, "Give one of --rate, --concurrency"),
        ({"stages": "1"}, "--stages '1': must be RATE:SECONDS"),
        ({"stages": "1:60", "duration": "60"}, "--duration cannot be combined with --stages"),
        ({"stages": "1:9", "warmup": "50"}, "requests of the first stage"),
        ({"replay": "t", "n_predict": "8"}, "--n-predict cannot be combined with --replay"),
        ({"replay": "nothing"}, "There is no trace 'nothing'"),
        ({"rate": "1", "time_scale": "2"}, "--time-scale needs --replay"),
        ({"find_rate": True, "slo": "ttft=1s", "stages": "1:9"}, "cannot be combined with"),
        (
            {"rate": "1", "dialect": "openai-embeddings", "slo": "ttft=1s"},
            "an embedding or a ranking has neither a first token nor a time per token",
        ),
        (
            {"rate": "1", "dialect": "openai-embeddings", "n_predict": "8"},
            "--n-predict cannot be combined with --dialect openai-embeddings",
        ),
        ({"rate": "1", "images": ".", "data": "d.jsonl"}, "Remove one."),
        ({"rate": "1", "images": ".", "dialect": "llm-serving"}, "llm-serving has no images"),
        ({"rate": "1", "extra_body": "{"}, "--extra-body '{': not JSON"),
        ({"rate": "1", "extra_body": '{"stream": false}'}, "--extra-body: cannot set stream"),
        ({"rate": "1", "json_schema": "none.json"}, "There is no file of a JSON schema"),
        ({"rate": "1", "embeddings": "mean"}, "--embeddings cannot be combined with --url"),
        ({"rate": "0"}, "--rate: must be 1e-06 or more, but is '0'"),
        ({"rate": "-1"}, "--rate: must be 1e-06 or more, but is '-1'"),
        ({"rate": "nan"}, "--rate: must be 10000 or less, but is 'nan'"),
        ({"rate": "1,many"}, "--rate: must be a number, but is 'many'"),
        ({"rate": "99999"}, "--rate: must be 10000 or less"),
        ({"concurrency": "0"}, "--concurrency: must be 1 or more"),
        ({"rate": "1", "duration": "0"}, "--duration: must be more than 0"),
        ({"rate": "1", "requests": "0"}, "--requests: must be 1 or more"),
        ({"rate": "1", "requests": "3", "warmup": "3"}, "would exclude all 3 requests"),
        ({"concurrency": "1", "requests": "3", "warmup": "3"}, "would exclude all 3 requests"),
        (
            {"rate": "2", "arrivals": "constant", "duration": "1", "warmup": "500"},
            "--warmup 500 would exclude all 2 requests at 2 requests/s.",
        ),
        (
            {"find_rate": True, "slo": "ttft=1s", "requests": "40", "warmup": "20"},
            "cannot be combined with --find-rate, which chooses rates, durations and warm-ups",
        ),
        ({"rate": "1", "max_time": "60"}, "--max-time needs --find-rate"),
        ({"concurrency": "1", "max_concurrency": "2"}, "--max-concurrency needs --rate"),
        ({"stages": "1:9", "turns": "2"}, "--turns cannot be combined with --stages or --replay"),
        (
            {"rate": "1", "turns": "2", "dialect": "openai-embeddings"},
            "--turns cannot be combined with --dialect openai-embeddings",
        ),
        ({"rate": "1", "percentiles": "50,100"}, "--percentiles: must be less than 100"),
        ({"rate": "1", "percentiles": "0"}, "--percentiles: must be more than 0"),
        ({"rate": "1", "max_concurrency": "0"}, "--max-concurrency: must be 1 or more"),
        ({"rate": "1", "repeats": "0"}, "--repeats: must be 1 or more"),
        ({"rate": "1", "turns": "0"}, "--turns '0': must be a number, or a distribution."),
        ({"rate": "1", "turns": "4", "think_time": "soon"}, "--think-time 'soon': must be"),
        ({"rate": "1", "patience": "0"}, "--patience '0': must be a number of seconds above 0"),
        ({"rate": "1", "think_time": "5"}, "--think-time needs --turns"),
        ({"rate": "1", "prefix_share": "0.5"}, "--prefix-share needs --prefix-tokens"),
        ({"rate": "1", "prefix_tokens": "9", "prefix_share": "1.5"}, "--prefix-share: must be 1"),
        ({"rate": "1", "prefix_tokens": "0"}, "--prefix-tokens: must be 1 or more"),
        (
            {"find_rate": True, "slo": "ttft=1s", "turns": "4"},
            "--turns cannot be combined with --find-rate, whose statistics assume",
        ),
        (
            {"rate": "1", "turns": "4", "requests": "3", "warmup": "3"},
            "--warmup 3 would exclude all 3 conversations",
        ),
        (
            {"concurrency": "1", "arrivals": "poisson"},
            "--arrivals cannot be combined with --con",
        ),
        (
            {"rate": "1", "data": "f", "stop_at_end": True},
            "--stop-at-end cannot be combined with",
        ),
        (
            {"rate": "1", "source": "llama.cpp"},
            "--source cannot be combined with --url, which names a service that is already running",
        ),
        ({"rate": "1", "ref": "b6000"}, "--ref cannot be combined with --url"),
        ({"rate": "1", "compiler": "gnu"}, "--compiler cannot be combined with --url"),
        ({"rate": "1", "on": "builder"}, "--on cannot be combined with --url"),
        ({"rate": "1", "wait_s": "0"}, "--wait cannot be combined with --url"),
        ({"rate": "0.001", "arrivals": "seed"}, "no request"),
        ({"rate": "1", "slo": "ttft=0"}, "--slo 'ttft=0'"),
        ({"rate": "1", "arrivals": "bursts"}, "--arrivals 'bursts'"),
        ({"rate": "1", "seed": "-3"}, "--seed: must be 0 or more"),
        ({"rate": "1", "prompt_tokens": "0"}, "--prompt-tokens '0'"),
        ({"rate": "1", "data": "f", "prompt_tokens": "8"}, "cannot be combined"),
        ({"rate": "1", "dialect": "grpc"}, "--dialect 'grpc'"),
        ({"concurrency": "1", "export": "seed"}, "by rates"),
        ({"rate": "1", "timeout": "0"}, "--timeout: must be more than 0"),
        ({"rate": "1", "api_key_file": "nothing"}, "There is no file of an API key 'nothing'."),
        ({"rate": "1", "data": "typo.jsonl"}, "There is no file of requests 'typo.jsonl'."),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    options: dict[str, Any],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        run_verb(load, {"url": f"http://127.0.0.1:{free_port()}", **options})
    assert end.value.code == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "loads").exists()


def test_a_service_detaches_without_a_local_port(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run_verb(serve, {"detach": True, "port": "8080"})
    assert end.value.code == 2
    assert "--detach cannot be combined with --port" in capsys.readouterr().err


ALPACA = {"instruction": "Say yes", "input": "", "output": "yes"}


@pytest.mark.parametrize("lines", [[{"prompt": "Hello"}], [ALPACA]])
def test_a_missing_service_and_a_wrong_key_are_told_whatever_the_requests_are(
    lines: list[dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    words = ("--rate", "1", "--requests", "1", "--data", "asked.jsonl")
    nobody = typed(tmp_path, "load", "--url", f"http://127.0.0.1:{free_port()}", *words)
    assert nobody.returncode == 6, nobody.stderr
    assert "nothing answers there" in " ".join(nobody.stderr.split())
    with stub_service(api_key="right") as service:
        refused = typed(tmp_path, "load", "--url", service.url, *words)
    assert refused.returncode == 2, refused.stderr
    assert "the service refuses the API key" in " ".join(refused.stderr.split())


def test_prompts_and_chats_that_a_dialect_cannot_both_send_are_refused_before_the_load(
    tmp_path: Path,
) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    lines = [{"prompt": "Hello"}, chat]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    words = ("--rate", "50", "--requests", "4", "--data", "asked.jsonl")
    with stub_service() as service:
        refused = typed(tmp_path, "load", "--url", service.url, *words)
        assert service.bodies == []
        both = ("--dialect", "openai-chat", "--n-predict", "2")
        sent = typed(tmp_path, "load", "--url", service.url, *words, *both)
    assert refused.returncode == 2
    assert "Dialect openai takes a prompt, and the data has chats" in refused.stderr
    assert sent.returncode == 0, sent.stderr


def test_an_address_without_a_service_makes_no_load(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = typed(tmp_path, "load", "--url", url, "--rate", "1", "--json")
    assert done.returncode == 6, done.stderr
    assert json.loads(done.stdout)["error"]["kind"] == "connection"
    assert not (tmp_path / "loads").exists()
