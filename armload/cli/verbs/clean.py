"""``clean``: frees the space that the cache takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from armload.core.cache import CacheKind, Decision
    from armload.report.result import Result


class CacheOptions(OutputOptions):
    """What is removed."""

    what: Annotated[str, Option("kinds from the table to remove, comma-separated", "KINDS")] = (
        "builds"
    )
    yes: Annotated[bool, Option("remove without asking")] = False


@verb(CacheOptions)
def clean(options: CacheOptions) -> Generator[Result, None, None]:
    """Show what is in the cache, and remove unused items of the kinds you choose.

    Asks for confirmation first. Example: armload clean --what builds,sources
    """
    from armload.cli import terminal
    from armload.core.cache import decide, free_all, unknown
    from armload.core.values import format_bytes
    from armload.report.cache import cleaned_cache, kinds_table
    from armload.report.result import as_result

    progress = terminal.progress()
    kinds = _kinds()
    chosen = _chosen(options.what, kinds)
    with progress.step("Reading the cache"):
        every = [*kinds, unknown(kinds)]
    plan = decide(chosen)
    yield as_result(None, kinds_table(every, chosen))
    is_meant = _is_meant(plan, options.what, yes=options.yes)
    done = free_all(plan, progress) if is_meant else plan
    cleaned = cleaned_cache(every, done)
    yield as_result(cleaned, *([f"Freed {format_bytes(cleaned.freed_bytes)}."] if is_meant else []))
    _complain(done, options.what)


def _is_meant(plan: Sequence[Decision], what: str, *, yes: bool) -> bool:
    """Say what is removed and what is kept, and ask."""
    from armload.cli import terminal
    from armload.core.values import format_bytes

    say = terminal.progress().say
    for decision in plan:
        line = f"{decision.kind}: {decision.item.label}, {format_bytes(decision.item.size_bytes)}"
        say(f"kept    {line}: {decision.reason}" if decision.reason else f"remove  {line}")
    if all(decision.reason for decision in plan):
        say(f"Nothing to remove: {what}. Choose other kinds from the table with --what.")
        return False
    return yes or terminal.confirm(f"Free {_size(plan, 'goes')}?")


def _complain(done: Sequence[Decision], what: str) -> None:
    """Raise what kept things from being freed, other than being in use."""
    from armload.cli import terminal
    from armload.core.errors import ArmloadError, UsageError

    failed = [decision for decision in done if decision.fate == "failed"]
    if failed:
        raise ArmloadError(
            f"Not freed: {'; '.join(decision.reason for decision in failed)}.",
            "Change its permissions, or delete it as its owner.",
        )
    if any(decision.fate == "goes" for decision in done):
        if terminal.can_ask():  # and the answer was no
            terminal.progress().say("Nothing was freed.")
            return
        raise UsageError(
            "Nothing was freed: confirmation is needed, and there is no terminal to ask on.",
            f"To free {_size(done, 'goes')}: armload clean --what {what} --yes",
        )


def _size(decisions: Sequence[Decision], fate: str) -> str:
    from armload.core.values import format_bytes

    return format_bytes(
        sum(decision.item.size_bytes for decision in decisions if decision.fate == fate)
    )


def _chosen(what: str, kinds: Sequence[CacheKind]) -> list[CacheKind]:
    from armload.core.errors import UsageError
    from armload.core.near_names import did_you_mean

    by_name = {kind.name: kind for kind in kinds}
    names = [name.strip() for name in what.split(",") if name.strip()]
    for name in names or [what]:
        if name not in by_name:
            raise UsageError(
                f"--what {name}: there is no such kind.",
                f"{did_you_mean(name, by_name)}The kinds are {', '.join(by_name)}.",
            )
    return [by_name[name] for name in dict.fromkeys(names)]


def _kinds() -> list[CacheKind]:
    from armload.boards.virtual.cached import board_kinds
    from armload.build.cached import build_kinds
    from armload.conversion.cached import conversion_kinds
    from armload.conversion.checkpoints.installing import converter_kinds
    from armload.core.pictures import picture_files
    from armload.engines.embedding import text_files
    from armload.fleet.files import received_files
    from armload.models.find import model_kinds
    from armload.report.cache import report_kinds

    return [
        *build_kinds(),
        *model_kinds(),
        *conversion_kinds(),
        *converter_kinds(),
        *report_kinds(),
        picture_files(),
        text_files(),
        *board_kinds(),
        received_files(),
    ]
