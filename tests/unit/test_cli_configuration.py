"""A person's own defaults: which apply, where they come from, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.cli import evaluation_options, load_checks
from armload.cli.configuration import add_workspace_default, check_defaults
from armload.cli.execution import typed_options
from armload.cli.verb import VERBS
from armload.cli.verbs import tune
from armload.core.errors import DataError, UsageError
from armload.core.options import declared_options
from tests.command_line import typed
from tests.documentation import ROOT, blocks


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))


def own(text: str) -> Path:
    path = Path.cwd() / "own" / "armload" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(verb: str, **words: Any) -> Any:
    """Return the options of a verb after what a person typed, by the options' names."""
    declared = declared_options(VERBS[verb].options)
    fields = {each.name.replace("-", "_"): each.field for each in declared}
    return typed_options(
        VERBS[verb], {fields.get(name, name): word for name, word in words.items()}
    )


def test_the_command_line_comes_first_then_a_plan_the_workspace_and_the_person() -> None:
    own("[all]\nboard = 'shed'\n[bench]\nthreads = [1, 2]\nn-predict = 4\nseed = 7\n")
    Path("pyproject.toml").write_text("[tool.armload.bench]\nn_predict = 5\nbatch = 64\n")
    Path("plan.yaml").write_text("batch: 32\nseed: 8\n")
    found = read("bench", threads="3", plan="plan.yaml")
    assert (found.threads, found.n_predict, found.board) == ((3,), (5,), ("shed",))
    assert found.batch == ()
    assert found.seed is None
    assert read("bench").threads == (1, 2)
    assert read("fit").board == ("shed",)
    assert read("fit", board="kitchen").board == ("kitchen",)


def test_a_plan_file_that_is_itself_a_default_comes_before_other_defaults() -> None:
    own("[bench]\nplan = 'plan.yaml'\nbatch = 64\nprompt = 'Hello'\n")
    Path("plan.yaml").write_text("batch: 32\nprompt_tokens: 16\n")
    found = read("bench")
    assert (found.plan, found.batch, found.prompt) == (Path("plan.yaml"), (), ())


def test_the_length_of_a_prompt_replaces_a_default_prompt() -> None:
    own("[bench]\nprompt = 'Hello'\n")
    assert read("bench").prompt == ("Hello",)
    assert read("bench", prompt_tokens="16").prompt == ()


def test_typed_repeats_and_a_typed_precision_replace_each_others_defaults() -> None:
    own("[bench]\nrepeats = 3\nwarmups = 1\n")
    found = read("bench", precision="3%")
    assert (found.precision, found.repeats, found.warmups) == (0.03, None, None)
    assert read("bench").repeats == 3
    own("[bench]\nprecision = '2%'\nprecision-time = 9\n")
    found = read("bench", repeats="2")
    assert (found.precision, found.precision_time, found.repeats) == (None, None, 2)


def test_a_default_for_every_verb_is_no_filter() -> None:
    own("[all]\nboard = 'shed'\nmodel = 'm.gguf'\n[report]\nmodel = 'tiny'\n")
    assert read("bench").board == ("shed",)
    assert read("show").selection() is None
    assert read("compare", a="latest", b="latest").selection() is None
    assert read("report").given(("model",)) == []
    assert read("report").model == "tiny"


def test_a_default_for_every_verb_names_no_board_that_a_verb_changes_and_none_for_the_demo() -> (
    None
):
    own("[all]\nboard = 'shed'\n")
    assert read("board.probe").board == "shed"
    assert read("demo").board == "virtual"
    for verb in ("board.clean", "board.release", "board.trust"):
        with pytest.raises(UsageError, match="--board is missing"):
            read(verb)
    own("[demo]\nboard = 'shed'\n[board.clean]\nboard = 'attic'\n")
    assert read("demo").board == "shed"
    assert read("board.clean").board == "attic"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '[tool.armload.all]\nboard = "kitchen"\n'),
        ("# ours\n", '# ours\n\n[tool.armload.all]\nboard = "kitchen"\n'),
        ("[project]", '[project]\n\n[tool.armload.all]\nboard = "kitchen"\n'),
        (
            "[tool.armload.all]  # ours\nwait = 60\n[tool.x]\ny = 1\n",
            '[tool.armload.all]  # ours\nboard = "kitchen"\nwait = 60\n[tool.x]\ny = 1\n',
        ),
        (
            "[tool.armload]\nall.wait = 60\n",
            None,
        ),
        ("tool = {armload = {bench = {seed = 1}}}\n", None),
        ("tool = 1\n", None),
    ],
)
def test_a_default_is_added_to_the_workspaces_file_beside_all_that_stands_there(
    before: str | None, after: str | None
) -> None:
    path = Path("pyproject.toml")
    if before is not None:
        path.write_text(before)
    file = add_workspace_default("board", "kitchen")
    if after is None:
        assert file is None
        assert path.read_text() == before
    else:
        assert file == Path.cwd() / path
        assert path.read_text() == after
        assert read("bench").board == ("kitchen",)


def test_a_file_that_is_a_link_stays_one() -> None:
    Path("settings.toml").write_text("# ours\n")
    Path("pyproject.toml").symlink_to("settings.toml")
    add_workspace_default("board", "kitchen")
    assert Path("pyproject.toml").is_symlink()
    assert "kitchen" in Path("settings.toml").read_text()


def test_the_example_of_the_page_is_allowed() -> None:
    (example, *_) = (
        text for kind, text in blocks(ROOT / "docs/configuration.md") if kind == "toml"
    )
    own(example)
    for verb in VERBS:
        check_defaults(verb)


def test_a_default_that_does_nothing_here_is_no_mistake_and_has_no_effect() -> None:
    own("[fit]\nboard = 'shed'\n[bench]\nprecision = '2%'\n")
    found = read("fit", hardware="raspberry-pi-5-8gb").refuse(("board",), "--hardware", "Remove.")
    assert found.board == ("virtual",)
    assert found.model_fields_set == {"hardware"}
    with pytest.raises(UsageError):
        read("fit", board="shed").refuse(("board",), "--hardware", "Remove one.")
    assert read("bench").given(("precision",)) == []


@pytest.mark.parametrize(
    ("table", "words", "applies"),
    [
        ("rate = [1]", {"concurrency": "2"}, {"concurrency": (2,), "rate": ()}),
        ("find-rate = true\nslo = 'ttft=1s'", {"rate": "2"}, {"find_rate": False, "rate": (2,)}),
        ("concurrency = 2", {"find_rate": True, "slo": "ttft=1s"}, {"concurrency": ()}),
        ("max-time = 600", {"rate": "2"}, {"max_time": None}),
        ("prompt-tokens = 64", {"rate": "2", "data": "f"}, {"prompt_tokens": ""}),
        ("data = 'f'", {"rate": "2", "prompt_tokens": "64"}, {"data": None}),
        ("data = 'f'", {"rate": "2", "stop_at_end": True}, {"data": None, "stop_at_end": True}),
        ("stop-at-end = true", {"rate": "2", "data": "f"}, {"stop_at_end": False}),
        ("think-time = 5", {"rate": "2"}, {"think_time": ""}),
        ("prefix-share = 0.5", {"rate": "2"}, {"prefix_share": 1.0}),
        ("turns = 4", {"rate": "2", "think_time": "5"}, {"turns": "4", "think_time": "5"}),
        (
            "turns = 4\npatience = 5\nrepeats = 3",
            {"find_rate": True, "slo": "ttft=1s"},
            {"turns": "", "patience": "", "repeats": 1},
        ),
        ("turns = 4\nduration = 9", {"stages": "1:60"}, {"turns": "", "duration": None}),
        ("n-predict = 8\nrepeats = 2", {"replay": "t"}, {"n_predict": "", "repeats": 1}),
        ("time-scale = 2", {"rate": "2"}, {"time_scale": 1.0}),
        ("arrivals = 'constant'\nmax-concurrency = 9", {"concurrency": "2"}, {"arrivals": ""}),
        ("export = ['seed']", {"concurrency": "2"}, {"export": ()}),
        ("board = 'shed'\nsubtract-idle = true", {"url": "http://x", "rate": "1"}, {"board": ""}),
        ("url = 'http://x'", {"board": "shed", "rate": "1"}, {"url": "", "board": "shed"}),
        ("url = 'http://x'\nboard = 'shed'", {"rate": "1"}, {"url": "http://x", "board": ""}),
        ("api-key-file = 'k'", {"rate": "1"}, {"api_key_file": None}),
        (
            "slo = 'ttft=1s'\nn-predict = 8",
            {"rate": "1", "dialect": "openai-embeddings"},
            {"slo": "", "n_predict": ""},
        ),
        ("dialect = 'openai-embeddings'", {"rate": "1", "n_predict": "8"}, {"dialect": ""}),
    ],
)
def test_what_is_typed_wins_over_a_default_and_a_default_that_lacks_something_is_ignored(
    table: str, words: dict[str, Any], applies: dict[str, Any]
) -> None:
    own(f"[load]\n{table}\n")
    found = load_checks.check_combination(read("load", **words))
    assert {field: getattr(found, field) for field in applies} == applies
    gone = {field for field, value in applies.items() if not value}
    assert not gone & found.model_fields_set


@pytest.mark.parametrize(
    ("table", "words", "applies"),
    [
        ("rate = 2\nduration = 9", {"for": "rate", "slo": "ttft=1s"}, {"rate": None}),
        ("rate = 2\nslo = 'ttft=1s'\ntimeout = 9", {}, {"rate": None, "slo": "", "timeout": 600.0}),
        ("duration = 250", {"for": "total-time", "rate": "6"}, {"rate": 6.0, "duration": 250.0}),
        ("slo = 'ttft=1s'\nduration = 9", {"for": "total-time", "rate": "6"}, {"slo": ""}),
        ("n-predict = 8", {"for": "prefill"}, {"n_predict": ""}),
        ("kld-prompts = 'p'\ntask-data = 'd'", {}, {"kld_prompts": None, "task_data": ""}),
        ("subtract-idle = true", {}, {"subtract_idle": False}),
        ("prompt = 'Once'", {"prompt_tokens": "64"}, {"prompt": "", "prompt_tokens": "64"}),
    ],
)
def test_a_search_ignores_defaults_that_are_not_of_its_objective(
    table: str, words: dict[str, Any], applies: dict[str, Any]
) -> None:
    own(f"[tune]\n{table}\n")
    found = tune.check_combination(read("tune", **words))
    assert {field: getattr(found, field) for field in applies} == applies


@pytest.mark.parametrize(
    ("table", "words", "applies"),
    [
        ("type = 'Q2_K'", {}, {"type": ()}),
        ("grader = 'boxed'\nconclude = true", {"task": "piqa"}, {"grader": (), "conclude": False}),
        ("grader = ['boxed', 'number']", {}, {"grader": ()}),
        ("reference = 'latest'\nfail-unless-close = true", {}, {"reference": ""}),
        ("fail-unless-close = true", {"task": "logits"}, {"fail_unless_close": False}),
        ("max-time = 60\nbudget = 8", {"task": "logits"}, {"max_time": None, "budget": ()}),
        ("tell-budget = 'yes'", {"task": "own.yaml"}, {"tell_budget": "no"}),
        ("conclude = true", {"task": "own.yaml"}, {"conclude": False}),
        ("grader = 'boxed'", {}, {"grader": ("boxed",)}),
    ],
)
def test_an_evaluation_ignores_defaults_that_its_task_has_no_use_for(
    table: str, words: dict[str, Any], applies: dict[str, Any]
) -> None:
    Path("own.yaml").write_text(
        "kind: generate\nexpected: '{{ q }}'\nfields: {q: q}\n"
        "prompts: {plain: {user: '{{ q }}'}}\ngrader: number\n"
    )
    own(f"[eval]\n{table}\n")
    found = evaluation_options.check_combination(read("eval", **words))
    assert {field: getattr(found, field) for field in applies} == applies


@pytest.mark.parametrize(
    ("verb", "table", "words", "applies"),
    [
        ("bench", "weights = 'mapped'", {"resident": "400MB"}, {"weights": ()}),
        ("bench", "weights = 'streamed'", {"resident": "400MB"}, {"weights": ("streamed",)}),
        ("bench", "resident = '400MB'", {"weights": "mapped"}, {"resident": ()}),
        ("bench", "warmups = 1", {"share": True}, {"share": True, "warmups": None}),
        ("bench", "compiler = 'zig'", {"on": "server"}, {"compiler": "", "on": "server"}),
        ("bench", "source = 's'\nref = 'r'", {"source": "mine"}, {"source": "mine", "ref": ""}),
        ("serve", "port = 8080\nfront = 'llm-serving'", {"detach": True}, {"port": None}),
        ("serve", "detach = true", {"port": "8080"}, {"detach": False, "port": 8080}),
        ("serve", "context = 1024", {"plan": "plan.yaml"}, {"context_tokens": 2048}),
        ("fit", "hardware = 'all'", {"board": "shed"}, {"hardware": ()}),
        ("watch", "mnn-python = 'folder'", {"command": ["demo"]}, {"mnn_python": None}),
        ("show", "loads = true", {"model": "m"}, {"loads": False}),
        ("show", "loads = true", {"run": "latest"}, {"loads": False}),
        ("report", "leaderboard = true", {"model": "m"}, {"leaderboard": False}),
        ("export", "json = true", {"runs": ["latest"], "format": "csv"}, {"as_json": False}),
        ("build", "list = true", {"target": "rk3568"}, {"list_": False}),
        (
            "bisect",
            "text-differs = true",
            {"good": "a", "bad": "b", "slower": "3%"},
            {"text_differs": False},
        ),
    ],
)
def test_what_is_typed_or_planned_wins_over_a_default_that_excludes_it(
    verb: str, table: str, words: dict[str, Any], applies: dict[str, Any]
) -> None:
    Path("plan.yaml").write_text("context: 512\n")
    own(f"[{verb}]\n{table}\n")
    found = read(verb, **words)
    assert {field: getattr(found, field) for field in applies} == applies


def test_of_two_defaults_that_exclude_each_other_the_one_of_the_earlier_file_applies() -> None:
    Path("pyproject.toml").write_text(
        "[tool.armload.load]\nrate = 2\n[tool.armload.all]\nboard = 'shed'\n"
    )
    own(
        "[load]\nconcurrency = 4\nurl = 'http://x'\n"
        "[all]\nprompt-tokens = 64\n[bench]\nprompt = 'Hi'\n"
    )
    found = load_checks.check_combination(read("load"))
    assert (found.rate, found.concurrency) == ((2,), ())
    assert (found.url, found.board) == ("http://x", ""), "a board only starts what is missing"
    assert (read("bench").prompt, read("bench").prompt_tokens) == (("Hi",), ())
    check_defaults("bench")


def test_a_default_user_does_not_replace_the_user_in_a_host_that_was_typed() -> None:
    own("[board.add]\nuser = 'pi'\n")
    assert read("board.add", name="n", host="root@kitchen").reach().user == "root"
    assert read("board.add", name="n", host="kitchen").reach().user == "pi"
    assert read("board.add", name="n", host="root@kitchen", user="me").reach().user == "me"


def test_a_single_run_on_a_single_board_ignores_defaults_for_sweeps_and_groups(
    tmp_path: Path,
) -> None:
    own("[bench]\nsplit = 'tensor'\nshare = true\n")
    refused = typed(tmp_path, "bench", "--model", "nowhere.gguf", "--repeats", "1")
    assert "There is no model 'nowhere.gguf'" in refused.stderr
    assert "--s" not in refused.stderr


def test_a_default_that_a_verb_cannot_carry_out_is_said_with_its_file(tmp_path: Path) -> None:
    path = own("[load]\nrate = 1\nconcurrency = 2\n")
    refused = typed(tmp_path, "load")
    assert refused.returncode == 2
    for option in ("--rate", "--concurrency"):
        assert f"{option} comes from {path} [load]." in refused.stderr
    assert "comes from" not in typed(tmp_path, "load", "--find-rate").stderr


def test_a_value_that_is_not_allowed_is_said_with_its_file() -> None:
    path = own("[bench]\nthreads = 'many'\n")
    with pytest.raises(UsageError) as caught:
        read("bench")
    assert caught.value.remedy == f"--threads comes from {path} [bench]."
    with pytest.raises(UsageError) as typed_here:
        read("bench", threads="none", seed="x")
    assert "comes from" not in typed_here.value.remedy


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[bench", "is not TOML: Expected"),
        ("[bensh]", "no verb 'bensh'"),
        ("threads = 2", "no verb 'threads'"),
        ("[bench]\nthread = 2", "bench has no option 'thread'"),
        ("[board.prob]", "no verb 'board.prob'"),
        ("[board]\nyes = true", "board has no option 'yes'"),
        ("[compare]\na = 'x'", "compare has no option 'a'"),
        ("[all]\nbord = 'x'", "all has no option 'bord'"),
        ("[all]\nsince = '7d'", "all has no option 'since'"),
        ("[bench]\nn-predict = true", "bench.n-predict needs a value (N), not true or false."),
        ("[bench]\ncold = 'yes'", "bench.cold must be true or false."),
        ("[bench]\nthreads = 2026-01-01", "bench.threads must be a string, a number"),
        ("[bench]\nthreads = [[1]]", "bench.threads must be a string, a number"),
    ],
)
def test_what_no_verb_has_is_refused_by_every_verb(text: str, wrong: str) -> None:
    path = own(text)
    with pytest.raises(DataError, match=r"config\.toml(, line \d)?: ") as caught:
        read("fit")
    assert wrong in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[project]\nname = 'x'\n\n[tool.armload.bench] # ours\n'thread' = 2\n", ", line 5"),
        ("[tool.armload.all]\nwait = 1\n[tool.armload.bensh]\nx = 1\n", ", line 3"),
        ("[tool.armload]\nthreads = 2\n", ", line 2"),
        ("[tool.armload.bench]\nthreads = [[1]]\n", ", line 2"),
        ("[tool]\narmload.bench = {thread = 2}\n", ""),
    ],
)
def test_a_mistake_in_the_workspaces_file_is_said_with_its_line(text: str, line: str) -> None:
    Path("pyproject.toml").write_text(text)
    with pytest.raises(DataError) as caught:
        read("fit")
    assert caught.value.message.startswith(f"{Path.cwd() / 'pyproject.toml'}{line}: ")
    assert "Example: [tool.armload.bench] on one line" in caught.value.remedy


def test_help_shows_the_defaults_that_apply(tmp_path: Path) -> None:
    own("[all]\nboard = 'shed'\n[bench]\nthreads = [1, 2]\nshare = true\n")

    def page(verb: str) -> str:
        return " ".join(typed(tmp_path, verb, "--help").stdout.split())

    shown = page("bench")
    assert "[default: shed]" in shown
    assert "[default: virtual," not in shown
    assert "[default: 1,2]" in shown
    assert "[default: true]" in shown
    assert "[default: virtual]" in page("demo"), "it keeps its own default"
    own("[bench]\nthreds = 2\n")
    assert "[default: virtual," in page("bench"), "a malformed file is no reason to show no help"


def test_tables_of_grouped_verbs_lie_in_one_another() -> None:
    own("[serve]\nthreads = 2\n[service.stop]\nboard = 'shed'\n[board.probe]\nboard = 'attic'\n")
    assert read("serve").threads == 2
    assert read("board.probe").board == "attic"


def test_what_applies_is_shown_with_its_file(tmp_path: Path) -> None:
    path = own("[bench]\nthreads = [1, 2]\n[show]\nlast = 3\n")
    shown = json.loads(typed(tmp_path, "config", "bench", "--json").stdout)
    assert shown == [
        {
            "verb": "bench",
            "option": "threads",
            "value": ["1", "2"],
            "file": str(path),
            "trusted": True,
        }
    ]
    assert "--last" in typed(tmp_path, "config").stdout
    path.unlink()
    assert str(path) in typed(tmp_path, "config").stdout


@pytest.mark.parametrize(
    ("text", "wrong", "table"),
    [
        ("[bench]\nthreads = 'many'", "--threads: ", "bench"),
        ("[board.add]\nport = 0", "--port: ", "board.add"),
        ("[board.trust]\nboard = 'no*'", "no*: no board matches", ""),
        ("[all]\nwait = 'long'", "--wait: ", "all"),
    ],
)
def test_a_value_that_its_option_does_not_take_is_not_only_shown(
    tmp_path: Path, text: str, wrong: str, table: str
) -> None:
    path = own(text)
    shown = typed(tmp_path, "config")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert wrong in shown.stderr
    if table:
        assert f"comes from {path} [{table}]." in shown.stderr
    assert typed(tmp_path, "config", "pull").returncode == 0, "it has no such option"


def test_what_is_allowed_is_shown_whatever_the_verb_needs_besides(tmp_path: Path) -> None:
    own("[all]\nwait = 60\n[board.add]\nport = 2222\n[bench]\nprompt = 'Hello'\ncold = true\n")
    shown = typed(tmp_path, "config")
    assert shown.returncode == 0, shown.stderr
    assert "2222" in shown.stdout
