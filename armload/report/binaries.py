"""Programs that were built or inspected, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.build.binary import Binary, FeatureUse
from armload.build.fit import Compatibility
from armload.build.inspection import Inspection
from armload.core.columns import Column
from armload.core.values import format_bytes
from armload.report.layout import Details, Table, whole


def binaries_table(binaries: Sequence[Binary]) -> Table:
    """Lay out inspected programs, one a line."""
    table = Table(
        Column(heading="program"),
        Column(heading="target"),
        Column(heading="size", is_number=True),
        Column(heading="CPU features that it needs", is_prose=True),
        Column(heading="prebuilt in", below="prebuilt in "),
        Column(heading="file", below=""),
    )
    for binary in binaries:
        table.add(
            Text(binary.program, style="bold"),
            binary.target,
            format_bytes(binary.size_bytes),
            " ".join(use.feature for use in binary.features if not use.guarded),
            binary.prebuilt_in,
            whole(str(binary.path)),
        )
    return table


_VERDICTS = {
    "runs": ("runs", "green"),
    "slow": ("runs slowly", "yellow"),
    "perhaps": ("may run", "yellow"),
    "no": ("does not run", "red"),
}


class Inspected(Inspection):
    """An inspection, and under ``targets`` where the program runs."""

    targets: tuple[Compatibility, ...]

    @classmethod
    def of(cls, inspection: Inspection, fits: Sequence[Compatibility]) -> Inspected:
        """Put the two together."""
        return cls(**dict(inspection), targets=tuple(fits))


def inspection_table(inspection: Inspection, fits: Sequence[Compatibility]) -> Group:
    """Lay out what a program is, the CPU features that it uses, and where it runs."""
    features = _features(inspection.features)
    between: list[RenderableType] = [features, Text("")] if features.rows else []
    return Group(_details(inspection), Text(""), *between, _fits(fits))


def _details(inspection: Inspection) -> Details:
    linked = "statically"
    if not inspection.is_static:
        wanted = [inspection.interpreter] if inspection.interpreter else []
        linked = f"dynamically: it needs {', '.join([*wanted, *inspection.needed])}"
    rows: list[tuple[str, str | Text]] = [
        ("file", whole(str(inspection.path))),
        ("sha256", inspection.sha256),
        ("size", format_bytes(inspection.size_bytes)),
        ("architecture", inspection.architecture),
        ("linked", linked),
        ("stripped", "yes" if inspection.is_stripped else "no: it contains symbols"),
    ]
    if inspection.prebuilt_in:
        rows.append(("prebuilt in", inspection.prebuilt_in))
    if not inspection.features and inspection.architecture == "aarch64":
        rows.append(("CPU features", "only those that every 64-bit ARM CPU has"))
    return Details(rows)


def _features(uses: Sequence[FeatureUse]) -> Table:
    table = Table(
        Column(heading="CPU feature"),
        Column(heading="uses", is_number=True),
        Column(heading="checked at\nrun time", is_number=True),
        Column(heading="first at", is_number=True),
        Column(heading=""),
        Column(heading="in", below=""),
    )
    for use in uses:
        table.add(
            Text(use.feature, style="bold"),
            f"{use.count:,}",
            "all" if use.guarded else f"{use.guarded_count:,}",
            f"{use.address:#x}",
            use.mnemonic,
            whole(use.symbol or ""),
        )
    return table


def _fits(fits: Sequence[Compatibility]) -> Table:
    table = Table(
        Column(heading="target"),
        Column(heading="the program"),
        Column(heading="why", is_prose=True, below=""),
    )
    for fit in fits:
        word, style = _VERDICTS[fit.verdict]
        table.add(Text(fit.target, style="bold"), Text(word, style=style), fit.reason)
    return table
