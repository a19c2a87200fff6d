"""Bytes that are wrong, on the board or on the way: no wrong file is used."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.core.errors import TransferError
from armload.core.files import sha256_of
from armload.deploy import upload
from armload.models.model import BLOCK_BYTES
from tests.faults import At
from tests.system.transfers.pushing import SIZE, left_over, over_relay, part_of, pushed

similar = pytest.mark.exhaustive(covers=["armload/deploy", "deploy"])


@pytest.mark.parametrize("seconds_later", [0, pytest.param(3600, marks=similar)])
def test_a_file_that_was_damaged_on_the_board_is_found_out_and_replaced(
    host: SshHost, file: Path, remote: Path, seconds_later: int
) -> None:
    assert pushed(host, file, remote)
    before = remote.stat()
    with remote.open("r+b") as target:
        target.seek(SIZE // 2)
        target.write(b"damage")
    os.utime(remote, ns=(before.st_atime_ns, before.st_mtime_ns + seconds_later * 10**9))
    progress = At(SIZE * 2, lambda: None)
    assert pushed(host, file, remote, progress)
    assert any("damaged" in line for line in progress.said)
    assert remote.read_bytes() == file.read_bytes()
    assert left_over(remote) == set()


def test_a_local_file_that_has_changed_is_not_sent(
    host: SshHost, file: Path, remote: Path, emulated_helper: PurePosixPath
) -> None:
    wanted = sha256_of(file)
    change(file)
    with pytest.raises(TransferError, match="has changed since its checksum was computed"):
        pushed(host, file, remote, sha256=wanted, with_helper=emulated_helper)
    assert not remote.parent.exists()


def test_a_local_file_that_changes_while_it_is_sent_never_counts_as_arrived(
    host: SshHost, file: Path, remote: Path, emulated_helper: PurePosixPath
) -> None:
    progress = At(0, lambda: change(file))
    with pytest.raises(TransferError, match="differs"):
        pushed(host, file, remote, progress, with_helper=emulated_helper)
    assert not remote.exists()
    assert left_over(remote) == set()


def test_a_board_without_our_program_notices_a_local_file_that_has_changed(
    host: SshHost, file: Path, remote: Path
) -> None:
    wanted = sha256_of(file)
    change(file)
    with pytest.raises(TransferError, match="differs"):
        pushed(host, file, remote, sha256=wanted)
    assert not remote.exists()
    assert left_over(remote) == set()


def change(file: Path) -> None:
    with file.open("r+b") as target:
        target.seek(-1, os.SEEK_END)
        last = target.read(1)
        target.seek(-1, os.SEEK_END)
        target.write(bytes([last[0] ^ 1]))


@pytest.mark.parametrize(
    ("with_helper", "damage"),
    [
        pytest.param(with_helper, damage, id=f"{name}-{damage}", marks=marks)
        for with_helper, name in ((True, "our program"), (False, "the board's tools"))
        for damage, marks in (
            ("zeros at the end", ()),
            ("a wrong byte", () if with_helper else similar),
            ("too long", similar),
            ("rubbish", similar),
        )
    ],
)
def test_of_a_spoilt_part_what_is_good_is_kept(
    server: SshAddress,
    file: Path,
    remote: Path,
    emulated_helper: PurePosixPath,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
    *,
    with_helper: bool,
) -> None:
    monkeypatch.setattr(upload, "_SPOILT_TAILS_BYTES", (0, 6_000_000, 12_000_000))
    data = file.read_bytes()
    there = bytearray(data[: SIZE * 3 // 4])
    good = len(there)
    if damage == "zeros at the end":
        good -= 5_000_000
        there[good:] = bytes(5_000_000)
    elif damage == "a wrong byte":
        good -= 3_000_000
        there[good] ^= 1
    elif damage == "too long":
        there = bytearray(data + b"more")
        good = SIZE
    else:
        there = bytearray(os.urandom(len(there)))
        good = 0
    part_of(remote).parent.mkdir(parents=True)
    part_of(remote).write_bytes(there)
    with over_relay(server) as (host, relay):
        assert pushed(host, file, remote, with_helper=emulated_helper if with_helper else None)
    assert remote.read_bytes() == data
    assert left_over(remote) == set()
    lost = BLOCK_BYTES if with_helper else 6_000_000
    assert relay.passed_bytes < SIZE - good + lost + 1_000_000


def test_what_was_sent_wrong_is_found_by_blocks_and_sent_again(
    server: SshAddress, file: Path, remote: Path, emulated_helper: PurePosixPath
) -> None:
    part = part_of(remote)

    def spoil() -> None:
        with part.open("r+b") as target:
            target.seek(SIZE * 3 // 4)
            target.write(b"a fault of the storage")

    progress = At(SIZE, spoil)
    with over_relay(server) as (host, relay):
        assert pushed(host, file, remote, progress, with_helper=emulated_helper)
    assert any("differs" in line for line in progress.said)
    assert remote.read_bytes() == file.read_bytes()
    assert relay.passed_bytes < SIZE * 5 // 4 + BLOCK_BYTES + 1_000_000
