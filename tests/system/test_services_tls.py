"""A service that speaks TLS: installed, asked, renewed, updated without it, and rolled back."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, fingerprint
from tests.system.households import Household, household
from tests.system.test_supervise_tls import elsewhere
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.timeout(1800),
    pytest.mark.exhaustive(
        covers=[
            "armload/services",
            "armload/build/helper.py",
            "deploy/service",
            "toolchains/tls",
            "toolchains/sources/s2n-tls.yaml",
        ]
    ),
]
NAME = "tutor"
HOST = "llm.example.org"
SETTINGS = ("--model", "word-problems:Q8_0", "--threads", "1", "--slots", "1", "--context", "512")
PATIENCE_S = 300


class Tls:
    """A household's service, with the authority that its certificates are from.

    Attributes:
        installed: what installing it has told.
        chain: of the first certificate.
    """

    def __init__(self, home: Household, folder: Path) -> None:
        self.home, self.folder, self.authority = home, folder, Authority()
        self.chain, key = self.issued("first")
        where = ("--init", "cron", "--listen", elsewhere())
        files = ("--tls-certificate", str(self.chain), "--tls-key", str(key))
        self.installed: dict[str, Any] = home.types("install", *SETTINGS, *where, *files, name=NAME)

    def issued(self, name: str, **settings: Any) -> tuple[Path, Path]:
        place = self.folder / name
        place.mkdir()
        return self.authority.issue(place, HOST, **settings)

    def renews(self, chain: Path, key: Path, *words: str, status: int = 0) -> Any:
        files = ("--tls-certificate", str(chain), "--tls-key", str(key))
        return self.home.types("update", *files, *words, name=NAME, status=status)

    @property
    def file(self) -> Path:
        return self.home.workdir / "services" / NAME / "tls.pem"

    @contextmanager
    def connected(self) -> Iterator[http.client.HTTPConnection]:
        """Connect as another machine does that trusts the authority."""
        port, _ = self.home.address(NAME)
        raw = socket.create_connection(
            ("127.0.0.1", port), timeout=PATIENCE_S, source_address=(elsewhere(), 0)
        )
        line = http.client.HTTPConnection("127.0.0.1", port)
        with closing(line):
            line.sock = self.authority.context().wrap_socket(raw, server_hostname=HOST)
            yield line

    def asks(self, *, key: str = "", between: Callable[[], object] = lambda: None) -> int:
        """Ask for some tokens; return the status, or how many there are."""
        _, own = self.home.address(NAME)
        body = json.dumps({"prompt": "Ann has 3", "max_tokens": 4}).encode()
        with self.connected() as line:
            line.putrequest("POST", "/v1/completions")
            line.putheader("Authorization", f"Bearer {key or own}")
            line.putheader("Content-Type", "application/json")
            line.putheader("Content-Length", str(len(body)))
            line.endheaders(body[:10])
            between()
            line.send(body[10:])
            answer = line.getresponse()
            content = answer.read()
        if answer.status != HTTPStatus.OK:
            return answer.status
        return int(json.loads(content)["usage"]["completion_tokens"])

    def shown(self) -> str:
        port, _ = self.home.address(NAME)
        return fingerprint_of(ssl.get_server_certificate(("127.0.0.1", port)), self.folder)


def fingerprint_of(pem: str, folder: Path) -> str:
    path = folder / "shown.pem"
    path.write_text(pem)
    return fingerprint(path)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    with household(folder, folder / "board") as home:
        yield Tls(home, folder)


def test_other_machines_are_answered_by_tls_alone(tls: Tls) -> None:
    port, _ = tls.home.address(NAME)
    assert tls.installed["url"] == f"https://{HOST}:{port}/v1"
    assert tls.installed["certificate"]["sha256"] == fingerprint(tls.chain) == tls.shown()
    assert any("clients must use one of those names" in each for each in tls.installed["notes"])
    assert tls.file.stat().st_mode & 0o777 == 0o600
    assert tls.asks() == 4
    assert tls.asks(key="wrong") == HTTPStatus.UNAUTHORIZED
    with socket.create_connection(
        ("127.0.0.1", port), timeout=PATIENCE_S, source_address=(elsewhere(), 0)
    ) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 400"


def test_armload_reaches_it_as_it_reaches_every_service(tls: Tls) -> None:
    found = tls.home.status(NAME)
    assert found["condition"] == "ready"
    assert found["certificate_state"] == "valid"
    assert found["certificate"]["names"] == [HOST]
    assert found["activity"][0]["generated_tokens"] > 0
    person = tls.home.person
    words = ("--board", "here", "--service", NAME, "--n-predict", "4")
    said = person.chats("Ann has 3", *words)
    assert json.loads(said.stdout)["answer"]
    loaded = person.types(
        *("load", "--board", "here", "--service", NAME, "--requests", "2", "--concurrency", "1"),
        *("--prompt-tokens", "8", "--n-predict", "4", "--warmup", "0", "--json"),
    )
    assert json.loads(loaded.stdout)["points"][0]["metrics"]["ok"] == 2


def test_a_certificate_is_renewed_while_answers_go_on(tls: Tls) -> None:
    before = tls.home.status(NAME)
    chain, key = tls.issued("second", kind="rsa")
    (server,) = tls.home.servers()
    renewed = threading.Event()

    def ask() -> int:
        asked = 0
        while not renewed.is_set():
            assert tls.asks() == 4
            asked += 1
        return asked

    def renew() -> None:
        done = tls.renews(chain, key)
        assert done["certificate"]["sha256"] == fingerprint(chain) == tls.shown()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        try:
            assert tls.asks(between=renew) == 4  # of a request that began before
        finally:
            renewed.set()
        assert asked.result() > 0
    after = tls.home.status(NAME)
    assert (after["version"], after["restarts"]) == (before["version"], before["restarts"])
    assert after["certificate"]["sha256"] == fingerprint(chain)
    assert tls.home.servers() == [server]
    assert not list((tls.file.parent / "versions").glob(".*"))


def test_a_certificate_that_clients_would_refuse_changes_nothing(tls: Tls) -> None:
    before = tls.file.read_bytes()
    assert "expired on" in tls.renews(*tls.issued("old", days=(-30, -1)), status=2)
    chain, _ = tls.issued("one")
    _, key = tls.issued("another")
    assert "does not match the private key" in tls.renews(chain, key, status=2)
    assert tls.file.read_bytes() == before
    tls.file.write_bytes(before[: len(before) // 2])  # by hand

    def problem() -> str:
        return str(tls.home.status(NAME)["certificate_problem"] or "")

    wait_until(lambda: "private key" in problem())
    assert tls.asks() == 4
    chain, key = tls.issued("third")
    assert tls.renews(chain, key)["certificate"]["sha256"] == fingerprint(chain)
    assert problem() == ""
    assert tls.shown() == fingerprint(chain)


def test_encryption_ends_with_a_version_and_comes_back_with_the_former(tls: Tls) -> None:
    shown = tls.shown()
    done = tls.home.types("update", "--no-tls", "--slower", "99%", name=NAME)
    assert done["record"]["listening"]["with_tls"] is False
    with pytest.raises(OSError, match=r"(?i)ssl|reset"):
        tls.asks()
    assert tls.home.writes(name=NAME) > 0
    assert tls.home.status(NAME)["certificate_state"] is None
    tls.home.types("rollback", name=NAME)
    wait_until(lambda: tls.home.status(NAME)["condition"] == "ready")
    assert tls.asks() == 4
    assert tls.shown() == shown


def test_a_service_without_encryption_gets_it(tls: Tls) -> None:
    home = tls.home
    home.types("install", *SETTINGS, "--init", "cron", "--listen", elsewhere(), name="plain")
    chain, key = tls.issued("added")
    files = ("--tls-certificate", str(chain), "--tls-key", str(key), "--slower", "99%")
    done = home.types("update", *files, name="plain")
    assert done["record"]["listening"]["with_tls"]
    found = home.status("plain")
    assert (found["certificate_state"], found["certificate_problem"]) == ("valid", None)
    port, _ = home.address("plain")
    shown = ssl.get_server_certificate(("127.0.0.1", port))
    assert fingerprint_of(shown, tls.folder) == fingerprint(chain)
    assert home.writes(name="plain") > 0
