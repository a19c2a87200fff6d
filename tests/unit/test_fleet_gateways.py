"""What commands and gateways tell each other, and what they accept."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from armload.boards.board import load_board
from armload.core.errors import (
    ArmloadError,
    BusyError,
    ConnectError,
    DataError,
    DiskError,
    TransferError,
    UsageError,
    error_of,
)
from armload.core.progress import Silent
from armload.engines.job import SweepPoint
from armload.fleet.archives import Incoming, archive_chunk, delete_archive, pack
from armload.fleet.events import Relay
from armload.fleet.files import SentFile, bytes_here, receive
from armload.fleet.gateway import Gateway
from armload.fleet.gateway_board import BoardRequirements, GatewayBoard
from armload.fleet.messages import GatewayError, RunArchive, TaskOutcome
from armload.fleet.operations import GatewayTask, OpenBoard, RunEngine
from armload.fleet.scheduler import scheduler_address
from armload.runs import store
from armload.runs.folders import run_folders
from armload.runs.request import Request
from armload.runs.swept import SweptRuns
from tests.unit.sweeps import Q8, made_run


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("tls://lab:8786", "tls://lab:8786"),
        ("lab", "tls://lab:8786"),
        ("10.0.0.1:99", "tls://10.0.0.1:99"),
        ("tls://[fe80::1]:99", "tls://[fe80::1]:99"),
        ("[fe80::1]", "tls://[fe80::1]:8786"),
        ("localhost:99", "tcp://localhost:99"),
        ("tcp://127.0.0.1:99", "tcp://127.0.0.1:99"),
        ("tcp://[::1]:99", "tcp://[::1]:99"),
        ("tls://127.0.0.1", "tls://127.0.0.1:8786"),
    ],
)
def test_an_address_is_encrypted_unless_it_is_on_this_machine(typed: str, url: str) -> None:
    assert scheduler_address(typed).url == url


def test_the_command_that_starts_a_scheduler_opens_it_to_no_more_than_its_address_says() -> None:
    words = scheduler_address("lab:99").start.split()
    assert words[:6] == ["dask", "scheduler", "--protocol", "tls", "--port", "99"]
    words = scheduler_address("127.0.0.1:99").start.split()
    assert words[:6] == ["dask", "scheduler", "--host", "127.0.0.1", "--port", "99"]


@pytest.mark.parametrize(
    "typed",
    [*("tcp://10.0.0.1:8786", "tcp://lab", "http://lab:8787", "ucx://lab", "tls://", "lab:port")],
)
def test_other_addresses_are_refused(typed: str) -> None:
    with pytest.raises(UsageError, match=r"--scheduler .*(encrypted|not the address)"):
        scheduler_address(typed)


def test_an_error_of_a_gateway_is_the_same_kind_here() -> None:
    for kind in (BusyError, ConnectError, DataError, DiskError, UsageError, ArmloadError):
        told = GatewayError.of(kind("what", "do"))
        again = told.error
        assert type(again) is kind
        assert (again.message, again.remedy, again.exit_status) == ("what", "do", kind.exit_status)
    assert type(error_of("usage", "", "")) is UsageError


def test_boards_that_are_reached_from_here_need_no_dask() -> None:
    code = (
        "import sys, armload.fleet.reach, armload.fleet.remote_boards; "
        "print({'distributed', 'dask'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("members: [b, a]\n", "the gateway's file has members b, a, the command's has a, b."),
        ("extends: this-machine\n", "the gateway's file has members lab, the command's has a, b."),
        ("", "On the gateway: "),
    ],
)
def test_a_group_that_the_gateway_has_otherwise_is_refused(
    file: str, said: str, cache: Path
) -> None:
    (cache / "boards").mkdir()
    for name in ("a", "b"):
        (cache / "boards" / f"{name}.yaml").write_text("extends: this-machine\n")
    if file:
        (cache / "boards" / "lab.yaml").write_text(file)
    needed = BoardRequirements(
        target=load_board("a").target, members=("a", "b"), request=Request(board="lab")
    )
    there = GatewayBoard("lab", Relay(lambda _topic, _event: None))
    with pytest.raises(UsageError) as refused:
        OpenBoard(requirements=needed).do(there)
    assert said in refused.value.message
    assert refused.value.remedy == "Use the same board files on both."


def sent_file(content: bytes, name: str = "m.gguf") -> SentFile:
    sha256 = hashlib.sha256(content).hexdigest()
    return SentFile(folder=sha256, name=name, size_bytes=len(content), sha256=sha256)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_stop_that_comes_after_the_end_leaves_the_next_task_of_that_key_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = TaskOutcome[str](result="a run", runs=("a run",))
    monkeypatch.setattr(RunEngine, "do", lambda _self, _board: done)
    some_run = cast("Any", RunEngine).model_construct()
    task = GatewayTask.model_construct(
        board="one", key="same", topic="", store=store.store_id(), operation=some_run
    )
    gateway = Gateway(["one"], Silent())
    first = gateway.begin(task).result(60)
    assert gateway.stop("one", "same")
    gateway.forget("one", "same", "")
    assert gateway.begin(task).result(60) == first


def test_a_file_comes_in_chunks_and_continues_where_it_stopped(cache: Path) -> None:
    content = bytes(range(256)) * 4
    file = sent_file(content)
    assert bytes_here(file) == 0
    done = 0
    while done < len(content):
        chunk = content[done : done + 300]
        done = receive(file, done, chunk, hashlib.sha256(chunk).hexdigest())
        assert bytes_here(file) == done
        # Another command that sends the same chunk later changes nothing.
        assert receive(file, 0, chunk, hashlib.sha256(chunk).hexdigest()) == done
    assert file.path.read_bytes() == content


def test_a_file_that_was_whole_when_the_gateway_was_killed_is_taken(cache: Path) -> None:
    content = bytes(range(256))
    file = sent_file(content)
    part = file.path.with_name(f"{file.name}.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    done = bytes_here(file)
    assert done < len(content)
    chunk = content[done:]
    assert receive(file, done, chunk, hashlib.sha256(chunk).hexdigest()) == len(content)
    assert file.path.read_bytes() == content


def test_a_file_that_arrives_damaged_is_not_kept(cache: Path) -> None:
    content = b"weights" * 9
    file = sent_file(content)
    with pytest.raises(TransferError, match="a chunk did not arrive"):
        receive(file, 0, b"weighed" * 9, hashlib.sha256(content).hexdigest())
    other = b"weighed" * 9
    with pytest.raises(TransferError, match="the file did not arrive"):
        receive(file, 0, other, hashlib.sha256(other).hexdigest())
    assert bytes_here(file) == 0
    assert receive(file, 0, content, file.sha256) == len(content)


@pytest.mark.parametrize("name", ["../m", "a/b", "..", "", "a\0"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        sent_file(b"x", name)


def test_runs_come_home_whole_and_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, home = cache / "gateway", cache / "home"
    for folder in (gateway, home):
        (folder / "boards").mkdir(parents=True)
        (folder / "boards" / "b.yaml").write_text("extends: this-machine\n")
    monkeypatch.chdir(gateway)
    run = made_run(Q8, 4, tokens=8)
    folder = gateway / "runs" / run.id
    (folder / "logs").mkdir(parents=True)
    store.save(run, folder)
    (folder / "logs" / "board.log").write_text("cold\n")
    archive = pack([run.id])
    chunk = archive_chunk(archive.name, 0)
    assert len(chunk) == archive.size_bytes
    gateways_store = store.store_id()
    assert store.store_id() == gateways_store
    monkeypatch.chdir(home)
    assert store.store_id() != gateways_store
    for _ in range(2):
        incoming = Incoming(archive)
        incoming.append(0, chunk[:100])
        incoming.append(0, chunk[:50])
        assert Incoming(archive).size_bytes == 100
        incoming.append(100, chunk[100:])
        incoming.unpack()
        assert store.load(home / "runs" / run.id) == run
        assert (home / "runs" / run.id / "logs" / "board.log").read_text() == "cold\n"
        assert [path.name for path in run_folders()] == [run.id]
    monkeypatch.chdir(gateway)
    delete_archive(archive.name)
    assert not list((gateway / "runs").glob(".outgoing/*"))


@pytest.mark.parametrize("name", ["../other/run.json", "/etc/passwd", "other/run.json"])
def test_an_archive_that_would_write_elsewhere_is_refused(cache: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    content = packed.getvalue()
    told = RunArchive(
        name="run",
        runs=("run",),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    incoming = Incoming(told)
    incoming.append(0, content)
    with pytest.raises(TransferError, match="not part of its runs"):
        incoming.unpack()
    assert run_folders() == []


def member(name: str, content: bytes = b"x", **known: Any) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in known.items():
        setattr(info, field, value)
    padding = -len(content) % tarfile.BLOCKSIZE
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(padding)


def sparse(name: str, size: int) -> bytes:
    """Return a member that claims to be as large, all of it a hole."""
    pax = f"GNU.sparse.size={size}\nGNU.sparse.map={size},0\nGNU.sparse.numblocks=1\n"
    records = "".join(
        f"{len(line) + 4} {line}\n" if len(line) + 4 > 9 else line for line in pax.split("\n")[:-1]
    ).encode()
    return member("x", records, type=tarfile.XHDTYPE) + member(name)


HOSTILE_ARCHIVES = {
    "a hole of a terabyte": sparse("runs/run/a", 1 << 40),
    "a member that claims a terabyte": member("runs/run/a", size=1 << 40),
    "a header that claims a gigabyte": member("x", size=1 << 30, type=tarfile.XHDTYPE)
    + bytes(64 << 20),
    "a name that claims a gigabyte": member("x", size=1 << 30, type=tarfile.GNUTYPE_LONGNAME)
    + bytes(64 << 20),
    "headers of headers": member("x", type=tarfile.XHDTYPE) * 20_000,
    "names of names": member("x", type=tarfile.GNUTYPE_LONGNAME) * 20_000,
    "a file twice": member("runs/run/a") * 2,
    "a file as a folder": member("runs/run/a") + member("runs/run/a/b"),
    "a folder as a file": member("runs/run/a/b") + member("runs/run/a"),
    "a file as the run": member("runs/run"),
    "no run": member("runs/run/a", b"", type=tarfile.DIRTYPE),
    "a link": member("runs/run/a", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "nothing": b"",
    "no archive": b"x" * 2000,
    "cut": member("runs/run/a", bytes(9000))[:2000],
}


@pytest.mark.parametrize("name", HOSTILE_ARCHIVES)
@pytest.mark.parametrize("is_cut", [False, True])
def test_an_archive_that_is_no_run_is_an_error_in_one_line(
    cache: Path, name: str, *, is_cut: bool
) -> None:
    content = gzip.compress(HOSTILE_ARCHIVES[name], 1)
    content = content[:-12] if is_cut else content
    told = RunArchive(
        name="run",
        runs=("run",),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    incoming = Incoming(told)
    incoming.append(0, content)
    with pytest.raises(TransferError) as refused:
        incoming.unpack()
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 300
    assert run_folders() == []


def test_an_archive_replaces_no_load_that_is_here(cache: Path) -> None:
    mine = cache / "loads" / "mine" / "load.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    content = gzip.compress(member("loads/mine/load.json", b"theirs") + bytes(1024))
    told = RunArchive(
        name="mine",
        loads=("mine",),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    incoming = Incoming(told)
    incoming.append(0, content)
    incoming.unpack()
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", [".incoming", "..", "a/b", ""])
def test_an_archive_names_no_folder_of_armloads_own(name: str) -> None:
    with pytest.raises(ValidationError):
        RunArchive(name="x", runs=(name,), size_bytes=1, sha256="0" * 64)


def test_a_damaged_archive_is_fetched_again(cache: Path) -> None:
    told = RunArchive(name="run", runs=("run",), size_bytes=3, sha256="0" * 64)
    incoming = Incoming(told)
    incoming.append(0, b"abc")
    with pytest.raises(TransferError, match="did not arrive"):
        incoming.unpack()
    assert Incoming(told).size_bytes == 0


def test_the_run_of_a_point_is_found_unless_it_was_stopped(cache: Path) -> None:
    place = SweepPoint(sweep="20261101T000000Z-sweep-b-ab12", cell=1, round=2)
    run = made_run(Q8, 4, tokens=8).model_copy(update={"place": place})
    (cache / "boards").mkdir()
    (cache / "boards" / f"{run.board.name}.yaml").write_text("extends: this-machine\n")
    runs = SweptRuns(run.board.name)
    folder = cache / "runs" / run.id
    store.save(run, folder)
    (folder / "job.json").write_text(run.model_dump_json())
    assert runs.find(place, run.fingerprint) == run.id
    assert runs.find(place, "of another engine") == ""
    assert runs.points(place.sweep) == [place]
    stopped = run.exit.model_copy(update={"kind": "stopped"})
    store.save(run.model_copy(update={"exit": stopped}), folder)
    assert SweptRuns(run.board.name).find(place, run.fingerprint) == ""
    assert SweptRuns("other").find(place, run.fingerprint) == ""
