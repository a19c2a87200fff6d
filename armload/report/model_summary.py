"""What a model consists of, and what its quantised forms cost and gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.fitted import FittedModel, per_token
from armload.core.columns import Column
from armload.core.values import counted, format_bytes
from armload.evaluation.logits.divergence import Divergence
from armload.evaluation.quantising import QuantisedModel, QuantisedModels
from armload.models.image_tokens import CHUNK_S, USUAL_SIZES, audio_tokens, image_tokens
from armload.models.model_summary import FileSection, ModelSummary, ProjectorBeside
from armload.models.projector import Encoder, Projector
from armload.report import formatting as words
from armload.report.formatting import UNKNOWN
from armload.report.layout import Details, Prose, Table, whole


def summary_table(summary: ModelSummary) -> Group:
    """Lay out a model's facts, its types, its KV cache, its layers, and what they leave out."""
    lines: list[RenderableType] = [Details(_rows(summary))]
    for table in (_types(summary), _cache(summary), _sections(summary)):
        lines += [Text(""), table] if table.rows else []
    for note in summary.notes:
        lines += [Text(""), Prose(note)]
    return Group(*lines)


def _rows(summary: ModelSummary) -> list[tuple[str, str | Text]]:
    memory = summary.context_memory
    weights = f"{words.weights(summary.parameters)} ({summary.parameters:,})"
    if not words.is_mostly_active(summary.parameters, summary.active_parameters):
        weights += f", {words.weights(summary.active_parameters)} active for a token"
    inner = f", feed-forward {summary.feed_forward:,}" if summary.feed_forward else ""
    kinds = (
        summary.prediction_layers,
        memory.window_layers,
        memory.sharing_layers,
        memory.recurrent_layers,
    )
    mtp, windows, sharing, recurrent = (
        counted(layers, "layer") if layers else "" for layers in kinds
    )
    fewest, most = min(summary.kv_heads, default=0), max(summary.kv_heads, default=0)
    kv_heads = str(most) if fewest == most else f"{fewest} to {most}"
    heads, experts = str(summary.heads or ""), str(summary.experts or "")
    rows: list[tuple[str, str | Text]] = [
        ("file", whole(str(summary.path))),
        ("sha256", summary.sha256),
        ("size", f"{format_bytes(summary.size_bytes)} ({summary.size_bytes:,} bytes)"),
        ("missing", format_bytes(summary.missing_bytes) if summary.missing_bytes else ""),
        ("name", summary.title),
        ("architecture", summary.architecture),
        ("purpose", summary.purpose),
        ("pooling", summary.pooling),
        ("parameters", weights),
        ("layers", f"{summary.layers} of width {summary.width:,}{inner}"),
        ("for MTP", mtp and f"the last {mtp}, not used for plain decoding"),
        ("windows", windows and f"{windows} limited to the last {memory.window_tokens:,} tokens"),
        ("shared KV", sharing and f"{sharing} with the keys and values of earlier ones"),
        (
            "recurrent",
            recurrent
            and f"{recurrent} with a state of {format_bytes(memory.state_bytes)} for each sequence",
        ),
        ("heads", heads and f"{heads}, {kv_heads} for keys and values"),
        ("experts", experts and f"{experts}, {summary.experts_used} used for a token"),
        ("context", f"{summary.context_length:,} tokens"),
        ("vocabulary", f"{summary.vocabulary:,} tokens"),
        ("tokenizer", summary.tokenizer),
        ("read per token", f"{format_bytes(summary.bytes_per_token)} of weights"),
        *(("projector", _beside(each, summary)) for each in summary.projectors),
    ]
    return [(label, value) for label, value in rows if value]


def _beside(projector: ProjectorBeside, summary: ModelSummary) -> Text:
    which = f"{projector.file} ({', '.join(projector.kinds)})"
    if projector.belongs:
        return Text(f"{which} belongs to this model")
    return Text(
        f"{which} belongs to another model: it gives embeddings of width "
        f"{projector.embedding_width:,}, and this one takes {summary.input_width:,}"
    )


def projector_table(projector: Projector) -> Group:
    """Lay out a projector's encoders, what images and sounds become, and its types."""
    lines: list[RenderableType] = [Details(_projector_rows(projector))]
    for encoder in projector.encoders:
        lines += [Text(""), Details(_encoder_rows(encoder))]
    for table in (_media(projector), _types(projector)):
        lines += [Text(""), table] if table.rows else []
    return Group(*lines)


def _projector_rows(projector: Projector) -> list[tuple[str, str | Text]]:
    missing = format_bytes(projector.missing_bytes) if projector.missing_bytes else ""
    rows: list[tuple[str, str | Text]] = [
        ("file", whole(str(projector.path))),
        ("sha256", projector.sha256),
        ("size", f"{format_bytes(projector.size_bytes)} ({projector.size_bytes:,} bytes)"),
        ("missing", missing),
        ("name", projector.title),
        ("embeddings", f"of width {projector.embedding_width:,}, as its model must take"),
    ]
    return [(label, value) for label, value in rows if value]


def _encoder_rows(encoder: Encoder) -> list[tuple[str, str | Text]]:
    inner = f", feed-forward {encoder.feed_forward:,}" if encoder.feed_forward else ""
    sizes = f"{encoder.image_size} x {encoder.image_size} pixels" if encoder.image_size else ""
    merged = encoder.factor**2 if encoder.modality == "vision" else encoder.factor
    rows: list[tuple[str, str | Text]] = [
        (encoder.modality, encoder.kind),
        ("parameters", f"{words.weights(encoder.parameters)} ({encoder.parameters:,})"),
        ("weights", format_bytes(encoder.weights_bytes)),
        ("layers", f"{encoder.layers} of width {encoder.width:,}{inner}"),
        ("heads", str(encoder.heads or "")),
        ("trained with", sizes),
        ("patch", f"{encoder.patch_size} x {encoder.patch_size} pixels" if sizes else ""),
        ("merged", f"{merged} into a token" if merged > 1 else ""),
        ("spectrogram", f"{encoder.mel_bins} mel bins" if encoder.mel_bins else ""),
    ]
    return [(label, value) for label, value in rows if value]


def _media(projector: Projector) -> Table:
    table = _table("input", "encoder passes", "positions", "tokens")
    media = {f"image of {size}": image_tokens(projector, size) for size in USUAL_SIZES} | {
        "sound of up to 30 s": audio_tokens(projector, CHUNK_S - 1)
    }
    for name, found in media.items():
        if found is not None:
            passes = sum(each.count for each in found.passes)
            numbers = (passes, found.positions, found.tokens)
            table.add(Text(name, style="bold"), *(f"{number:,}" for number in numbers))
    return table


def _table(first: str, *numbers: str) -> Table:
    return Table(
        Column(heading=first), *(Column(heading=heading, is_number=True) for heading in numbers)
    )


def _types(summary: ModelSummary | Projector) -> Table:
    table = _table("type", "tensors", "size", "share")
    for each in summary.types:
        table.add(
            Text(each.type, style="bold"),
            str(each.tensors),
            format_bytes(each.size_bytes),
            f"{each.share:.1%}",
        )
    return table


def _cache(summary: ModelSummary) -> Table:
    table = _table("KV cache", "per token", f"{summary.context_length:,} tokens")
    for each in summary.cache:
        table.add(
            Text(each.type, style="bold"),
            format_bytes(each.bytes_per_token),
            format_bytes(each.context_bytes),
        )
    return table


def _sections(summary: ModelSummary) -> Table:
    table = _table("part", "tensors", "per layer", "size", "share")
    for each in summary.sections:
        table.add(
            Text(_part(each), style="bold"),
            str(each.tensors or ""),
            format_bytes(each.size_bytes / each.layers) if each.layers else "",
            format_bytes(each.size_bytes),
            f"{each.size_bytes / summary.whole_bytes:.1%}",
        )
    return table


def _part(section: FileSection) -> str:
    if not section.layers:
        return section.part
    if section.layers == 1:
        return f"layer {section.first_layer}"
    return f"layers {section.first_layer} to {section.last_layer}"


def quantised_view(found: QuantisedModels) -> Group:
    """Lay out the models beside their base, and what was not done as the type says."""
    lines: list[RenderableType] = [_quantised_table(found)]
    for each in found.models:
        lines += [Prose(words) for words in _about_fallbacks(each)]
    lines += [whole(f"{each.type:8} {each.path}") for each in found.models]
    return Group(*lines)


def _quantised_table(found: QuantisedModels) -> Table:
    columns: list[Column[Any]] = [
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
            row += _distance(each.divergence)
        if found.board:
            row += _predicted(each.expected)
        table.add(Text(each.type, style="bold"), *row)
    base = [format_bytes(found.base_size_bytes), "", format_bytes(found.base_bytes_per_token)]
    table.add(Text("base", style="dim"), *base, *([""] * (len(columns) - 4)))
    return table


def _distance(divergence: Divergence | None) -> list[str]:
    if divergence is None:
        return [UNKNOWN, UNKNOWN]
    return [f"{divergence.kl_mean:.4f}", f"{divergence.top1_share:.1%}"]


def _predicted(expected: FittedModel | None) -> list[str]:
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
