"""Commands and constants in the documentation: the quick half of their tests, which runs none."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from armload.analysis.load import comparison
from armload.analysis.load.assessed import SLOW_BY_S
from armload.analysis.load.findings import MOST_LATENESS_SHARE
from armload.analysis.load.quantiles import FEWEST_INDEPENDENT
from armload.analysis.load.steady import DEVIATIONS
from armload.cli.command_line import read_options
from armload.cli.execution import typed_options
from armload.cli.verb import VERBS
from tests.command_line import typed
from tests.documentation import PAGES, ROOT, TUTORIALS, blocks, commands


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_every_command_on_a_page_has_options_that_exist_and_values_that_are_allowed(
    page: str,
) -> None:
    for command in commands(ROOT / page):
        name, *words = shlex.split(command)[1:]
        typed_options(VERBS[name], read_options(VERBS[name], words).words)


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("load-metrics", f"taken {DEVIATIONS:g} standard errors higher than measured"),
        ("load-metrics", f"fewer than {FEWEST_INDEPENDENT:g} independent observations"),
        ("load-metrics", f"and more than {MOST_LATENESS_SHARE:.0%} of the median time"),
        ("load-causes", f"and at least {SLOW_BY_S:g} s longer"),
        ("load-causes", f"fewer than {comparison.FEWEST_INDEPENDENT:g} independent observations"),
    ],
)
def test_the_pages_on_loads_give_the_constants_of_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / "docs" / f"{page}.md").read_text().split())


def test_most_pages_show_commands() -> None:
    assert sum(any(commands(page)) for page in PAGES) > len(PAGES) / 2


def test_the_prediction_for_a_board_that_does_not_answer_is_the_one_that_a_tutorial_shows(
    tmp_path: Path,
) -> None:
    (_, command), (_, shown), *_ = blocks(TUTORIALS / "too-large.md")
    # A program that was built before would be asked for its memory, and the figures are others.
    said = typed(tmp_path, *shlex.split(command)[1:], cache=tmp_path / "cache").stdout
    assert [line for line in shown.splitlines() if line not in said] == []
