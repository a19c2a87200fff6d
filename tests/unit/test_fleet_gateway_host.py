"""A gateway that lies about a board: what a command accepts of it, and what it gives away."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from armload.boards import bulk
from armload.boards.board import load_board
from armload.boards.connect import connect, is_off
from armload.boards.failures import SlowCommandError
from armload.core.errors import BoardError, ConnectError, LostConnectionError, TransferError
from armload.core.progress import Silent
from armload.fleet import gateway_host
from armload.fleet.gateway_host import GatewayCalls, GatewayHost, relayed
from armload.fleet.gateways import GoneError
from armload.fleet.offers import GatewayWorker
from armload.fleet.remote_tasks import RemoteTasks

FACTS = {"target": "host", "workdir": "/var/tmp/there", "launcher": [], "is_off": False}


class Gateways:
    """A gateway that answers what a test says; ``called`` are the names of what was asked."""

    def __init__(self, **answers: Callable[..., Any] | Any) -> None:
        self.answers = answers
        self.called: list[str] = []

    def of(self, board: str, *_: object, within_s: float) -> GatewayWorker:
        return GatewayWorker(address="tcp://x", name="hall", version="", boards=(board,))

    def call(
        self, _worker: str, method: Callable[..., Any], *arguments: Any, within_s: float = math.inf
    ) -> Any:
        self.called.append(method.__name__)
        answer = self.answers.get(method.__name__, True)
        return answer(*arguments) if callable(answer) else answer


def tasks(gateways: Gateways) -> RemoteTasks:
    return RemoteTasks(cast("Any", gateways))


def host(**answers: Any) -> GatewayHost:
    return GatewayHost(GatewayCalls("one", tasks(Gateways(**answers)), Silent()), ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"workdir": "there"},
        {"workdir": "/tmp/\x1b[2J"},
        {"workdir": "/tmp/a\nb"},
        {"workdir": "/" * 5000},
        {"launcher": ["a\x07"]},
        {"launcher": ["x"] * 101},
        {"target": 1},
        {"reach": {"kind": "local"}},
    ],
)
def test_facts_that_no_board_file_could_have_are_refused(wrong: dict[str, Any]) -> None:
    gateways = Gateways(described=json.dumps(FACTS | wrong))
    with pytest.raises(TransferError, match="malformed BoardFacts"):
        relayed(load_board("this-machine"), tasks(gateways), Silent())


def test_a_board_is_reached_as_its_gateway_says_and_nothing_here_is_asked() -> None:
    told = FACTS | {"launcher": ["qemu"], "is_off": True}
    gateways = Gateways(described=json.dumps(told))
    board = relayed(load_board("this-machine"), tasks(gateways), Silent())
    assert board.workdir == PurePosixPath("/var/tmp/there")
    assert board.launcher == connect(board, Silent()).launcher == ("qemu",)
    assert is_off(board)
    assert set(gateways.called) == {"described"}
    assert "relay" not in board.model_dump()


@pytest.mark.parametrize("answer", [b"", b"{}\n", b"[" * 9, b'{"status": "x"}\n', "text", 1, True])
def test_an_answer_to_a_command_that_is_none_is_refused(answer: object) -> None:
    with pytest.raises(TransferError, match="malformed"):
        host(run=answer).run("true")


def test_a_command_that_took_too_long_is_not_repeated_and_a_lost_gateway_may_be() -> None:
    with pytest.raises(SlowCommandError):
        host(run=b'{"status": null}\n').run("sleep 9", timeout_s=2)

    def gone(*_: object) -> None:
        raise GoneError("The worker is gone.")

    with pytest.raises(LostConnectionError, match="one: The worker is gone"):
        host(run=gone).run("true")


def test_output_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_host, "MOST_STREAM_BYTES", 100)
    endless = host(flow="f", take=b"o" + bytes(60))
    with pytest.raises(BoardError, match="wrote more than"):
        list(endless.stream("cat /dev/zero"))
    assert bulk.MOST_STREAM_BYTES > 100


def test_a_flow_that_gives_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_host, "_ANSWER_S", 0.0)
    with pytest.raises(ConnectError, match=r"no data for 0\.01 s"):
        list(host(flow="f", take=b"").stream("true", silence_s=0.01))


@pytest.mark.parametrize("piece", [b"x", "text", 5])
def test_a_piece_of_no_kind_is_refused(piece: object) -> None:
    with pytest.raises(TransferError, match="malformed"):
        list(host(flow="f", take=piece).read(PurePosixPath("/etc/passwd")))


def test_progress_of_a_copy_never_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_host, "_SMALL_BYTES", 10)
    local = tmp_path / "m.gguf"
    local.write_bytes(bytes(100))
    pieces = iter([b"o0 40 ", b"o-5 x 30 999 1e9 " + b"9" * 5000, b"o100 ", b"."])
    told: list[int] = []
    lying = host(have_file=100, flow="f", take=lambda _: next(pieces))
    lying.send_file(local, PurePosixPath("/x"), offset_bytes=0, sent=told.append)
    assert told == [0, 40, 100]
