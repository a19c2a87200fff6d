"""The verbs: explained, and quick to list."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from armload.cli import program
from armload.cli.help import EXIT_STATUSES, grouped
from armload.cli.manual import manual
from armload.cli.run_filter import RunFilter
from armload.cli.verb import GROUPS, VERB_GROUPS, VERBS, WEEK, verbs_in
from armload.cli.verbs.bench import BenchOptions
from armload.core.errors import ArmloadError
from armload.core.options import Declared, declared_options
from armload.engines.plan import DEFAULT_PRECISION, DEFAULT_PRECISION_TIME_S, Plan
from armload.engines.service_plan import ScorerOptions, ServingPlan
from tests.command_line import ROOT, run

HEAVY = (
    *("rich", "paramiko", "fabric", "numpy", "vl_convert", "jinja2", "elftools", "tenacity"),
    *("dask", "distributed"),
)


def options_of(name: str) -> list[Declared]:
    return list(declared_options(VERBS[name].options))


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_verb_has_one_line_and_an_example_and_explains_its_options(name: str) -> None:
    task = VERBS[name]
    doc = task.__doc__ or ""
    first = doc.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 80
    assert re.search(rf"Example: armload {re.escape(name)}\b", doc)
    assert all(each.help for each in options_of(name))


def test_help_and_the_manual_list_every_verb_once_under_the_heading_of_its_group() -> None:
    helped = run("armload", "help", "all").stdout
    page = manual()["armload.1"].replace("\\-", "-").partition(".SH VERBS")[2]
    places = []
    for heading, names in VERB_GROUPS.items():
        (at,) = (found.end() for found in re.finditer(rf"^{heading}:$", helped, re.MULTILINE))
        listed = re.findall(r"^  ([a-z][a-z.]*)", helped[at:].partition(":\n")[0], re.MULTILINE)
        assert listed == list(names)
        in_manual = page.partition(f".SS {heading}\n")[2].partition("\n.S")[0]
        assert re.findall(r"^\.B (\S+)$", in_manual, re.MULTILINE) == list(names)
        places.append(at)
    assert places == sorted(places)
    everywhere = [name for names in VERB_GROUPS.values() for name in names]
    assert sorted(everywhere) == sorted(VERBS)


def test_the_first_page_of_help_is_one_screen_with_the_verbs_of_a_normal_week() -> None:
    page = run("armload", "--help").stdout
    assert page == run("armload", "help").stdout
    lines = page.splitlines()
    assert len(lines) < 24, "the prompt below it takes a line, too"
    assert max(map(len, lines)) <= 80
    listed = re.findall(r"^  ([a-z]+) ", page, re.MULTILINE)
    shown = [name for name in WEEK if name in VERBS or verbs_in(name)]
    assert listed == [*shown, "help", "help"]
    assert {"demo", "init", "build", "deploy", "bench", "chat", "fit", "compare", "show"} <= {
        *shown
    }
    assert {name for name in WEEK if name not in VERBS} <= GROUPS.keys()


def test_help_needs_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys; from armload.cli.verb import VERBS; list(VERBS.values());"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("board.list",), ("config",)])
def test_what_opens_no_run_and_writes_no_page_does_not_import_them(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    code = (
        "import sys; from armload.cli.main import main\n"
        "try: main()\n"
        "finally: print([name for name in ('armload.analysis.run', 'armload.report.pages')"
        " if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_and_readme_name_every_exit_status() -> None:
    kinds = [ArmloadError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    statuses = {0, *(kind.exit_status for kind in kinds)}
    table = (ROOT / "README.md").read_text().partition("| status |")[2]
    assert {int(each) for each in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == statuses
    assert {int(each) for each in re.findall(r"\b\d+\b", EXIT_STATUSES)} == statuses


def test_readme_names_every_verb_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text()
    table = "\n".join(line for line in readme.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`([a-z.]+)`", table.split("| status |")[0]))
    assert named == set(VERBS)


def test_a_letter_means_the_same_in_every_verb_and_h_is_left_to_help() -> None:
    meanings: dict[str, set[str]] = {}
    for each in itertools.chain(*map(options_of, VERBS)):
        if each.letter:
            meanings.setdefault(each.letter, set()).add(each.name)
    assert all(len(names) == 1 for names in meanings.values()), meanings
    assert "h" not in meanings
    assert meanings["n"] == {"n-predict"}


def test_show_report_and_compare_filter_runs_by_the_same_options() -> None:
    fields = RunFilter.model_fields
    found = {
        name: {each.name: each.letter for each in options_of(name) if each.field in fields}
        for name, verb in VERBS.items()
        if issubclass(verb.options, RunFilter)
    }
    assert {"show", "report", "compare"} <= found.keys()
    assert all(options == found["show"] for options in found.values())
    assert found["compare"]["board"] == "b"


def test_the_page_of_options_has_whole_tables() -> None:
    lines = (ROOT / "docs" / "options.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("|") and not line.endswith("|")] == []
    assert [line for line in lines if line.endswith("|") and not line.startswith("|")] == []


def test_help_shows_what_a_value_is() -> None:
    shown = run("armload", "bench", "--help-all").stdout
    assert run("armload", "help", "bench", "all").stdout == shown
    assert re.search(r"^  -n, --n-predict N +tokens", shown, re.MULTILINE)
    assert re.search(r"^  -p, --prompt PROMPT +text", shown, re.MULTILINE)
    assert re.search(r"^      --time-limit SECONDS +", shown, re.MULTILINE)
    assert re.search(r"^  -j, --json +print", shown, re.MULTILINE)
    headings = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert headings == [
        *(
            "Plan",
            "Images and sounds",
            "Embeddings",
            "Sampling",
            "Repeats",
            "Engine",
            "Cores",
            "Board",
        ),
        *("Conditions", "Build", "Output"),
    ]
    assert shown.rstrip().splitlines()[-2].startswith("  -h, --help")


def test_the_first_page_of_bench_fits_a_screen_and_says_where_the_rest_is() -> None:
    shown = run("armload", "bench", "--help").stdout
    assert len(shown.splitlines()) <= 40
    for name in BenchOptions.common:
        (each,) = (each for each in options_of("bench") if each.field == name)
        assert f"--{each.name}" in shown
    assert f"--help-all  {' ' * 12}show all" in shown
    assert "--numa" not in shown
    # A verb of few options has one page.
    assert run("armload", "build", "--help").stdout == run("armload", "build", "--help-all").stdout


@pytest.mark.parametrize("name", sorted(VERBS))
def test_help_says_what_is_taken_for_an_option_that_is_left_out(name: str) -> None:
    for each in options_of(name):
        default = None if each.info.is_required() else each.info.default
        if default is not None and default != () and default != "" and each.value:
            assert each.help.endswith("]")
            assert each.help.count("[default: ") == 1


_SERVED, _RUN = ServingPlan(), Plan()
USED_WITHOUT = {
    **{
        (verb, option): value
        for verb in ("serve", "load")
        for option, value in {
            "slots": _SERVED.slots,
            "context": _SERVED.context_tokens,
            "batch": _SERVED.batch_tokens,
            "micro-batch": _SERVED.micro_batch_tokens,
            "kv-type": _SERVED.kv_type,
            "flash-attention": _SERVED.flash_attention,
            "weights": _SERVED.weights,
            "prompt-cache": _SERVED.prompt_cache_bytes,
        }.items()
    },
    ("serve", "temperature"): _SERVED.temperature,
    ("bench", "n-predict"): _RUN.n_predict,
    ("bench", "weights"): _RUN.weights,
    ("bench", "temperature"): _RUN.temperature,
    ("bench", "seed"): _RUN.seed,
    ("bench", "time-limit"): _RUN.time_limit_s,
    ("bench", "precision"): f"{DEFAULT_PRECISION:.0%}",
    ("bench", "precision-time"): DEFAULT_PRECISION_TIME_S,
    ("eval", "parallel"): ScorerOptions.model_fields["parallel"].default,
    ("eval", "weights"): ScorerOptions.model_fields["weights"].default,
}


@pytest.mark.parametrize(("verb", "option"), USED_WITHOUT)
def test_help_says_what_is_used_where_an_option_has_no_value_of_its_own(
    verb: str, option: str
) -> None:
    (told,) = (each.default for each in options_of(verb) if each.name == option)
    used = USED_WITHOUT[verb, option]
    assert told.split(",")[0] == (f"{used:g}" if isinstance(used, float) else str(used))


@pytest.mark.parametrize("name", sorted(VERBS))
def test_help_lists_each_option_once_and_many_options_under_several_headings(name: str) -> None:
    options = [each for each in options_of(name) if not each.option.is_argument]
    groups = grouped(options)
    listed = [option.name for group in groups.values() for option in group]
    assert sorted(listed) == sorted(option.name for option in options)
    assert max(len(group) for group in groups.values()) <= 12
    assert (len(groups) > 1) == (len(options) > 9)


def test_help_of_build_says_what_is_taken_for_each_option_with_a_value() -> None:
    listing = run("armload", "build", "--help").stdout.partition("Build:")[2]
    entries = re.split(r"^ {2,6}(?:-\w, )?--", listing, flags=re.MULTILINE)[1:]
    told = {entry.split()[0]: " ".join(entry.split()) for entry in entries}
    for name in ("target", "programs", "source", "ref", "compiler", "on", "jobs", "nice"):
        assert re.search(r"\[default: [^\]]+\]( Output:)?$", told[name]), told[name]


def test_help_names_the_board_that_is_meant_and_what_a_number_counts() -> None:
    for verb in ("deploy", "pull", "board.probe", "board.up", "board.down", "demo", "watch"):
        assert "[default: virtual" in " ".join(run("armload", verb, "--help").stdout.split())
    assert "--older-than DAYS" in run("armload", "board.clean", "--help").stdout


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("verb", ["", *sorted(VERBS)])
def test_help_fits_the_terminal_and_breaks_no_word_and_no_example(
    verb: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "argv", ["armload", *([verb, "--help-all"] if verb else ["--help"])])
    with contextlib.suppress(SystemExit):
        program.run()
    shown = capsys.readouterr().out
    if verb:
        task = VERBS[verb]
        example = "Example: " + (task.__doc__ or "").partition("Example: ")[2].splitlines()[0]
        assert example in shown.splitlines()
        for each in options_of(verb):
            assert set(each.help.split()) <= set(shown.split()), each.name
    for line in shown.splitlines():
        assert len(line) <= width or line.startswith(("Example: ", "Usage: ")), line
