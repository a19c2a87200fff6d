"""Logits beside a reference's, for a terminal and for programs."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from armload.core.values import Value, counted, percentage
from armload.evaluation.logits.agreement import Agreement
from armload.report.layout import Column, Prose, Rows

MOST_SHOWN = 12


class LogitsDocument(Value):
    """What was computed of a model.

    Attributes:
        run: its id.
        prompts: how many have logits.
        failed: why others have none, by their numbers.
        agreement: with the reference; none without one.
    """

    run: str
    prompts: int
    failed: Mapping[str, str]
    agreement: Agreement | None


def agreement_view(found: Agreement) -> Group:
    """Lay out the sums, and the prompts that differ most."""
    worst = sorted(found.prompts, key=lambda each: each.max_difference, reverse=True)[:MOST_SHOWN]
    table = Rows(
        Column(heading="prompt", is_number=True),
        Column(heading="positions", is_number=True),
        Column(heading="close"),
        Column(heading="largest\ndifference", is_number=True),
        Column(heading="same\ntop token", is_number=True),
    )
    for each in worst:
        table.add(
            each.prompt,
            str(each.positions),
            Text("yes", style="green") if each.is_close else Text("no", style="red"),
            f"{each.max_difference:.3g}",
            percentage(each.top1_share, digits=1),
        )
    lines: list[RenderableType] = [table]
    if len(worst) < len(found.prompts):
        lines.append(Prose(f"Shown: the {len(worst)} that differ most.", "dim"))
    lines += [Text(""), Prose(sentence(found), "bold")]
    if found.missing:
        lines.append(Prose(f"Only one side has prompt {', '.join(found.missing)}.", "yellow"))
    return Group(*lines)


def sentence(found: Agreement) -> str:
    """Say how far the logits agree."""
    return (
        f"{found.close} of {counted(len(found.prompts), 'prompt')} close to {found.reference} "
        f"(atol {found.atol:g}, rtol {found.rtol:g}); largest difference "
        f"{found.max_difference:.3g}; KL divergence mean {found.kl_mean:.3g}, 99th percentile "
        f"{found.kl_p99:.3g} nats; same top token at {100 * found.top1_share:.2f}% of positions."
    )
