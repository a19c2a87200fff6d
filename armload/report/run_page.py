"""One run as a page that opens anywhere, without a network."""

from __future__ import annotations

from pathlib import Path

from armload.analysis.figures import FIGURES
from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.core.columns import Column
from armload.core.files import write_whole
from armload.deploy.layout import PROGRAM_FOLDER
from armload.engines.trace import Step
from armload.report import formatting as words
from armload.report import run_words
from armload.report.board_state import (
    clock_use_line,
    clocks_line,
    clusters_line,
    cpu_access_line,
    device_clocks_line,
    sensors_line,
    throttling_words,
)
from armload.report.cells import cells_of
from armload.report.drawing import png
from armload.report.figures.board_activity import members_over_time, power_over_tokens
from armload.report.figures.free_memory import free_memory
from armload.report.figures.memory import memory_parts
from armload.report.figures.over_time import tokens as tokens_figure
from armload.report.figures.storage_wait import storage_wait
from armload.report.layout import Table
from armload.report.pages import PAGE_NAME, Page
from armload.report.run_facts import facts, stage_table
from armload.report.speculation import gain_lines, speculation_line

PICTURE_NAME = "tokens.png"
SLOWEST_SHOWN = 5


def write_picture(run: Run, folder: Path) -> Path | None:
    """Write the picture of a run's tokens into its folder; none without times per token."""
    picture = folder / PICTURE_NAME
    tokens = tokens_figure(run)
    if tokens is None:
        picture.unlink(missing_ok=True)
        return None
    write_whole(picture, png(tokens.specification))
    return picture


def run_page(run: Run, folder: Path | None = None) -> Page:
    """Return the page of one run.

    Args:
        folder: of the files beside the page to link to.
    """
    cells = cells_of([run])
    figures = (
        tokens_figure(run),
        power_over_tokens(run),
        members_over_time(run),
        storage_wait(cells),
        memory_parts(cells),
        free_memory(cells),
    )
    raw_files: list[str] = []
    if folder:
        raw_files = sorted(
            str(path.relative_to(folder))
            for path in [*folder.iterdir(), *(folder / PROGRAM_FOLDER).rglob("*")]
            if path.is_file() and path.name != PAGE_NAME and not path.name.startswith(".")
        )
    has_figures = bool(run.steps or run.summary.decode_tps)
    has_any = has_figures or run.result
    warning = "Do not rely on these figures." if has_any else "This run has no figures."
    speculation, slow = speculation_line(run), run_words.slow_tokens(run)
    return Page(
        template="run_page.html.j2",
        headline=run_words.headline(run),
        version=run.armload,
        figures=[figure for figure in figures if figure],
        shown={
            "run": run,
            "model": run_words.model_line(run),
            "board": f"{run_words.board_line(run)}, {run_words.started(run)}",
            "doubts": () if run.verdict.valid else (warning, *run.verdict.reasons),
            "tiles": _tiles(run) if has_figures else (),
            "limit": run_words.limit_sentence(run) if has_figures else "",
            "advice": run_words.advice(run),
            "speculation": (f"{speculation}.", *gain_lines(run)) if speculation else (),
            "stages": stage_table(run),
            "slow": f"Slow tokens: {slow}." if slow else "",
            "slowest": _slowest(run),
            "reference": run_words.reference_line(run),
            "conditions": _conditions(run),
            "meanwhile": _meanwhile(run),
            "facts": _what_ran(run),
            "command": run_words.command(run),
            "raw_files": raw_files,
        },
    )


def _slowest(run: Run) -> Table | None:
    """Return a table of the slowest tokens; none without a token."""
    numbered: list[tuple[int, Step]] = []
    number = 1
    for step in generating(run.steps):
        number += step.output_tokens
        numbered.append((number, step))
    numbered.sort(key=lambda each: each[1].duration_s / each[1].output_tokens, reverse=True)
    slowest, causes = numbered[:SLOWEST_SHOWN], run_words.causes_of(run)
    if not slowest:
        return None
    headings = ["output token", "time", "read from storage", "major faults", "CPU / wall time"]
    headings.append("preemptions")
    has_cause = any(step.step in causes for _, step in slowest)
    table = Table(
        *(Column(heading=heading, is_number=True) for heading in headings),
        *([Column(heading="cause")] if has_cause else []),
    )
    for number, step in slowest:
        share = step.cpu_ns / 1e9 / step.duration_s if step.duration_s else None
        preempted = step.involuntary_switches
        table.add(
            str(number),
            words.seconds(step.duration_s / step.output_tokens),
            words.size(step.read_bytes),
            str(step.major_faults),
            words.UNKNOWN if share is None else f"{share:.2f}",
            words.UNKNOWN if preempted is None else str(preempted),
            *([causes.get(step.step, words.UNKNOWN)] if has_cause else []),
        )
    return table


def _conditions(run: Run) -> Table:
    found = [run.before, run.after] if run.after else [run.before]
    before, unknown = run.before, words.UNKNOWN
    table = Table(
        Column(heading=""),
        *(
            Column(heading=heading, is_number=True)
            for heading, _ in zip(("before", "after"), found, strict=False)
        ),
    )
    table.add("memory available", *(words.size(each.memory_available_bytes) for each in found))
    if before.memory_limit_bytes is not None:
        table.add("control group limit", *(words.size(each.memory_limit_bytes) for each in found))
    table.add("total memory", *(words.size(each.memory_total_bytes) for each in found))
    table.add("swap in use", *(words.size(each.swap_used_bytes) for each in found))
    if before.swap_total_bytes is not None:
        table.add("total swap", *(words.size(each.swap_total_bytes) for each in found))
    table.add("free in the work folder", *(words.size(each.workdir_free_bytes) for each in found))
    system = (each.workdir_filesystem or unknown for each in found)
    table.add("file system of the work folder", *system)
    table.add("load (1 min)", *(f"{each.load_1min:.2f}" for each in found))
    table.add("uptime", *(words.duration(each.uptime_s) for each in found))
    if before.celsius is not None:
        warmth = (each.celsius for each in found)
        table.add("hottest sensor", *(unknown if c is None else f"{c:.0f} °C" for c in warmth))
    if len(before.sensors) > 1:
        table.add("sensors", *(sensors_line(each) or unknown for each in found))
    if before.throttling:
        table.add("throttling", *(throttling_words(each.throttling) or unknown for each in found))
    if clusters_line(before):
        table.add("frequencies", *(clusters_line(each) or unknown for each in found))
    elif before.governors:
        table.add("governor", *(", ".join(each.governors) for each in found))
    if before.device_clocks:
        table.add("device clocks", *(device_clocks_line(each) or unknown for each in found))
    if cpu_access_line(before):
        table.add("cores", *(cpu_access_line(each) or "all" for each in found))
    table.add("kernel", *(each.kernel for each in found))
    return table


def _meanwhile(run: Run) -> list[tuple[str, str]]:
    """Return what is known of the board during the run."""
    swapped, board, said = run.swapped, run.board, ""
    if swapped and (swapped.out_bytes or swapped.in_bytes):
        said = f"{words.size(swapped.out_bytes)} out, {words.size(swapped.in_bytes)} in"
        if in_zram := swapped.zram_out_bytes + swapped.zram_in_bytes:
            said += f"; {words.size(in_zram)} of it zram"
    found = (
        ("conditions set", run_words.setting_line(run)),
        ("measured frequencies", clocks_line(run.clocks)),
        ("device clocks", clock_use_line(run.device_clocks)),
        ("background processes", run_words.background_line(run)),
        ("swapped during the run", said),
        (
            "memory bandwidth",
            words.known_rate(board.memory_bytes_per_s, board.memory_rate)
            + words.at_clock(board.memory_clock_hz),
        ),
        (
            "storage bandwidth",
            words.known_rate(board.storage_read_bytes_per_s, board.storage_read_rate),
        ),
    )
    return [(label, value) for label, value in found if value]


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    """Return the figures that a reader sees first, with their labels and units."""
    table = Table.of(FIGURES, [run])
    return [
        (column.heading, str(entry.text), "" if entry.number is None else column.unit)
        for column, entry in zip(table.columns, table.rows[0].entries, strict=True)
    ]


def _what_ran(run: Run) -> list[tuple[str, str]]:
    model, binary = run.model, run.binary
    decoding = ""
    if run.trace and run.trace.threads:
        decoding = f", decoding with {words.counted(run.trace.threads, 'thread')}"
    read = model.bytes_per_token
    kv = model.context_memory.bytes_per_token if model.context_memory else None
    rows = [
        ("run", run.id),
        ("exit", run.exit.meaning),
        *(
            ("" if number else label, line)
            for label, value in facts(run)
            for number, line in enumerate(value.split("\n"))
        ),
        ("cores", f"{run.board.cores}{decoding}"),
        ("CPU features", " ".join(run.board.cpu_features) or words.UNKNOWN),
        ("binary's SHA-256", binary.sha256),
        ("model's SHA-256", model.sha256),
        ("projector's SHA-256", run.projector.sha256 if run.projector else ""),
        ("weights per token", "" if read is None else words.size(read)),
        ("KV cache per token", "" if kv is None else words.size(kv)),
        *(
            ("" if number else "files of --put", f"{each.name}, {words.size(each.size_bytes)}")
            for number, each in enumerate(run.watched.files if run.watched else ())
        ),
    ]
    return [(label, value) for label, value in rows if value]
