"""What a person asks for: lists, plan files, and words for what makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from armload.bench.options import Options, read_options
from armload.cli.verbs.bench import BenchOptions
from armload.core.errors import DataError, UsageError
from armload.engines.plan import Plan


def test_nothing_asked_for_is_the_seed_experiment_once() -> None:
    assert list(Options().plans()) == [Plan()]
    assert Options().models == ("demo",)


def typed_options(words: Mapping[str, Any]) -> Options:
    return BenchOptions.typed(words).part(Options)


def test_every_combination_of_the_lists_is_a_plan_and_threads_vary_first() -> None:
    options = typed_options({"threads": ["1", "2"], "kv_type": ["f16", "q8_0"], "n_predict": "9"})
    plans = [(plan.kv_type, plan.threads, plan.n_predict) for plan in options.plans()]
    assert plans == [("f16", 1, 9), ("f16", 2, 9), ("q8_0", 1, 9), ("q8_0", 2, 9)]


def test_texts_and_lengths_of_a_plan_file_are_both_prompts() -> None:
    options = Options.model_validate({"prompt": ["one", "two"], "prompt_tokens": 64})
    prompts = [plan.prompt_tokens or plan.prompt for plan in options.plans()]
    assert prompts == ["one", "two", 64]


def test_a_text_and_a_length_cannot_both_be_typed() -> None:
    with pytest.raises(
        UsageError, match="--prompt cannot be combined with --prompt-tokens"
    ) as caught:
        typed_options({"prompt": ["a"], "prompt_tokens": ["5"]})
    assert "--plan" in caught.value.remedy


def test_every_option_reaches_the_plan() -> None:
    options = typed_options(
        {
            "context": "512",
            "batch": "64",
            "micro_batch": "32",
            "cpus": ["0-1"],
            "flash_attention": ["on"],
            "speculate": ["draft:d.gguf"],
            "engine_args": ["--no-repack --poll '5 0'"],
            "cold": True,
            "temperature": "0.5",
            "seed": "0",
            "stop_at_end": True,
            "time_limit": "9",
        }
    )
    assert list(options.plans()) == [
        Plan(
            context_tokens=512,
            batch_tokens=64,
            micro_batch_tokens=32,
            cpus="0-1",
            flash_attention="on",
            speculate="draft:d.gguf",
            extra=("--no-repack", "--poll", "5 0"),
            cold=True,
            temperature=0.5,
            seed=0,
            stop_at_end=True,
            time_limit_s=9,
        )
    ]


def test_a_run_without_speculation_can_be_listed_beside_others() -> None:
    plans = typed_options({"speculate": ["none", "ngram"]}).plans()
    assert [plan.speculate for plan in plans] == [None, "ngram"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"speculate": ["draft:"]}, "--speculate: the draft model is missing: draft:MODEL"),
        ({"threads": [""]}, "--threads: must be a whole number, but is empty"),
        ({"context": ["-1"]}, "--context: must be 1 or more, but is '-1'"),
        ({"time_limit": "0"}, "--time-limit: must be more than 0"),
        ({"time_limit": "1e9"}, "--time-limit: must be 2592000 or less"),
        ({"temperature": "inf"}, "--temperature: must be 1000 or less"),
        ({"prompt": ["a\udcffb"]}, "--prompt: .*not valid UTF-8"),
        ({"prompt": ["a\0b"]}, "--prompt: .*NUL"),
        ({"cpus": ["3-1"]}, "--cpus: 3-1 is not a range"),
        ({"kv_type": ["f16/f16/f16"]}, "--kv-type"),
        ({"seed": "-1"}, "--seed: must be 0 or more, but is '-1'"),
        ({"seed": str(2**32 - 1)}, "--seed: must be 4294967294 or less, but is '4294967295'"),
        ({"repeats": "0"}, "--repeats: must be 1 or more"),
        ({"cool_to": "hot"}, "--cool-to: must be a number, but is 'hot'"),
        ({"threads": ["1", "2", "1"]}, "--threads: 1 is listed twice; to run"),
        ({"model": ["a.gguf", "a.gguf"]}, "--model: a.gguf is listed twice"),
        ({"prompt": ["a", "a"]}, "--prompt: a is listed twice"),
        ({"cpus": ["0-3", "0,1,2,3"]}, "--cpus: 0-3 and 0,1,2,3 are the same"),
        ({"kv_type": ["q8_0", "q8_0/q8_0"]}, "--kv-type: q8_0 and q8_0/q8_0 are the same"),
        ({"engine_args": ["-x  1", "-x 1"]}, "--engine-args: -x  1 and -x 1 are the same"),
    ],
)
def test_a_wish_that_makes_no_sense_is_answered_by_its_option(
    typed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        typed_options(typed)


@pytest.mark.parametrize("text", ["512", " 512", "512,1024"])
def test_a_prompt_that_is_a_number_is_asked_about(text: str) -> None:
    with pytest.raises(UsageError, match="a text, or a length in tokens") as caught:
        typed_options({"prompt": ["Once", text]})
    assert f"--prompt-tokens {text.strip()};" in caught.value.remedy
    assert list(typed_options({"prompt": ["512 is"]}).plans()) == [Plan(prompt="512 is")]


def test_a_plan_file_may_hold_a_number_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text('prompt: "512"\n')
    assert [plan.prompt for plan in read_options(path).plans()] == ["512"]


def test_what_is_typed_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("board: dayu200\nthreads: [1, 2]\nprompt: [a, b]\nrepeats: 5\n")
    both = typed_options({"threads": ["4"], "prompt_tokens": ["8"]}).over(read_options(path))
    (plan,) = both.plans()
    assert (both.board, plan.threads, both.repeats) == (("dayu200",), 4, 5)
    assert plan.prompt_tokens == 8, "prompts are one thing"


def test_yaml_says_on_and_off_as_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("flash_attention: [on, off, auto]\ncpus: 0\nn_predict: 4\n")
    options = read_options(path)
    plans = list(options.plans())
    assert [plan.flash_attention for plan in plans] == ["on", "off", "auto"]
    assert {plan.cpus for plan in plans} == {"0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("threads: 2\nthraeds: [1]\n", "line 2: there is no key 'thraeds'"),
        ("threads:\n- 1\n- two\n", "line 3: threads, entry 2: must be a whole number"),
        ("threads: two\n", "line 1: threads: must be a whole number, but is 'two'"),
        ("threads: [2, yes]\n", "line 1: threads, entry 2: must be a whole number, but is true"),
        ("seed: yes\n", "line 1: seed: must be a whole number, but is true"),
        ("temperature: no\n", "line 1: temperature: must be a number, but is false"),
        ("threads: [1]\nmodel: []\n", "line 2: model: the list is empty"),
        ("flash_attention: []\n", "flash_attention: the list is empty"),
        ("", "line 1: this file is empty"),
        ("threads: [1, 0]\n", "line 1: threads"),
        ("repeats: 2\nthreads: [1, 1]\n", "line 2: threads: 1 is listed twice"),
        ("- threads\n", "expected 'key: value' lines"),
        ("threads: [1\n", "is never closed"),
        ("engine_args: '-x \"a'\n", "No closing quotation"),
    ],
)
def test_a_wrong_plan_file_is_answered_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as refused:
        read_options(path)
    assert str(path) in refused.value.message
    assert said in refused.value.message
    assert "target" not in str(refused.value), "a plan is told no key of a board"


def test_all_mistakes_of_a_plan_file_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("threds: 2\nmodel: x\nrepeats: many\nresident: [x]\nkv_type: [f16, f17]\n")
    with pytest.raises(DataError) as refused:
        read_options(path)
    head, *lines = refused.value.message.split("\n")
    assert head == f"{path}: 4 errors."
    assert lines[0] == "  line 1: there is no key 'threds'. Did you mean 'threads'?"
    assert lines[1] == "  line 3: repeats: must be a whole number, but is 'many'."
    assert lines[2].startswith("  line 4: resident, entry 1: 'x' is not a size")
    assert lines[3].startswith("  line 5: kv_type, entry 2: ")


@pytest.mark.parametrize("text", ["frobnicate: 2\n", ""])
def test_the_many_keys_of_a_plan_file_are_not_listed_but_who_lists_them_is(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as refused:
        read_options(path)
    assert refused.value.remedy.startswith("To list the ")
    assert refused.value.remedy.endswith("keys: armload bench --help-all")


def test_a_wrong_key_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("kvtype: q8_0\n")
    with pytest.raises(DataError) as refused:
        read_options(path)
    assert "Did you mean 'kv_type'?" in refused.value.remedy


def test_a_plan_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no plan file"):
        read_options(tmp_path / "none.yaml")
