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
    return Table.of(_BINARY, binaries)


_BINARY: tuple[Column[Binary], ...] = (
    Column(heading="program", of=lambda each: each.program, style="bold"),
    Column(heading="target", of=lambda each: each.target),
    Column(heading="size", of=lambda each: each.size_bytes, write=format_bytes),
    Column(
        heading="CPU features that it needs",
        of=lambda each: " ".join(use.feature for use in each.features if not use.guarded),
        is_prose=True,
    ),
    Column(heading="prebuilt in", of=lambda each: each.prebuilt_in, below="prebuilt in "),
    Column(heading="file", of=lambda each: whole(str(each.path)), below=""),
)
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
    features = Table.of(_FEATURE, inspection.features)
    between: list[RenderableType] = [features, Text("")] if features.rows else []
    return Group(_details(inspection), Text(""), *between, Table.of(_FIT, fits))


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


_FEATURE: tuple[Column[FeatureUse], ...] = (
    Column(heading="CPU feature", of=lambda use: use.feature, style="bold"),
    Column(heading="uses", of=lambda use: use.count, write="{:,}".format),
    Column(
        heading="checked at\nrun time",
        of=lambda use: "all" if use.guarded else f"{use.guarded_count:,}",
        is_number=True,
    ),
    Column(heading="first at", of=lambda use: use.address, write="{:#x}".format),
    Column(heading="", of=lambda use: use.mnemonic),
    Column(heading="in", of=lambda use: whole(use.symbol or ""), below=""),
)
_FIT: tuple[Column[Compatibility], ...] = (
    Column(heading="target", of=lambda fit: fit.target, style="bold"),
    Column(heading="the program", of=lambda fit: Text(*_VERDICTS[fit.verdict])),
    Column(heading="why", of=lambda fit: fit.reason, is_prose=True, below=""),
)
