"""What a person reads of a program's inspection."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from armload.build.binary import FeatureUse
from armload.build.fit import Compatibility
from armload.build.inspection import Inspection
from armload.report.binaries import inspection_table

SYMBOL = "[bold]ggml_vec_dot_q4_0_q8_0_with_a_name_that_is_longer_than_a_line_of_a_terminal"
INSPECTION = Inspection(
    path=Path("[red]program"),
    sha256="0123456789abcdef" * 4,
    size_bytes=8_000_000,
    architecture="aarch64",
    is_static=False,
    interpreter="/lib/ld-linux-aarch64.so.1",
    needed=("libc.so.6",),
    is_stripped=False,
    features=(
        FeatureUse(
            feature="asimddp", count=1909, address=0x15F16A4, mnemonic="sdot", symbol=SYMBOL
        ),
        FeatureUse(feature="atomics", count=13, guarded_count=13, address=64, mnemonic="ldadd"),
        FeatureUse(feature="sve", count=20, guarded_count=7, address=64, mnemonic="sve"),
    ),
)
FITS = [
    Compatibility(target="rpi4", verdict="no", reason="the CPU lacks asimddp"),
    Compatibility(target="rk3568", verdict="runs", reason=""),
]


@pytest.mark.parametrize("width", [80, 160])
def test_everything_is_shown_and_fits_the_terminal(width: int) -> None:
    console = Console(width=width, file=io.StringIO())
    console.print(inspection_table(INSPECTION, FITS))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    for word in (
        *("[red]program", INSPECTION.sha256, "8.0 MB", "aarch64", "no: it contains symbols"),
        *("/lib/ld-linux-aarch64.so.1, libc.so.6", "1,909", "0x15f16a4", "sdot", "[bold]ggml"),
        *("the CPU lacks asimddp", "does not run", "runs"),
    ):
        assert word in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert [rows[name][2] for name in ("asimddp", "atomics", "sve")] == ["0", "all", "7"]


def test_a_program_that_uses_no_feature_says_so() -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(inspection_table(INSPECTION.model_copy(update={"features": ()}), FITS))
    assert isinstance(console.file, io.StringIO)
    assert "only those that every 64-bit ARM CPU has" in console.file.getvalue()
