"""What lies in the cache, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from armload.build.cached import CachedBuild
from armload.core.cache import CacheKind, Decision, Fate, items_of
from armload.core.columns import Column
from armload.core.values import Value, format_bytes
from armload.report import formatting as words
from armload.report.layout import Table
from armload.report.result import Aside, Part

_STYLES = {"finished": "green", "under way": "cyan", "unfinished": "yellow", "unreadable": "red"}


class KindSize(Value):
    """How much room a kind takes, before anything was freed."""

    kind: str
    size_bytes: int


class CleanedItem(Value):
    """What became of an item, as ``Decision`` has it."""

    kind: str
    label: str
    paths: tuple[Path, ...]
    size_bytes: int
    fate: Fate
    reason: str


class CleanedCache(Value):
    """What the cache held, and what was freed of it."""

    freed_bytes: int
    kinds: tuple[KindSize, ...]
    items: tuple[CleanedItem, ...]


def builds_table(builds: Sequence[CachedBuild]) -> Table:
    """Lay out builds, one a line."""
    table = Table(
        Column(heading="build"),
        Column(heading="target"),
        Column(heading="size", is_number=True),
        Column(heading="when (UTC)"),
        Column(heading="description", is_prose=True, below=""),
    )
    for build in builds:
        state = Text(build.state, style=_STYLES[build.state])
        programs_there = _programs_of(build)
        table.add(
            Text(build.build_id, style="bold"),
            build.programs[0].target if build.programs else "-",
            format_bytes(build.size_bytes),
            words.minute(build.when_utc),
            Text.assemble(state, ": ", programs_there) if programs_there else state,
        )
    return table


def builds_view(builds: Sequence[CachedBuild]) -> Part:
    """Lay out builds, or say how to make the first."""
    if not builds:
        return Aside(text="Nothing has been built yet. Start with: armload build")
    return builds_table(builds)


def _programs_of(build: CachedBuild) -> str:
    if not build.programs:
        return build.reason
    one = build.programs[0]
    programs = ", ".join(program.program for program in build.programs)
    prebuilt = [
        f"{program.program} prebuilt in {program.prebuilt_in}"
        for program in build.programs
        if program.prebuilt_in
    ]
    return f"{programs} ({', '.join([one.source, one.compiler, *prebuilt])})"


def kinds_table(kinds: Sequence[CacheKind], chosen: Sequence[CacheKind]) -> Table:
    """Lay out the kinds of files in the cache, those to be freed in bold."""
    table = Table(
        Column(heading="kind"),
        Column(heading="size", is_number=True),
        Column(heading="contents", is_prose=True),
        Column(heading="cost to restore", is_prose=True, below="cost to restore: "),
    )
    for kind in kinds:
        if kind.items or kind in chosen:
            table.add(
                Text(kind.name, style="bold" if kind in chosen else ""),
                format_bytes(kind.size_bytes),
                kind.what,
                kind.again,
            )
    return table


def cleaned_cache(kinds: Sequence[CacheKind], decisions: Sequence[Decision]) -> CleanedCache:
    """Return the kinds with their sizes, and what became of each item chosen."""
    items = tuple(
        CleanedItem(
            kind=decision.kind,
            label=decision.item.label,
            paths=decision.item.paths,
            size_bytes=decision.item.size_bytes,
            fate=decision.fate,
            reason=decision.reason,
        )
        for decision in decisions
    )
    return CleanedCache(
        freed_bytes=sum(item.size_bytes for item in items if item.fate == "freed"),
        kinds=tuple(KindSize(kind=kind.name, size_bytes=kind.size_bytes) for kind in kinds),
        items=items,
    )


def report_kinds() -> tuple[CacheKind, ...]:
    """Return the charting libraries that pages carry."""
    return (
        CacheKind(
            name="vega",
            what="the pages' charting libraries",
            again="a second",
            items=items_of("vega"),
        ),
    )
