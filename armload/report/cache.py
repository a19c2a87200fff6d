"""What lies in the cache, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from armload.build.cached import CachedBuild
from armload.core.cache import CacheKind, Decision, Fate
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
    return Table.of(_BUILD, builds)


def builds_view(builds: Sequence[CachedBuild]) -> Part:
    """Lay out builds, or say how to make the first."""
    if not builds:
        return Aside(text="Nothing has been built yet. Start with: armload build")
    return builds_table(builds)


def _described(build: CachedBuild) -> Text:
    state = Text(build.state, style=_STYLES[build.state])
    said = _programs_of(build) if build.programs else build.reason
    return Text.assemble(state, ": ", said) if said else state


def _programs_of(build: CachedBuild) -> str:
    one = build.programs[0]
    programs = ", ".join(program.program for program in build.programs)
    prebuilt = [
        f"{program.program} prebuilt in {program.prebuilt_in}"
        for program in build.programs
        if program.prebuilt_in
    ]
    return f"{programs} ({', '.join([one.source, one.compiler, *prebuilt])})"


_BUILD: tuple[Column[CachedBuild], ...] = (
    Column(heading="build", of=lambda each: each.build_id, style="bold"),
    Column(heading="target", of=lambda each: each.programs[0].target if each.programs else None),
    Column(heading="size", of=lambda each: each.size_bytes, write=format_bytes),
    Column(heading="when (UTC)", of=lambda each: words.minute(each.when_utc)),
    Column(heading="description", of=_described, is_prose=True, below=""),
)


def kinds_table(kinds: Sequence[CacheKind], chosen: Sequence[CacheKind]) -> Table:
    """Lay out the kinds of files in the cache, those to be freed in bold."""
    columns: tuple[Column[CacheKind], ...] = (
        Column(
            heading="kind",
            of=lambda kind: Text(kind.name, style="bold" if kind in chosen else ""),
        ),
        Column(heading="size", of=lambda kind: kind.size_bytes, write=format_bytes),
        Column(heading="contents", of=lambda kind: kind.what, is_prose=True),
        Column(
            heading="cost to restore",
            of=lambda kind: kind.again,
            is_prose=True,
            below="cost to restore: ",
        ),
    )
    return Table.of(columns, [kind for kind in kinds if kind.items or kind in chosen])


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
        ),
    )
