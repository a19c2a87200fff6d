"""A board that loses its power in the middle of a push, and right after one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import VirtualReach
from armload.boards.probe import probe
from armload.boards.ssh import SshHost
from armload.boards.virtual import machine
from armload.core.errors import ConnectError
from armload.core.files import sha256_of
from armload.core.progress import Progress, Silent
from armload.core.shell import join
from armload.deploy.layout import OWN_FOLDER, Layout
from armload.deploy.own_programs import checksum_program
from armload.deploy.transfer import push
from tests.faults import At, Relay
from tests.virtual_boards import (
    cut_the_power,
    private_cache,
    switched_off_at_the_end,
    virtual_board,
)

pytestmark = [
    pytest.mark.machine,
    pytest.mark.exhaustive(covers=["armload/boards/virtual", "armload/deploy", "deploy"]),
]

BOARD = virtual_board(
    "test-power", VirtualReach(kind="virtual", cores=1, memory=512 << 20, disk=1 << 30)
)
LAYOUT = Layout(workdir=BOARD.workdir)
SIZE = 8_000_000
CUTS = range(5)
"""Each takes a boot."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with private_cache(tmp_path_factory.mktemp("cache")) as folder, switched_off_at_the_end(BOARD):
        yield folder


def new_file(folder: Path) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(os.urandom(SIZE))
    return path


def pushed(
    host: SshHost, local: Path, progress: Progress, helper: PurePosixPath | None
) -> tuple[bool, PurePosixPath]:
    sha256 = sha256_of(local)
    remote = LAYOUT.model(sha256, local.name)
    sent = push(
        host,
        LAYOUT,
        local,
        remote,
        sha256=sha256,
        executable=False,
        progress=progress,
        helper=helper,
        retry_for_s=0,
    )
    return sent, remote


def helper_there(host: SshHost) -> PurePosixPath:
    found = checksum_program(host, LAYOUT, probe(host, BOARD), Silent())
    assert found is not None, "the program runs on a real aarch64 machine"
    return found


def content_sha256(host: SshHost, path: PurePosixPath) -> str:
    return host.run(f"sha256sum <{join([path])}", timeout_s=120).text.split()[0]


def through(relay: Relay) -> SshHost:
    address = machine.up(BOARD, Silent())
    return SshHost(address.model_copy(update={"port": relay.port}), BOARD.name)


@pytest.mark.parametrize("number", CUTS)
def test_a_power_cut_in_the_middle_costs_little_and_no_wrong_file(
    tmp_path: Path, number: int
) -> None:
    local = new_file(tmp_path)
    position = int(SIZE * random.Random(number).uniform(0.3, 0.95))
    with closing(SshHost(machine.up(BOARD, Silent()), BOARD.name)) as host:
        helper = helper_there(host)
        with pytest.raises(ConnectError):
            pushed(host, local, At(position, lambda: cut_the_power(BOARD)), helper)
    address = machine.up(BOARD, Silent())
    assert address.port is not None
    with closing(Relay(address.port)) as relay, closing(through(relay)) as host:
        helper = helper_there(host)
        sent, remote = pushed(host, local, Silent(), helper)
        assert sent
        assert content_sha256(host, remote) == sha256_of(local)
        twice = max(relay.passed_bytes - (SIZE - position), 0)
        print(f"cut after {position} bytes, {twice} sent twice")  # noqa: T201 - shown by -s
        listing = host.run(join(["ls", "-A", remote.parent])).text.split()
        assert sorted(listing) == [OWN_FOLDER, local.name]
        host.run(join(["rm", "-rf", remote.parent]))


@pytest.mark.parametrize("number", CUTS)
def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path, number: int) -> None:
    local = new_file(tmp_path)
    with closing(SshHost(machine.up(BOARD, Silent()), BOARD.name)) as host:
        sent, remote = pushed(host, local, Silent(), helper_there(host))
        cut_the_power(BOARD)
        assert sent
    with closing(SshHost(machine.up(BOARD, Silent()), BOARD.name)) as host:
        assert content_sha256(host, remote) == sha256_of(local)
        assert pushed(host, local, Silent(), helper_there(host)) == (False, remote)
        host.run(join(["rm", "-rf", remote.parent]))
