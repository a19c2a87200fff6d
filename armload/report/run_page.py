"""One run as a page that opens anywhere, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from armload.analysis.conditions_log import Swapped
from armload.analysis.figures import FIGURES
from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.core.columns import Column
from armload.core.files import write_whole
from armload.deploy.layout import PROGRAM_FOLDER
from armload.engines.trace import Step
from armload.report import formatting as words
from armload.report import run_words
from armload.report.board_state import clocks_line, clusters_line, sensors_line, throttling_line
from armload.report.cells import cells_of
from armload.report.drawing import png
from armload.report.figures.free_memory import free_memory
from armload.report.figures.members import members_over_time
from armload.report.figures.memory import memory_parts
from armload.report.figures.over_time import tokens as tokens_figure
from armload.report.figures.power import power_over_tokens
from armload.report.figures.storage_wait import storage_wait
from armload.report.layout import Details, Table
from armload.report.pages import (
    PAGE_NAME,
    Block,
    Items,
    Notice,
    Page,
    Section,
    figure_section,
    html,
    paragraphs,
    verdict,
    write_page,
)
from armload.report.run_facts import facts
from armload.report.speculation import gain_lines, speculation_line

PICTURE_NAME = "tokens.png"
SLOWEST_SHOWN = 5


def write_report(run: Run, folder: Path) -> tuple[Path, Path | None]:
    """Write a run's page and picture into its folder, and return their paths.

    Without times per token there is nothing to draw, and no picture.
    """
    picture = folder / PICTURE_NAME
    tokens = tokens_figure(run)
    if tokens is None:
        picture.unlink(missing_ok=True)
    else:
        write_whole(picture, png(tokens.specification))
    raw_files = sorted(
        str(path.relative_to(folder))
        for path in [*folder.iterdir(), *(folder / PROGRAM_FOLDER).rglob("*")]
        if path.is_file() and path.name != PAGE_NAME and not path.name.startswith(".")
    )
    page = write_page(run_page(run, raw_files), folder)
    return page, picture if tokens else None


def run_page(run: Run, raw_files: Sequence[str] = ()) -> Page:
    """Return the page of one run.

    Args:
        raw_files: names of the files beside the page to link to.
    """
    tokens, cells = tokens_figure(run), cells_of([run])
    figures = (
        power_over_tokens(run),
        members_over_time(run),
        storage_wait(cells),
        memory_parts(cells),
        free_memory(cells),
    )
    sections = [
        *(figure_section(figure) for figure in (tokens, *figures) if figure),
        *_slowest(run),
        *_text(run),
        Section(title="Conditions on the board", blocks=_conditions(run)),
        Section(title="What ran", blocks=(_what_ran(run),)),
        Section(title="Command", blocks=(html("<pre>{}</pre>", run_words.command(run)),)),
    ]
    if raw_files:
        links = (html('<a href="./{}">{}</a>', quote(name), name) for name in raw_files)
        sections.append(Section(title="Files", blocks=(Items(items=tuple(links), style="files"),)))
    valid = run.verdict.valid
    has_any = _has_figures(run) or run.result
    warning = "Do not rely on these figures." if has_any else "This run has no figures."
    doubts = " ".join([warning, *run.verdict.reasons])
    return Page(
        headline=run_words.headline(run),
        header=(
            *paragraphs(run_words.model_line(run)),
            *paragraphs(f"{run_words.board_line(run)}, {run_words.started(run)}", style="soft"),
            verdict("This run is valid." if valid else doubts, is_valid=valid),
        ),
        lead=_lead(run),
        sections=tuple(sections),
        version=run.armload,
    )


def _lead(run: Run) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if run.exit.remedy:
        ended = f"Exit reason: {run.exit.meaning}"
        blocks.append(Notice(lines=(ended,), advice=run.exit.remedy, about="ending"))
    if _has_figures(run):
        blocks.append(_figures(run))
        if sentence := run_words.limit_sentence(run):
            cause, advice = run.limit.cause, run_words.advice(run)
            blocks.append(Notice(lines=(sentence,), advice=advice, about=cause))
    if speculation := speculation_line(run):
        blocks += paragraphs(f"{speculation}.", *gain_lines(run))
    blocks += paragraphs(*run.notes, style="soft")
    return tuple(blocks)


def _has_figures(run: Run) -> bool:
    return bool(run.steps or run.summary.decode_tps)


def _figures(run: Run) -> Markup:
    table = Table.of(FIGURES, [run])
    tiles = (
        html(
            "<div><dt>{}</dt><dd>{} <small>{}</small></dd></div>",
            *(column.heading, entry.text, "" if entry.number is None else column.unit),
        )
        for column, entry in zip(table.columns, table.rows[0].entries, strict=True)
    )
    return html('<dl class="figures">{}</dl>', Markup("\n").join(tiles))


def _slowest(run: Run) -> list[Section]:
    """Return a table of the slowest tokens, below what is said of all; nothing without a token."""
    slow = run_words.slow_tokens(run)
    said = [*paragraphs(f"Slow tokens: {slow}." if slow else "", style="soft")]
    numbered: list[tuple[int, Step]] = []
    number = 1
    for step in generating(run.steps):
        number += step.output_tokens
        numbered.append((number, step))
    numbered.sort(key=lambda each: each[1].duration_s / each[1].output_tokens, reverse=True)
    slowest, causes = numbered[:SLOWEST_SHOWN], run_words.causes_of(run)
    if not slowest:
        return []
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
    return [Section(title="Slowest tokens", blocks=(*said, table))]


def _text(run: Run) -> list[Section]:
    if not run.text and not run.reference:
        return []
    prompt = html('<span class="prompt">{}</span>', run.plan.prompt) if run.plan else ""
    quoted = html("<blockquote>{}{}</blockquote>", prompt, run.text)
    blocks: tuple[Block, ...] = (quoted, *paragraphs(run_words.reference_line(run), style="soft"))
    return [Section(title="Generated text", blocks=blocks)]


def _conditions(run: Run) -> tuple[Block, ...]:
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
        table.add("throttling", *(throttling_line(each) or unknown for each in found))
    if clusters_line(before):
        table.add("frequencies", *(clusters_line(each) or unknown for each in found))
    elif before.governors:
        table.add("governor", *(", ".join(each.governors) for each in found))
    table.add("kernel", *(each.kernel for each in found))
    swapped, board = run.swapped, run.board
    meanwhile = [
        ("conditions set", run_words.setting_line(run)),
        ("measured frequencies", clocks_line(run.clocks)),
        ("background processes", run_words.background_line(run)),
        ("swapped during the run", _swapped_line(swapped)),
        ("memory bandwidth", words.known_rate(board.memory_bytes_per_s, board.memory_rate)),
        (
            "storage bandwidth",
            words.known_rate(board.storage_read_bytes_per_s, board.storage_read_rate),
        ),
    ]
    known = [(label, value) for label, value in meanwhile if value]
    return (table, Details(known)) if known else (table,)


def _swapped_line(swapped: Swapped | None) -> str:
    if swapped is None or not (swapped.out_bytes or swapped.in_bytes):
        return ""
    said = f"{words.size(swapped.out_bytes)} out, {words.size(swapped.in_bytes)} in"
    in_zram = swapped.zram_out_bytes + swapped.zram_in_bytes
    return f"{said}; {words.size(in_zram)} of it zram" if in_zram else said


def _what_ran(run: Run) -> Details:
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
        ("weights per token", "" if read is None else words.size(read)),
        ("KV cache per token", "" if kv is None else words.size(kv)),
        *(
            ("" if number else "files of --put", f"{each.name}, {words.size(each.size_bytes)}")
            for number, each in enumerate(run.watched.files if run.watched else ())
        ),
    ]
    return Details((label, value) for label, value in rows if value)
