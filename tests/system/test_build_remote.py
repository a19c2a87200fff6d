"""A build host: a real SSH server that offers a shell, CMake, make and a cross compiler."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from armload.boards.board import SshAddress
from armload.boards.virtual.process import free_port
from armload.build.builder import build
from armload.build.compiler import tool
from armload.build.local_backend import LocalBackend
from armload.build.target import load_target
from tests.hostile_environment import HostileEnvironment
from tests.person import Person
from tests.servers import openssh

pytestmark = pytest.mark.build

exhaustive = pytest.mark.exhaustive(covers=["armload/build", "armload/buildhost", "deploy/build"])

PROGRAM = "ggml-rpc-server"
"""The program that takes the least to compile."""
NEEDED = ("busybox", "make", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++")


class BuildHost:
    """A machine that is reached by SSH, and a person who has a file of it as a board."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.person = Person(folder / "workstation")
        self.work = folder / "work"
        (self.person.folder / "cache" / "builds").unlink()
        self._shell = folder / "shell"
        self.tools = self._tools()
        self.export({"PATH": str(self.tools)})

    def export(self, variables: Mapping[str, str]) -> None:
        """Set the variables of every command that is run there."""
        words = shlex.join(f"{name}={text}" for name, text in variables.items())
        self._shell.write_text(f'#!/bin/sh\nexport {words}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
        self._shell.chmod(0o755)

    def _tools(self) -> Path:
        missing = [name for name in NEEDED if shutil.which(name) is None]
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")
        folder = self.folder / "bin"
        folder.mkdir(parents=True)
        applets = subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True)
        for name in applets.stdout.split():
            (folder / name).symlink_to(str(shutil.which("busybox")))
        (folder / "cmake").symlink_to(tool("cmake", "CMAKE_BIN_DIR", "cmake"))
        (folder / "make").symlink_to(str(shutil.which("make")))
        compilers = Path(str(shutil.which("aarch64-linux-gnu-gcc"))).parent
        for program in compilers.glob("aarch64-linux-gnu-*"):
            (folder / program.name).symlink_to(program)
        return folder

    def up(self) -> AbstractContextManager[SshAddress]:
        return openssh(self.folder / "sshd", port=self.port, extra=f"ForceCommand {self._shell}\n")

    def describe(self, address: SshAddress, build_host: str = "compiler: gnu") -> None:
        self.person.add_board(
            "builder",
            f"target: rk3568\nreach: {{kind: ssh, host: 127.0.0.1, port: {address.port}, "
            f"user: {address.user}, key: {address.key}}}\nworkdir: {self.work}\n"
            f"build_host: {{{build_host}}}\n",
        )
        self.person.types("board.trust", "--board", "builder", "--yes")

    def build_words(self, *more: str) -> list[str]:
        return ["build", "--on", "builder", "--programs", PROGRAM, "--json", *more]

    def output(self) -> str:
        return "".join(
            path.read_text(errors="replace") for path in self.work.glob("build/runs/*/stdout")
        )


@pytest.fixture
def machine(tmp_path: Path) -> BuildHost:
    return BuildHost(tmp_path)


def _wait_for(process: subprocess.Popen[str], machine: BuildHost, text: str) -> None:
    while text not in machine.output():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def _line_is_cut(port: int) -> None:
    """End all SSH sessions of the server on a port, but not what they have started."""
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.NoSuchProcess):
            if process.info["name"] == "sshd" and any(
                connection.laddr.port == port for connection in process.net_connections("tcp")
            ):
                process.kill()


@exhaustive
def test_a_build_survives_a_cut_line_and_a_killed_workstation_and_the_same_command_completes_it(
    machine: BuildHost,
) -> None:
    with machine.up() as address:
        machine.describe(address)
        with machine.person.start(*machine.build_words()) as first:
            _wait_for(first, machine, "Building")
            _line_is_cut(machine.port)
            first.send_signal(signal.SIGKILL)
            first.communicate()
    builds = machine.person.folder / "cache" / "builds"
    assert list(builds.glob("*/build.json")) == []

    with machine.up() as address:
        done = machine.person.types(*machine.build_words())
        assert "resuming a build" in done.stderr
        (binary,) = json.loads(done.stdout)
        assert binary["program"] == PROGRAM
        assert binary["architecture"] == "aarch64"
        assert binary["compiler"].startswith("gnu aarch64-linux-gnu-gcc")
        assert {use["feature"] for use in binary["features"]} >= {"asimddp", "asimdhp"}
        assert all(use["symbol"] for use in binary["features"])
        folder = Path(binary["path"]).parent
        record: dict[str, Any] = json.loads((folder / "build.json").read_text())
        assert [program["built_on"] for program in record["programs"]] == ["builder"]
        assert sorted(path.name for path in folder.iterdir()) == [
            "build.json",
            "build.log",
            PROGRAM,
        ]
        assert "Building CXX object" in (folder / "build.log").read_text()
        # The source went there once.
        (source,) = machine.work.glob("build/sources/[!.]*")
        assert source.is_dir()
        assert _program_works(Path(binary["path"]))

        again = machine.person.types(*machine.build_words())
        assert json.loads(again.stdout) == [binary]


def _program_works(path: Path) -> bool:
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        return os.access(path, os.X_OK)
    done = subprocess.run([emulator, str(path), "--help"], capture_output=True, check=False)
    return b"usage" in done.stdout.lower() + done.stderr.lower()


@pytest.fixture
def answering(machine: BuildHost) -> Iterator[BuildHost]:
    with machine.up() as address:
        machine.describe(address)
        yield machine


@pytest.mark.exhaustive(covers=["armload/build", "armload/buildhost"])
def test_ctrl_c_ends_the_build_there_too(answering: BuildHost) -> None:
    with answering.person.start(*answering.build_words()) as process:
        _wait_for(process, answering, "Building")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert [line for line in _commands() if str(answering.work) in line] == []


@exhaustive
def test_what_a_build_host_has_installed_and_exported_changes_no_byte(machine: BuildHost) -> None:
    (usual,) = build(load_target("rk3568"), programs=[PROGRAM], backend=LocalBackend("gnu"))
    hostile = HostileEnvironment(machine.folder / "hostile", "")
    programs = hostile.folder / "bin"
    del hostile.variables["LD_LIBRARY_PATH"]  # no shell would start
    machine.export({**hostile.variables, "PATH": f"{machine.tools}:{programs}"})
    with machine.up() as address:
        machine.describe(address)
        (made,) = json.loads(machine.person.types(*machine.build_words()).stdout)
    assert made["path"] != str(usual.path)
    assert (made["build_id"], made["sha256"]) == (usual.build_id, usual.sha256)
    assert hostile.trapped == []


def _commands() -> list[str]:
    return [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]


def test_a_build_host_without_make_says_what_to_install(answering: BuildHost) -> None:
    (answering.folder / "bin" / "make").unlink()
    done = answering.person.types(*answering.build_words(), status=4)
    assert "builder: make is not installed" in done.stderr
    assert "apt install make" in done.stderr


def test_a_build_host_without_the_compiler_says_what_to_install(answering: BuildHost) -> None:
    (answering.folder / "bin" / "aarch64-linux-gnu-gcc").unlink()
    done = answering.person.types(*answering.build_words(), status=4)
    assert "builder: the compiler aarch64-linux-gnu-gcc is not installed" in done.stderr
    assert "g++-aarch64-linux-gnu" in done.stderr


def test_a_native_compiler_for_another_architecture_is_refused(answering: BuildHost) -> None:
    for name in ("cc", "c++"):
        (answering.folder / "bin" / name).write_text("#!/bin/sh\necho mips-linux-gnu\n")
        (answering.folder / "bin" / name).chmod(0o755)
    done = answering.person.types(*answering.build_words("--compiler", "native"), status=2)
    assert "builder: cc compiles for mips, but the target 'rk3568' is aarch64" in done.stderr


@exhaustive
def test_a_compiler_error_there_shows_the_end_of_its_output_and_where_the_rest_is(
    answering: BuildHost,
) -> None:
    broken = answering.folder / "bin" / "aarch64-linux-gnu-g++"
    real = broken.resolve()
    broken.unlink()
    broken.write_text(
        "#!/bin/sh\n"
        'case "$*" in *ggml-rpc.cpp*) echo "ggml-rpc.cpp:1: error: no luck" >&2; exit 1 ;; esac\n'
        f'exec {real} "$@"\n'
    )
    broken.chmod(0o755)
    done = answering.person.types(*answering.build_words(), status=5)
    assert "ggml-rpc.cpp:1: error: no luck" in done.stderr
    log = Path(done.stderr.rpartition("The full output is in ")[2].strip().rstrip("."))
    assert "no luck" in log.read_text()
    after = done.stderr.partition("The end of its output:\n")[2]
    assert len(after.splitlines()) == 31


def test_a_build_host_that_does_not_answer_is_a_failed_connection(machine: BuildHost) -> None:
    with machine.up() as address:
        machine.describe(address)
    done = machine.person.types(*machine.build_words(), status=6)
    assert "builder" in done.stderr


def test_a_build_host_whose_folder_cannot_be_written_says_which_setting_to_change(
    machine: BuildHost,
) -> None:
    with machine.up() as address:
        machine.describe(address, "compiler: gnu, folder: /proc/build")
        done = machine.person.types(*machine.build_words(), status=7)
    assert "/proc/build" in done.stderr
    assert "build_host" in done.stderr


@exhaustive
def test_a_build_host_whose_disk_is_full_says_so_and_with_room_the_build_completes(
    answering: BuildHost,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = answering.work / "build"
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", str(folder)], check=True)
    try:
        done = answering.person.types(*answering.build_words(), status=7)
        assert "builder: not enough space for" in done.stderr or "is full" in done.stderr
        assert "Free disk space" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=2g", str(folder)], check=True)
        done = answering.person.types(*answering.build_words())
        assert json.loads(done.stdout)[0]["program"] == PROGRAM
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
