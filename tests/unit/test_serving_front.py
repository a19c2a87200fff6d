"""llm-serving's protocol before a server that answers as a llama-server was seen to answer."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web

from armload.core.errors import UsageError
from armload.serving.dialects.registry import dialect_named
from armload.serving.front.app import Front, fronted
from armload.serving.front.llm_serving import DataForm, FrontedModel
from tests.command_line import typed

MODEL = FrontedModel(name="tiny.gguf", quantisation="Q4_0", slots=4, context_tokens=512)
KEY = "a-key-that-nobody-guesses"
EVENTS = (
    {"index": 0, "content": " was", "tokens": [471], "stop": False},
    {"index": 0, "content": " é", "tokens": [28855], "stop": False},
    {
        "index": 0,
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": 3,
        "tokens_evaluated": 5,
        "timings": {"prompt_n": 5, "prompt_ms": 12.5, "predicted_n": 3, "predicted_ms": 20.0},
    },
)
METRICS = (
    "# HELP llamacpp:requests_processing Number of requests processing.\n"
    "llamacpp:requests_processing 3\n"
    "llamacpp:requests_deferred 7\n"
)
TOO_LONG = {
    "error": {
        "code": 400,
        "message": "request (600 tokens) exceeds the available context size (512 tokens)",
        "type": "exceed_context_size_error",
    }
}
OWN_CLIENTS_BODY = {
    "inputs": "Give three tips:stay healthy",
    "parameters": {"max_new_tokens": 3, "do_sample": "False", "return_full_text": "True"},
}
"""As that project's test client sends it, with booleans as texts."""


class LlamaServer:
    """Answers as it was recorded, and keeps what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.refuses: tuple[int, dict[str, Any]] | None = None
        self.hangs_up_after: int | None = None
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[LlamaServer]:
        app = web.Application()
        app.router.add_post("/completion", self._completion)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app)
        loop = asyncio.new_event_loop()

        async def start() -> None:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

        loop.run_until_complete(start())
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        self.bodies.append(await request.json())
        if self.refuses is not None:
            status, answer = self.refuses
            return web.json_response(answer, status=status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, event in enumerate(EVENTS):
            if number == self.hangs_up_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await response.write_eof()
        return response

    async def _tokenize(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        return web.json_response({"tokens": list(range(len((await request.json())["content"])))})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=METRICS)


@pytest.fixture
def server() -> Iterator[LlamaServer]:
    with LlamaServer().running() as running:
        yield running


@contextmanager
def front_of(server: LlamaServer, form: DataForm = "list") -> Iterator[str]:
    front = Front(url=server.url, api_key=KEY, model=MODEL, form=form)
    with fronted(front, 0, "kitchen") as url:
        yield url


def post(url: str, path: str, body: dict[str, Any]) -> requests.Response:
    return requests.post(f"{url}/models/llama2{path}", data=json.dumps(body), timeout=30)


def test_a_stream_is_bare_json_lines_whose_data_is_a_list_of_one(server: LlamaServer) -> None:
    with front_of(server) as url:
        answer = post(url, "/generate_stream", OWN_CLIENTS_BODY)
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    first, second, last = map(json.loads, answer.content.splitlines())
    token = {"id": 471, "logprob": 0.0, "special": False, "text": " was"}
    assert first == {
        "event": "message",
        "retry": 30000,
        "data": [
            {"details": None, "generated_text": " was", "tokens": token, "top_tokens": [token]}
        ],
    }
    assert second["data"][0]["generated_text"] == " é"
    assert " é".encode() in answer.content
    other = {"id": 28855, "logprob": 0.0, "special": False, "text": " é"}
    assert last["data"] == [
        {
            "details": None,
            "generated_text": " was é",
            "finish_reason": "length",
            "generated_tokens": 3,
            "prefill": [token],
            "seed": 0,
            "tokens": [token, other],
            "top_tokens": [[token]],
        }
    ]


def test_the_projects_own_client_reads_the_whole_text_and_the_parts(server: LlamaServer) -> None:
    with front_of(server) as url:
        texts = own_clients_texts(post(url, "/generate_stream", OWN_CLIENTS_BODY))
        assert texts[-1] == "".join(texts[:-1]) == " was é"
        unwanted = {**OWN_CLIENTS_BODY, "parameters": {"return_full_text": "False"}}
        assert own_clients_texts(post(url, "/generate_stream", unwanted)) == [" was", " é"]


def own_clients_texts(answer: requests.Response) -> list[str]:
    """Read a stream in the way of that project's test client."""
    lines = answer.iter_lines(decode_unicode=True)
    return [json.loads(line)["data"][0]["generated_text"] for line in lines if line]


def test_the_later_form_of_data_is_the_element_itself(server: LlamaServer) -> None:
    with front_of(server, "object") as url:
        first, *_ = post(url, "/generate_stream", OWN_CLIENTS_BODY).content.splitlines()
    assert json.loads(first)["data"]["generated_text"] == " was"


def test_another_return_protocol_gives_the_element_behind_data(server: LlamaServer) -> None:
    parameters = {"return_protocol": "stream", "return_full_text": False}
    with front_of(server) as url:
        answer = post(url, "/generate_stream", {"inputs": "a", "parameters": parameters})
    first, _ = answer.content.splitlines()
    assert json.loads(first.removeprefix(b"data:"))["generated_text"] == " was"


@pytest.mark.parametrize("path", ["/generate", ""])
def test_generate_answers_one_object(server: LlamaServer, path: str) -> None:
    with front_of(server) as url:
        answer = post(url, path, OWN_CLIENTS_BODY)
    assert answer.text.endswith("}\n")
    assert answer.json() | {"tokens": [], "prefill": [], "top_tokens": []} == {
        "generated_text": " was é",
        "finish_reason": "length",
        "generated_tokens": 3,
        "prefill": [],
        "seed": 0,
        "tokens": [],
        "top_tokens": [],
        "details": None,
    }


def test_the_short_path_streams_if_asked_to(server: LlamaServer) -> None:
    with front_of(server) as url:
        answer = post(url, "", {**OWN_CLIENTS_BODY, "stream": True})
    assert len(answer.content.splitlines()) == 3


def test_a_request_is_greedy_unless_it_says_otherwise(server: LlamaServer) -> None:
    null = {"inputs": "a", "parameters": None, "stream": None}
    sampled = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "seed": 4}
    with front_of(server) as url:
        post(url, "/generate", {"inputs": "a"})
        assert post(url, "", null).json()["generated_text"] == " was é"
        post(url, "/generate", OWN_CLIENTS_BODY)
        post(url, "/generate", {"inputs": "a", "parameters": sampled})
    unset, nulls, own, third = server.bodies
    assert nulls == unset
    assert (unset["n_predict"], unset["temperature"]) == (300, 0.0)
    assert (own["n_predict"], own["temperature"]) == (3, 0.0)
    assert own["prompt"] == "Give three tips:stay healthy"
    assert {name: third[name] for name in ("temperature", "top_k", "top_p", "seed")} == {
        "temperature": 0.7,
        "top_k": 3,
        "top_p": 0.9,
        "seed": 4,
    }


def test_the_state_is_told_as_server_sent_events(server: LlamaServer) -> None:
    with front_of(server) as url:
        batch, queue, info = (
            requests.get(f"{url}/serving/{name}", timeout=30).text
            for name in ("get_bs", "get_request_numbers", "get_serverd_model_info")
        )
    assert batch == 'data: {"event": "message", "retry": 30000, "data": 3}\r\n\r\n'
    assert queue == 'data: {"event": "message", "retry": 30000, "data": 7}\r\n\r\n'
    assert json.loads(info.removeprefix("data: ")) == {
        "docker_label": "",
        "max_batch_total_tokens": 2048,
        "max_concurrent_requests": 10,
        "max_input_length": 512,
        "max_total_tokens": 4,
        "model_device_type": "CPU",
        "model_dtype": "Q4_0",
        "model_id": "tiny.gguf",
        "model_pipeline_tag": "text-generation",
        "version": "2.3",
    }


def test_a_prompt_that_is_too_long_is_told_in_an_answer(server: LlamaServer) -> None:
    server.refuses = (400, TOO_LONG)
    with front_of(server) as url:
        answer = post(url, "/generate_stream", OWN_CLIENTS_BODY)
        whole = post(url, "/generate", OWN_CLIENTS_BODY).json()
    last = json.loads(answer.content.splitlines()[-1])["data"][0]
    for each in (last, whole):
        assert (each["finish_reason"], each["generated_tokens"]) == ("prompt_out_of_range", 0)
        assert "exceeds the available context size" in each["generated_text"]


def test_the_projects_data_is_sent_through_the_front_with_its_limits(
    server: LlamaServer, tmp_path: Path
) -> None:
    item = {"instruction": "Give three tips", "input": "", "output": "Sleep"}
    (tmp_path / "alpaca.json").write_text(json.dumps([item]))
    words = ("--dialect", "llm-serving", "--data", "alpaca.json", "--rate", "20", "--requests", "2")
    with front_of(server) as url:
        done = typed(tmp_path, "load", "--url", url, "--model", "llama2", *words, "--json")
    assert done.returncode == 0, done.stderr
    assert server.bodies[-1]["n_predict"] == len("Sleep")
    assert json.loads(done.stdout)["points"][0]["metrics"]["ok"] == 2


def test_an_empty_prompt_is_told_in_an_answer_and_does_not_reach_the_server(
    server: LlamaServer,
) -> None:
    body = {**OWN_CLIENTS_BODY, "inputs": ""}
    with front_of(server) as url:
        answer = post(url, "/generate_stream", body)
        whole = post(url, "/generate", body).json()
    last = json.loads(answer.content.splitlines()[-1])["data"][0]
    for each in (last, whole):
        assert (each["finish_reason"], each["generated_tokens"]) == ("prompt_token_ids_empty", 0)
    assert server.bodies == []


def test_the_loads_dialect_takes_such_an_answer_for_a_failure(server: LlamaServer) -> None:
    server.refuses = (400, TOO_LONG)
    with front_of(server) as url:
        answer = post(url, "/generate_stream", OWN_CLIENTS_BODY)
    events = [dialect_named("llm-serving").event(json.loads(line)) for line in answer.iter_lines()]
    assert events[-1].error.startswith("prompt_out_of_range: request (600 tokens) exceeds")


def test_a_body_that_is_not_of_the_protocol_is_refused_with_its_place(server: LlamaServer) -> None:
    with front_of(server) as url:
        answer = post(url, "/generate", {"inputs": "a", "parameters": {"max_new_tokens": "many"}})
    assert answer.status_code == 422
    (detail,) = answer.json()["detail"]
    assert detail["loc"] == ["parameters", "max_new_tokens"]
    assert server.bodies == []


def _asking(parameters: str) -> bytes:
    return f'{{"inputs": "a", "parameters": {{{parameters}}}}}'.encode()


MALFORMED = {
    "nothing": b"",
    "no UTF-8": b'{"inputs": "\xc4\xe3"}',
    "bytes": bytes(range(256)),
    "half": b'{"inputs": "a',
    "a number": b"1",
    "NaN": b"NaN",
    "nested deeply": b"[" * 100_000,
    "nested inputs": b'{"inputs": ' + b"[" * 150 + b"]" * 150 + b"}",
    "a surrogate": rb'{"inputs": "\ud800"}',
    "a surrogate in a key": rb'{"\udfff": 1}',
    "null": b'{"inputs": null}',
    "NaN for a text": b'{"inputs": NaN}',
    "a NaN temperature": _asking('"temperature": NaN'),
    "an infinite penalty": _asking('"repetition_penalty": Infinity'),
    "an infinite share": _asking('"top_p": -1e999'),
    "a huge seed": _asking(f'"seed": {"9" * 5000}'),
    "a large seed": _asking('"seed": 99999999999999999999'),
    "a large choice": _asking('"top_k": 1e30'),
    "a large count": _asking('"max_new_tokens": 99999999999999999999'),
    "a stop of numbers": _asking('"stop": [NaN, {"a": 1}]'),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=list(MALFORMED))
def test_whatever_a_body_holds_a_client_is_told_what_is_wrong(
    server: LlamaServer, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with front_of(server) as url:
        for path in ("/generate", "/generate_stream", ""):
            answer = requests.post(f"{url}/models/llama2{path}", data=body, timeout=30)
            assert answer.status_code == 422
            assert answer.json()["detail"][0]["msg"]
    assert server.bodies == []
    assert caplog.text == ""


@pytest.mark.parametrize(
    "request_",
    [
        b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
        b"Content-Length: -3\r\n\r\nabc",
    ],
)
def test_a_body_that_is_not_sent_as_it_says_is_the_clients_fault(
    server: LlamaServer, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with front_of(server) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(
                b"POST /models/llama2/generate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                + request_
            )
            answer = connection.makefile("rb").read()
    assert answer.split()[1] in {b"400", b"422"}
    assert caplog.text == ""


def test_a_server_that_refuses_is_an_error_of_the_front(server: LlamaServer) -> None:
    server.refuses = (503, {"error": {"message": "Loading model", "type": "unavailable_error"}})
    with front_of(server) as url:
        answer = post(url, "/generate_stream", OWN_CLIENTS_BODY)
    assert (answer.status_code, answer.text) == (502, "Loading model")


def test_a_server_that_dies_breaks_the_stream_so_that_no_client_takes_it_for_whole(
    server: LlamaServer,
) -> None:
    server.hangs_up_after = 1
    with front_of(server) as url:
        with pytest.raises(requests.RequestException):
            post(url, "/generate_stream", OWN_CLIENTS_BODY)
        assert post(url, "/generate", OWN_CLIENTS_BODY).status_code == 502


def test_a_server_that_is_gone_is_an_error_of_the_front() -> None:
    with LlamaServer().running() as server:
        pass
    with front_of(server) as url:
        assert post(url, "/generate_stream", OWN_CLIENTS_BODY).status_code == 502


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with LlamaServer().running() as server, front_of(server) as url:
        port = int(url.rpartition(":")[2])
        front = Front(url=server.url, api_key=KEY, model=MODEL, form="list")
        with (
            pytest.raises(UsageError, match=f"Port {port} of this machine cannot be used"),
            fronted(front, port, "kitchen"),
        ):
            raise AssertionError("two fronts on one port")
