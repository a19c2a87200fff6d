"""A suite is run whole and ranked by one figure, or not ranked."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from armload.analysis.run import Run
from armload.bench.suite import Suite, score_of, standard_suite, suite_called
from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.engines.job import SweepPoint
from armload.engines.llama_cpp import whole_plan
from armload.engines.plan import Plan
from armload.models.find import model_called
from armload.models.token_count import count_tokens
from armload.models.token_pieces import fewest_tokens
from armload.report.cell_table import cell_table
from armload.report.cells import cells_of
from armload.report.exchange.excerpt import excerpt_of
from armload.report.exchange.leaderboard import write_leaderboard
from armload.report.settings import suite_test_of
from armload.report.suite import suite_rows
from tests.command_line import run as typed
from tests.unit.runs import quick_run

SUITE = standard_suite()
FASTER = 2.0


def runs(*, speed: float = 1.0, leave_out: str = "", board: str = "kitchen") -> list[Run]:
    base = quick_run()
    found = []
    for number, test in enumerate(SUITE.tests):
        if test.name == leave_out:
            continue
        summary = base.summary.model_copy(
            update={"prefill_s": 2.0 / speed, "decode_s": 6.0 / speed, "decode_tps": 10.0 * speed}
        )
        update = {
            "id": f"{board}-{number}",
            "plan": test.of(Plan()),
            "summary": summary,
            "board": base.board.model_copy(update={"name": board}),
        }
        found.append(base.model_copy(update=update))
    return found


def test_the_standard_suite_is_as_published() -> None:
    # Whoever changes a test must raise the version: results of the former one no longer count.
    assert SUITE.version == 1
    assert SUITE.checksum == "3e5044c1bf5c"
    plans = list(SUITE.plans([Plan(threads=1), Plan(threads=2)]))
    assert len(plans) == 2 * len(SUITE.tests)
    assert all(SUITE.test_of(plan) for plan in plans)


def test_the_score_is_the_geometric_mean_of_all_tests() -> None:
    score = score_of(SUITE, runs())
    rates = [test.n_predict / 8.0 for test in SUITE.tests]
    assert score.tokens_per_s == pytest.approx(math.prod(rates) ** (1 / len(rates)))
    assert score.decode_tps == pytest.approx(10.0)
    assert score.prefill_s == pytest.approx(2.0)
    faster = score_of(SUITE, runs(speed=FASTER)).tokens_per_s
    assert faster == pytest.approx(FASTER * (score.tokens_per_s or 0))
    repeated = score_of(SUITE, [*runs(), *runs()])
    assert repeated.tokens_per_s == pytest.approx(score.tokens_per_s)


def test_an_incomplete_or_changed_suite_has_no_score() -> None:
    score = score_of(SUITE, runs(leave_out="context-8k"))
    assert score.tokens_per_s is None
    assert score.missing == ("context-8k",)
    first, *others = runs()
    assert first.plan is not None
    for change in ({"prompt": "another"}, {"n_predict": 1}, {"temperature": 1.0}, {"cold": True}):
        changed = first.model_copy(update={"plan": first.plan.model_copy(update=change)})
        assert score_of(SUITE, [changed, *others]).missing == ("content-generation",)
    invalid = first.verdict.model_copy(update={"valid": False})
    doubtful = first.model_copy(update={"verdict": invalid})
    assert score_of(SUITE, [doubtful, *others]).missing == ("content-generation",)


def test_the_best_score_comes_first_and_incomplete_suites_last() -> None:
    slow, fast = runs(board="slow"), runs(board="fast", speed=FASTER)
    part = runs(board="part", speed=2 * FASTER, leave_out="code-analysis")
    rows = suite_rows([*part, *slow, *fast], SUITE)
    assert [row.runs[0].board.name for row in rows] == ["fast", "slow", "part"]
    assert rows[-1].score.tokens_per_s is None


def test_published_runs_are_recognised_and_ranked_on_the_page(tmp_path: Path) -> None:
    published = [excerpt_of(run) for run in runs()]
    assert all(SUITE.test_of(run.plan) for run in published)
    assert not any(run.text for run in published)
    written = write_leaderboard({"ours": tuple(published)}, tmp_path / "site")
    page = written.page.read_text(encoding="utf-8")
    assert SUITE.title in page
    assert "Suite " not in write_leaderboard(
        {"other": (excerpt_of(quick_run()),)}, tmp_path / "other"
    ).page.read_text(encoding="utf-8")


def test_tests_that_are_too_long_for_a_model_are_named() -> None:
    words = model_called("word-problems:Q8_0", Silent())
    longer = words.model_copy(update={"context_length": 4096})
    assert [test.name for test in SUITE.too_long_for(longer)] == ["context-8k"]
    short = {test.name for test in SUITE.tests} - {test.name for test in SUITE.too_long_for(words)}
    assert short == {"content-generation", "creative-writing"}


def test_a_text_that_cannot_fit_the_context_is_refused_with_its_tokens() -> None:
    words = model_called("word-problems:Q8_0", Silent())
    text = "seven apples " * 400
    fewest, count = fewest_tokens(words.path, text), count_tokens(words.path, text)
    assert count is not None
    assert len(text.split()) <= fewest <= count <= len(text)
    with pytest.raises(UsageError, match=f"at least {count + 8} tokens"):
        whole_plan(Plan(prompt=text, n_predict=8), words)
    with pytest.raises(UsageError, match="--context 64 is too small"):
        whole_plan(Plan(prompt=text[:300], n_predict=8, context_tokens=64), words)
    assert fewest_tokens(words.path, "\N{SNOWMAN}" * 3) >= 3


def test_a_text_that_leaves_too_little_of_the_context_is_refused_with_what_it_leaves() -> None:
    words = model_called("word-problems:Q8_0", Silent())
    text = "seven apples " * 30
    count = count_tokens(words.path, text)
    assert count is not None
    with pytest.raises(UsageError, match=f"at least {count + 90} tokens") as refused:
        whole_plan(Plan(prompt=text, n_predict=90, context_tokens=count + 89), words)
    assert f"Use --context {count + 90} or more. Use -n 89 or less" in refused.value.remedy
    for fits in (Plan(n_predict=89), Plan(n_predict=4)):
        plan = fits.model_copy(update={"prompt": text, "context_tokens": count + fits.n_predict})
        assert whole_plan(plan, words).prompt == text
    with pytest.raises(UsageError, match="need at least") as refused:
        whole_plan(Plan(prompt=text, n_predict=10**7), words)
    assert refused.value.remedy == f"Use -n {words.context_length - count} or less."
    # llama-completion leaves room for four tokens, however few are asked for.
    with pytest.raises(UsageError, match=f"at least {count + 4} tokens"):
        whole_plan(Plan(prompt=text, n_predict=1, context_tokens=count + 3), words)


def test_tests_of_a_suite_are_named_in_tables() -> None:
    of_own = quick_run()
    assert suite_test_of(runs()[0]) == SUITE.tests[0].name
    place = SweepPoint(sweep="s", cell=0, round=0, test="mine")
    assert suite_test_of(of_own) == ""
    assert suite_test_of(of_own.model_copy(update={"place": place})) == "mine"
    swept = [
        run.model_copy(update={"place": place.model_copy(update={"test": test.name})})
        for run, test in zip(runs(), SUITE.tests, strict=True)
    ]
    cells = cells_of(swept)
    assert {cell.label for cell in cells} >= {"code-analysis", "creative-writing"}
    headings = [column.heading for column in cell_table(cells).columns]
    assert "test" in headings
    assert not {"prompt", "n"} & {*headings}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tests: []\n", "tests"),
        ("tests: [{name: a, n_predict: 3}]\n", "either prompt or prompt_tokens"),
        ("tests: [{name: a, prompt: x, prompt_tokens: 3, n_predict: 3}]\n", "either prompt"),
        (
            "tests: [{name: a, prompt: x, n_predict: 3}, {name: a, prompt: y, n_predict: 3}]\n",
            "two",
        ),
        ("tests: [{name: A b, prompt: x, n_predict: 3}]\n", "name"),
    ],
)
def test_a_file_that_is_no_suite_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(DataError, match=said):
        suite_called("mine.yaml")
    with pytest.raises(UsageError):
        suite_called("no-such-suite")
    with pytest.raises(UsageError):
        suite_called("missing.yaml")


def test_a_suite_of_one_s_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("tests: [{name: a, prompt: x, n_predict: 3}]\n")
    mine = suite_called("mine.yaml")
    assert isinstance(mine, Suite)
    assert (mine.name, mine.version, len(mine.tests)) == ("mine", 1, 1)


def test_what_a_suite_decides_cannot_be_given_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nowhere = ("armload", "bench", "--board", "this-machine", "--model", "no-such.gguf")
    done = typed(*nowhere, "--suite", "standard", "-n", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert "--suite" in done.stderr
    (tmp_path / "plan.yaml").write_text("n_predict: 3\n")
    done = typed(*nowhere, "--suite", "standard", "--plan", "plan.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "decides n_predict" in done.stderr
