"""What a board is and how it is, found out in one round trip."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from armload.boards.board import Board
from armload.boards.conditions import Conditions, read_conditions, workdir_mount
from armload.boards.core_names import core_name, is_little, is_unnamed
from armload.boards.failures import SlowCommandError
from armload.boards.folder import TRIAL_BYTES, WriteError, read_obstacle
from armload.boards.framing import parts_of, reason
from armload.boards.host import Host, TransportChoice
from armload.boards.rates import Rates, read_rates
from armload.boards.specs import CpuCluster
from armload.boards.vulkan import Vulkan, read_vulkan
from armload.build.helper import ARCHITECTURES, CPU_FEATURES, helper
from armload.core.cpu_sets import cpu_numbers
from armload.core.errors import BoardError
from armload.core.places import data_path
from armload.core.progress import Progress, Silent
from armload.core.shell import join, render
from armload.core.values import Count, Value, whole_number


def cores_of(lines: Iterable[str]) -> list[dict[str, str]]:
    """Return the keys and values of each core.

    Old kernels list what all cores have in common once, before the first or after the last.
    """
    cores: list[dict[str, str]] = []
    common: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if not colon:
            continue
        if key.strip() == "processor":
            cores.append({})
        (cores[-1] if cores else common)[key.strip()] = value.strip()
    if len(cores) > 1:
        of_others = set().union(*cores[:-1])
        common |= {key: value for key, value in cores[-1].items() if key not in of_others}
    return [common | core for core in cores]


def common_features(cores: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the features that every core has, in the kernel's words and order."""
    features = [core.get("Features", core.get("flags", "")).split() for core in cores]
    common = set.intersection(*map(set, features)) if features else set()
    return tuple(name for name in features[0] if name in common) if features else ()


_LAUNCHED_WITHIN_S = 30.0


def _asked_under_launcher(host: Host, architecture: str, progress: Progress) -> tuple[str, ...]:
    """Return the CPU features that a program of ours meets; none where it does not run.

    The shell of a board with a launcher is this machine's own, so the program lies there already.
    """
    program = helper(CPU_FEATURES, progress, architecture=architecture).path.resolve()
    try:
        done = host.run(join([*host.launcher, program]), timeout_s=_LAUNCHED_WITHIN_S)
    except SlowCommandError as error:
        raise BoardError(
            f"{host.name}: its launcher ({join(host.launcher)}) has not ended within "
            f"{_LAUNCHED_WITHIN_S:g} s with a program that takes none.",
            f"Correct 'launcher' in boards/{host.name}.yaml: it must run the program whose words "
            "follow its own, and end with it.",
        ) from error
    names = tuple(done.text.split())
    # On x86-64 the bits have other meanings, but the first is that of floating point there, too.
    return names if done.status == 0 and "fp" in names else ()


INSIDE = ("toybox sha256sum", "busybox sha256sum")
"""Tools inside of others that count as tools where they have no name of their own."""

# What is done, with what (the best first, each with what it is called when it is chosen), what
# is done without any of them, and why.
_CHOICES: tuple[tuple[str, tuple[tuple[str, str], ...], str], ...] = (
    (
        "checksums",
        (
            ("openssl", "openssl dgst -sha256"),
            ("sha256sum", "sha256sum"),
            ("toybox sha256sum", "toybox sha256sum"),
            ("busybox sha256sum", "busybox sha256sum"),
        ),
        "read the file back",
    ),
    (
        "truncating",
        (("truncate", "truncate"), ("dd", "dd"), ("head", "head, into a copy")),
        "not possible: a partial file can only be appended to",
    ),
    ("detaching a run", (("setsid", "setsid"),), "ignore SIGHUP"),
    ("end of a run", (("mkfifo", "a pipe that closes"),), "poll several times a second"),
    ("change detection", (("stat", "stat"), ("ls", "ls -lin")), "checksum it each time"),
    ("CPU pinning", (("taskset", "taskset"),), "armload's own program"),
)


def tool_transports(tools: Collection[str], machine: str) -> tuple[TransportChoice, ...]:
    """Return what is done how on a board that has these tools and is such a machine."""
    transports = [_transport(purpose, choices, none, tools) for purpose, choices, none in _CHOICES]
    if machine in ARCHITECTURES:
        transports[0] = TransportChoice(
            purpose=transports[0].purpose,
            chosen="armload's own program",
            reason=f"faster than {transports[0].chosen}, and it can resume",
        )
    return tuple(transports)


def _transport(
    purpose: str, choices: tuple[tuple[str, str], ...], none: str, tools: Collection[str]
) -> TransportChoice:
    lacking: list[str] = []
    for tool, words in choices:
        if tool in tools:
            return TransportChoice(purpose=purpose, chosen=words, reason=_reason(lacking))
        lacking.append(tool)
    return TransportChoice(purpose=purpose, chosen=none, reason=_reason(lacking))


def _reason(lacking: list[str]) -> str:
    return f"the board has no {' and no '.join(lacking)}" if lacking else "the best available"


TOOLS = (
    "cat",
    "dd",
    "df",
    "du",
    "mkfifo",
    "setsid",
    "sha256sum",
    "sleep",
    "stat",
    "sync",
    "truncate",
)
"""Tools that a board is the better for having."""

_SECOND_BEST = ("head", "ls", "openssl", "taskset")


class FoundCluster(Value):
    """Equal cores that a board shows.

    Attributes:
        cores: how many.
        numbers: which.
        name: such as ``Cortex-A55``, or the kernel's numbers where the name is unknown.
        is_little: they save energy, beside others that are fast: by their name, or where that is
            unknown, by their capacity or frequency.
    """

    cores: int
    numbers: tuple[Count, ...] = ()
    name: str
    is_little: bool = False


class NumaNode(Value):
    """Memory, and the cores that are nearest to it."""

    cores: tuple[Count, ...]
    memory_bytes: Count


class Probe(Value):
    """What a board is, and its state at the moment of asking.

    Attributes:
        device: the device tree's name of it, or the maker's; empty where nobody says.
        machine: ``uname -m``, such as ``aarch64``; of an emulated CPU where programs meet one.
        cpu_features: in the words of ``/proc/cpuinfo``, those that every core has. Empty where
            programs meet an emulated CPU that could not be asked.
        cores: that are online.
        clusters: the cores by kind.
        nodes: its NUMA nodes; empty where the kernel knows of no such thing.
        max_khz: highest frequency of each core; empty where there is no cpufreq.
        tools: which of the useful tools are there, such as ``dd`` or ``toybox sha256sum``.
        vulkan: what it has for programs that compute on GPUs.
        transports: how each thing is done there, and why so; only when it was asked for.
        workdir_writable: armload's folder exists, or could be made, and can be written.
        workdir_executable: programs in it may be run.
        workdir_obstacle: why not, where that is known.
        conditions: its state.
        rates: what was measured in its present boot.
    """

    device: str = ""
    machine: str
    cpu_features: tuple[str, ...]
    cores: int
    clusters: tuple[FoundCluster, ...]
    nodes: tuple[NumaNode, ...] = ()
    max_khz: tuple[int, ...] = ()
    tools: tuple[str, ...] = ()
    workdir_writable: bool
    workdir_executable: bool
    workdir_obstacle: WriteError | None = None
    conditions: Conditions
    rates: Rates = Rates()
    vulkan: Vulkan = Vulkan()
    transports: tuple[TransportChoice, ...] = ()

    @property
    def usual_clusters(self) -> tuple[FoundCluster, ...]:
        """The clusters with only those cores that a program runs on unless it asks for others."""
        usual = {*self.conditions.usual_cores}
        its_own = (
            (each, tuple(number for number in each.numbers if number in usual))
            for each in self.clusters
        )
        return tuple(
            each.model_copy(update={"numbers": numbers, "cores": len(numbers)})
            for each, numbers in its_own
            if numbers
        )

    @property
    def fast_clusters(self) -> tuple[FoundCluster, ...]:
        """The clusters without little cores, of a board that has both; empty for one kind.

        Cores that a program does not usually run on are left out.
        """
        usual = self.usual_clusters
        fast = tuple(each for each in usual if not each.is_little)
        return fast if len(fast) < len(usual) else ()

    @property
    def is_limited(self) -> bool:
        """Whether affinity or a control group leaves a program less than all cores."""
        return self.conditions.usual_threads < self.cores


def clusters_of(found: Probe) -> tuple[CpuCluster, ...]:
    """Return the cores that a board shows; with their clock where all are of one kind."""
    clock = max(found.max_khz) // 1000 if found.max_khz and len(found.clusters) == 1 else None
    return tuple(
        CpuCluster(cores=each.cores, name=each.name, max_mhz=clock) for each in found.clusters
    )


def probe(host: Host, board: Board, progress: Progress | None = None) -> Probe:
    """Ask a board for all of it, and find out the ways to it."""
    script = probe_script(board)
    done = host.run(script)
    shown = parse_probe(done.stdout, board.name, done.stderr, sensors=board.sensors)
    found = as_programs_see_it(host, shown, progress or Silent())
    # Under a launcher the shell cannot start a program of ours.
    machine = "" if host.launcher else found.machine
    return found.model_copy(
        update={"transports": (*host.transports(), *tool_transports(found.tools, machine))}
    )


def as_programs_see_it(host: Host, found: Probe, progress: Progress) -> Probe:
    """Return a probe with the machine and the CPU features that programs meet on a host.

    They are those that were found, unless the host's launcher is an emulator.
    """
    if not host.launcher or (
        found.machine == "x86_64" and _asked_under_launcher(host, "x86_64", progress)
    ):
        return found
    names = _asked_under_launcher(host, "aarch64", progress)
    return found.model_copy(
        update={"machine": "aarch64" if names else found.machine, "cpu_features": names}
    )


def probe_script(board: Board) -> str:
    """Return the shell script whose output ``parse_probe`` reads."""
    values = {
        "workdir": board.workdir,
        "tools": (*TOOLS, *_SECOND_BEST),
        "inside": INSIDE,
        "trial_bytes": TRIAL_BYTES,
    }
    return render("board/probe.sh.j2", values)


_DENIED = re.compile(rb"(/proc/(?:uptime|loadavg|meminfo|cpuinfo)): Permission denied")


def parse_probe(
    output: bytes, board_name: str, errors: bytes = b"", *, sensors: Sequence[str] = ()
) -> Probe:
    """Read what the probing script wrote, and what its shell complained of.

    Args:
        sensors: names of the thermal zones that count; empty for all that make sense.
    """
    parts = parts_of(output.decode("utf-8", "replace"))
    if "end" not in parts:
        raise BoardError(
            f"{board_name}: the probing script stopped halfway: {reason(errors).rstrip('.')}.",
            f"It needs a POSIX shell and the usual tools: see {data_path('docs', 'boards.md')}.",
        )
    try:
        _, machine = parts["uname"][0].split()
        cores = cores_of(parts["proc"])
        now = _conditions(parts, cores, sensors)
        obstacle = read_obstacle(parts.get("obstacle", ()), parts["proc"])
        mount = workdir_mount(parts)
        if obstacle is None and mount is not None and "noexec" in mount.options:
            obstacle = WriteError(kind="noexec", where=mount.words, point=mount.point)
        highest = {n: each.max_khz for each in now.clusters for n in each.cores if each.max_khz}
        return Probe(
            device=" ".join(parts.get("device", ())).replace("\0", " ").strip(),
            machine=machine,
            cpu_features=common_features(cores),
            cores=len(cores),
            clusters=_clusters(cores, _capacities(parts.get("capacities", ())), highest),
            nodes=_nodes(parts.get("nodes", ())),
            max_khz=tuple(highest[number] for number in sorted(highest)),
            tools=tuple(parts["tools"]),
            workdir_writable="writable" in parts["workdir"],
            # It may have been mounted anew since a program was tried there.
            workdir_executable="executable" in parts["workdir"] and obstacle is None,
            workdir_obstacle=obstacle,
            conditions=now,
            rates=read_rates(parts.get("rates", ())),
            vulkan=read_vulkan(parts.get("vulkan", ())),
        )
    except (KeyError, ValueError, IndexError) as error:
        if denied := _DENIED.search(errors):
            raise BoardError(
                f"{board_name}: this user may not read {denied[1].decode()}, which tells the state "
                "of the board.",
                "Android keeps it from apps, and so from Termux: reach the device by adb instead "
                "(reach: {kind: adb}), or log in as root.",
            ) from error
        raise BoardError(
            f"{board_name}: /proc does not look like Linux: {error}.",
            "armload needs a board that runs Linux or OpenHarmony's Linux kernel.",
        ) from error


def read_state(output: bytes, sensors: Sequence[str]) -> Conditions | None:
    """Read what a run's script noted of the board's state; none when it is not whole.

    Args:
        sensors: as for ``parse_probe``.
    """
    parts = parts_of(output.decode("utf-8", "replace"))
    try:
        if "end" not in parts:
            return None
        return _conditions(parts, cores_of(parts["proc"]), sensors)
    except (KeyError, ValueError, IndexError):
        return None


def _conditions(
    parts: Mapping[str, list[str]], cores: list[dict[str, str]], sensors: Sequence[str]
) -> Conditions:
    return read_conditions(parts, [int(core["processor"]) for core in cores], sensors)


def _nodes(lines: Sequence[str]) -> tuple[NumaNode, ...]:
    """Read lines ``CORES;MEMORY_KIB``, cores as ``0-3,8``; nodes without cores hold memory only."""
    nodes = []
    for line in lines:
        cores, _, kib = line.partition(";")
        numbers = cpu_numbers(cores.strip()) if cores.strip() else ()
        nodes.append(NumaNode(cores=numbers, memory_bytes=int(kib or 0) * 1024))
    return tuple(nodes)


def _capacities(lines: Sequence[str]) -> dict[int, int]:
    """Read lines ``CORE CAPACITY``: the kernel's word of what a core achieves, of 1024."""
    found = {}
    for line in lines:
        core, _, capacity = line.partition(" ")
        number, of_1024 = whole_number(core), whole_number(capacity)
        if number is not None and of_1024:
            found[number] = of_1024
    return found


_LITTLE_CAPACITY, _LITTLE_CLOCK = 0.6, 0.8
"""Of the fastest cores' on a board: a Cortex-A55 beside a Cortex-A76 has some 0.4 and 0.78."""


def _clusters(
    cores: list[dict[str, str]], capacities: Mapping[int, int], highest_khz: Mapping[int, int]
) -> tuple[FoundCluster, ...]:
    kinds: dict[str, list[int]] = {}
    for core in cores:
        kinds.setdefault(core_name(core), []).append(int(core["processor"]))
    speeds, share = capacities, _LITTLE_CAPACITY
    # Without capacities, and beside little cores that are known, slower ones may be middle ones.
    if not all(n in capacities for numbers in kinds.values() for n in numbers):
        speeds = {} if any(map(is_little, kinds)) else highest_khz
        share = _LITTLE_CLOCK
    fastest = max(speeds.values(), default=0)

    def is_slow(numbers: Sequence[int]) -> bool:
        own = [speeds[each] for each in numbers if each in speeds]
        return bool(own) and max(own) < share * fastest

    little = {
        name: is_slow(numbers) if is_unnamed(name) else is_little(name)
        for name, numbers in kinds.items()
    }
    has_others = not all(little.values())
    return tuple(
        FoundCluster(
            cores=len(numbers),
            numbers=tuple(numbers),
            name=name,
            is_little=has_others and little[name],
        )
        for name, numbers in kinds.items()
    )
