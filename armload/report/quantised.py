"""What quantised models cost and gain."""

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
from armload.report.formatting import UNKNOWN
from armload.report.layout import Prose, Table, whole


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
