"""What models consist of, and what quantised ones cost and gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.wording.predictions import FittedModel, per_token
from armload.core.values import Value, counted, format_bytes
from armload.engines.quantise import Fallback
from armload.evaluation.logits.divergence import Divergence
from armload.models.context_memory import ContextMemory
from armload.models.model_summary import FileSection, ModelSummary
from armload.report import formatting as words
from armload.report.formatting import UNKNOWN
from armload.report.layout import Column, Details, Prose, Table, whole


def anatomy_table(anatomy: ModelSummary) -> Group:
    """Lay out a model's facts, its types, its KV cache, its layers, and what they leave out."""
    return Group(Details(_rows(anatomy)), *_parts(anatomy))


def _parts(anatomy: ModelSummary) -> Iterator[RenderableType]:
    tables = [_types(anatomy), _cache(anatomy), _sections(anatomy)]
    shown: list[RenderableType] = [table for table in tables if table.rows]
    for part in (*shown, *map(Prose, anatomy.notes)):
        yield Text("")
        yield part


def _rows(anatomy: ModelSummary) -> list[tuple[str, str | Text]]:
    rows: list[tuple[str, str | Text]] = [
        ("file", whole(str(anatomy.path))),
        ("sha256", anatomy.sha256),
        ("size", f"{format_bytes(anatomy.size_bytes)} ({anatomy.size_bytes:,} bytes)"),
        ("missing", format_bytes(anatomy.missing_bytes) if anatomy.missing_bytes else ""),
        ("name", anatomy.title),
        ("architecture", anatomy.architecture),
        ("parameters", _weights(anatomy)),
        ("layers", f"{anatomy.layers} of width {anatomy.width:,}{_inner(anatomy)}"),
        ("for MTP", _prediction_layers(anatomy)),
        ("windows", _windows(anatomy.context_memory)),
        ("shared KV", _sharing(anatomy.context_memory)),
        ("recurrent", _recurrent(anatomy.context_memory)),
        ("heads", _heads(anatomy) if anatomy.heads else ""),
        ("experts", f"{anatomy.experts}, {anatomy.experts_used} used for a token"),
        ("context", f"{anatomy.context_length:,} tokens"),
        ("vocabulary", f"{anatomy.vocabulary:,} tokens"),
        ("tokenizer", anatomy.tokenizer),
        ("read per token", f"{format_bytes(anatomy.bytes_per_token)} of weights"),
    ]
    return [
        (label, value) for label, value in rows if value and (label != "experts" or anatomy.experts)
    ]


def _weights(anatomy: ModelSummary) -> str:
    written = f"{words.weights(anatomy.parameters)} ({anatomy.parameters:,})"
    if words.is_mostly_active(anatomy.parameters, anatomy.active_parameters):
        return written
    return f"{written}, {words.weights(anatomy.active_parameters)} active for a token"


def _inner(anatomy: ModelSummary) -> str:
    return f", feed-forward {anatomy.feed_forward:,}" if anatomy.feed_forward else ""


def _prediction_layers(anatomy: ModelSummary) -> str:
    count = anatomy.prediction_layers
    return f"the last {counted(count, 'layer')}, not used for plain decoding" if count else ""


def _windows(memory: ContextMemory) -> str:
    if not memory.window_layers:
        return ""
    layers = counted(memory.window_layers, "layer")
    return f"{layers} limited to the last {memory.window_tokens:,} tokens"


def _sharing(memory: ContextMemory) -> str:
    if not memory.sharing_layers:
        return ""
    return f"{counted(memory.sharing_layers, 'layer')} with the keys and values of earlier ones"


def _recurrent(memory: ContextMemory) -> str:
    if not memory.recurrent_layers:
        return ""
    layers = counted(memory.recurrent_layers, "layer")
    return f"{layers} with a state of {format_bytes(memory.state_bytes)} for each sequence"


def _heads(anatomy: ModelSummary) -> str:
    fewest, most = min(anatomy.kv_heads, default=0), max(anatomy.kv_heads, default=0)
    kv_heads = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{anatomy.heads}, {kv_heads} for keys and values"


def _table(first: str, *numbers: str) -> Table:
    return Table(
        Column(heading=first), *(Column(heading=heading, is_number=True) for heading in numbers)
    )


def _types(anatomy: ModelSummary) -> Table:
    table = _table("type", "tensors", "size", "share")
    for each in anatomy.types:
        table.add(
            Text(each.type, style="bold"),
            str(each.tensors),
            format_bytes(each.size_bytes),
            f"{each.share:.1%}",
        )
    return table


def _cache(anatomy: ModelSummary) -> Table:
    table = _table("KV cache", "a token", f"{anatomy.context_length:,} tokens")
    for each in anatomy.cache:
        table.add(
            Text(each.type, style="bold"),
            format_bytes(each.bytes_per_token),
            format_bytes(each.context_bytes),
        )
    return table


def _sections(anatomy: ModelSummary) -> Table:
    table = _table("part", "tensors", "a layer", "size", "share")
    for each in anatomy.sections:
        table.add(
            Text(_part(each), style="bold"),
            str(each.tensors or ""),
            format_bytes(each.size_bytes / each.layers) if each.layers else "",
            format_bytes(each.size_bytes),
            f"{each.size_bytes / anatomy.whole_bytes:.1%}",
        )
    return table


def _part(section: FileSection) -> str:
    if not section.layers:
        return section.part
    if section.layers == 1:
        return f"layer {section.first_layer}"
    return f"layers {section.first_layer} to {section.last_layer}"


class QuantisedModel(Value):
    """A quantised model.

    Attributes:
        type: of the file, in llama.cpp's words.
        path, sha256, size_bytes: of the file.
        bytes_per_token: weights that one decode step reads.
        bits_per_weight: of the whole file.
        calibration: name of the text that the importance of weights was computed from; else empty.
        made_on: the board that quantised it.
        was_there: it had been made before.
        fallbacks: tensors of another type than was meant for them.
        divergence: from the base; none where it was not computed.
        expected: of a run on the board that was asked for; none without one.
    """

    type: str
    path: str
    sha256: str
    size_bytes: int
    bytes_per_token: int
    bits_per_weight: float
    calibration: str = ""
    made_on: str
    was_there: bool
    fallbacks: tuple[Fallback, ...] = ()
    divergence: Divergence | None = None
    expected: FittedModel | None = None


class QuantisedModels(Value):
    """What a model became.

    Attributes:
        base, base_sha256, base_size_bytes, base_bytes_per_token: of the model.
        board: for which times are predicted; empty for none.
        models: by type, in the order in which they were given.
    """

    base: str
    base_sha256: str
    base_size_bytes: int
    base_bytes_per_token: int
    board: str = ""
    models: tuple[QuantisedModel, ...]


def quantised_view(found: QuantisedModels) -> Group:
    """Lay out the models beside their base, and what was not done as the type says."""
    lines: list[RenderableType] = [_quantised_table(found)]
    for each in found.models:
        lines += [Prose(words) for words in _about_fallbacks(each)]
    lines += [whole(f"{each.type:8} {each.path}") for each in found.models]
    return Group(*lines)


def _quantised_table(found: QuantisedModels) -> Table:
    columns = [
        Column(heading="type"),
        Column(heading="file", is_number=True),
        Column(heading="bits per\nweight", is_number=True),
        Column(heading="read per\ntoken", is_number=True),
    ]
    has_divergence = any(each.divergence for each in found.models)
    if has_divergence:
        columns.append(Column(heading="KL diver-\ngence", is_number=True))
        columns.append(Column(heading="same top\ntoken", is_number=True))
    if found.board:
        columns.append(Column(heading=f"per token on\n{found.board}", is_number=True))
        columns.append(Column(heading="verdict"))
    table = Table(*columns)
    for each in found.models:
        row = [
            format_bytes(each.size_bytes),
            f"{each.bits_per_weight:.2f}",
            format_bytes(each.bytes_per_token),
        ]
        if has_divergence:
            row += _strays(each.divergence)
        if found.board:
            row += _takes(each.expected)
        table.add(Text(each.type, style="bold"), *row)
    base = [format_bytes(found.base_size_bytes), "", format_bytes(found.base_bytes_per_token)]
    table.add(Text("base", style="dim"), *base, *([""] * (len(columns) - 4)))
    return table


def _strays(divergence: Divergence | None) -> list[str]:
    if divergence is None:
        return [UNKNOWN, UNKNOWN]
    return [f"{divergence.kl_mean:.4f}", f"{divergence.top1_share:.1%}"]


def _takes(expected: FittedModel | None) -> list[str]:
    if expected is None:
        return [UNKNOWN, UNKNOWN]
    token_s = expected.prediction.token_s
    return [per_token(token_s) if token_s else UNKNOWN, expected.prediction.verdict]


def _about_fallbacks(model: QuantisedModel) -> Iterator[str]:
    kinds = Counter((each.wanted, each.type, each.block) for each in model.fallbacks)
    for (wanted, kind, block), count in kinds.items():
        first = next(each for each in model.fallbacks if (each.wanted, each.type) == (wanted, kind))
        more = f" and {count - 1} more" if count > 1 else ""
        yield (
            f"{model.type}: {counted(count, 'tensor')} fell back from {wanted} to {kind}, because "
            f"their rows are not a multiple of {block}: {first.tensor} ({first.columns}){more}."
        )
