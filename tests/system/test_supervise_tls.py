"""A held port that speaks TLS: real clients, hostile ones, and certificates that change."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
import requests

from armload.build.helper import SUPERVISE, helper
from armload.build.inspection import inspect
from armload.build.target import machine_architecture
from armload.core.shell import join
from tests.certificates import Authority, Kind, fingerprint
from tests.supervised import ServiceFolder
from tests.system.engines import emulator
from tests.system.test_supervise import UNUSABLE, program
from tests.system.test_supervise_pass import PATIENCE_S, PLACES, passer
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(
        covers=[
            "toolchains/board",
            "toolchains/tls",
            "toolchains/sources/s2n-tls.yaml",
            "armload/build/helper.py",
            "tests/certificates.py",
        ]
    ),
]

HELLO = 22
MOST_EARLY_BYTES = 1 << 16


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceFolder]:
    words = [str(helper(SUPERVISE, architecture=machine_architecture(), with_tls=True).path)]
    made = ServiceFolder(tmp_path / "it's $(id)", words)
    yield made
    made.close()


def put(service: ServiceFolder, chain: Path, key: Path) -> None:
    """Replace its certificate as armload does."""
    beside = service.folder / "beside.pem"
    beside.write_bytes(chain.read_bytes() + key.read_bytes())
    beside.replace(service.folder / "tls.pem")


def begin(service: ServiceFolder, authority: Authority, kind: Kind = "ecdsa") -> str:
    """Start a version with TLS, and return the SHA-256 of its certificate."""
    chain, key = authority.issue(service.folder.parent, "localhost", "127.0.0.1", kind=kind)
    put(service, chain, key)
    service.behind("a", tls="yes", listen="127.0.0.1,127.0.0.2")
    service.use("a")
    service.start()
    shown = fingerprint(chain)
    service.waits_for(state="ready", certificate=shown, certificate_problem="")
    return shown


def elsewhere() -> str:
    """Return an address of this machine that a server takes for another machine's."""
    for found in psutil.net_if_addrs().values():
        for each in found:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                return each.address
    pytest.skip("this machine has no address but its loopback")


def connected(service: ServiceFolder, context: ssl.SSLContext) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S)
    try:
        return context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False)
    except BaseException:
        raw.close()
        raise


def posted(service: ServiceFolder, context: ssl.SSLContext, body: bytes) -> tuple[int, bytes]:
    line = http.client.HTTPSConnection(
        "localhost", service.port, timeout=PATIENCE_S, context=context
    )
    with closing(line):
        line.request("POST", "/", body)
        answer = line.getresponse()
        return answer.status, answer.read()


def shown_by(service: ServiceFolder, context: ssl.SSLContext) -> str:
    with connected(service, context) as line:
        found = line.getpeercert(binary_form=True)
    assert found is not None
    return hashlib.sha256(found).hexdigest()


def lines_of(service: ServiceFolder, context: ssl.SSLContext, count: int) -> list[str]:
    line = http.client.HTTPSConnection(
        "localhost", service.port, timeout=PATIENCE_S, context=context
    )
    with closing(line):
        line.request("GET", f"/{count}")
        return line.getresponse().read().decode().splitlines()


def test_it_is_static_and_runs_on_every_cpu() -> None:
    found = inspect(helper(SUPERVISE, with_tls=True).path)
    assert found.is_static
    assert found.size_bytes < 3_000_000


@pytest.mark.parametrize("cpu", ["cortex-a53", "neoverse-n1"])
def test_boards_speak_it_as_well(authority: Authority, tmp_path: Path, cpu: str) -> None:
    words = [emulator()[0], "-cpu", cpu, str(helper(SUPERVISE, with_tls=True).path)]
    service = ServiceFolder(tmp_path / "board", words)
    try:
        begin(service, authority)
        body = os.urandom(100_000)
        assert posted(service, authority.context(), body) == (200, body)
    finally:
        service.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("kind", ["ecdsa", "ecdsa-384", "rsa"])
def test_requests_and_answers_pass_whole(
    service: ServiceFolder, authority: Authority, kind: Kind, version: ssl.TLSVersion
) -> None:
    begin(service, authority, kind)
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    for size in (0, 1, 16_384, 3_000_000):
        body = os.urandom(size)
        assert posted(service, context, body) == (200, body)
    assert lines_of(service, context, 3) == ["a 0", "a 1", "a 2"]


def test_the_end_of_an_answer_is_told_in_tls(service: ServiceFolder, authority: Authority) -> None:
    begin(service, authority)
    with connected(service, authority.context()) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        content = b""
        while part := line.recv(100):  # without close_notify, it raises
            content += part
    assert content.startswith(b"HTTP/1.1 200")
    assert content.endswith(b"\r\n\r\nok")


def test_requests_verifies_its_certificate_and_name(
    service: ServiceFolder, authority: Authority, tmp_path: Path
) -> None:
    begin(service, authority)
    trusted = tmp_path / "root.pem"
    trusted.write_text(authority.pem)
    url = f"https://127.0.0.1:{service.port}/health"
    with requests.Session() as session:
        session.trust_env = False
        assert session.get(url, verify=str(trusted), timeout=PATIENCE_S).text == "ok"
        with pytest.raises(requests.exceptions.SSLError):
            session.get(
                url.replace("127.0.0.1", "127.0.0.2"), verify=str(trusted), timeout=PATIENCE_S
            )
        with pytest.raises(requests.exceptions.SSLError):
            session.get(url, timeout=PATIENCE_S)


def test_other_machines_get_no_answer_without_tls(
    service: ServiceFolder, authority: Authority
) -> None:
    begin(service, authority)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nAuthorization: Bearer x\r\n\r\nx"
    answers = []
    for source in ("127.0.0.1", elsewhere()):
        with socket.create_connection(
            ("127.0.0.1", service.port), timeout=PATIENCE_S, source_address=(source, 0)
        ) as line:
            line.sendall(request)
            answers.append(line.makefile("rb").read())
    here, there = answers
    assert here.startswith(b"HTTP/1.1 200")
    assert there.startswith(b"HTTP/1.1 400")
    assert b"https://" in there


def test_another_machine_reaches_it_by_tls(service: ServiceFolder, authority: Authority) -> None:
    begin(service, authority)
    raw = socket.create_connection(
        ("127.0.0.1", service.port), timeout=PATIENCE_S, source_address=(elsewhere(), 0)
    )
    with authority.context().wrap_socket(raw, server_hostname="localhost") as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    ("words", "is_taken"),
    [
        (["-tls1_3"], True),
        (["-tls1_2"], True),
        (["-tls1_2", "-cipher", "ECDHE+AESGCM"], True),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"], False),
        (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], False),
        (["-tls1", "-cipher", "ALL:@SECLEVEL=0"], False),
    ],
)
def test_what_openssl_may_speak(
    service: ServiceFolder, authority: Authority, words: list[str], *, is_taken: bool
) -> None:
    begin(service, authority)
    said = openssl(service, authority, *words)
    assert ("no peer certificate available" not in said) is is_taken
    assert ("BEGIN CERTIFICATE" in said and "Verify return code: 0 (ok)" in said) is is_taken
    assert posted(service, authority.context(), b"x") == (200, b"x")


def openssl(service: ServiceFolder, authority: Authority, *words: str, script: str = ":") -> str:
    """Return what OpenSSL's client says while a script's output is what a person types."""
    tool = shutil.which("openssl")
    if tool is None:
        pytest.skip("openssl is not installed")
    trusted = service.folder / "root.pem"
    trusted.write_text(authority.pem)
    command = [
        *(tool, "s_client", "-connect", f"127.0.0.1:{service.port}", "-CAfile", str(trusted)),
        *("-verify_hostname", "localhost", *words),
    ]
    return subprocess.run(
        ["sh", "-c", f"({script}) | {join(command)} 2>&1"],
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    ).stdout


def test_a_client_cannot_negotiate_again(service: ServiceFolder, authority: Authority) -> None:
    begin(service, authority)
    said = openssl(service, authority, "-tls1_2", script="sleep 1; echo R; sleep 2")
    before, again, after = said.partition("RENEGOTIATING")
    assert "verify return:1" in before
    assert again
    assert "verify return:1" not in after
    assert posted(service, authority.context(), b"x") == (200, b"x")


def record(kind: int, content: bytes) -> bytes:
    return bytes([kind, 3, 1]) + len(content).to_bytes(2, "big") + content


def hostile(seed: int) -> Iterator[bytes]:
    """Openings that are no client's."""
    chance = random.Random(seed)
    hello = record(HELLO, b"\x01\x00\x01\x00" + chance.randbytes(256))
    yield b"\x16"
    yield hello[: chance.randrange(1, len(hello))]
    yield hello
    yield record(HELLO, b"\x01\xff\xff\xff" + chance.randbytes(16_000))  # of 16 MB, it says
    yield record(HELLO, b"")  # nothing, in a record
    yield b"\x16\x03\x01\xff\xff" + chance.randbytes(65_535)  # longer than records may be
    yield record(20, b"\x01") + record(21, b"\x02\x28") + record(23, chance.randbytes(100))
    yield b"\x16" + chance.randbytes(chance.randrange(1, 3000))
    yield b"\x80\x2e\x01\x03\x01" + chance.randbytes(41)  # of SSL 2
    yield b"".join(record(HELLO, b"\x01") for _ in range(20_000))


def test_hostile_handshakes_cost_nobody_else_anything(
    service: ServiceFolder, authority: Authority
) -> None:
    begin(service, authority)
    context, process = authority.context(), passer(service)
    posted(service, context, b"x")
    before_bytes = process.memory_info().rss
    for seed in range(30):
        for opening in hostile(seed):
            with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as line:
                with suppress(ConnectionError):
                    line.sendall(opening)
                if seed % 3 == 0:
                    with suppress(OSError):
                        line.shutdown(socket.SHUT_WR)
        assert posted(service, context, b"x") == (200, b"x")
    assert passer(service).pid == process.pid
    assert process.memory_info().rss - before_bytes < PLACES * 100_000


def test_a_handshake_without_end_is_broken_off(
    service: ServiceFolder, authority: Authority
) -> None:
    begin(service, authority)
    sent = 0
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as line:
        piece = record(20, b"\x01")  # of which some come in a handshake, and mean nothing
        with suppress(ConnectionError):
            line.sendall(record(HELLO, b"\x01\x00\x40\x00"))
            while sent < 100 * MOST_EARLY_BYTES:
                line.sendall(piece * 100)
                sent += 100 * len(piece)
    assert sent < 100 * MOST_EARLY_BYTES
    assert posted(service, authority.context(), b"x") == (200, b"x")


def test_a_handshake_that_stops_does_not_stay(service: ServiceFolder, authority: Authority) -> None:
    begin(service, authority)
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as line:
        line.sendall(record(HELLO, b"\x01\x00\x01\x00x"))
        assert line.recv(100) == b""


def test_clients_that_stop_in_their_handshake_keep_nobody_away(
    service: ServiceFolder, authority: Authority
) -> None:
    begin(service, authority)
    silent = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(PLACES + 20)]
    try:
        for number, each in enumerate(silent):
            with suppress(ConnectionError):
                each.sendall((b"", b"\x16", record(HELLO, b"\x01\x00\x01\x00x"))[number % 3])
        assert posted(service, authority.context(), b"x") == (200, b"x")
    finally:
        for each in silent:
            each.close()
    assert service.state()["restarts"] == 0


def test_a_client_that_does_not_read_keeps_nobody_waiting(
    service: ServiceFolder, authority: Authority
) -> None:
    begin(service, authority)
    context = authority.context()
    body = os.urandom(8_000_000)
    with connected(service, context) as slow:
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        slow.sendall(head + body)
        assert posted(service, context, b"x") == (200, b"x")
        content = b""
        while part := slow.recv(1 << 20):
            content += part
    assert content.endswith(body)


def test_a_header_without_end_is_refused(service: ServiceFolder, authority: Authority) -> None:
    begin(service, authority)
    with connected(service, authority.context()) as line:
        line.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 16_384)
        assert line.recv(100).startswith(b"HTTP/1.1 431 ")


def test_a_client_that_goes_leaves_its_place(service: ServiceFolder, authority: Authority) -> None:
    begin(service, authority)
    process, context = passer(service), authority.context()
    for is_orderly in (True, False):
        line = connected(service, context)
        line.sendall(b"GET /1000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 200"
        if is_orderly:
            with suppress(OSError):
                line.unwrap().close()
        line.close()
        wait_until(
            lambda: not any(each.status == "ESTABLISHED" for each in process.net_connections())
        )


def test_what_connections_take_is_bounded(service: ServiceFolder, authority: Authority) -> None:
    begin(service, authority)
    context, process = authority.context(), passer(service)
    assert lines_of(service, context, 1) == ["a 0"]
    before_bytes = process.memory_info().rss
    lines = [connected(service, context) for _ in range(PLACES)]
    try:
        for each in lines:
            each.sendall(b"GET /20 HTTP/1.1\r\nHost: x\r\n\r\n")
        for each in lines:
            assert each.recv(12) == b"HTTP/1.1 200"
        taken_bytes = process.memory_info().rss - before_bytes
    finally:
        for each in lines:
            each.close()
    assert taken_bytes < PLACES * 100_000


def test_a_renewed_certificate_costs_no_connection(
    service: ServiceFolder, authority: Authority, tmp_path: Path
) -> None:
    first = begin(service, authority)
    context = authority.context()
    stop = threading.Event()

    def ask() -> int:
        count = 0
        while not stop.is_set():
            body = os.urandom(1000)
            assert posted(service, context, body) == (200, body)
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        long = pool.submit(lines_of, service, context, 40)
        asked = [pool.submit(ask) for _ in range(3)]
        try:
            shown = [first]
            for number in range(3):
                folder = tmp_path / str(number)
                folder.mkdir()
                chain, key = authority.issue(folder, "localhost", kind=("rsa", "ecdsa")[number % 2])
                put(service, chain, key)
                service.waits_for(certificate=fingerprint(chain), certificate_problem="")
                shown.append(shown_by(service, context))
                assert shown[-1] == fingerprint(chain)
        finally:
            stop.set()
        assert all(each.result() > 0 for each in asked)
        assert long.result() == [f"a {number}" for number in range(40)]
    assert len(set(shown)) == 4
    assert service.state()["restarts"] == 0


def test_a_certificate_that_cannot_be_used_leaves_the_former(
    service: ServiceFolder, authority: Authority, tmp_path: Path
) -> None:
    first = begin(service, authority)
    chain, key = authority.issue(tmp_path, "localhost")
    other = tmp_path / "other"
    other.mkdir()
    other_chain, _ = authority.issue(other, "localhost")
    own = service.folder / "tls.pem"
    whole = chain.read_bytes() + key.read_bytes()
    for content, problem in (
        (b"", "it has no private key"),
        (chain.read_bytes(), "it has no private key"),
        (key.read_bytes(), "its certificate and its private key cannot be used together"),
        (other_chain.read_bytes() + key.read_bytes(), "its certificate and its private key"),
        (whole[:-40], "it has no private key"),
        (b"x" * 70_000, "it has more than 64 KiB"),
    ):
        beside = service.folder / "beside"
        beside.write_bytes(content)
        beside.replace(own)
        while not service.state()["certificate_problem"].startswith(problem):
            assert service.process is not None
            assert service.process.poll() is None
            time.sleep(0.05)
        assert shown_by(service, authority.context()) == first == service.state()["certificate"]
        own.write_bytes(whole + b"\n" * len(service.log()))  # of another size each time
        service.waits_for(certificate=fingerprint(chain), certificate_problem="")
        own.unlink()
        service.waits_for(certificate_problem="it cannot be read")
        first = shown_by(service, authority.context())
    assert "keeping the certificate that is in force" in service.log()


def test_without_a_certificate_other_machines_are_not_answered(
    service: ServiceFolder, authority: Authority, tmp_path: Path
) -> None:
    service.behind("a", tls="yes")
    service.use("a")
    service.start()
    service.waits_for(state="ready", certificate="", certificate_problem="it cannot be read")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connected(service, authority.context())
    chain, key = authority.issue(tmp_path, "localhost")
    put(service, key, chain)  # in whichever order
    service.waits_for(certificate=fingerprint(chain))
    assert posted(service, authority.context(), b"x") == (200, b"x")


@pytest.mark.parametrize("tls", ["yes", "maybe", ""])
def test_a_supervisor_without_tls_refuses_it(tmp_path: Path, tls: str) -> None:
    made = ServiceFolder(tmp_path / "plain", [program()])
    made.behind("a", tls=tls)
    made.use("a")
    status, said = made.run()
    assert status == UNUSABLE
    assert ("built without it" in said) is (tls == "yes")


def test_a_port_that_is_not_held_has_no_tls(service: ServiceFolder) -> None:
    service.server("a", tls="yes")
    service.use("a")
    status, said = service.run()
    assert status == UNUSABLE
    assert "tls without listen" in said
