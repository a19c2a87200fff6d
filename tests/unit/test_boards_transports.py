"""What a board lacks is done another way, and said."""

from __future__ import annotations

import pytest

from armload.boards.probe import TOOLS, tool_transports

OTHER = "armv7l"
"""A machine that no program of ours is made for."""


def chosen(*tools: str) -> dict[str, str]:
    return {transport.purpose: transport.chosen for transport in tool_transports(tools, OTHER)}


def test_a_board_with_every_tool_gets_the_best_way_of_each() -> None:
    assert chosen(*TOOLS, "head", "ls", "openssl", "taskset") == {
        "checksums": "openssl dgst -sha256",
        "truncating": "truncate",
        "detaching a run": "setsid",
        "end of a run": "a pipe that closes",
        "change detection": "stat",
        "CPU pinning": "taskset",
    }
    every = [*TOOLS, "openssl", "taskset"]
    assert {transport.reason for transport in tool_transports(every, OTHER)} == {
        "the best available"
    }


@pytest.mark.parametrize(
    ("tools", "purpose", "transport"),
    [
        (("toybox sha256sum", "busybox sha256sum"), "checksums", "toybox sha256sum"),
        (("busybox sha256sum",), "checksums", "busybox sha256sum"),
        (("openssl",), "checksums", "openssl dgst -sha256"),
        ((), "checksums", "read the file back"),
        (("dd", "head"), "truncating", "dd"),
        (("head",), "truncating", "head, into a copy"),
        ((), "detaching a run", "ignore SIGHUP"),
        ((), "end of a run", "poll several times a second"),
        (("ls",), "change detection", "ls -lin"),
        ((), "CPU pinning", "armload's own program"),
    ],
)
def test_what_a_board_lacks_is_done_the_next_best_way(
    tools: tuple[str, ...], purpose: str, transport: str
) -> None:
    assert chosen(*tools)[purpose] == transport


def test_the_reason_names_what_is_lacking() -> None:
    (checksums, *_) = tool_transports(["busybox sha256sum"], OTHER)
    assert checksums.reason == ("the board has no openssl and no sha256sum and no toybox sha256sum")


def test_a_program_of_ours_comes_first_where_it_runs() -> None:
    (checksums, *_) = tool_transports(["sha256sum"], "aarch64")
    assert checksums.chosen == "armload's own program"
    assert "sha256sum" in checksums.reason
