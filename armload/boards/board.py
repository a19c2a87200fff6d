"""A board: one YAML file in ``boards/`` that says what it is and how it is reached."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field, SkipValidation, ValidationInfo, field_validator

from armload.boards.core_names import core_of_cpu
from armload.boards.hardware import load_hardware
from armload.boards.host import HostRelay
from armload.boards.power import PowerMeter
from armload.boards.specs import CpuCluster, DeclaredSpecs
from armload.core.deciding import DECIDES, DESCRIBES, Decides, Words
from armload.core.errors import ForbiddenValueError, UsageError
from armload.core.places import cache_folder
from armload.core.values import ByteCount, Value
from armload.core.workspace import data_file, listing_of
from armload.core.yamlfile import has_key, load_named


class SshAddress(Value):
    """Everything that a connection needs.

    Attributes:
        host: a name, an address, or an alias from ``~/.ssh/config``.
        port, user: as ``~/.ssh/config`` says when left out.
        key: a private key file, besides the agent's and the usual ones.
        host_key: the one key that the server must show, as ``ssh-ed25519 AAAA…``; none to
            look it up in the known hosts.
    """

    host: str
    port: int | None = None
    user: str | None = None
    key: Path | None = None
    host_key: str | None = None


class _Reach(Value):
    """A way to reach a board.

    Attributes:
        usual_folder: the work folder where a board's file names none. It survives a reboot, and
            everybody can write there; that of this machine is relative to armload's cache folder.
    """

    usual_folder: ClassVar[PurePosixPath]

    def check_folder(self, folder: PurePosixPath) -> None:
        """Refuse a work folder that a board's file cannot name.

        Raises:
            ValueError: says why.
        """
        if not folder.is_absolute():
            raise ValueError(f"'{folder}' must be an absolute path on the board")

    def whole_folder(self, folder: PurePosixPath) -> PurePosixPath:
        """Return a work folder's path from the root."""
        return folder


_DEVICE_FOLDER = PurePosixPath("/data/local/tmp/armload")


class SshReach(_Reach):
    """Reached by SSH.

    Attributes:
        host: a name, an address, or an alias from ``~/.ssh/config``.
        port: 22, or as ``~/.ssh/config`` says, when left out.
        user: as ``~/.ssh/config`` says, or this machine's user, when left out.
        key: a private key file, besides the agent's and the usual ones.
    """

    usual_folder = PurePosixPath("/var/tmp/armload")  # noqa: S108 - on the board, by its owner's choice

    kind: Literal["ssh"] = "ssh"
    host: Annotated[str, DECIDES] = Field(min_length=1)
    port: Annotated[int | None, DECIDES] = Field(default=None, ge=1, le=65535)
    user: Annotated[str | None, DECIDES] = None
    key: Annotated[Path | None, DECIDES] = None


class LocalReach(_Reach):
    """This machine itself: commands run in its own shell.

    Attributes:
        launcher: words that go before a program that was built for the board, such as those
            of an emulator or of ``nice``.
    """

    usual_folder = PurePosixPath("board")

    kind: Literal["local"]
    launcher: Annotated[tuple[str, ...], DECIDES] = ()

    def check_folder(self, folder: PurePosixPath) -> None:
        """Allow any: it may be relative to armload's cache folder."""

    def whole_folder(self, folder: PurePosixPath) -> PurePosixPath:
        """Return a work folder's path from the root."""
        return PurePosixPath(cache_folder().resolve(), folder)


class HdcReach(_Reach):
    """Reached by ``hdc``, OpenHarmony's tool for the USB cable and the network.

    Attributes:
        key: which device, as ``hdc list targets`` shows it; none for the only one.
        program: the tool, by its path or its name in ``PATH``.
    """

    usual_folder = _DEVICE_FOLDER

    kind: Literal["hdc"]
    key: Annotated[str | None, DECIDES] = Field(default=None, min_length=1)
    program: Annotated[str, DECIDES] = Field(default="hdc", min_length=1)


class AdbReach(_Reach):
    """Reached by ``adb``, Android's tool for the USB cable and the network.

    Attributes:
        serial: which device, as ``adb devices`` shows it; none for the only one.
        program: the tool, by its path or its name in ``PATH``.
    """

    usual_folder = _DEVICE_FOLDER

    kind: Literal["adb"]
    serial: Annotated[str | None, DECIDES] = Field(default=None, min_length=1)
    program: Annotated[str, DECIDES] = Field(default="adb", min_length=1)

    def check_folder(self, folder: PurePosixPath) -> None:
        """Refuse shared storage as well."""
        super().check_folder(folder)
        if folder.parts[1:2] in (("sdcard",), ("storage",)):
            raise ValueError(
                f"'{folder}' is shared storage, where Android does not run programs; use a folder "
                "in /data/local/tmp"
            )


_QEMU_CPU = r"^[A-Za-z0-9][A-Za-z0-9._-]*(,[A-Za-z0-9._-]+=[A-Za-z0-9]+)*$"


class VirtualReach(_Reach):
    """A virtual ARM machine under QEMU on this machine.

    Attributes:
        cpu: QEMU's name of the CPU.
        cores: number of cores; QEMU's board has at most 8.
        memory: of the machine.
        disk: size of its storage.
        disk_read_bytes_per_s: storage is throttled to this; none for as fast as this machine.
    """

    usual_folder = _DEVICE_FOLDER

    kind: Literal["virtual"]
    cpu: Annotated[str, DESCRIBES] = Field(default="cortex-a55", pattern=_QEMU_CPU)
    cores: int = Field(default=2, ge=1, le=8)
    memory: ByteCount = Field(default=2 << 30, ge=64 << 20)
    disk: ByteCount = Field(default=8 << 30, ge=64 << 20)
    disk_read_bytes_per_s: ByteCount | None = Field(default=None, gt=0)


RealReach = SshReach | LocalReach | HdcReach | AdbReach
"""Of boards that armload does not make itself."""

USUAL_FOLDERS = tuple(
    dict.fromkeys(
        each.usual_folder for each in get_args(RealReach) if each.usual_folder.is_absolute()
    )
)
"""Where programs can be put on most boards, whatever they are reached by."""

Reach = Annotated[RealReach | VirtualReach, Field(discriminator="kind")]


def _is_virtual(reach: object) -> bool:
    """Say whether what a file says of its board's reach is only of a virtual machine."""
    return (
        isinstance(reach, dict)
        and reach.keys() <= VirtualReach.model_fields.keys()
        and reach.get("kind", "virtual") == "virtual"
    )


THIS_MACHINE = "this-machine"
"""The name of the board that is this machine, with programs built for its own CPU."""


class BuildHost(Value):
    """How a machine compiles for other boards.

    Attributes:
        compiler: ``native`` is its own, ``gnu`` a cross compiler that it has.
        jobs: compilers at a time; one per core when left out.
        nice: how much they step back for other programs, 0 to 19.
        folder: for sources and builds; ``build`` in the work folder when left out.
    """

    compiler: Literal["native", "gnu"] = "native"
    jobs: int | None = Field(default=None, ge=1)
    nice: int = Field(default=10, ge=0, le=19)
    folder: Annotated[PurePosixPath | None, DECIDES] = None


Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60), DESCRIBES]


class Board(Value):
    """What ``boards/<name>.yaml`` says.

    Attributes:
        name: the file's name.
        description: one line for people.
        hardware: what it is, in the catalogue; empty where that is not said.
        labels: by which it is named together with others. Boards with a common label, the same
            hardware and the same target are declared identical.
        target: name of the target whose binaries it runs; the hardware's when left out.
        reach: how to get there.
        workdir: the folder that armload may use there; made when missing. Each kind of board has a
            usual one; a board of kind ``local`` may give one relative to armload's cache folder.
        build_host: how it compiles when a build is sent there.
        sensors: names of the thermal zones that tell how hot it is; empty for all that make sense.
        power: what measures the power that it draws; none when nothing does.
        facts: what is known beforehand: the hardware's, unless its file gives others. Memory,
            storage rate and cores of a virtual board are what its machine is made with, whatever
            a file that it extends declares.
    """

    name: Words
    description: Words = ""
    hardware: Words = ""
    labels: tuple[Label, ...] = ()
    target: Words = Field(default="", validate_default=True)
    reach: Annotated[Reach, Decides(unless=_is_virtual)]
    workdir: Annotated[PurePosixPath, DECIDES] = Field(
        default=PurePosixPath(), validate_default=True
    )
    build_host: BuildHost = BuildHost()
    sensors: tuple[Words, ...] = ()
    power: PowerMeter | None = None
    facts: DeclaredSpecs = Field(default=DeclaredSpecs(), validate_default=True)

    @property
    def launcher(self) -> tuple[str, ...]:
        """Words that go before a program that was built for it, such as those of an emulator."""
        return self.reach.launcher if isinstance(self.reach, LocalReach) else ()

    @field_validator("hardware")
    @classmethod
    def _is_in_the_catalogue(cls, hardware: str) -> str:
        try:
            return load_hardware(hardware).name if hardware else ""
        except UsageError as error:
            raise ForbiddenValueError.of(error) from error

    @field_validator("target")
    @classmethod
    def _is_described(cls, target: str, info: ValidationInfo) -> str:
        if not target and info.data.get("hardware"):
            return load_hardware(info.data["hardware"]).hardware.target
        if not target:
            raise ForbiddenValueError(
                "give a target, such as rk3568, or 'hardware' from the catalogue",
                f"To list the targets: {listing_of('toolchains')}",
            )
        try:
            return data_file("toolchains", target).stem
        except UsageError as error:
            raise ForbiddenValueError.of(error) from error

    @field_validator("workdir")
    @classmethod
    def _suits_the_reach(cls, workdir: PurePosixPath, info: ValidationInfo) -> PurePosixPath:
        reach: Reach | None = info.data.get("reach")
        if reach is None:  # its own error says what is wrong
            return workdir
        if workdir == PurePosixPath():
            return reach.usual_folder
        reach.check_folder(workdir)
        return workdir

    @field_validator("facts")
    @classmethod
    def _follow_the_machine(cls, facts: DeclaredSpecs, info: ValidationInfo) -> DeclaredSpecs:
        reach = info.data.get("reach")
        if hardware := info.data.get("hardware"):
            declared = {name: getattr(facts, name) for name in facts.model_fields_set}
            facts = load_hardware(hardware).specs.model_copy(update=declared)
        if not isinstance(reach, VirtualReach):
            return facts
        rate = reach.disk_read_bytes_per_s or facts.storage_read_bytes_per_s
        core = core_of_cpu(reach.cpu)
        made = {
            "memory": reach.memory,
            "storage_read_bytes_per_s": rate,
            "clusters": (CpuCluster(cores=reach.cores, name=core),) if core else (),
        }
        return facts.model_copy(update=made)


class RelayedBoard(Board):
    """A board that somebody else reaches; no file describes one.

    Attributes:
        reach: how that would be done from here, which has no meaning.
        own_launcher: as for ``launcher``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    relay: SkipValidation[HostRelay] = Field(exclude=True, repr=False)
    own_launcher: tuple[str, ...] = ()

    @property
    def launcher(self) -> tuple[str, ...]:
        return self.own_launcher


def is_group(name: str) -> bool:
    """Say whether a file in ``boards/`` describes several boards that run one model together."""
    return "," not in name and has_key("boards", name, "members", Board)


def load_board(name: str) -> Board:
    """Read the board called ``name``.

    Raises:
        UsageError: there is none, it is a group, or several are named.
    """
    if "," in name:
        raise UsageError(
            f"{name!r} names several boards; this command takes only one.",
            "Repeat the command for each board.",
        )
    if is_group(name):
        raise UsageError(
            f"{name} is a group of boards, and this command takes only single boards.",
            f"Name one of its members instead: see boards/{name}.yaml.",
        )
    board = load_named("boards", name, Board)
    return board.model_copy(update={"workdir": board.reach.whole_folder(board.workdir)})
