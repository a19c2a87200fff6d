"""What a service answers to armload itself, whatever stands behind its port."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from armload.core.errors import RunError
from armload.services import asking, status


@contextmanager
def answering(code: int, content: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """Serve one answer, with a pause after each byte."""
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()
            try:
                for at in range(len(content)) if pause_s else ():
                    self.wfile.write(content[at : at + 1])
                    if over.wait(pause_s):
                        return
                self.wfile.write(b"" if pause_s else content)
            except OSError:
                return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def test_a_proxy_does_not_answer_for_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(403, b"no") as proxy, answering(200, b"{}") as url:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(RunError, match="answers without an API key"):
            asking._check_keys(url, "kitchen")
    with answering(401, b"") as url:
        asking._check_keys(url, "kitchen")


@pytest.mark.parametrize(
    "content", [b"[" * 500_000, b'{"data":[{"id":"a"}]}', b'{"data":7}', b"\xff", b""]
)
def test_models_that_a_router_does_not_list_are_not_known(content: bytes) -> None:
    with answering(200, content) as url, requests.Session() as session:
        assert status._loaded(session, url) == {}


def test_an_answer_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_WHOLE_S", 0.5)
    with answering(200, b" " * 100_000, pause_s=0.1) as url, requests.Session() as session:
        assert status._metrics(session, url) is None
        assert status._loaded(session, url) == {}


@pytest.mark.parametrize("value", ["inf", "nan", "1e400", "-inf", "x"])
def test_a_metric_that_is_no_number_is_not_known(value: str) -> None:
    text = f"llamacpp:prompt_tokens_total {value}\nllamacpp:predicted_tokens_seconds {value}\n"
    with answering(200, text.encode()) as url, requests.Session() as session:
        found = status._of_metrics("m", status._metrics(session, url), loaded=None)
    assert (found.prompt_tokens, found.generated_tps) == (None, None)
