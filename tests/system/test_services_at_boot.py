"""A service is there after each boot of a board with each init system, until it is removed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path, PurePosixPath
from typing import Protocol

import pytest

from armload.boards.board import VirtualReach
from armload.boards.boot import BootFacts, InitName, boot_facts
from armload.boards.host import Host
from armload.boards.ssh import SshHost
from armload.boards.virtual import machine
from armload.build.helper import SUPERVISE, helper
from armload.core.errors import BoardError
from armload.core.progress import Silent
from armload.core.shell import join, quote, render
from armload.services.init_systems import InitSystem, choose
from armload.services.installing import act, install_unit, remove_unit, unit_state
from armload.services.unit import UnitFacts
from armload.services.users import user_for
from tests.init_boards import OPENRC, SYSTEMD, SYSV, Distribution, InitBoard
from tests.virtual_boards import (
    cut_the_power,
    private_cache,
    switched_off_at_the_end,
    virtual_board,
)

pytestmark = [pytest.mark.machine, pytest.mark.timeout(3600)]
exhaustive = pytest.mark.exhaustive(
    covers=[
        *("armload/boards/boot.py", "armload/services", "deploy/service", "deploy/virtual"),
        "tests/init_boards.py",
    ]
)
KEPT = "kept"
"""A service that stays enabled: where that has been started, others would have been."""
START = """read -r boot </proc/sys/kernel/random/boot_id
privileges=
while read -r key value; do
  case $key in NoNewPrivs: | Seccomp: | CapBnd:) privileges="$privileges $value" ;; esac
done </proc/self/status
echo "$boot $(id -un)$privileges" >>starts
sync
! command -v perl || exec perl -MIO::Socket -e '
  $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:%d", Listen => 5, ReuseAddr => 1) or die;
  while (1) { $s->accept }
'
while :; do sleep 1; done
"""
PORTS = itertools.count(9000)
ODD = 'it\'s 100% "w" #1'


class Machine(Protocol):
    def host(self, user: str) -> Host: ...

    def up(self) -> None: ...

    def cut_the_power(self) -> None: ...


class DefaultBoard:
    """The virtual board that everybody has."""

    def __init__(self) -> None:
        self.board = virtual_board("services", VirtualReach(kind="virtual", cores=1))

    def host(self, user: str) -> Host:
        return SshHost(machine.up(self.board, Silent()), user)

    def up(self) -> None:
        machine.up(self.board, Silent())

    def cut_the_power(self) -> None:
        cut_the_power(self.board)


class Installed:
    """Services of one kind of init system, of one login."""

    def __init__(
        self, computer: Machine, wanted: InitName, login: str, place: str, *names: str
    ) -> None:
        self._machine = computer
        self._names = ("chat", *names)
        self._login = login
        self._wanted: InitName = wanted
        self.workdir = PurePosixPath(place, f"{login} {wanted} {ODD}")
        with closing(computer.host("root")) as host:
            program = self.workdir / "bin" / "supervise"
            put(host, program, helper(SUPERVISE).path.read_bytes())
            assert host.run(join(["chmod", "755", program])).status == 0
            for name in self._names:
                folder = self._folder(name)
                values = {"name": name, "supervise": program, "folder": folder}
                put(host, folder / "run", render("service/run.sh.j2", values).encode())
                put(host, folder / "version", b"only\n")
                port = next(PORTS)
                put(host, folder / "versions/only/start", (START % port).encode())
                settings = f"port {port}\nhealth connect\n"
                put(host, folder / "versions/only/supervisor", settings.encode())
            if login != "root":
                done = host.run(join(["chown", "-R", f"{login}:{login}", self.workdir]))
                assert done.status == 0, done

    def _folder(self, name: str) -> PurePosixPath:
        return self.workdir / "services" / f"{self._wanted}-{self._login}-{name}"

    def _init(self, host: Host) -> tuple[BootFacts, InitSystem]:
        board = virtual_board("services", VirtualReach(kind="virtual"))
        facts = boot_facts(host, board.model_copy(update={"workdir": self.workdir}))
        return facts, choose(facts, self._wanted, "services")

    def _unit(self, facts: BootFacts, init: InitSystem, name: str) -> UnitFacts:
        folder = self._folder(name)
        return UnitFacts(
            name=folder.name,
            description="Demo's 5% \\",
            folder=folder,
            user=user_for(facts, init, folder.name).name,
            memory_max_bytes=200 << 20,
            is_public=True,
        )

    def install(self) -> None:
        with closing(self._machine.host(self._login)) as host:
            facts, init = self._init(host)
            for name in self._names:
                unit = self._unit(facts, init, name)
                assert install_unit(host, facts, init, unit, overwrite=False) == "written"
                act(host, facts, init, unit, "start")

    def check(self, starts: int, kept: int) -> None:
        """Wait until the services were started so often; each runs whose last start is now."""
        with closing(self._machine.host(self._login)) as host:
            facts, init = self._init(host)
            boot = host.run("cat /proc/sys/kernel/random/boot_id").text
            for name in reversed(self._names):
                unit = self._unit(facts, init, name)
                count = kept if name == KEPT else starts
                told = self._starts_once_there(host, name, count)
                assert len(told) == count, (self._wanted, name, told)
                runs = told[-1].split()[0] == boot
                state = unit_state(host, facts, init, unit)
                # A line of cron's table is there while it is enabled, a file in any case.
                is_gone = self._wanted == "cron" and not runs
                assert state.presence == ("absent" if is_gone else "installed")
                assert state.is_active == runs
                if init.sets_user and runs:
                    # A seccomp filter, no capabilities, and no way to any.
                    assert told[-1].split()[1:] == [unit.user or "root", "0" * 16, "1", "2"]
                    assert state.memory_max_bytes == 200 << 20

    def _starts_once_there(self, host: Host, name: str, count: int) -> list[str]:
        """Wait on the board, which is slow enough without being asked all the time."""
        file = quote(self._folder(name) / "starts")
        script = (
            f"n=0; while [ $n -lt 400 ] && ! [ $(cat {file} 2>/dev/null | wc -l) -ge {count} ]; "
            f"do n=$((n + 1)); sleep 1; done; cat {file}"
        )
        return host.run(script, timeout_s=600).text.splitlines()

    def disable(self) -> None:
        with closing(self._machine.host(self._login)) as host:
            facts, init = self._init(host)
            unit = self._unit(facts, init, "chat")
            act(host, facts, init, unit, "stop")
            assert not unit_state(host, facts, init, unit).is_active
            act(host, facts, init, unit, "disable")

    def remove(self) -> None:
        with closing(self._machine.host(self._login)) as host:
            facts, init = self._init(host)
            for name in self._names:
                unit = self._unit(facts, init, name)
                remove_unit(host, facts, init, unit)
                state = unit_state(host, facts, init, unit)
                assert (state.presence, state.is_active) == ("absent", False)


def put(host: Host, path: PurePosixPath, content: bytes) -> None:
    command = f"mkdir -p {quote(path.parent)} && cat >{quote(path)}"
    assert host.run(command, stdin=content).status == 0


def live(computer: Machine, kinds: list[Installed]) -> None:
    """Install, boot, disable, boot and remove services of several kinds on one board."""
    for kind in kinds:
        kind.install()
    for starts, kept in ((1, 1), (2, 2), (2, 3)):
        for kind in kinds:
            kind.check(starts, kept)
        if starts == kept == 2:
            for kind in kinds:
                kind.disable()
        if kept < 3:
            computer.cut_the_power()
            computer.up()
    for kind in kinds:
        kind.remove()
    with closing(computer.host("root")) as host:
        left = host.run(
            "find /etc/ /home /run /var/spool -name '*armload*' 2>/dev/null; "
            "grep -rl armload /etc/ /home /var/spool 2>/dev/null | grep -v -e '-$'"
        )
        assert left.text == ""


@pytest.fixture
def booted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[InitBoard]:
    distribution: Distribution = request.param
    computer = InitBoard(distribution, tmp_path)
    try:
        computer.up()
        yield computer
    finally:
        computer.cut_the_power()


@exhaustive
def test_services_of_the_default_board_start_when_it_boots(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(private_cache(tmp_path))
        computer = DefaultBoard()
        stack.enter_context(switched_off_at_the_end(computer.board))
        live(computer, [Installed(computer, "busybox", "root", "/data/local/tmp", KEPT)])


@exhaustive
@pytest.mark.parametrize("booted", [SYSTEMD], indirect=True, ids=["systemd"])
def test_services_of_a_board_with_systemd(booted: InitBoard) -> None:
    with closing(booted.host("pi")) as host:
        board = virtual_board("services", VirtualReach(kind="virtual"))
        facts = boot_facts(host, board)
        folder = PurePosixPath("/home/pi/services/chat")
        unit = UnitFacts(name="chat", folder=folder)
        with pytest.raises(BoardError, match=r"(?s)systemd-user.*loginctl enable-linger pi"):
            install_unit(host, facts, choose(facts, "systemd-user", "b"), unit, overwrite=False)
        assert host.run("ls -A .config 2>/dev/null").text == ""
        remove_unit(host, facts, choose(facts, "systemd-user", "b"), unit)
        assert host.run("sudo -n loginctl enable-linger pi").status == 0
    place = "/var/lib/armload"
    live(
        booted,
        [
            Installed(booted, "systemd", "pi", place, KEPT),
            Installed(booted, "systemd-user", "pi", place),
            Installed(booted, "cron", "pi", place),
        ],
    )


@exhaustive
@pytest.mark.parametrize("booted", [OPENRC], indirect=True, ids=["openrc"])
def test_services_of_a_board_with_openrc(booted: InitBoard) -> None:
    place = "/var/lib/armload"
    live(
        booted,
        [Installed(booted, "openrc", "pi", place, KEPT), Installed(booted, "cron", "root", place)],
    )


@exhaustive
@pytest.mark.parametrize("booted", [SYSV], indirect=True, ids=["sysv"])
def test_services_of_a_board_with_links_in_runlevels(booted: InitBoard) -> None:
    live(booted, [Installed(booted, "sysv", "root", "/var/lib/armload", KEPT)])
