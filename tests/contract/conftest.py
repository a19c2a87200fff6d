"""Every kind of host that the suite is run against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from armload.boards.address import SshAddress
from armload.boards.ssh import SshHost
from tests.servers import RARE_TOOLS, dropbear, openssh

KINDS = ("openssh", "a talkative shell", "mksh and toybox", "busybox", "a poor toybox")


def server(kind: str, folder: Path) -> AbstractContextManager[SshAddress]:
    if kind == "openssh":
        return openssh(folder)
    if kind == "a talkative shell":
        return openssh(folder, says='Welcome!\n#exit 3\n{"step"')
    if kind == "busybox":
        return dropbear(folder, shell="busybox", tools="busybox")
    without = RARE_TOOLS if kind == "a poor toybox" else frozenset()
    return dropbear(folder, shell="mksh", tools="toybox", without=without)


@pytest.fixture(scope="session", params=KINDS)
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SshAddress]:
    with server(request.param, tmp_path_factory.mktemp("server")) as where:
        yield where


@pytest.fixture
def host(address: SshAddress) -> Iterator[SshHost]:
    connected = SshHost(address, "bench-board")
    yield connected
    connected.close()
