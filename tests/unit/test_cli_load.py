"""``armload load`` as it is typed, against services whose behaviour is known."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from armload.boards.virtual.process import free_port
from armload.cli.present_load import extent_of, is_sized
from armload.cli.verbs.load import LoadOptions, load
from armload.cli.verbs.serve import serve
from armload.serving.loads import LoadFolder
from tests.command_line import BIN, BOUND_BY_PERMISSIONS, typed
from tests.stub_service import stub_service
from tests.waiting import wait_until


def the_load(folder: Path) -> Path:
    (path,) = (folder / "loads").iterdir()
    return path


def test_a_sweep_is_one_line_for_each_rate_and_one_document(tmp_path: Path) -> None:
    words = ("--rate", "20,40", "--requests", "8", "--slo", "ttft=30s", "--n-predict", "3")
    with stub_service() as service:
        shown = typed(tmp_path, "load", "--url", service.url, *words)
        printed = typed(tmp_path, "load", "--url", f"{service.url}/v1", *words, "--json")
    assert (shown.returncode, printed.returncode) == (0, 0), shown.stderr + printed.stderr
    assert "20/s" in shown.stdout
    assert "40/s" in shown.stdout
    assert "8/8" in shown.stdout
    found = json.loads(printed.stdout)
    assert [point["rate"] for point in found["points"]] == [20.0, 40.0]
    assert found["model"] == "stub"
    for point in found["points"]:
        metrics = point["metrics"]
        assert (metrics["requests"], metrics["ok"], metrics["output_tokens"]) == (8, 8, 24)
        assert metrics["goodput"]["good"] == 8


def test_a_newcomers_load_says_before_it_begins_how_long_it_takes(tmp_path: Path) -> None:
    words = ("--rate", "4", "--duration", "1", "--arrivals", "constant", "--prompt-tokens", "8")
    with stub_service(gap_s=0.05) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, "--n-predict", "16", "--json")
    assert done.returncode == 0, done.stderr
    assert re.search(r"One request takes about [\d.]+ s alone; the load takes about", done.stderr)
    limits = [body["max_tokens"] for _, body in service.bodies]
    assert limits == [1, 8, 16, 16, 16, 16]
    assert (
        "Each rate lasts 1 s, of which the first 0.17 s are warm-up (not counted)." in done.stderr
    )
    metrics = json.loads(done.stdout)["points"][0]["metrics"]
    assert (metrics["warmup"], metrics["requests"]) == (1, 3)


@pytest.mark.parametrize(
    ("words", "duration_s", "warmup_s", "warmup", "sized"),
    [
        ({"rate": (1.0,)}, 600.0, 100.0, 0, True),
        ({"rate": (1.0, 10_000.0)}, 50.0, 50 / 6, 0, True),
        ({"rate": (1.0,), "warmup": 3}, 600.0, 0.0, 3, True),
        ({"rate": (1.0,), "duration": 30.0}, 30.0, 5.0, 0, False),
        ({"rate": (1.0,), "duration": 30.0, "warmup": 0}, 30.0, 0.0, 0, False),
        ({"rate": (1.0,), "requests": 30}, None, 0.0, 0, False),
        ({"rate": (1.0,), "arrivals": "seed"}, 60.0, 0.0, 0, False),
        ({"concurrency": (2,)}, 60.0, 0.0, 0, False),
    ],
)
def test_a_rate_warms_up_for_a_sixth_of_its_time_unless_the_requests_are_counted(
    words: dict[str, Any],
    duration_s: float | None,
    warmup_s: float,
    warmup: int,
    *,
    sized: bool,
) -> None:
    options = LoadOptions(**words)
    extent = extent_of(options)
    assert (extent.duration_s, extent.warmup) == (duration_s, warmup)
    assert extent.warmup_s == pytest.approx(warmup_s)
    assert is_sized(options) == sized


def test_clients_exports_and_a_key_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("right\n")
    words = ("--concurrency", "2", "--requests", "6", "--export", "csv,vllm")
    with stub_service(api_key="right") as service:
        done = typed(tmp_path, "load", "--url", service.url, "--api-key-file", "key", *words)
        refused = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 0, done.stderr
    folder = the_load(tmp_path)
    assert {"requests.csv", "vllm-0.json"} <= {path.name for path in folder.iterdir()}
    assert "right" not in (folder / "load.json").read_text()
    assert refused.returncode == 2
    assert "--api-key-file" in refused.stderr


def test_ctrl_c_keeps_every_request_with_an_outcome_and_shows_the_figures(tmp_path: Path) -> None:
    words = ("--rate", "20", "--duration", "600", "--n-predict", "2")
    with (
        stub_service() as service,
        subprocess.Popen(
            [str(BIN / "armload"), "load", "--url", service.url, *words],
            cwd=tmp_path,
            env=os.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        wait_until(lambda: len(service.bodies) >= 10, process)
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Interrupted" in said
    assert "Traceback" not in said
    assert "20/s" in shown
    kept = LoadFolder.read(the_load(tmp_path))
    records = kept.requests(0)
    assert len(records) == kept.load.points[0].requests > 10_000
    outcomes = [record.outcome for record in records]
    assert set(outcomes) <= {"ok", "cancelled"}
    assert outcomes[0] == "ok"
    assert outcomes[-1] == "cancelled"
    told = " ".join(shown.split())
    assert "requests were cancelled." in told
    assert "failed" not in told


def test_a_client_that_is_killed_leaves_what_it_has_recorded(tmp_path: Path) -> None:
    words = ("--rate", "20", "--requests", "1000", "--n-predict", "2")
    with (
        stub_service() as service,
        subprocess.Popen(
            [str(BIN / "armload"), "load", "--url", service.url, *words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        wait_until(lambda: len(service.bodies) >= 10, process)
        process.kill()
    kept = LoadFolder.read(the_load(tmp_path))
    records = kept.requests(0)
    assert kept.load.points[0].requests == 1000
    assert 5 <= len(records) < 1000
    assert {record.outcome for record in records} == {"ok"}
    about = kept.load.points[0]
    assert 0 < time.monotonic() - about.began_client_s < 600
    told = " ".join(typed(tmp_path, "show", kept.load.id).stdout.split())
    assert "failed" not in told
    assert f"Incomplete: only {len(records)} of 1,000 requests were recorded." in told


def test_conversations_with_a_shared_prefix_are_shown_with_what_was_cached(
    tmp_path: Path,
) -> None:
    words = ("--rate", "20", "--requests", "10", "--turns", "3", "--n-predict", "2")
    shared = ("--prefix-tokens", "6", "--prefix-share", "0.5", "--prompt-tokens", "4")
    with stub_service(cached=3) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, *shared, "--slo", "ttft=9s")
    assert done.returncode == 0, done.stderr
    assert "One conversation takes about" in done.stderr
    told = " ".join(done.stdout.split())
    assert "At 20/s: 10 conversations of 3 turns on average, all complete." in told
    assert "43% of the prompt tokens came from the server's cache (90 of 210)." in told
    prompts = [body["prompt"] for _, body in service.bodies[2:]]
    assert len(prompts) == 30
    firsts = [prompt for prompt in prompts if "\n" not in prompt]
    assert sorted({len(prompt.split()) for prompt in firsts}) == [4, 10]
    begun = {" ".join(prompt.split()[:6]) for prompt in firsts if len(prompt.split()) == 10}
    assert len(begun) == 1
    kept = LoadFolder.read(the_load(tmp_path))
    assert "50% of conversations begin with the same 6 tokens" in kept.load.requests_from
    again = " ".join(typed(tmp_path, "show", kept.load.id).stdout.split())
    assert "10 conversations of 3 turns" in again
    page = (the_load(tmp_path) / "report.html").read_text()
    assert "20 conversations/s: 10 conversations of 3 turns on average" in page


def test_users_who_give_up_are_no_failures_and_are_told(tmp_path: Path) -> None:
    words = ("--rate", "20", "--requests", "10", "--patience", "0.3", "--abort-on", "1")
    with stub_service(gap_s=0.05) as service:
        done = typed(
            *(tmp_path, "load", "--url", service.url, *words),
            *("--n-predict", "uniform:2-20", "--slo", "ttft=9s", "--json"),
        )
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(done.stdout)["points"]
    metrics = point["metrics"]
    left = metrics["abandoned"]["requests"]
    assert 0 < left < 10
    assert metrics["failed"] == {"abandoned": left}
    assert {each["figures"]["kind"] for each in metrics["findings"]} <= {"client late"}
    assert metrics["abandoned"]["freed_s"] is not None
    assert metrics["goodput"]["good"] <= 10 - left


def test_a_service_that_dies_in_the_middle_is_told_with_what_was_measured(tmp_path: Path) -> None:
    words = ("--rate", "50", "--requests", "30", "--json", "--n-predict", "2")
    with stub_service() as service:
        service.behaviour.cut_after = 1
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 9, done.stderr
    metrics = json.loads(done.stdout)["points"][0]["metrics"]
    assert (metrics["ok"], metrics["failed"], metrics["valid"]) == (0, {"dropped": 30}, False)


def test_a_load_in_a_folder_that_cannot_be_written_is_shown_without_a_page(tmp_path: Path) -> None:
    with stub_service() as service:
        words = ("--rate", "50", "--requests", "5", "--n-predict", "2")
        typed(tmp_path, "load", "--url", service.url, *words)
    folder = the_load(tmp_path)
    (folder / "report.html").unlink()
    folder.chmod(0o555)
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, str(BIN / "armload"), "show", folder.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "5/5" in done.stdout
    assert "page" not in done.stdout
    assert "The page was not written" in done.stderr


def test_a_load_ends_early_once_so_many_requests_have_failed(tmp_path: Path) -> None:
    words = ("--rate", "50", "--requests", "2000", "--abort-on", "3", "--n-predict", "2")
    with stub_service(status=503, answered=8) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, "--json")
        assert len(service.bodies) < 100
    assert done.returncode == 9, done.stderr
    assert "3 requests failed (3 server-error 503)" in " ".join(done.stderr.split())
    metrics = json.loads(done.stdout)["points"][0]["metrics"]
    assert metrics["failed"]["server-error 503"] >= 3
    assert metrics["ok"] > 0
    assert not metrics["valid"]


def test_fewer_failures_than_that_end_no_load(tmp_path: Path) -> None:
    words = ("--rate", "50", "--requests", "10", "--abort-on", "9", "--n-predict", "2")
    with stub_service(status=503, answered=8) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, "--json")
    assert done.returncode == 0, done.stderr


def under_a_limit_of_files(folder: Path, limit: str, url: str) -> Any:
    words = ("--rate", "100", "--requests", "120", "--arrivals", "constant", "--n-predict", "1")
    command = f'ulimit {limit} && exec "$@"'
    program = [str(BIN / "armload"), "load", "--url", url, *words, "--json"]
    return subprocess.run(
        ["sh", "-c", command, "sh", *program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_clients_own_limit_on_open_files_is_raised_and_else_named(tmp_path: Path) -> None:
    with stub_service(header_s=3) as service:
        raised = under_a_limit_of_files(tmp_path, "-S -n 64", service.url)
        limited = under_a_limit_of_files(tmp_path, "-n 64", service.url)
    assert raised.returncode == 0, raised.stderr
    (point,) = json.loads(raised.stdout)["points"]
    assert (point["metrics"]["ok"], point["metrics"]["failed"]) == (120, {})
    (point,) = json.loads(limited.stdout)["points"]
    assert set(point["metrics"]["failed"]) == {"client-limit"}
    assert not point["metrics"]["valid"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "Give one of --rate, --concurrency, --stages and --replay"),
        ({"rate": "1", "concurrency": "1"}, "Give one of --rate, --concurrency"),
        ({"rate": "1", "stages": "1:60"}, "Give one of --rate, --concurrency"),
        ({"stages": "1"}, "--stages '1': must be RATE:SECONDS"),
        ({"stages": "1:60", "duration": "60"}, "--duration cannot be combined with --stages"),
        ({"stages": "1:9", "warmup": "50"}, "requests of the first stage to measure"),
        ({"replay": "t", "n_predict": "8"}, "--n-predict cannot be combined with --replay"),
        ({"replay": "nothing"}, "There is no trace 'nothing'"),
        ({"rate": "1", "time_scale": "2"}, "--time-scale: only for --replay"),
        ({"find_rate": True, "slo": "ttft=1s", "stages": "1:9"}, "cannot be combined with"),
        (
            {"rate": "1", "dialect": "openai-embeddings", "slo": "ttft=1s"},
            "an embedding has neither a first token nor a time per token",
        ),
        (
            {"rate": "1", "dialect": "openai-embeddings", "n_predict": "8"},
            "--n-predict cannot be combined with --dialect openai-embeddings",
        ),
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
        ({"rate": "1", "requests": "3", "warmup": "3"}, "leaves none of 3 requests"),
        ({"concurrency": "1", "requests": "3", "warmup": "3"}, "leaves none of 3 requests"),
        (
            {"rate": "2", "arrivals": "constant", "duration": "1", "warmup": "500"},
            "--warmup 500 leaves none of the 2 requests at 2 requests/s to measure.",
        ),
        (
            {"find_rate": True, "slo": "ttft=1s", "requests": "40", "warmup": "20"},
            "cannot be combined with --find-rate, which chooses rates, durations and warm-ups",
        ),
        ({"rate": "1", "max_time": "60"}, "--max-time is an option of --find-rate"),
        ({"rate": "1", "repeats": "0"}, "--repeats: must be 1 or more"),
        ({"rate": "1", "turns": "0"}, "--turns '0': must be a number, or a distribution."),
        ({"rate": "1", "turns": "4", "think_time": "soon"}, "--think-time 'soon': must be"),
        ({"rate": "1", "patience": "0"}, "--patience '0': must be a number of seconds above 0"),
        ({"rate": "1", "think_time": "5"}, "--think-time is the pause between turns"),
        ({"rate": "1", "prefix_share": "0.5"}, "--prefix-tokens is missing"),
        ({"rate": "1", "prefix_tokens": "9", "prefix_share": "1.5"}, "--prefix-share: must be 1"),
        ({"rate": "1", "prefix_tokens": "0"}, "--prefix-tokens: must be 1 or more"),
        (
            {"find_rate": True, "slo": "ttft=1s", "turns": "4"},
            "--turns cannot be combined with --find-rate, whose statistics are those of requests",
        ),
        (
            {"rate": "1", "turns": "4", "requests": "3", "warmup": "3"},
            "--warmup 3 leaves none of 3 conversations",
        ),
        ({"concurrency": "1", "arrivals": "poisson"}, "--arrivals is an option of --rate"),
        ({"rate": "1", "data": "f", "stop_at_end": True}, "--stop-at-end is for synthetic"),
        (
            {"rate": "1", "source": "llama.cpp"},
            "--source cannot be combined with --url, which names a service that is already running",
        ),
        ({"rate": "1", "ref": "b6000"}, "--ref cannot be combined with --url"),
        ({"rate": "1", "compiler": "gnu"}, "--compiler cannot be combined with --url"),
        ({"rate": "1", "on": "builder"}, "--on cannot be combined with --url"),
        ({"rate": "1", "wait": "0"}, "--wait cannot be combined with --url"),
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
    with pytest.raises(Exit) as end:
        load(Context(), url=f"http://127.0.0.1:{free_port()}", **options)
    assert end.value.code == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "loads").exists()


def test_a_load_that_ends_within_its_warm_up_says_so_and_measured_nothing(tmp_path: Path) -> None:
    words = ("--concurrency", "1", "--duration", "0.2", "--warmup", "100000", "--n-predict", "1")
    with stub_service(gap_s=0.05) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 9, done.stderr
    assert "all requests at 1 client were warm-up." in " ".join(done.stderr.split())
    assert "a smaller --warmup" in done.stderr


def test_a_service_detaches_without_a_local_port(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit) as end:
        serve(Context(), detach=True, port="8080")
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
