"""Boards as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import assert_never

from rich.console import Group
from rich.text import Text

from armload.boards.board import (
    AdbReach,
    Board,
    HdcReach,
    LocalReach,
    SshAddress,
    SshReach,
    VirtualReach,
)
from armload.boards.boot import BootFacts
from armload.boards.conditions import Conditions, within_group
from armload.boards.contradictions import Contradiction, contradictions
from armload.boards.hardware import Hardware, sold_size
from armload.boards.power import PowerAnswer
from armload.boards.probe import Probe
from armload.boards.rates import Rates
from armload.core.columns import Column
from armload.core.values import Value, format_bytes
from armload.deploy.claims import Claim
from armload.deploy.clean import BoardItem, Cleaned
from armload.deploy.compatibility import targets_that_suit
from armload.deploy.rates import Missing
from armload.report import formatting as words
from armload.report.board_state import (
    boot_line,
    clusters_line,
    cpu_access_line,
    device_clocks_line,
    nodes_line,
    sensors_line,
    throttling_words,
    vulkan_line,
)
from armload.report.layout import Details, Prose, Table, whole
from armload.report.result import Aside, Part

_BESIDE_OTHERS = ", while other programs were busy: may be too low"


class ProbedBoard(Probe):
    """What a board answered.

    Attributes:
        target_misfit: why its target does not suit it; empty where it does.
        rates_missing: why there is no rate of memory or storage.
        in_use_by: who uses it.
        contradictions: what its file declares and it shows otherwise.
        power: what its power meter shows; none where its file names none.
        boot: what starts programs when it boots.
    """

    target_misfit: str
    rates_missing: Missing
    in_use_by: tuple[Claim, ...]
    contradictions: tuple[Contradiction, ...] = ()
    power: PowerAnswer | None = None
    boot: BootFacts


class AddedBoard(Value):
    """A board that has a file now.

    Attributes:
        board: what the file says.
        path: of the file.
        device: what it calls itself; empty where it does not.
        contradictions: what its hardware declares and it shows otherwise.
    """

    board: Board
    path: Path
    device: str
    contradictions: tuple[Contradiction, ...]


def added_sentence(added: AddedBoard) -> str:
    """Say what was added, and where its file is."""
    board = added.board
    what = added.device or "an unnamed device"
    known = f"{board.hardware} in the catalogue" if board.hardware else "not in the catalogue"
    return (
        f"{board.name} is {what} ({known}). Programs for it are compiled for {board.target}. "
        f"Written: {added.path}"
    )


def added_view(added: AddedBoard) -> Iterator[Part]:
    """Yield what was added, and what its hardware's declaration has otherwise."""
    yield added_sentence(added)
    for line in contradiction_lines(added.contradictions):
        yield Aside(text=line)


class ListedBoard(Board):
    """A board in a list.

    Attributes:
        is_running: a virtual board is on; none for a real one, and where that cannot be seen.
        is_default: ``bench`` uses it without ``--board``.
        is_shipped: its file comes with armload.
    """

    is_running: bool | None
    is_default: bool
    is_shipped: bool


class StoppedBoard(Value):
    """Whether a virtual board was up before it was stopped."""

    was_up: bool

    def sentence(self, board: str) -> str:
        return f"{board} {'is stopped.' if self.was_up else 'was not running.'}"


def running_line(board: str, address: SshAddress) -> Text:
    """Say how to log in to a virtual board."""
    login = f"ssh -p {address.port} -i {address.key} {address.user}@{address.host}"
    return whole(f"{board} is running: {login}")


def released_lines(board: str, ended: Sequence[Claim]) -> list[str]:
    """Say which leases have ended."""
    return [f"Released: {each.words}." for each in ended] or [f"{board} is not in use."]


def cleaned_view(board: str, done: Cleaned) -> Iterator[Part]:
    """Yield what was removed from a board."""
    if not done.removed:
        yield f"There is nothing to remove on {board}."
        return
    yield contents_table(done.removed)
    yield f"Removed; {format_bytes(done.freed_bytes)} freed on {board}."


def boards_view(boards: Sequence[ListedBoard]) -> Group:
    """Lay out boards, and which of them come with armload."""
    shipped = [board for board in boards if board.is_shipped]
    if not shipped:
        return Group(boards_table(boards))
    examples = [board.name for board in shipped if isinstance(board.reach, SshReach)]
    example = f" ({' and '.join(examples)}: examples of files for real boards)" if examples else ""
    note = f"From armload: {', '.join(board.name for board in shipped)}{example}."
    return Group(boards_table(boards), Text(""), Prose(note))


def boards_table(boards: Sequence[ListedBoard]) -> Table:
    """Lay out what each board's file says, and which virtual ones run."""
    return Table.of(_BOARD, boards)


def hardware_table(entries: Sequence[Hardware]) -> Table:
    """Lay out the catalogue."""
    return Table.of(_HARDWARE, entries)


def _rate(bytes_per_s: int) -> str:
    return f"{format_bytes(bytes_per_s)}/s"


def contradiction_lines(found: Sequence[Contradiction]) -> list[str]:
    """Say what is declared and what was found instead, a line each."""
    return [f"{each.fact}: declared {each.declared}, found {each.found}" for each in found]


def _state(board: ListedBoard) -> Text:
    if board.is_running is None:
        return Text("")
    return Text("running", style="green") if board.is_running else Text("off")


def _reached_by(board: Board) -> str:
    reach = board.reach
    match reach:
        case SshReach():
            return f"ssh {reach.host}"
        case LocalReach():
            return f"this machine, {reach.launcher[0]}" if reach.launcher else "this machine"
        case HdcReach():
            return f"hdc {reach.key or ''}".rstrip()
        case AdbReach():
            return f"adb {reach.serial or ''}".rstrip()
        case VirtualReach():
            return "QEMU machine"
        case _:
            assert_never(reach)


_BOARD: tuple[Column[ListedBoard], ...] = (
    Column(
        heading="board",
        of=lambda each: Text.assemble((each.name, "bold"), " (default)" if each.is_default else ""),
    ),
    Column(heading="target", of=lambda each: each.target),
    Column(heading="labels", of=lambda each: ", ".join(each.labels), is_optional=True),
    Column(heading="reached by", of=_reached_by, below=""),
    Column(heading="state", of=_state, is_optional=True),
    Column(heading="description", of=lambda each: each.description, is_prose=True, below=""),
)
_HARDWARE: tuple[Column[Hardware], ...] = (
    Column(heading="hardware", of=lambda each: each.name, below="", style="bold"),
    Column(heading="chip", of=lambda each: each.soc),
    Column(
        heading="cores",
        of=lambda each: ", ".join(f"{cluster.cores} {cluster.name}" for cluster in each.clusters),
        is_prose=True,
        below="",
    ),
    Column(heading="memory", of=lambda each: ", ".join(map(sold_size, each.memory_sizes)) or None),
    Column(heading="one core\ncopies", of=lambda each: each.memory_copy_bytes_per_s, write=_rate),
    Column(heading="all cores\nread", of=lambda each: each.memory_bytes_per_s, write=_rate),
    Column(heading="target", of=lambda each: each.target),
)
_CONTENTS: tuple[Column[BoardItem], ...] = (
    Column(heading="what", of=lambda each: each.kind),
    Column(heading="size", of=lambda each: each.size_bytes, write=format_bytes),
    Column(
        heading="state",
        of=lambda each: (
            each.state if each.used_days is None else f"{each.state} for {each.used_days:.0f} days"
        ),
    ),
    Column(heading="name", of=lambda each: whole(each.name.name), below=""),
)


def contents_table(entries: Sequence[BoardItem]) -> Table:
    """Lay out what takes room on a board."""
    return Table.of(_CONTENTS, entries)


def probe_view(board: Board, found: Probe, probed: ProbedBoard) -> Iterator[Part]:
    """Yield what a board answered, and what has to be put right there or in its file.

    Args:
        found: in it.
    """
    in_use = ", ".join(user.words for user in probed.in_use_by)
    missing = probed.rates_missing
    yield probe_table(board, found, missing, in_use=in_use, power=probed.power, boot=probed.boot)
    if (obstacle := found.workdir_obstacle) is not None:
        yield Aside(text=f"{obstacle.words}. {obstacle.remedy(board.name)}")
    if probed.target_misfit:
        fitting = ", ".join(targets_that_suit(board, found)) or "none"
        yield Aside(
            text=f"{board.name}: {probed.target_misfit} Targets that suit it: {fitting}; set one "
            f"as 'target' in boards/{board.name}.yaml."
        )


def probe_table(
    board: Board,
    found: Probe,
    missing: Missing,
    *,
    in_use: str,
    power: PowerAnswer | None = None,
    boot: BootFacts | None = None,
) -> Details:
    """Lay out what a board answered, why it has no rates, and who uses it."""
    rows = _probe_rows(board, found, missing)
    if power is not None:
        rows.append(("power", power.words))
    if boot is not None:
        rows.append(("services at boot", boot_line(boot)))
    if lines := contradiction_lines(contradictions(board, found)):
        rows.append(("contradictions", "; ".join(lines)))
    return Details([*rows, ("in use by", in_use or "nobody")])


def _swap(now: Conditions) -> str:
    if not now.swap_total_bytes:
        return "no swap"
    used = f"{format_bytes(now.swap_used_bytes)} of {format_bytes(now.swap_total_bytes)} swapped"
    if not now.zram_total_bytes:
        return used
    return f"{used} ({format_bytes(now.zram_total_bytes)} of it zram: compressed memory)"


def _probe_rows(board: Board, found: Probe, missing: Missing) -> list[tuple[str, str]]:
    now = found.conditions
    cores = ", ".join(f"{cluster.cores} {cluster.name}" for cluster in found.clusters)
    if found.max_khz:
        cores += f", up to {max(found.max_khz) / 1e6:.1f} GHz"
    if may := cpu_access_line(now):
        cores += f"; {may}"
    folder = "ready"
    if not found.workdir_writable:
        folder = "not writable"
    elif not found.workdir_executable:
        folder = "programs in it cannot be executed"
    if found.workdir_obstacle is not None:
        folder += f" ({found.workdir_obstacle.words})"
    memory = (
        f"{format_bytes(now.memory_available_bytes)} available of "
        f"{format_bytes(now.memory_total_bytes)}{within_group(now)}, {_swap(now)}"
    )
    rows = [
        ("board", f"{board.name} (target {board.target})"),
        *([("device", found.device)] if found.device else []),
        *([("hardware", board.hardware)] if board.hardware else []),
        ("machine", f"{found.machine}, Linux {now.kernel}, up {words.duration(now.uptime_s)}"),
        ("cores", cores),
        *([("NUMA nodes", nodes_line(found.nodes))] if len(found.nodes) > 1 else []),
        ("CPU features", _features_line(found.cpu_features)),
        ("memory", memory),
        ("memory bandwidth", _memory_rate(board, found.rates, missing.memory)),
        (
            "folder",
            f"{board.workdir}: {folder}, {_free_space(now)}",
        ),
        ("storage bandwidth", _storage_rate(board, found.rates, missing.storage)),
        ("load average", f"{now.load_1min:.2f}"),
    ]
    if clusters_line(now):
        rows.append(("frequencies", clusters_line(now)))
    if now.device_clocks:
        rows.append(("device clocks", device_clocks_line(now)))
    if now.sensors:
        rows.append(("temperature", sensors_line(now)))
    absent = [name for name in board.sensors if name not in {each.name for each in now.sensors}]
    if absent:
        rows.append(("sensors not found", ", ".join(absent)))
    if throttling_words(now.throttling):
        rows.append(("throttling", throttling_words(now.throttling)))
    if not board.launcher:  # the shell sees this machine then
        rows.append(("Vulkan", vulkan_line(found.vulkan)))
    rows += [
        (transport.purpose, f"{transport.chosen} ({transport.reason})")
        for transport in found.transports
        if transport.purpose in _SHOWN_TRANSPORTS
    ]
    return rows


_SHOWN_TRANSPORTS = frozenset({"commands", "bulk data", "port forwarding", "encryption"})
"""The others, and tools, matter to armload alone; ``--json`` has them."""

_MOST_FEATURES = 40
"""Of an ARM CPU; those of x86-64 have a hundred, which nobody reads."""


def _features_line(features: Sequence[str]) -> str:
    if len(features) > _MOST_FEATURES:
        return f"{len(features)}, listed by --json"
    return " ".join(features)


def _free_space(now: Conditions) -> str:
    free = now.workdir_free_bytes
    room = "free space unknown" if free is None else f"{format_bytes(free)} free"
    system = now.workdir_filesystem or "unknown file system"
    in_memory = ": in memory, and lost on a restart" if now.workdir_in_memory else ""
    return f"{room} ({system}{in_memory})"


def _memory_rate(board: Board, rates: Rates, why_not: str) -> str:
    if rates.memory_bytes_per_s:
        return (
            f"{format_bytes(rates.memory_bytes_per_s)}/s, measured in this boot with "
            f"{words.counted(rates.memory_threads, 'thread')}"
            f"{words.at_clock(rates.memory_clock_hz)}"
            f"{'' if rates.memory_is_settled else _BESIDE_OTHERS}"
        )
    copied = board.facts.memory_copy_bytes_per_s
    if copied and not board.facts.memory_bytes_per_s:
        return f"{format_bytes(copied)}/s copied by one core, declared"
    return _declared(board.facts.memory_bytes_per_s, why_not)


def _storage_rate(board: Board, rates: Rates, why_not: str) -> str:
    if rates.storage_read_bytes_per_s:
        beside = "" if rates.storage_is_settled else _BESIDE_OTHERS
        rate = format_bytes(rates.storage_read_bytes_per_s)
        return f"{rate}/s, measured in this boot {_way_of_reading(rates)}{beside}"
    return _declared(board.facts.storage_read_bytes_per_s, why_not)


def _way_of_reading(rates: Rates) -> str:
    other = rates.storage_other_way_bytes_per_s
    other_rate = f"{format_bytes(other)}/s" if other else ""
    if rates.storage_way == "direct":
        how = "with direct I/O"
        return f"{how} (through the page cache: {other_rate})" if other else how
    why = f"direct I/O: {other_rate}" if other else "no direct I/O there"
    return f"through the page cache ({why})"


def _declared(count: int | None, why_not: str) -> str:
    return f"{format_bytes(count)}/s, declared" if count else f"unknown: {why_not}"
