"""What a gateway keeps open for a command, and for how long."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from armload.core.progress import Silent
from armload.fleet import gateway_hosts
from armload.fleet.gateway_hosts import OUT, GatewayHosts
from tests.waiting import wait_until

BOARD = "this-machine"
UNUSED_S = 0.2


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> GatewayHosts:
    monkeypatch.setattr(gateway_hosts, "_UNUSED_S", UNUSED_S)
    monkeypatch.setattr(gateway_hosts, "_LOOK_EVERY_S", UNUSED_S / 4)
    monkeypatch.setattr(gateway_hosts, "WAIT_S", UNUSED_S / 4)
    return GatewayHosts((BOARD,), Silent())


def test_a_connection_stays_while_its_command_runs_and_is_closed_when_unused(
    hosts: GatewayHosts,
) -> None:
    done = hosts.run(BOARD, "line", b"sleep 1; echo done", b"", 60.0)
    assert done.endswith(b"\ndone\n")
    assert "line" in hosts._held
    wait_until(lambda: not hosts._held, within_s=30)


def test_a_tunnel_stays_while_an_answer_is_awaited_through_it(hosts: GatewayHosts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answers() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1)
                time.sleep(5 * UNUSED_S)
                client.sendall(b"late")

        threading.Thread(target=answers, daemon=True).start()
        tunnel = hosts.tunnel(BOARD, listener.getsockname()[1])
        client = hosts.dial(tunnel)
        hosts.feed(client, b"?")
        while not (piece := hosts.take(client)):
            pass
        assert piece == OUT + b"late"
        assert tunnel in hosts._held
    wait_until(lambda: not hosts._held, within_s=30)
