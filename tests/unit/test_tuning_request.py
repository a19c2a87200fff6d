"""What a person asks a search for: refused where no setting could meet it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from armload.boards.board import load_board
from armload.cli.verbs.tune import (
    TuneOptions,
    check_combination,
    constraints_of,
    requests_of,
    work_typed,
)
from armload.core.errors import ArmloadError, ConnectError, DataError, UsageError
from armload.core.progress import Silent
from armload.engines.plan import SEED_PROMPT, Plan
from armload.evaluation.preparing import PreparedEvaluation
from armload.runs.reach import ConnectedBoards, EngineBoard
from armload.runs.request import Request
from armload.tuning import checks
from armload.tuning.checks import CorrectAnswers
from armload.tuning.reach import ConnectedTuningBoard
from armload.tuning.request import TunedLoad, TuningRequest
from armload.tuning.space import Setting
from armload.tuning.tune import tune
from armload.tuning.wanted import Constraints, LeastAccuracy, Objective
from tests.unit.evaluations import answer


def typed(objective: Objective, **words: str) -> TuneOptions:
    return check_combination(TuneOptions.typed({"for_": objective, **words}))


def load(objective: Objective, **words: str) -> TunedLoad | None:
    return requests_of(typed(objective, **words))


def constraints(**words: str) -> Constraints:
    return constraints_of(typed("decode", **words))


def work(objective: Objective, **words: str) -> Plan:
    (plan,) = work_typed(typed(objective, **words)).plans()
    return plan


@pytest.mark.parametrize(
    ("objective", "words", "message"),
    [
        ("total-time", {"rate": "6"}, "needs a load"),
        (
            "total-time",
            {"rate": "6", "requests": "9", "slo": "ttft=1s"},
            "--slo cannot be combined with --for total-time",
        ),
        ("rate", {"slo": "ttft=1s", "rate": "2"}, "--rate cannot be combined with --for rate"),
        ("rate", {"slo": "speed=1s"}, "is not a latency metric"),
        ("ttft", {"timeout": "9"}, "--timeout cannot be combined with --for ttft"),
        ("total-time", {"rate": "0", "duration": "5"}, "--rate: must be 1e-06 or more, but is '0'"),
        ("total-time", {"rate": "1", "requests": "0"}, "--requests: must be 1 or more, but is '0'"),
    ],
)
def test_an_objective_without_its_data_or_with_another_ones_is_refused(
    objective: Objective, words: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load(objective, **words)


def test_a_load_has_what_was_typed_and_a_rate_has_40_requests() -> None:
    timed = load("total-time", rate="6", duration="250")
    assert timed is not None
    assert (timed.rate, timed.duration_s, timed.requests) == (6.0, 250.0, None)
    assert timed.timeout_s == 600
    patient = load("total-time", rate="6", duration="250", timeout="900")
    assert patient is not None
    assert patient.timeout_s == 900
    assert timed.described() == {"rate": 6.0, "duration": 250.0, "prompt_tokens": "128"}
    rate = load("rate", slo="ttft=2s")
    assert rate is not None
    assert rate.requests == 40
    assert load("decode") is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("0.5h", 1800)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert typed("decode", max_time=text).max_time == seconds


@pytest.mark.parametrize("text", ["0", "0m", "-1", "5 minutes", "m", "9" * 12])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--max-time"):
        typed("decode", max_time=text)


def test_an_unknown_objective_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="'ttft', 'energy', 'total-time' or 'rate'"):
        TuneOptions.typed({"for_": "speed"})


def test_constraints_are_read() -> None:
    found = constraints(max_kld="0.05", min_accuracy="0.5:gsm8k:200", max_memory="1.5GB")
    assert found.max_kld == 0.05
    assert found.min_accuracy == LeastAccuracy(share=0.5, task="gsm8k", questions=200)
    assert found.max_rss_bytes == 1_500_000_000
    least = constraints(min_accuracy="0.7:word-problems").min_accuracy
    assert least is not None
    assert least.questions == 100


@pytest.mark.parametrize(
    ("kld", "accuracy", "memory", "option"),
    [
        ("0", "", "", "--max-kld"),
        ("few", "", "", "--max-kld"),
        ("", "0.5", "", "--min-accuracy"),
        ("", "1:gsm8k", "", "--min-accuracy"),
        ("", "half:gsm8k", "", "--min-accuracy"),
        ("", "0.5:gsm8k:0", "", "--min-accuracy"),
        ("", "", "much", "--max-memory"),
        ("", "", "0", "--max-memory"),
    ],
)
def test_a_constraint_that_makes_no_sense_is_refused(
    kld: str, accuracy: str, memory: str, option: str
) -> None:
    with pytest.raises(UsageError, match=option):
        constraints(max_kld=kld, min_accuracy=accuracy, max_memory=memory)


def test_an_accuracy_that_so_few_questions_cannot_show_is_refused() -> None:
    goal = TuningRequest(
        model="demo", objective="decode", constraints=constraints(min_accuracy="0.9:gsm8k:20")
    )
    with pytest.raises(UsageError, match="even if all 20 answers are correct") as found:
        goal.check()
    # Wilson's bound for n of n is n / (n + 1.96^2), which is 0.9 from 35 on.
    assert "Use 35 questions or more" in found.value.remedy
    enough = constraints(min_accuracy="0.9:word-problems:35")
    goal.model_copy(update={"constraints": enough}).check()


def test_a_task_without_questions_is_refused_and_an_option_without_its_owner(
    tmp_path: Path,
) -> None:
    goal = TuningRequest(
        model="demo", objective="decode", constraints=constraints(min_accuracy="0.5:gsm8k:99")
    )
    with pytest.raises(UsageError, match="gsm8k comes without data") as found:
        goal.check()
    assert "--task-data FILE" in found.value.remedy
    given = constraints(min_accuracy="0.5:gsm8k:99", task_data=str(tmp_path / "gsm8k.jsonl"))
    with pytest.raises(UsageError, match="There is no data file") as missing:
        goal.model_copy(update={"constraints": given}).check()
    assert "--task-data" in missing.value.remedy
    (tmp_path / "gsm8k.jsonl").write_text('{"question": "1 + 1?"}\n')
    with pytest.raises(DataError, match="there is no field 'answer'"):
        goal.model_copy(update={"constraints": given}).check()
    (tmp_path / "gsm8k.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    goal.model_copy(update={"constraints": given}).check()
    with pytest.raises(UsageError, match="--task-data needs --min-accuracy"):
        constraints(task_data="gsm8k.jsonl")
    with pytest.raises(UsageError, match="--kld-prompts needs --max-kld"):
        constraints(kld_prompts="prompts.txt")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (None, UsageError, "There is no file of requests"),
        ("nonsense", DataError, "not JSON lines"),
        ('{"prompt": "a", "max_token": 3}', DataError, "item 1: .*max_token"),
        ('{"messages": [{"role": "user", "content": "Hi"}]}', UsageError, "takes a prompt"),
    ],
)
def test_requests_that_no_trial_could_send_are_refused_before_the_first(
    text: str | None, kind: type[ArmloadError], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "asked.jsonl"
    if text is not None:
        path.write_text(text)
    requests = load("total-time", rate="6", requests="9", data=str(path))
    with pytest.raises(kind, match=message):
        TuningRequest(model="demo", objective="total-time", requests=requests).check()
    path.write_text('{"instruction": "Say yes", "output": "yes"}')
    TuningRequest(model="demo", objective="total-time", requests=requests).check()


def test_a_search_space_that_is_not_there_is_named(tmp_path: Path) -> None:
    goal = TuningRequest(model="demo", objective="decode", narrowing=tmp_path / "spaces.yaml")
    with pytest.raises(UsageError, match=r"There is no search space file .*spaces\.yaml"):
        goal.check()


def test_a_divergence_of_services_needs_texts() -> None:
    goal = TuningRequest(
        model="demo",
        objective="rate",
        requests=load("rate", slo="ttft=2s"),
        constraints=constraints(max_kld="0.05"),
    )
    with pytest.raises(UsageError, match="--max-kld with --for rate needs texts") as found:
        goal.check()
    assert "--kld-prompts FILE" in found.value.remedy
    goal.model_copy(update={"kld_prompts": ("Once",)}).check()


def test_other_texts_make_another_search(tmp_path: Path) -> None:
    asked, questions = tmp_path / "asked.jsonl", tmp_path / "gsm8k.jsonl"
    asked.write_text('{"prompt": "a"}')
    questions.write_text("{}")
    goal = TuningRequest(
        model="demo",
        objective="rate",
        requests=load("rate", slo="ttft=2s", data=str(asked)),
        constraints=constraints(
            max_kld="0.05", min_accuracy="0.5:gsm8k:99", task_data=str(questions)
        ),
        kld_prompts=("Once", "upon"),
    )
    sums = [goal.texts_sha256()]
    assert goal.texts_sha256() == sums[0]
    sums.append(goal.model_copy(update={"kld_prompts": ("Once upon",)}).texts_sha256())
    asked.write_text('{"prompt": "b"}')
    sums.append(goal.texts_sha256())
    questions.write_text('{"question": "?"}')
    sums.append(goal.texts_sha256())
    assert len(set(sums)) == 4
    assert TuningRequest(model="demo", objective="decode").texts_sha256() == ""


def test_each_objective_has_its_own_work() -> None:
    decode = work("decode")
    assert (decode.n_predict, decode.prompt_tokens, decode.prompt) == (64, None, SEED_PROMPT)
    energy = work("energy")
    assert (energy.n_predict, energy.prompt) == (192, SEED_PROMPT)
    assert work("energy", n_predict="99", prompt="Once").n_predict == 99
    assert work("prefill").n_predict == 1
    assert work("ttft", prompt_tokens="99").prompt_tokens == 99
    with pytest.raises(UsageError, match="--n-predict cannot be combined with"):
        work("prefill", n_predict="8")
    with pytest.raises(UsageError, match="--prompt cannot be combined with"):
        work("decode", prompt="words", prompt_tokens="8")
    with pytest.raises(UsageError, match="--prompt cannot be combined with --for rate"):
        work("rate", prompt="words")


def test_the_usual_prompt_is_as_long_as_the_model_takes() -> None:
    goal = TuningRequest(model="demo", objective="prefill", work=work_typed(typed("prefill")))
    assert goal.for_model(4096).described() == {"prompt_tokens": 512, "n_predict": 1}
    assert goal.for_model(512).described() == {"prompt_tokens": 504, "n_predict": 1}
    asked = typed("prefill", prompt_tokens="600")
    given = TuningRequest(model="demo", objective="prefill", work=work_typed(asked))
    assert given.for_model(512) == given


@pytest.mark.parametrize(("limit_s", "is_built"), [(60.0, False), (60.0, True), (None, False)])
def test_builds_before_a_limited_search_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float | None, *, is_built: bool
) -> None:
    sentences: list[str] = []

    class Heard(Silent):
        def say(self, text: str) -> None:
            sentences.append(text)

    class Unreached(ConnectedBoards[ConnectedTuningBoard]):
        def open(self, *_: object, **__: object) -> NoReturn:
            raise ConnectError("nobody answers")

    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "mine.yaml").write_text("target: rk3568\nreach: {kind: local}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("armload.tuning.tune.is_compiled", lambda *_: is_built)
    goal = TuningRequest(model="random", objective="decode", max_time_s=limit_s)
    with pytest.raises(ConnectError):
        tune(
            *(Request(board="mine"), goal, Heard()),
            output=None,
            reach=Unreached(ConnectedTuningBoard),
            begun=lambda _: None,
            report=lambda *_: None,
        )
    told = [each for each in sentences if "--max-time begins after that" in each]
    assert bool(told) == (limit_s is not None and not is_built)


@pytest.mark.parametrize(("share", "is_refused"), [(0.7, False), (0.8, True)])
def test_answers_must_be_right_often_enough_with_the_lower_end_of_their_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, share: float, is_refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    count = 12

    def answer_all(_board: object, prepared: PreparedEvaluation, *_: object, **__: object) -> None:
        made = prepared.evaluated
        made.add(0, [answer(each.id, f"\\boxed{{{each.expected}}}") for each in made.questions])

    monkeypatch.setattr(checks, "evaluate_there", answer_all)
    board = cast(
        "EngineBoard", SimpleNamespace(where=SimpleNamespace(main_board=load_board("this-machine")))
    )
    wanted = LeastAccuracy(share=share, task="word-problems", questions=count)
    check = CorrectAnswers(board, "word-problems:Q8_0", Setting(choices={}), wanted, Silent())
    quality, refusal = check(Setting(choices={}), None)
    assert (quality.accuracy, quality.questions) == (1.0, count)
    assert quality.accuracy_low == pytest.approx(0.757, abs=0.001)
    assert bool(refusal) is is_refused
