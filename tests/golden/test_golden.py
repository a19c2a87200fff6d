"""What a person and a program read, byte for byte.

``pytest tests/golden --accept`` writes the files anew.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from armload.analysis.comparison_findings import ComparisonFinding
from armload.analysis.finding import Finding, RunFinding, kinds_of
from armload.analysis.limit_findings import LimitFinding
from armload.analysis.load.findings import LoadFinding
from armload.analysis.repeats import Stop
from tests.golden.calls import Calls
from tests.golden.case import GOLDENS, Case
from tests.golden.cases import CASES
from tests.golden.sandbox import Sandbox, frozen, import_all

FAMILIES = (RunFinding, LoadFinding, ComparisonFinding, LimitFinding, Stop)
UNREACHED: Mapping[str, str] = {
    "report/evaluation/figures.py energy_figure": "no recorded evaluation has a power meter",
    "report/load/table.py load_view": "no recorded load has images",
}
"""Places that no case reaches, and why."""


class Produced:
    """What the cases produce, each once."""

    def __init__(self, sandbox: Sandbox, calls: Calls) -> None:
        self.calls = calls
        self._sandbox = sandbox
        self._files: dict[str, dict[Path, str]] = {}

    def files(self, case: Case) -> dict[Path, str]:
        key = f"{case.group}/{case.name}"
        if key not in self._files:
            self._files[key] = case.produce(self._sandbox)
        return self._files[key]


@pytest.fixture(scope="module")
def produced() -> Iterator[Produced]:
    import_all()
    sandbox = Sandbox()
    try:
        with frozen(), Calls.recorded() as calls:
            yield Produced(sandbox, calls)
    finally:
        sandbox.remove()


def test_names_of_cases_are_their_own() -> None:
    names = [f"{case.group}/{case.name}" for case in CASES]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}/{case.name}")
def test_is_said_as_before(case: Case, produced: Produced, pytestconfig: pytest.Config) -> None:
    files = produced.files(case)
    known = set(GOLDENS.glob(f"{case.group}/{case.name}.*"))
    if pytestconfig.getoption("accept"):
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        return
    different = "".join(
        difference(path, path.read_bytes().decode() if path in known else "", text)
        for path, text in files.items()
    )
    assert not different, f"pytest tests/golden --accept accepts this:\n{different}"


def test_no_file_is_left_over(produced: Produced, pytestconfig: pytest.Config) -> None:
    files = {path for case in CASES for path in produced.files(case)}
    left = [path for path in GOLDENS.rglob("*") if path.is_file() and path not in files]
    if pytestconfig.getoption("accept"):
        for path in left:
            path.unlink()
        return
    assert left == []


def difference(path: Path, before: str, now: str) -> str:
    return "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True),
            now.splitlines(keepends=True),
            f"accepted/{path.relative_to(GOLDENS)}",
            f"now/{path.relative_to(GOLDENS)}",
        )
    )


@pytest.mark.parametrize("name", ["as_result", "Table", "Table.of", "chart_of", "drawn"])
def test_every_place_that_presents_is_reached(name: str, produced: Produced) -> None:
    for case in CASES:
        produced.files(case)
    assert [place for place in produced.calls.unreached(name) if place not in UNREACHED] == []


def test_every_kind_of_result_is_shown(produced: Produced) -> None:
    for case in CASES:
        produced.files(case)
    assert produced.calls.unshown() == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_finding_is_shown(family: type[Finding]) -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in GOLDENS.rglob("*.json"))
    kinds = {each.model_fields["kind"].default for each in kinds_of(family)}
    missing = {kind for kind in kinds if f'"kind": "{kind}"' not in shown}
    assert not missing, (
        "record a result that has each of these in tests/golden/recorded, then run --accept"
    )
