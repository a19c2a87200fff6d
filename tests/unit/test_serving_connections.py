"""The times of a connection: when bytes left and arrived, not when the client got round to it."""

from __future__ import annotations

import asyncio
import socket
import sys
import time

import pytest

from armload.analysis.load.records import RequestRecord
from armload.serving.client import Client
from armload.serving.connections import TimedSocket, WireTimes, connected
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import dialect_named
from tests.stub_service import stub_service

LATE_S = 0.02
"""How long a client leaves bytes unread."""

TRIES = 50
"""Linux begins to stamp a moment after the first socket asks for it."""


def connection() -> tuple[TimedSocket, socket.socket]:
    """A client's socket, and a server's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = TimedSocket(WireTimes(), socket.AF_INET, socket.SOCK_STREAM)
        client.connect(listening.getsockname())
        return client, listening.accept()[0]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not stamp")
@pytest.mark.parametrize("into", [False, True], ids=["recv", "recv_into"])
def test_bytes_arrive_when_they_are_sent_however_late_they_are_read(*, into: bool) -> None:
    client, server = connection()
    with client, server:
        for _ in range(TRIES):
            began_s = time.monotonic()
            server.send(b"abc")
            ended_s = time.monotonic()
            time.sleep(LATE_S)
            buffer = bytearray(8)
            data = buffer[: client.recv_into(buffer)] if into else client.recv(8)
            assert data == b"abc"
            assert began_s <= client.times.arrived_s
            if client.times.arrived_s < ended_s + LATE_S / 2:
                return
    pytest.fail("no stamp was of the time of arrival")


def test_bytes_without_a_stamp_arrive_when_they_are_read() -> None:
    times = WireTimes()
    began_s = time.monotonic()
    times.note_arrived([])
    assert began_s <= times.arrived_s <= time.monotonic()


def test_bytes_do_not_arrive_before_what_they_answer_though_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, server = connection()
    with client, server:
        client.times.is_written = True
        client.send(b"request")
        assert client.times.sent_s is not None
        monkeypatch.setattr("time.time", lambda: 4e9)
        for _ in range(TRIES):
            server.send(b"abc")
            time.sleep(0.001)
            client.recv(8)
            assert client.times.sent_s <= client.times.arrived_s <= time.monotonic()


@pytest.mark.parametrize("several", [False, True], ids=["send", "sendmsg"])
def test_a_request_is_sent_with_the_first_of_its_bytes_and_not_with_those_of_tls_before(
    *, several: bool
) -> None:
    client, server = connection()
    with client, server:
        client.send(b"hello of TLS")
        before_s = client.times.sent_s
        client.times.is_written = True
        began_s = time.monotonic()
        if several:
            client.sendmsg([b"header", b"body"])
        else:
            client.send(b"header")
        ended_s = time.monotonic()
        client.send(b"rest")
    assert before_s is None
    assert client.times.sent_s is not None
    assert began_s <= client.times.sent_s <= ended_s


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not stamp")
def test_an_answer_has_the_times_of_its_arrival_though_the_client_was_busy() -> None:
    ask = CompletionRequest(prompt="Once upon", max_tokens=2)

    async def send() -> RequestRecord:
        async with connected("") as session:
            client = Client(session, service.url, dialect_named("llama-server"), "stub", 60)
            task = asyncio.create_task(client.send(ask, number=0, scheduled_s=0.0))
            while not service.bodies:
                await asyncio.sleep(0.001)
            time.sleep(1.0)  # the loop reads nothing meanwhile
            return await task

    with stub_service(header_s=0.1) as service:
        record = asyncio.run(send())
    assert record.outcome == "ok"
    assert record.sent_s is not None
    assert record.header_s is not None
    assert 0.1 <= record.header_s - record.sent_s < 0.9
    assert record.chunks[-1][0] <= record.end_s < record.sent_s + 0.9
