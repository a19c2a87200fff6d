"""Programs that people have ask a service: OpenAI's client, and reverse proxies as documented."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from armload.boards.virtual.process import free_port
from armload.core.places import data_path
from tests.system.browser import PROGRAM, Tab
from tests.system.households import Household, household, updated_under_load
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.timeout(1800),
    pytest.mark.exhaustive(covers=["armload/services", "docs/services.md"]),
]
NAME = "tutor"
SETTINGS = ("--model", "word-problems:Q8_0", "--threads", "1", "--slots", "1", "--context", "256")
TOKENS = 8
LOADED_S = 300
"""Longer than an update takes, of which a minute is watching."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Household]:
    folder = tmp_path_factory.mktemp("clients")
    with household(folder, folder / "board") as made:
        made.types("install", *SETTINGS, "--init", "cron", name=NAME)
        yield made


def test_openai_s_client_lists_models_and_has_text_as_it_comes(home: Household) -> None:
    openai = pytest.importorskip("openai")
    port, key = home.address(NAME)
    url = f"http://127.0.0.1:{port}/v1"
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
        (model,) = client.models.list().data
        assert model.id == "word-problems-Q8_0"
        whole = client.completions.create(model=model.id, prompt="Ann has 3", max_tokens=TOKENS)
        stream = client.completions.create(
            model=model.id, prompt="Ann has 3", max_tokens=TOKENS, stream=True
        )
        parts = [each.choices[0].text for each in stream if each.choices]
        assert len(parts) >= TOKENS
        assert "".join(parts) == whole.choices[0].text
        chat = client.chat.completions.create(
            model=model.id, messages=[{"role": "user", "content": "Ann"}], max_tokens=TOKENS
        )
        assert chat.usage.completion_tokens > 0
    with (
        openai.OpenAI(base_url=url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_half_of_what_it_can_answer_is_answered_throughout_an_update(home: Household) -> None:
    """Every request of a client that sends on schedule, while two servers share the cores."""
    found = updated_under_load(home, NAME, LOADED_S)
    assert found.metrics["failed"] == {}
    expected = found.rate_per_s * LOADED_S
    assert found.metrics["ok"] == found.metrics["scheduled"] > expected / 2
    assert (found.updated["tried"], found.updated["silent_s"]) == ("beside", 0.0)
    assert home.status(NAME)["version"] == found.updated["record"]["id"]


_ASKED = """
fetch("http://127.0.0.1:%d/v1/models", {headers: {Authorization: "Bearer %s"}}).then(
  (answer) => answer.status, (error) => error.name)
"""


@pytest.mark.skipif(PROGRAM is None, reason="takes Chromium or Chrome")
def test_a_browser_shows_its_health_and_no_other_page_asks_it(
    home: Household, tmp_path: Path, tab: Tab
) -> None:
    port, key = home.address(NAME)
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><p>another site")
    tab.visit(f"http://127.0.0.1:{port}/health", width=800)
    assert json.loads(tab.evaluate("document.body.innerText")) == {"status": "ok"}
    assert tab.evaluate(_ASKED % (port, key)) == 200
    tab.visit(page.as_uri(), width=800)
    assert tab.evaluate(_ASKED % (port, key)) == "TypeError"


def installed(program: str) -> str:
    """Return where a program lies, which Debian keeps for root; skip where it does not."""
    found = shutil.which(program, path=os.pathsep.join([*os.get_exec_path(), "/usr/sbin"]))
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def documented(program: str) -> str:
    """Return the example for a reverse proxy in the documentation."""
    text = data_path("docs", "services.md").read_text()
    match = re.search(rf"With {program}[^\n]*:\n\n((?:    [^\n]*\n)+)", text)
    assert match is not None
    return re.sub(r"(?m)^    ", "", match[1])


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine; return it and its key."""
    paths = folder / "llm.pem", folder / "llm.key"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    words += ["-out", str(paths[0]), "-keyout", str(paths[1])]
    subprocess.run(words, check=True, capture_output=True)
    return paths


@contextmanager
def runs(words: list[str], port: int, environment: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers, process)
        yield
    finally:
        process.terminate()
        process.communicate()


def check_proxied(home: Household, port: int, authority: Path) -> None:
    """Ask through a proxy: with and without a key, for text as it comes, and with a long prompt."""
    _, key = home.address(NAME)
    url = f"https://localhost:{port}"
    body: dict[str, Any] = {"model": "any", "prompt": "Ann has 3", "max_tokens": TOKENS}
    body["stream"] = True
    with requests.Session() as session:
        session.trust_env, session.verify = False, str(authority)
        assert session.get(f"{url}/health", timeout=60).status_code == 200
        refused = session.post(f"{url}/v1/completions", json=body, timeout=60)
        assert refused.status_code == 401
        session.headers["Authorization"] = f"Bearer {key}"
        with session.post(f"{url}/v1/completions", json=body, stream=True, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            lines = [each for each in answer.iter_lines() if each.startswith(b"data: {")]
        assert len(lines) >= TOKENS
        assert json.loads(lines[0].removeprefix(b"data: "))["object"] == "text_completion"
        large = {**body, "prompt": "x" * 2_000_000, "stream": False}
        too_long = session.post(f"{url}/v1/completions", json=large, timeout=60)
        assert too_long.status_code == 400  # llama-server's word, not the proxy's 413
        assert "context" in too_long.text


def test_nginx_as_documented_is_a_proxy(home: Household, tmp_path: Path) -> None:
    program = installed("nginx")
    port, (pem, key) = free_port(), certificate(tmp_path)
    example = documented("nginx")
    for documented_word, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/llm.pem", str(pem)),
        ("/etc/ssl/llm.key", str(key)),
        ("llm.example.org", "localhost"),
        ("127.0.0.1:8080", f"127.0.0.1:{home.address(NAME)[0]}"),
    ):
        assert documented_word in example
        example = example.replace(documented_word, here)
    places = "".join(
        f"{each}_temp_path {tmp_path}/{each};\n"
        for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off;\nuser root;\npid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}{example}}}\n"
    )
    with runs([program, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")], port):
        check_proxied(home, port, pem)


def test_caddy_as_documented_is_a_proxy(home: Household, tmp_path: Path) -> None:
    program = installed("caddy")
    port, (pem, key) = free_port(), certificate(tmp_path)
    example = documented("Caddy")
    assert example.startswith("llm.example.org {\n")
    assert "127.0.0.1:8080" in example
    # The certificate that comes by itself takes a name that the internet knows.
    example = example.replace("llm.example.org {", f"https://localhost:{port} {{\ntls {pem} {key}")
    example = example.replace("127.0.0.1:8080", f"127.0.0.1:{home.address(NAME)[0]}")
    settings = "{\nadmin off\nauto_https disable_redirects\n}\n"
    (tmp_path / "Caddyfile").write_text(settings + example)
    words = [program, "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"]
    with runs(words, port, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}):
        check_proxied(home, port, pem)
