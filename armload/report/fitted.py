"""What models need of a board and how fast they would be, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.fitted import (
    FittedModel,
    limit_of,
    memory_source,
    per_token,
    recommended,
)
from armload.analysis.prediction_notes import read_by_row, without_range
from armload.bench.fitting import BoardsFit, Fit
from armload.core.columns import Column
from armload.core.shell import program_name
from armload.core.values import counted, format_bytes, three_figures
from armload.engines.prediction import Expected, MemoryParts, Prediction
from armload.models.find import LIKE
from armload.models.packaged import QUANTISATIONS, WORD_PROBLEMS
from armload.models.published import SMOLLM2, is_smollm2
from armload.report.formatting import UNKNOWN, all_weights
from armload.report.layout import Details, Prose, Table, whole

_STYLES = {
    "fits": "green",
    "streams": "yellow",
    "reads storage": "yellow",
    "cannot run": "red",
    "unknown": "yellow",
}


def fit_view(fit: Fit) -> Group:
    """Lay out what was found: verdicts and times, memory, a sentence for each model, the choice."""
    lines: list[RenderableType] = [_times(fit), Text(""), _memory(fit), *_media(fit)]
    lines += [Text(""), Prose(f"{memory_source(fit.models)} {_COLUMNS}"), *_about_prompt([fit])]
    for each in fit.models:
        lines += [Text(""), Prose(each.sentence)]
    timed = [each for each in fit.models if each.prediction.token_s or each.prediction.texts]
    how = _how_to_run(fit.models)
    return Group(_with_notes(lines, timed, fit.recommendation), *how)


def listing_view(fit: Fit, *, lists_all: bool = False) -> Group:
    """Lay out many models in one table: size, verdict, memory and times, then the choice.

    Those that cannot run are only counted; without times, so are those that do not stay in memory.

    Args:
        lists_all: also models that another one of their size, or a larger one, is as fast as.
    """
    resident = [each for each in fit.models if each.prediction.verdict == "fits"]
    has_times = any(each.prediction.token_s for each in resident or fit.models)
    useful = ("fits", "streams", "reads storage") if has_times else ("fits",)
    listed = [each for each in fit.models if each.prediction.verdict in useful]
    order = "" if has_times else " Without times, the models that need the least memory come first."
    lines: list[RenderableType] = []
    shown = listed if lists_all else _best_of_each_size(listed)
    if listed:
        lines = [models_table(shown), Text(""), Prose(_MEMORY + order), *_about_prompt([fit])]
        if slower := len(listed) - len(shown):
            lines.append(
                Prose(
                    f"Not listed: {counted(slower, 'model')} for which a larger one is at least as "
                    f"{_BEST[has_times]}; if a model has a known file, only larger ones that have "
                    "one count. To list them: --all"
                )
            )
    if omitted := len(fit.models) - len(listed):
        which = f"that cannot run on {fit.board}" if has_times else "too large for its memory"
        lines.append(Prose(f"Not listed: {counted(omitted, 'model')} {which} (--json lists all)."))
    return Group(
        _with_notes(lines, shown or fit.models, fit.recommendation, has_ranges=False),
        *_how_to_run(fit.models),
        *_where_files_are(shown),
    )


_BEST = {True: "fast", False: "small"}


def _best_of_each_size(models: Sequence[FittedModel]) -> list[FittedModel]:
    """Return each model that has more weights than all before it, of all and of those with a file.

    Args:
        models: the best first; the recommended one stays among them.
    """
    kept = {id(recommended(models))}
    for several in (models, [each for each in models if each.has_file]):
        most = 0
        for each in several:
            if each.parameters > most:
                kept.add(id(each))
            most = max(most, each.parameters)
    return [each for each in models if id(each) in kept]


def _where_files_are(models: Sequence[FittedModel]) -> list[RenderableType]:
    known = [each for each in models if each.has_file]
    if not known:
        return []
    from_hub = dict.fromkeys(each.family for each in known if not is_smollm2(each.model))
    said = [f"Available from the Hugging Face Hub: {', '.join(from_hub)}."] if from_hub else []
    if packaged := [each.model for each in known if is_smollm2(each.model)]:
        said.append(f"{packaged[0]} is {SMOLLM2}, which comes in a Python package.")
    return [
        Text(""),
        Prose(
            f"{' '.join(said)} {WORD_PROBLEMS}{QUANTISATIONS[0]} comes with armload. For models "
            f"marked -, give a GGUF file, hf:ORG/REPO:TYPE, or {LIKE}NAME:TYPE (random weights of "
            "the same sizes, for Llama and Qwen)."
        ),
    ]


def _how_to_run(models: Sequence[FittedModel]) -> list[RenderableType]:
    """Give the command that runs the recommended model; nothing where it has no file."""
    chosen = recommended(models)
    if chosen is None or not chosen.command:
        return []
    command = f"{program_name()}{chosen.command.removeprefix('armload')}"
    return [Text(""), Details([("to run it", whole(command))])]


def models_table(models: Sequence[FittedModel]) -> Table:
    """Lay out models with size, verdict, memory, times, and where armload gets a file."""
    marks_files = not all(each.has_file for each in models)
    has_times = any(each.prediction.token_s for each in models)
    times = ("per token", "first\ntoken") if has_times else ()
    table = Table(
        Column(heading="model", below=""),
        Column(heading="parameters\n(active)", is_number=True),
        Column(heading="verdict"),
        Column(heading="memory", is_number=True),
        *(Column(heading=heading, is_number=True) for heading in times),
        *([Column(heading="file")] if marks_files else []),
    )
    for each in models:
        found = each.prediction
        place = "package" if is_smollm2(each.model) else "hub"
        table.add(
            Text(each.model, style="bold"),
            all_weights(each.parameters, each.active_parameters),
            _verdict(found),
            format_bytes(found.memory.wanted_bytes) if found.memory else UNKNOWN,
            *((_about(found.token_s), _about(found.ttft_s)) if has_times else ()),
            *([place if each.has_file else UNKNOWN] if marks_files else []),
        )
    return table


def boards_view(found: BoardsFit, heading: str = "board") -> Group:
    """Lay out boards in one table, the fastest first; one board as if it were at hand.

    Args:
        heading: of the first column.
    """
    if len(found.boards) == 1:
        (fit,) = found.boards
        return fit_view(fit)
    rows = [(fit, each) for fit in found.boards for each in fit.models]
    table = Table.of(_boards_columns(heading, found), rows)
    lines: list[RenderableType] = [table, *_about_prompt(found.boards)]
    for fit, each in rows:
        if fit.engine != "llama.cpp":
            lines += [Text(""), Prose(each.sentence)]
    return _with_notes(lines, [each for _, each in rows], found.recommendation)


def _boards_columns(heading: str, found: BoardsFit) -> list[Column[tuple[Fit, FittedModel]]]:
    def of(part: Callable[[Prediction], Any]) -> Callable[[tuple[Fit, FittedModel]], Any]:
        return lambda row: part(row[1].prediction)

    columns: list[Column[tuple[Fit, FittedModel]]] = [
        Column(heading=heading, below="", of=lambda row: row[0].board, style="bold"),
        Column(heading="model", below="", of=lambda row: row[1].model),
        Column(heading="verdict", of=of(_verdict)),
        Column(heading="per token", is_number=True, of=of(lambda its: _time(its.token_s))),
        Column(heading="tokens/s", is_number=True, of=of(_tokens_per_s)),
        Column(heading="first\ntoken", is_number=True, of=of(lambda its: _time(its.ttft_s))),
        Column(
            heading="per text",
            is_number=True,
            is_optional=True,
            of=of(lambda its: _time(its.texts.text_s if its.texts else None)),
        ),
        Column(heading="limited\nby", of=of(_limit)),
    ]
    if any(fit.engine != "llama.cpp" for fit in found.boards):
        columns.insert(2, Column(heading="engine", below="", of=lambda row: row[0].engine))
    return columns


def _tokens_per_s(found: Prediction) -> str:
    return three_figures(1 / found.token_s.value) if found.token_s else UNKNOWN


def _limit(found: Prediction) -> str:
    return limit_of(found) if found.token_s else UNKNOWN


def _about_prompt(fits: Sequence[Fit]) -> list[RenderableType]:
    """Say after which prompt the first token comes; nothing where no time is known."""
    models = [each for fit in fits for each in fit.models if each.prediction.ttft_s]
    if not models:
        return []
    prompt = counted(fits[0].prompt_tokens, "token")
    media = [each.prediction.media.need.called for each in models if each.prediction.media]
    also = f", of models that see or hear with {' or '.join(dict.fromkeys(media))} before it"
    return [Prose(f"First token: with loading, after a prompt of {prompt}{also if media else ''}.")]


def _with_notes(
    lines: Sequence[RenderableType],
    models: Sequence[FittedModel],
    recommendation: str,
    *,
    has_ranges: bool = True,
) -> Group:
    general = [
        note.sentence if has_ranges else without_range(note)
        for each in models
        for note in each.prediction.notes
        if note.kind != "read by row"
    ]
    notes = dict.fromkeys((*general, *_notes_on_rows(models)))
    spaced = [line for note in notes for line in (Text(""), Prose(note))]
    return Group(*lines, *spaced, Text(""), Prose(recommendation, "bold"))


def _notes_on_rows(models: Sequence[FittedModel]) -> Iterator[str]:
    """Yield one sentence for all models and their file types."""
    sizes: dict[str, set[int]] = {}
    for each in models:
        parts = each.prediction.memory
        if parts is not None and parts.row_table_bytes:
            sizes.setdefault(each.family, set()).add(parts.row_table_bytes)
    if sizes:
        yield read_by_row(
            {
                name: " to ".join(dict.fromkeys(map(format_bytes, (min(its), max(its)))))
                for name, its in sizes.items()
            }
        )


_MEMORY = (
    "Memory covers weights, KV cache and program, and the copy of the weights that llama.cpp "
    "repacks where there is room for it; it is estimated. All figures of one model: armload fit "
    "--model MODEL."
)


def _time(time: Expected | None) -> str:
    return per_token(time) if time else UNKNOWN


def _about(time: Expected | None) -> str:
    return _time(time).partition(" (")[0]


def _verdict(found: Prediction) -> Text:
    return Text(found.verdict, style=_STYLES[found.verdict])


def _times(fit: Fit) -> Table:
    has_texts = any(each.prediction.texts for each in fit.models)
    table = Table(
        Column(heading="model", below=""),
        Column(heading="verdict"),
        Column(heading="per token", is_number=True),
        Column(heading="first\ntoken", is_number=True),
        *([Column(heading="per text", is_number=True)] if has_texts else []),
        Column(heading="of which\nloading", is_number=True),
        Column(heading="limited\nby"),
    )
    for each in fit.models:
        found = each.prediction
        table.add(
            Text(each.model, style="bold"),
            _verdict(found),
            _time(found.token_s),
            _time(found.ttft_s),
            *([_time(found.texts.text_s if found.texts else None)] if has_texts else []),
            _time(found.load_s),
            limit_of(found) if found.token_s else UNKNOWN,
        )
    return table


def _memory(fit: Fit) -> Table:
    sizes: dict[str, Callable[[MemoryParts], int]] = {
        "weights": lambda parts: parts.weights_bytes - parts.row_table_bytes,
        "projector": lambda parts: parts.projector_bytes,
        "KV cache": lambda parts: parts.kv_bytes,
        "program": lambda parts: parts.program_bytes,
        "window": lambda parts: parts.window_bytes,
        "reserve": lambda parts: parts.reserve_bytes,
        "available": lambda parts: parts.available_bytes,
    }
    all_parts = [each.prediction.memory for each in fit.models]
    if not any(parts and parts.projector_bytes for parts in all_parts):
        del sizes["projector"]
    table = Table(
        Column(heading="memory of", below=""),
        *(Column(heading=heading, is_number=True) for heading in sizes),
    )
    for each, parts in zip(fit.models, all_parts, strict=True):
        shown = [format_bytes(of(parts)) if parts else UNKNOWN for of in sizes.values()]
        table.add(each.model, *shown)
    return table


_COLUMNS = (
    "Window: for reading ahead while weights are streamed from storage. Reserve: left free for the "
    "rest of the system."
)


def _media(fit: Fit) -> list[RenderableType]:
    """Lay out what images and sounds become; nothing for models of text alone."""
    table = Table(
        Column(heading="before the prompt", below=""),
        Column(heading="projector", is_number=True),
        Column(heading="buffers", is_number=True),
        Column(heading="tokens", is_number=True),
        Column(heading="encoder\npasses", is_number=True),
        Column(heading="encoder\ntime", is_number=True),
    )
    for each in fit.models:
        if found := each.prediction.media:
            table.add(
                f"{each.model}, {found.need.what}",
                format_bytes(found.need.weights_bytes),
                format_bytes(found.need.buffer_bytes),
                f"{found.need.tokens:,}",
                str(found.need.passes),
                _time(found.encoder_s),
            )
    return [Text(""), table] if table.rows else []
