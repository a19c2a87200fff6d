"""The server's own metrics, scraped beside a load: whatever they are, the load goes on."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from armload.analysis.load.server_metrics import (
    MOST_SERIES,
    ServerSample,
    read_metrics,
    server_metrics,
)
from armload.core.progress import Silent
from armload.serving import observation
from armload.serving.loads import LoadFolder
from armload.serving.observation import Scraper
from tests.command_line import typed
from tests.stub_service import METRICS, stub_service

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a {b} c"} 3.0
vllm:num_requests_running{engine="1",model_name="a {b} c"} 1.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="m"} 1.5e+03 1700000000000
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{model_name="m"} 1.7e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1"} 5
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 9
vllm:time_to_first_token_seconds_count 9
vllm:time_to_first_token_seconds_sum 4.5
# TYPE rpc_seconds summary
rpc_seconds{quantile="0.5"} 4773
rpc_seconds_sum 1.75
# TYPE vllm:cache_usage gauge
vllm:cache_usage NaN
"""


def test_counters_and_gauges_keep_their_names_and_labels() -> None:
    found = read_metrics(VLLM, 7.0)
    assert found is not None
    assert found.at_client_s == 7.0
    assert found.counters == {
        'vllm:prompt_tokens_total{model_name="m"}': 1500.0,
        "vllm:time_to_first_token_seconds_count": 9.0,
        "vllm:time_to_first_token_seconds_sum": 4.5,
        "rpc_seconds_sum": 1.75,
    }
    assert list(found.gauges.values()) == [3.0, 1.0]
    assert found.gauge("vllm:num_requests_running") == 4.0
    assert found.gauge("vllm:cache_usage") is None


def test_metrics_without_a_type_are_told_apart_by_their_names() -> None:
    found = read_metrics("decoded_total 12\nbusy 2\n", 0.0)
    assert found == ServerSample(
        at_client_s=0.0, counters={"decoded_total": 12.0}, gauges={"busy": 2.0}
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# TYPE busy gauge\n",
        "<!doctype html>\n<title>x</title>\nhits 5\n",
        '{"error": "no"}',
        "not found here",
        "busy many",
    ],
)
def test_what_is_not_metrics_gives_none(text: str) -> None:
    assert read_metrics(text, 0.0) is None


def test_a_server_with_endless_series_fills_no_disk() -> None:
    many = "".join(f'used{{user="{number}"}} 1\n' for number in range(10 * MOST_SERIES))
    found = read_metrics(many, 0.0)
    assert found is not None
    assert len(found.gauges) == MOST_SERIES


def sample(at_s: float, decoded: float, busy: float) -> ServerSample:
    return ServerSample(
        at_client_s=at_s, counters={"decoded_total": decoded}, gauges={"busy": busy}
    )


def test_a_counter_counts_over_a_restart_and_a_gauge_has_a_range() -> None:
    scrapes = [sample(10.0, 100, 1), sample(12.0, 140, 4), sample(14.0, 20, 1)]
    decoded, busy = server_metrics(scrapes)
    assert (decoded.name, decoded.kind) == ("decoded_total", "counter")
    assert (decoded.increase, decoded.per_s) == (60, 15)
    assert (busy.kind, busy.mean, busy.low, busy.high) == ("gauge", 2, 1, 4)
    assert server_metrics(scrapes[:1]) == ()


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ({"metrics": "<html><body>busy 1</body></html>"}, "no metrics in it"),
        ({"metrics": ""}, "no metrics in it"),
        ({"metrics_status": 404}, "status 404"),
        ({"api_key": "right"}, "status 401"),
    ],
)
def test_a_server_without_metrics_is_told_in_one_line_and_left_alone(
    behaviour: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "_SCRAPE_EVERY_S", 0.01)
    said, seen = Said(), list[ServerSample]()
    with stub_service(**behaviour) as service:
        scraper = Scraper(service.url, "wrong", said)
        for _ in range(2):
            with scraper.running(tmp_path / "metrics.jsonl", seen.append) as thread:
                thread.join(30)
        assert [path for path, _ in service.seen] == ["/metrics"]
    assert len(said.lines) == 1
    assert said.lines[0].startswith(f"{service.url}/metrics: {why}. The load is recorded without")
    assert seen == []
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_server_that_gave_metrics_may_fail_to_for_a_while() -> None:
    said = Said()
    with stub_service() as service:
        scraper = Scraper(service.url, "", said)
        first = scraper.scrape()
        service.behaviour.metrics_status = 503
        assert scraper.scrape() is None
        service.behaviour.metrics_status = 200
        assert scraper.scrape() is not None
    assert scraper.scrape() is None
    assert first == read_metrics(
        METRICS.format(busy=0, waiting=0), first.at_client_s if first else 0
    )
    assert said.lines == []


def test_a_server_that_does_not_answer_in_time_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observation, "_SCRAPE_WAIT_S", 0.1)
    said = Said()
    with stub_service(metrics_s=5) as service:
        scraper = Scraper(service.url, "", said)
        assert scraper.scrape() is None
        service.behaviour.metrics_s = 0
        assert scraper.scrape() is not None
    assert [line.partition(": ")[2] for line in said.lines] == [
        "no answer. The load is recorded without the server's own metrics."
    ]


def test_an_answer_that_never_ends_holds_up_no_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "_SCRAPE_WAIT_S", 0.5)
    done = threading.Event()

    def drip(listening: socket.socket) -> None:
        line, _ = listening.accept()
        with line:
            line.sendall(b"HTTP/1.1 200 OK\r\n\r\nbusy 1\n")
            while not done.wait(0.05):
                line.sendall(b"#")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=drip, args=(listening,))
        server.start()
        scraper = Scraper(f"http://127.0.0.1:{listening.getsockname()[1]}", "", Silent())
        began_s = time.monotonic()
        with scraper.running(tmp_path / "metrics.jsonl", lambda _: None) as thread:
            time.sleep(0.2)
        took_s = time.monotonic() - began_s
        is_stuck = thread.is_alive()
        done.set()
        server.join()
        thread.join(30)
    assert is_stuck
    assert took_s < 10
    assert not (tmp_path / "metrics.jsonl").exists()


def test_no_proxy_learns_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_service() as proxy, stub_service(api_key="right") as service:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert Scraper(service.url, "right", Silent()).scrape() is not None
        assert proxy.seen == []


def test_the_last_scrape_has_the_requests_that_ended_since_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "_SCRAPE_EVERY_S", 600.0)
    begun, seen = threading.Event(), list[ServerSample]()

    def note(sample: ServerSample) -> None:
        seen.append(sample)
        begun.set()

    with stub_service(metrics=COUNTING) as service:
        scraper = Scraper(service.url, "", Silent())
        with scraper.running(tmp_path / "metrics.jsonl", note):
            assert begun.wait(30)
            requests.post(f"{service.url}/v1/completions", json={"max_tokens": 1}, timeout=30)
    assert [each.counters["came_total"] for each in seen] == [0, 1]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


COUNTING = "# TYPE came_total counter\ncame_total {came}\n# TYPE busy gauge\nbusy 2\n"


def test_the_record_the_page_and_the_document_show_what_the_server_says(tmp_path: Path) -> None:
    words = ("--rate", "4", "--requests", "10", "--arrivals", "constant", "--n-predict", "2")
    with stub_service(metrics=COUNTING) as service:
        done = typed(tmp_path, "load", "--url", service.url, *words, "--json")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "loads").iterdir()
    scrapes = LoadFolder.read(folder).server_samples(0)
    assert len(scrapes) >= 2
    came = [each.counters["came_total"] for each in scrapes]
    assert came == sorted(came)
    (point,) = json.loads(done.stdout)["points"]
    counter, gauge = point["server"]
    assert (counter["name"], counter["increase"]) == ("came_total", came[-1] - came[0])
    assert 0 < counter["increase"] <= 10
    assert (gauge["name"], gauge["mean"]) == ("busy", 2.0)
    page = (folder / "report.html").read_text()
    assert "The server's own metrics" in page.replace("&#39;", "'")
    assert "came_total" in page


@pytest.mark.exhaustive(covers=["armload/serving"])
def test_a_page_in_place_of_metrics_ends_no_load(tmp_path: Path) -> None:
    words = ("--rate", "20,40", "--requests", "4", "--n-predict", "2", "--json")
    with stub_service(metrics="<html>sign in</html>") as service:
        done = typed(tmp_path, "load", "--url", service.url, *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("/metrics: no metrics in it.") == 1
    assert [point["server"] for point in json.loads(done.stdout)["points"]] == [[], []]
