"""Whatever goes wrong on the way: no wrong file is used, and nothing is left to clean by hand."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Container, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path, PurePosixPath

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from armload.boards.address import SshAddress
from armload.boards.ssh import SshHost
from armload.build.helper import SHA256, helper
from armload.core.errors import BoardError, TransferError
from armload.core.files import sha256_of
from armload.core.progress import Progress, Silent
from armload.deploy import sums
from armload.deploy.item import Item, Stored
from armload.deploy.space import need_space
from armload.deploy.transfer import push
from armload.models.checksum import BLOCK_BYTES, cached_sha256
from tests.faults import At, Relay
from tests.servers import free_port, openssh

SIZE = 40_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshAddress]:
    with openssh(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def host(server: SshAddress) -> Iterator[SshHost]:
    with closing(SshHost(server, "my-board")) as connected:
        yield connected


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return tmp_path / "work" / "models" / "0" / "file"


@pytest.fixture
def emulated_helper(tmp_path: Path) -> PurePosixPath:
    """Our program for aarch64 boards, called through an emulator."""
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("qemu-aarch64 is not installed (Debian: qemu-user)")
    wrapper = tmp_path / "it's sha256"
    program = shlex.quote(str(helper(SHA256).path))
    wrapper.write_text(f'#!/bin/sh\nexec {emulator} -cpu cortex-a72 {program} "$@"\n')
    wrapper.chmod(0o755)
    return PurePosixPath(wrapper)


def pushed(
    host: SshHost,
    local: Path,
    remote: Path,
    progress: Progress | None = None,
    *,
    with_helper: PurePosixPath | None = None,
) -> bool:
    return push_as(cached_sha256(local, Silent()), host, local, remote, with_helper, progress)


@contextmanager
def over_relay(
    server: SshAddress, *, stalls_after_bytes: int | None = None, refuses: Container[int] = ()
) -> Iterator[tuple[SshHost, Relay]]:
    assert server.port is not None
    relay = Relay(server.port, stalls_after_bytes=stalls_after_bytes, refuses=refuses)
    through = server.model_copy(update={"port": relay.port})
    with closing(relay), closing(SshHost(through, "my-board")) as host:
        yield host, relay


def left_over(remote: Path) -> set[str]:
    return {path.name for path in remote.parent.iterdir()} - {remote.name, f"{remote.name}.sha256"}


class Server:
    """An SSH server that can be killed with all its sessions, and comes back on its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._running = ExitStack()
        self.address = self.start()

    def start(self) -> SshAddress:
        self.address = self._running.enter_context(openssh(self._folder, port=self._port))
        return self.address

    def kill(self) -> None:
        listeners = [
            child
            for child in psutil.Process().children()
            if str(self._folder) in _command_of(child)
        ]
        for listener in listeners:
            for session in listener.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    session.kill()
            listener.kill()
        self._running.close()

    def close(self) -> None:
        self._running.close()


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a client of ours that has just ended
        return ""


def test_a_server_that_is_killed_at_any_moment_costs_no_file(tmp_path: Path, file: Path) -> None:
    chance = random.Random(4)
    server = Server(tmp_path / "server")
    with closing(server), closing(SshHost(server.address, "my-board")) as host:
        began = time.monotonic()
        assert pushed(host, file, tmp_path / "work" / "models" / "whole" / "file")
        took_s = time.monotonic() - began
        for number in range(10):
            remote = tmp_path / "work" / "models" / str(number) / "file"

            begun = threading.Event()

            def disturb(
                begun: threading.Event = begun, after_s: float = chance.uniform(0, took_s)
            ) -> None:
                begun.wait()
                time.sleep(after_s)
                server.kill()
                time.sleep(0.3)  # so that some connections are refused, too
                server.start()

            disturber = threading.Thread(target=disturb)
            disturber.start()
            try:
                assert pushed(host, file, remote, At(0, begun.set))
            finally:
                begun.set()
                disturber.join()
            host.close()  # as the next command would, which begins with a new line
            assert remote.read_bytes() == file.read_bytes()
            assert left_over(remote) == set()
            assert not pushed(host, file, remote)


def test_a_line_that_stalls_without_closing_is_given_up_and_the_rest_sent_over_another(
    server: SshAddress, tmp_path: Path, file: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("armload.boards.bulk.TRANSFER_SILENCE_S", 1.5)
    with over_relay(server, stalls_after_bytes=SIZE // 2) as (host, relay):
        assert pushed(host, file, remote)
    assert remote.read_bytes() == file.read_bytes()
    assert relay.passed_bytes < SIZE + (8 << 20), "at most 8 MiB went twice"


def test_a_line_that_is_refused_now_and_then_is_tried_again(
    server: SshAddress, file: Path, remote: Path
) -> None:
    with over_relay(server, refuses={2, 4}) as (host, relay):
        host.run("true")
        assert pushed(host, file, remote, At(0, host.close))
        assert relay.connections >= 4
    assert remote.read_bytes() == file.read_bytes()


@pytest.fixture
def small_storage(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small file system takes root")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_storage_that_fills_up_meanwhile_is_said_and_what_is_there_is_kept(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    remote = small_storage / "models" / "0" / "file"
    filler = small_storage / "filler"

    def fill() -> None:
        with suppress(OSError), filler.open("wb", buffering=0) as sink:
            while sink.write(bytes(1 << 20)):
                pass

    with pytest.raises(BoardError, match="its storage is full") as caught:
        pushed(host, file, remote, At(0, fill))
    assert "models/0" in caught.value.remedy
    part = remote.with_name("file.part")
    assert part.stat().st_size < SIZE
    assert not remote.exists()
    filler.unlink()
    assert pushed(host, file, remote)
    assert remote.read_bytes() == file.read_bytes()
    assert left_over(remote) == set()


def test_a_storage_that_is_too_small_is_said_before_a_byte_is_sent(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    (small_storage / "filler").write_bytes(bytes(30_000_000))
    remote = small_storage / "models" / "0" / "file"
    with pytest.raises(BoardError, match=r"no space for file \(40.0 MB\): .* missing"):
        pushed(host, file, remote, At(0, lambda: pytest.fail("something was sent")))
    assert not remote.with_name("file.part").exists()


def test_files_that_fit_alone_and_not_together_are_refused_together(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    names = ("one", "two")
    items = [
        Item(
            local=file,
            remote=PurePosixPath(small_storage / "models" / name / name),
            sha256="0" * 64,
            executable=False,
        )
        for name in names
    ]
    absent = Stored(state="absent")
    for item in items:
        need_space(host, [item], [absent])
    with pytest.raises(BoardError, match=r"one \(40.0 MB\) and two \(40.0 MB\)"):
        need_space(host, items, [absent, absent])
    need_space(host, items, [Stored(state="part", part_bytes=SIZE * 3 // 4), absent])
    need_space(host, items, [Stored(state="present"), absent])


def test_a_storage_that_cannot_be_written_is_said(
    host: SshHost, file: Path, small_storage: Path
) -> None:
    remote = small_storage / "models" / "0" / "file"
    remote.parent.mkdir(parents=True)
    subprocess.run(["mount", "-o", "remount,ro", str(small_storage)], check=True)
    with pytest.raises(BoardError, match="cannot be written") as caught:
        pushed(host, file, remote)
    assert "workdir" in caught.value.remedy


@pytest.mark.parametrize("seconds_later", [0, 3600])
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
    with pytest.raises(TransferError, match="has changed since its checksum was taken"):
        push_as(wanted, host, file, remote, emulated_helper)
    assert not remote.parent.exists()


def test_a_local_file_that_changes_while_it_is_sent_never_counts_as_arrived(
    host: SshHost, file: Path, remote: Path, emulated_helper: PurePosixPath
) -> None:
    wanted = cached_sha256(file, Silent())
    progress = At(0, lambda: change(file))
    with pytest.raises(TransferError, match="differs"):
        push_as(wanted, host, file, remote, emulated_helper, progress)
    assert not remote.exists()
    assert left_over(remote) == set()


def test_a_board_without_our_program_notices_a_local_file_that_has_changed(
    host: SshHost, file: Path, remote: Path
) -> None:
    wanted = sha256_of(file)
    change(file)
    with pytest.raises(TransferError, match="differs"):
        push_as(wanted, host, file, remote, None)
    assert not remote.exists()
    assert left_over(remote) == set()


def change(file: Path) -> None:
    with file.open("r+b") as target:
        target.seek(-1, os.SEEK_END)
        last = target.read(1)
        target.seek(-1, os.SEEK_END)
        target.write(bytes([last[0] ^ 1]))


def push_as(
    sha256: str,
    host: SshHost,
    local: Path,
    remote: Path,
    with_helper: PurePosixPath | None,
    progress: Progress | None = None,
) -> bool:
    return push(
        host,
        local,
        PurePosixPath(remote),
        sha256=sha256,
        executable=False,
        progress=progress or Silent(),
        helper=with_helper,
    )


@pytest.mark.parametrize(
    "damage",
    ["zeros at the end", "a wrong byte", "too long", "rubbish"],
)
@pytest.mark.parametrize("with_helper", [True, False], ids=["our program", "the board's tools"])
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
    monkeypatch.setattr(sums, "_SPOILT_TAILS_BYTES", (0, 6_000_000, 12_000_000))
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
    remote.parent.mkdir(parents=True)
    remote.with_name("file.part").write_bytes(there)
    with over_relay(server) as (host, relay):
        assert pushed(host, file, remote, with_helper=emulated_helper if with_helper else None)
    assert remote.read_bytes() == data
    assert left_over(remote) == set()
    lost = BLOCK_BYTES if with_helper else 6_000_000
    assert relay.passed_bytes < SIZE - good + lost + 1_000_000


def test_what_was_sent_wrong_is_found_by_blocks_and_sent_again(
    server: SshAddress, file: Path, remote: Path, emulated_helper: PurePosixPath
) -> None:
    part = remote.with_name("file.part")

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


NAMES = st.text(
    st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=40
).filter(lambda name: name not in {".", ".."} and len(name.encode()) < 200)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example("-rf")
@example("--")
@example("a b")
@example('it\'s "quoted"')
@example("$(id) `id` ${HOME}")
@example("two\nlines\n")
@example("Zürich 東京 .gguf")
@example("back\\slash *?[a]")
@given(NAMES)
def test_a_file_of_any_name_arrives_under_it(host: SshHost, tmp_path: Path, name: str) -> None:
    folder = tmp_path / os.urandom(4).hex()
    local, remote = folder / name, folder / "work" / "models" / "0" / name
    folder.mkdir()
    data = os.urandom(1000)
    local.write_bytes(data)
    assert pushed(host, local, remote)
    assert remote.read_bytes() == data
    assert {path.name for path in remote.parent.iterdir()} == {name, f"{name}.sha256"}
    assert not pushed(host, local, remote)
