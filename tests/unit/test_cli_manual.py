"""Manual pages name what the program takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from armload.cli.manual import manual
from armload.cli.verb import VERBS
from armload.core.options import declared_options


def test_every_verb_has_a_page_with_all_its_options() -> None:
    pages = manual()
    assert set(pages) == {"armload.1", *(f"armload-{name}.1" for name in VERBS)}
    for name in VERBS:
        page = pages[f"armload-{name}.1"].replace("\\-", "-")
        for each in declared_options(VERBS[name].options):
            assert each.shown in page, f"{name} {each.shown}"
        assert f".EX\narmload {name}" in page
        assert "Example:" not in page
        assert f".BR armload-{name} (1)" in pages["armload.1"]


def test_pages_carry_the_date_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert manual()["armload.1"].startswith('.TH "ARMLOAD" 1 "1970-01-02" "armload ')


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_pages_are_well_formed(tmp_path: Path) -> None:
    for name, page in manual().items():
        (tmp_path / name).write_text(page)
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
