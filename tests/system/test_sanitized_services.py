"""A service under sanitizers: any report that no file explains fails."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from armload.models.vocabulary import english_words
from tests.system.lacking import with_meminfo
from tests.system.llama_servers import Server, serving
from tests.system.sanitized import FREE, SHORT, Models, Sanitized, engines, random_models
from tests.system.streaming import streamed, traced
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(
        covers=[
            "toolchains/native",
            "toolchains/overlay",
            "toolchains/sources",
            "tests/system/llama_servers.py",
            "tests/system/sanitized.py",
            "tests/system/sanitizers",
        ]
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="takes root"),
]

# Those of a service that armload starts.
OPTIONS = (
    *("-np", "4", "-c", "2048", "--no-kv-unified", "-b", "64", "-ub", "32", "-t", "2"),
    *("--metrics", "--slots", "--no-context-shift", "--no-repack", "--poll", "0", "--offline"),
    *("--no-warmup", "--no-ui", "-fit", "off", "--temp", "0"),
)


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return engines(request.param, tmp_path_factory, "llama-server")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return random_models(tmp_path_factory.mktemp("models"))


def prompt(words: int, first: int = 0) -> str:
    return " ".join(english_words()[first : first + words])


def answer_alone(server: Server) -> str:
    asked = {"n_predict": 12, "cache_prompt": False, "id_slot": 1, "ignore_eos": True}
    return str(server.ask("completion", prompt=prompt(40), **asked)["content"])


def cancel(server: Server, chunks: int, words: int, count: int = 200) -> None:
    """Ask for a stream, and hang up after so many chunks."""
    body: dict[str, Any] = {
        "prompt": prompt(words),
        "stream": True,
        "n_predict": count,
        "ignore_eos": True,
    }
    address = f"{server.address}/completion"
    with requests.post(address, json=body, stream=True, timeout=300) as answer:
        lines = answer.iter_lines()
        for _ in range(chunks):
            next(lines)


def hang_up(server: Server, words: int) -> None:
    """Ask, and hang up before there is an answer, most likely while the prompt is processed."""
    body = f'{{"prompt":"{prompt(words)}","n_predict":50,"cache_prompt":false}}'.encode()
    head = f"POST /completion HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
    address = urlsplit(server.address)
    with socket.create_connection((address.hostname, address.port), timeout=300) as client:
        client.sendall(head.encode() + body)
        time.sleep(0.05)


def look(server: Server) -> None:
    for path in ("metrics", "slots", "props", "v1/models"):
        requests.get(f"{server.address}/{path}", timeout=300).raise_for_status()


def ask_all_kinds(server: Server) -> None:
    """Ask at the same time: several answers, cancelled ones, and how the service is."""
    with ThreadPoolExecutor(8) as pool:
        asked = [
            *(pool.submit(server.complete, prompt(5 + 35 * each, each), 20) for each in range(4)),
            pool.submit(server.complete_all, ["one two"] * 2, [8, 30]),
            *(pool.submit(cancel, server, chunks, 30) for chunks in (1, 6)),
            *(pool.submit(hang_up, server, words) for words in (3, 100)),
            *(pool.submit(look, server) for _ in range(3)),
        ]
    for each in asked:
        each.result()


@contextmanager
def memory_that_comes_and_goes(meminfo: Path) -> Iterator[None]:
    done, pauses = threading.Event(), random.Random(1)

    def change() -> None:
        while not done.wait(pauses.uniform(0.05, 0.4)):
            meminfo.write_text(SHORT)
            time.sleep(0.012)
            meminfo.write_text(FREE)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def keeps_asking(server: Server) -> None:
    """Ask for more than there is time for, until the service has gone."""
    try:
        cancel(server, 10_000, words=20, count=400)
    except (requests.RequestException, StopIteration):
        return


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("small", signal.SIGTERM),
        ("small", signal.SIGINT),
        ("mixture", signal.SIGTERM),
        ("drafting", signal.SIGINT),
    ],
)
def test_requests_at_the_same_time_and_a_signal(
    *, built: Sanitized, models: Models, tmp_path: Path, kind: str, number: int
) -> None:
    drafting = ("-md", str(models.draft), "--spec-type", "draft-simple")
    with serving(
        built.folder / "llama-server",
        tmp_path,
        *OPTIONS,
        *(drafting if kind == "drafting" else ()),
        model=models.mixture if kind == "mixture" else models.small,
        variables=built.environment(streamed(4 << 20)),
        launcher=[*with_meminfo(FREE, tmp_path), *built.words("env")[:2]],
    ) as server:
        expected = answer_alone(server)
        with memory_that_comes_and_goes(tmp_path / "meminfo"):
            ask_all_kinds(server)
        assert answer_alone(server) == expected
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(keeps_asking, server) for _ in range(3)]
            busy = "llamacpp:requests_processing 3"
            wait_until(
                lambda: busy in requests.get(f"{server.address}/metrics", timeout=300).text,
                server.process,
                within_s=300,
            )
            server.process.send_signal(number)
            status = server.process.wait(300)
        for each in asked:
            each.result()
    built.check()
    assert status == 0, (tmp_path / "log").read_text()[-4000:]
    header, steps = traced(tmp_path / "trace.jsonl")
    assert header.weights[-1].weights == "streamed"
    assert header.weights[-1].released_bytes > 0
    assert max(step.sequences for step in steps) > 1
