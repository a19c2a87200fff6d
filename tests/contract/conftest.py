"""Every kind of host that the suite is run against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.adb import AdbHost
from armload.boards.board import AdbReach, Board, HdcReach
from armload.boards.hdc import HdcHost
from armload.boards.host import Host
from armload.boards.local import LocalHost
from armload.boards.ssh import SshHost
from armload.core.progress import Silent
from armload.fleet.gateway_host import BehindGateways, GatewayHost
from armload.fleet.gateways import Gateways
from armload.fleet.remote_tasks import RemoteTasks
from armload.fleet.scheduler import scheduler_address
from tests.devices import adb_device, hdc_device
from tests.labs import Lab
from tests.servers import RARE_TOOLS, dropbear, openssh

similar = pytest.mark.exhaustive(
    covers=["armload/boards", "armload/deploy", "deploy", "tests/contract", "toolchains/board"]
)
FOLDER = Path(__file__).parent
KINDS = (
    "openssh",
    "a poor toybox",
    "hdc",
    pytest.param("adb", marks=similar),
    pytest.param("adb, first shell protocol", marks=similar),
    pytest.param("a talkative shell", marks=similar),
    pytest.param("mksh and toybox", marks=similar),
    pytest.param("busybox", marks=similar),
    pytest.param("this machine", marks=similar),
    pytest.param("a gateway", marks=[similar, pytest.mark.exhaustive(covers=["armload/fleet"])]),
)
"""The first three differ most: in shell, tools and what carries the commands."""
NAME = "bench-board"
THE_BOARDS_PART = frozenset(
    {
        "test_conditions.py",
        "test_exit_reasons.py",
        "test_heartbeat.py",
        "test_lease.py",
        "test_lease_of_a_run.py",
        "test_monitor.py",
        "test_running.py",
        "test_watch.py",
    }
)
"""Files of what scripts and programs do there, which depends on shell and tools: a poor toybox is
where they fail first."""


_LAUNCH = """
case $1 in */helpers/*) echo "$1: cannot execute binary file" >&2; exit 126; esac
exec "$@"
"""
LAUNCHER = ("sh", "-c", _LAUNCH, "sh")
"""An emulator of a CPU of which nothing can be found out: programs of ours do not run under it."""


class EmulatedHdc(HdcHost):
    @property
    def launcher(self) -> tuple[str, ...]:
        return LAUNCHER


class EmulatedAdb(AdbHost):
    @property
    def launcher(self) -> tuple[str, ...]:
        return LAUNCHER


class EmulatedSsh(SshHost):
    @property
    def launcher(self) -> tuple[str, ...]:
        return LAUNCHER


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        called = getattr(item, "callspec", None)
        kind = called.params.get("makers") if called else None
        if item.path.parent != FOLDER or kind not in {"openssh", "hdc"}:
            continue
        is_deployment = item.path.name == "test_deployment.py" and kind == "hdc"
        if item.path.name in THE_BOARDS_PART or (is_deployment and not _is_first(item)):
            item.add_marker(similar)


def _is_first(item: pytest.Item) -> bool:
    return item.name.startswith("test_deploying_twice_sends_once")


@contextmanager
def behind_gateway(folder: Path) -> Iterator[tuple[Callable[[], Host], Callable[[], Host]]]:
    """As for ``reached``: this machine's shell, through the processes of a lab."""
    lab = Lab(folder, {"hall": (NAME,)})
    for person in (lab.ann, *lab.gateways.values()):
        person.add_board(NAME, "extends: this-machine\n")
    lab.start()
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            closing(Gateways(scheduler_address(lab.address), Silent())) as gateways,
        ):
            patch.chdir(lab.ann.folder)
            relay = BehindGateways(NAME, RemoteTasks(gateways), Silent())
            yield (
                lambda: relay.connect(Silent()),
                lambda: GatewayHost(relay.calls(Silent()), LAUNCHER),
            )
    finally:
        lab.stop()


@contextmanager
def reached(kind: str, folder: Path) -> Iterator[tuple[Callable[[], Host], Callable[[], Host]]]:
    """Give what makes a host, and what makes one whose programs run under a launcher."""
    if kind == "this machine":
        yield lambda: LocalHost(NAME), lambda: LocalHost(NAME, LAUNCHER)
        return
    if kind == "a gateway":
        with behind_gateway(folder) as (host, emulated):
            yield host, emulated
        return
    if kind == "hdc":
        with hdc_device(folder) as hdc:
            reach = HdcReach(kind="hdc", program=str(hdc.program))
            yield lambda: HdcHost(reach, NAME), lambda: EmulatedHdc(reach, NAME)
        return
    if kind.startswith("adb"):
        with adb_device(folder, second_protocol=kind == "adb") as adb:
            to_it = AdbReach(kind="adb", serial=adb.serial)
            yield lambda: AdbHost(to_it, NAME), lambda: EmulatedAdb(to_it, NAME)
        return
    if kind == "openssh":
        server = openssh(folder)
    elif kind == "a talkative shell":
        server = openssh(folder, says='Welcome!\n#exit 3\n{"step"')
    elif kind == "busybox":
        server = dropbear(folder, shell="busybox", tools="busybox")
    else:
        without = RARE_TOOLS if kind == "a poor toybox" else frozenset()
        server = dropbear(folder, shell="mksh", tools="toybox", without=without)
    with server as address:
        yield lambda: SshHost(address, NAME), lambda: EmulatedSsh(address, NAME)


Makers = tuple[Callable[[], Host], Callable[[], Host]]


@pytest.fixture(scope="session", params=KINDS)
def makers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Makers]:
    with reached(request.param, tmp_path_factory.mktemp("server")) as both:
        yield both


@pytest.fixture
def host(makers: Makers) -> Iterator[Host]:
    connected = makers[0]()
    yield connected
    connected.close()


@pytest.fixture
def emulated(makers: Makers) -> Iterator[Host]:
    """A host whose programs run under a launcher, so that any CPU will do."""
    connected = makers[1]()
    yield connected
    connected.close()


@pytest.fixture
def connect(makers: Makers) -> Iterator[Callable[[], Host]]:
    """What gives further lines to the same host."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(makers[0]()))


@pytest.fixture
def workdir(tmp_path: Path) -> PurePosixPath:
    return PurePosixPath(tmp_path / "work dir's $(id)")


@pytest.fixture
def board(request: pytest.FixtureRequest, workdir: PurePosixPath) -> Board:
    """The board that a test's host is: one with a launcher where the host has one."""
    reach: Mapping[str, object] = {"kind": "ssh", "host": "unused"}
    if "emulated" in request.fixturenames:
        reach = {"kind": "local", "launcher": LAUNCHER}
    return Board.model_validate(
        {"name": NAME, "target": "rk3568", "reach": reach, "workdir": str(workdir)}
    )
