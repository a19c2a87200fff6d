"""Boards as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.boards.board import Board, HdcReach, LocalReach, SshReach, VirtualReach
from armload.boards.probe import TOOLS, Probe
from armload.boards.rates import Rates
from armload.core.values import format_bytes
from armload.deploy.clean import Entry
from armload.report import words

_BESIDE_OTHERS = ", while other programs were busy: it may give more"

if TYPE_CHECKING:
    from rich.table import Table


def boards_table(boards: Sequence[Board]) -> Table:
    """Lay out what each board's file says."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("board", "target", "reached by", "what it is"):
        table.add_column(heading, overflow="fold")
    for board in boards:
        table.add_row(
            Text(board.name, style="bold"),
            board.target,
            Text(_reached_by(board)),
            Text(board.description),
        )
    return table


def _reached_by(board: Board) -> str:
    reach = board.reach
    if isinstance(reach, SshReach):
        return f"ssh {reach.host}"
    if isinstance(reach, LocalReach):
        return "this machine"
    if isinstance(reach, HdcReach):
        return f"hdc {reach.key or ''}".rstrip()
    return "QEMU machine" if isinstance(reach, VirtualReach) else "qemu-user"


def contents_table(entries: Sequence[Entry]) -> Table:
    """Lay out what takes room on a board."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for entry in entries:
        days = "" if entry.used_days is None else f" for {entry.used_days:.0f} days"
        size = "-" if entry.size_bytes is None else format_bytes(entry.size_bytes)
        table.add_row(entry.kind, Text(entry.name.name), size, f"{entry.state}{days}")
    return table


def probe_table(board: Board, found: Probe, *, in_use: str) -> Table:
    """Lay out what a board answered, and who uses it."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in _probe_rows(board, found):
        table.add_row(label, Text(value))
    table.add_row("in use by", Text(in_use or "nobody"))
    return table


def _probe_rows(board: Board, found: Probe) -> list[tuple[str, str]]:
    now = found.conditions
    cores = ", ".join(f"{cluster.cores} {cluster.name}" for cluster in found.clusters)
    if found.max_khz:
        cores += f", up to {max(found.max_khz) / 1e6:.1f} GHz"
    swap = f"{format_bytes(now.swap_used_bytes)} of {format_bytes(now.swap_total_bytes or 0)}"
    lacking = [tool for tool in TOOLS if tool not in found.tools]
    folder = "ready"
    if not found.workdir_writable:
        folder = "cannot be written"
    elif not found.workdir_executable:
        folder = "programs in it cannot be run"
    memory = (
        f"{format_bytes(now.memory_available_bytes)} available of "
        f"{format_bytes(now.memory_total_bytes)}, {swap} swapped"
    )
    rows = [
        ("board", f"{board.name} (target {board.target})"),
        ("machine", f"{found.machine}, Linux {now.kernel}, up {words.duration(now.uptime_s)}"),
        ("cores", cores),
        ("CPU features", " ".join(found.cpu_features)),
        ("memory", memory),
        ("memory gives", _memory_rate(board, found.rates)),
        (
            "folder",
            f"{board.workdir}: {folder}, {format_bytes(now.workdir_free_bytes)} free"
            + (f" ({now.workdir_filesystem})" if now.workdir_filesystem else ""),
        ),
        ("storage gives", _storage_rate(board, found.rates)),
        ("load", f"{now.load_1min:.2f}"),
    ]
    if words.clusters_line(now):
        rows.append(("frequencies", words.clusters_line(now)))
    if now.sensors:
        rows.append(("temperature", words.sensors_line(now)))
    rows.append(("tools lacking", ", ".join(lacking) if lacking else "none"))
    rows += [(way.purpose, f"{way.chosen} ({way.reason})") for way in found.ways]
    return rows


def _memory_rate(board: Board, rates: Rates) -> str:
    if rates.memory_bytes_per_s:
        return (
            f"{format_bytes(rates.memory_bytes_per_s)}/s, measured in this boot with "
            f"{rates.memory_threads} thread{'s' if rates.memory_threads != 1 else ''}"
            f"{'' if rates.memory_is_settled else _BESIDE_OTHERS}"
        )
    return _declared(board.facts.memory_bytes_per_s)


def _storage_rate(board: Board, rates: Rates) -> str:
    if rates.storage_read_bytes_per_s:
        how = "" if rates.storage_way == "direct" else ", through the page cache"
        beside = "" if rates.storage_is_settled else _BESIDE_OTHERS
        rate = format_bytes(rates.storage_read_bytes_per_s)
        return f"{rate}/s, measured in this boot{how}{beside}"
    return _declared(board.facts.storage_read_bytes_per_s)


def _declared(count: int | None) -> str:
    return f"{format_bytes(count)}/s, declared" if count else "not known"
