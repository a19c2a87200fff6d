"""A port that is held for a service: what its clients notice of restarts and of each other."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from armload.build.backend import native_folder
from armload.build.helper import any_cpu_compiler
from armload.build.target import machine_architecture
from armload.core.places import data_path
from tests.services import is_listening
from tests.supervised import ServiceFolder, is_gone
from tests.system.test_supervise import (
    GAVE_UP,
    NOBODY,
    UNUSABLE,
    as_root,
    open_service,  # noqa: F401 - a fixture
    program,
)
from tests.waiting import wait_until

PLACES = 128
PATIENCE_S = 60


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceFolder]:
    made = ServiceFolder(tmp_path / "it's $(id)", [program()])
    yield made
    made.close()


def begin(service: ServiceFolder, *names: str, load_s: float = 0.0, **settings: object) -> None:
    for name in names:
        service.behind(name, load_s, **settings)
    service.use(names[0])
    service.start()
    service.waits_for(state="ready")


def passer(service: ServiceFolder) -> psutil.Process:
    """The process that passes connections on: of supervise's own, it alone keeps the port open."""
    assert service.process is not None
    below = psutil.Process(service.process.pid).children()
    (found,) = (
        each
        for each in below
        if each.net_connections("tcp") and each.pid != service.state()["child"]
    )
    return found


def posted(
    service: ServiceFolder, body: bytes, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """Return the status of an answer, its body and its headers."""
    line = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)
    with closing(line):
        line.request("POST", "/", body, headers)
        answer = line.getresponse()
        return answer.status, answer.read(), dict(answer.headers)


def streamed(service: ServiceFolder, count: int) -> list[str]:
    line = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)
    with closing(line):
        line.request("GET", f"/{count}")
        with line.getresponse() as answer:
            return answer.read().decode().splitlines()


@pytest.mark.parametrize("size", [0, 1, 16_384, 5_000_000])
def test_requests_and_answers_pass_whole(service: ServiceFolder, size: int) -> None:
    begin(service, "a")
    body = os.urandom(size)
    _, content, headers = posted(service, body, Connection="keep-alive")
    assert content == body
    assert headers["X-Connection"] == "close"
    assert not is_listening(service.port, "127.0.0.2")


@pytest.fixture(scope="module")
def never_looks_again(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, but a request that finds no server looks for one again after an hour."""
    folder = tmp_path_factory.mktemp("program")
    sources = shutil.copytree(data_path("toolchains", "board"), folder / "board")
    header = sources / "supervise_pass.h"
    text = header.read_text()
    assert text.count("RETRY_MS = 100,") == 1
    header.write_text(text.replace("RETRY_MS = 100,", "RETRY_MS = 3600000,"))
    made = folder / "supervise"
    words = [*any_cpu_compiler(machine_architecture()), f"-I{native_folder()}"]
    subprocess.run([*words, "-o", str(made), str(sources / "supervise.c")], check=True)
    return str(made)


def test_a_request_does_not_wait_for_a_server_that_is_there(
    tmp_path: Path, never_looks_again: str
) -> None:
    with closing(ServiceFolder(tmp_path / "service", [never_looks_again])) as service:
        begin(service, "a")
        for _ in range(20):
            assert posted(service, b"one")[:2] == (200, b"one")


def test_no_request_is_lost_while_versions_change(service: ServiceFolder) -> None:
    begin(service, "a", "b", load_s=0.5)
    done = threading.Event()
    answered: list[str] = []

    def asks(number: int) -> None:
        while not done.is_set():
            body = os.urandom(1000 * number)
            assert posted(service, body)[:2] == (200, body)
            lines = streamed(service, 3)
            assert lines in ([f"{name} {each}" for each in range(3)] for name in "ab")
            answered.append(lines[0][0])

    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(asks, number) for number in range(6)]
        try:
            for name in ("b", "a", "b"):
                child, before = service.state()["child"], len(answered)
                service.use(name)
                assert service.process is not None
                service.process.send_signal(signal.SIGHUP)
                wait_until(lambda child=child: service.state()["child"] != child)  # type: ignore[misc]
                service.waits_for(state="ready", version=name, last_end=None)
                wait_until(lambda name=name, before=before: name in answered[before:])  # type: ignore[misc]
        finally:
            done.set()
        for each in asked:
            each.result()


def test_a_long_answer_is_finished_before_its_server_is_ended(service: ServiceFolder) -> None:
    begin(service, "a", "b")
    assert service.process is not None
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(streamed, service, 30)
        wait_until(lambda: len(passer(service).net_connections("unix")) > 0)
        service.use("b")
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: posted(service, b"x")[2]["X-Version"] == "b")
        assert long.result() == [f"a {number}" for number in range(30)]


def test_a_version_beside_answers_while_another_one_starts(service: ServiceFolder) -> None:
    begin(service, "a")
    service.behind("b", load_s=3)
    beside = ServiceFolder(service.folder / "versions" / "try", [program()])
    try:
        begin(beside, "t")
        assert posted(service, b"x")[2]["X-Version"] == "a"
        assert service.process is not None
        with ThreadPoolExecutor(2) as pool:
            old = pool.submit(streamed, service, 10)
            wait_until(lambda: len(passer(service).net_connections("unix")) > 0)
            service.use("b")
            service.process.send_signal(signal.SIGHUP)
            wait_until(lambda: posted(service, b"x")[2]["X-Version"] == "t")
            assert old.result()[-1] == "a 9"
            service.waits_for(state="loading", beside=True)
            new = pool.submit(streamed, service, 50)
            wait_until(lambda: len(passer(service).net_connections("unix")) > 0)
            service.waits_for(state="ready", version="b")
            assert posted(service, b"x")[2]["X-Version"] == "b"
            assert service.state()["beside"] is True
            assert new.result()[-1] == "t 49"
        service.waits_for(beside=False)
    finally:
        beside.close()
    assert posted(service, b"x")[2]["X-Version"] == "b"


def test_an_answer_without_end_keeps_no_version_away(service: ServiceFolder) -> None:
    begin(service, "a", "b", drain_s=1)
    assert service.process is not None
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(streamed, service, 100_000)
        wait_until(lambda: len(passer(service).net_connections("unix")) > 0)
        service.use("b")
        service.process.send_signal(signal.SIGHUP)
        service.waits_for(state="ready", version="b")
        with pytest.raises((http.client.HTTPException, OSError)):
            endless.result()
    assert service.state()["restarts"] == 0


def test_what_is_asked_while_a_server_restarts_is_answered(service: ServiceFolder) -> None:
    begin(service, "a", load_s=1, failures=3)
    os.kill(service.state()["child"], signal.SIGKILL)
    service.waits_for(state="loading", restarts=1)
    with socket.create_connection(("127.0.0.1", service.port)) as gone:
        gone.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
    assert posted(service, b"later")[0] == 200
    assert service.state()["restarts"] == 1


def test_clients_that_say_nothing_keep_nobody_away(service: ServiceFolder) -> None:
    begin(service, "a")
    silent = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(PLACES + 20)]
    try:
        for each in silent[::2]:
            each.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        assert posted(service, b"x")[1] == b"x"
    finally:
        for each in silent:
            each.close()
    assert service.state()["restarts"] == 0


def test_a_client_that_does_not_read_keeps_nobody_waiting(service: ServiceFolder) -> None:
    begin(service, "a")
    body = bytes(8_000_000)
    head = f"POST / HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", service.port)) as slow:
        slow.sendall(head + body)
        before_s = sum(passer(service).cpu_times()[:2])
        assert posted(service, b"x")[1] == b"x"
        time.sleep(2)
        assert sum(passer(service).cpu_times()[:2]) - before_s < 1, "it spins"
        got = 0
        while got < len(body):
            got += len(slow.recv(1 << 20))


def test_a_header_without_end_is_refused(service: ServiceFolder) -> None:
    begin(service, "a")
    with socket.create_connection(("127.0.0.1", service.port)) as line:
        line.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 16_384)
        assert line.recv(100).startswith(b"HTTP/1.1 431 ")
    assert posted(service, b"x")[0] == 200


def test_a_header_that_comes_byte_by_byte_does_not_stay(service: ServiceFolder) -> None:
    begin(service, "a")
    with socket.create_connection(("127.0.0.1", service.port)) as slow:
        slow.settimeout(0.1)
        for _ in range(600):
            with suppress(ConnectionError):  # the next receiving tells it
                slow.sendall(b"G")
            try:
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            assert ended
            return
    pytest.fail("it is still connected")


def test_the_port_stays_when_the_process_that_passes_is_killed(service: ServiceFolder) -> None:
    begin(service, "a")
    former = passer(service)
    former.kill()
    assert posted(service, b"x")[0] == 200
    assert passer(service).pid != former.pid
    assert service.state()["restarts"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_port_is_free_when_the_supervisor_has_ended(
    service: ServiceFolder, number: int
) -> None:
    begin(service, "a")
    assert service.process is not None
    below = psutil.Process(service.process.pid).children()
    service.process.send_signal(number)
    service.process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: all(is_gone(each.pid) for each in below))
    assert not is_listening(service.port)


def test_a_port_in_use_is_a_failure_that_is_named(service: ServiceFolder) -> None:
    service.behind("a")
    service.use("a")
    with socket.create_server(("127.0.0.1", service.port)):
        status, said = service.run()
    assert status == GAVE_UP
    assert f"cannot listen on port {service.port}: Address" in said
    assert service.state()["last_end"]["what"] == "port not available"


@pytest.mark.parametrize("listen", ["", ",", "127.0.0.1,", "host", "::1," * 8 + "::1", "1" * 50])
def test_addresses_that_are_not_understood_are_refused(service: ServiceFolder, listen: str) -> None:
    service.behind("a", listen=listen)
    service.use("a")
    status, said = service.run()
    assert status == UNUSABLE
    assert "listen has an invalid value" in said


def test_it_listens_on_each_address(service: ServiceFolder) -> None:
    begin(service, "a", listen="127.0.0.1,127.0.0.2,::1")
    for address in ("127.0.0.1", "127.0.0.2", "::1"):
        with socket.create_connection((address, service.port)) as line:
            line.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            assert line.recv(12) == b"HTTP/1.1 200"


def test_what_passes_connections_on_has_the_rights_of_the_service(
    open_service: ServiceFolder,  # noqa: F811
) -> None:
    as_root()
    begin(open_service, "a", uid=NOBODY, gid=NOBODY)
    found = passer(open_service)
    assert set(found.uids()) == set(found.gids()) == {NOBODY}
    folder = (open_service.folder / "private").stat()
    assert (folder.st_uid, folder.st_mode & 0o777) == (NOBODY, 0o700)
    assert posted(open_service, b"x")[0] == 200
    files = {str(each.readlink()) for each in Path(f"/proc/{found.pid}/fd").iterdir()}
    assert all(each.startswith("socket:") for each in files), files
