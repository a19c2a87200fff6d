"""What a command line gives a verb, however its options are spelled and wherever words stand."""

from __future__ import annotations

import shlex
from typing import Annotated

import pytest

from armload.cli.command_line import read_options
from armload.cli.configuration import Word
from armload.cli.help import verb_page
from armload.cli.options import OutputOptions
from armload.cli.verb import VERBS, verb
from armload.core.errors import UsageError
from armload.core.options import LLAMA_CPP_SPELLINGS, Option, declared_options


class Compare(OutputOptions):
    a: Annotated[str, Option("the first", is_argument=True)]
    b: Annotated[str, Option("the other", is_argument=True)]
    size: Annotated[int, Option("of it")] = 1
    note: Annotated[tuple[str, ...], Option("some", several="repeat")] = ()


class Report(OutputOptions):
    runs: Annotated[tuple[str, ...], Option("some", several="repeat", is_argument=True)]


class Show(OutputOptions):
    run: Annotated[str, Option("one", usual="all", is_argument=True)] = ""


@verb(Compare)
def compare(_options: Compare) -> None:
    """Compare two.

    Takes its time. Example: armload compare one other
    """


@verb(Report)
def report(_options: Report) -> None:
    """Report some. Example: armload report one other."""


@verb(Show)
def show(_options: Show) -> None:
    """Show one. Example: armload show one."""


OWN = {each.name: each for each in (compare, report, show)}
TWO = {"a": "one", "b": "other"}


def read(line: str) -> dict[str, Word]:
    name, *words = shlex.split(line)
    return dict(read_options(OWN[name], words).words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("compare one other", TWO),
        ("compare --json one other", TWO | {"as_json": True}),
        ("compare one --json other", TWO | {"as_json": True}),
        ("compare one -j other -j", TWO | {"as_json": True}),
        ("compare --size 7 one --json other", TWO | {"size": "7", "as_json": True}),
        ("compare --size=7 one other", TWO | {"size": "7"}),
        ("compare --size -7 one other", TWO | {"size": "-7"}),
        ("compare --size --seven one other", TWO | {"size": "--seven"}),
        ("compare --note= --size 1 one other", "--note must not be empty."),
        ("compare --note a=b --note c one other", TWO | {"note": ["a=b", "c"]}),
        ("compare show report", {"a": "show", "b": "report"}),
        ("report one", {"runs": ["one"]}),
        ("report one --json two three", {"runs": ["one", "two", "three"], "as_json": True}),
        ("report show compare", {"runs": ["show", "compare"]}),
        ("show", {}),
        ("show one", {"run": "one"}),
        ("show --run one", {"run": "one"}),
        ("show --", {}),
        (
            "report one --json -- 'a b' --json -x show --help -- '' é=1",
            {
                "runs": ["one", "a b", "--json", "-x", "show", "--help", "--", "", "é=1"],
                "as_json": True,
            },
        ),
        ("compare one other third", "Unexpected argument 'third'."),
        ("compare --jsno one other", "There is no option '--jsno'."),
        ("compare --jsno=3 one other", "There is no option '--jsno'."),
        ("compare one -x other", "There is no option '-x'."),
        ("compare one -jx other", "There is no option '-x'."),
        ("compare one - other", "There is no option '-'."),
        ("show one two", "Unexpected argument 'two'."),
        ("show one -- --two", "Unexpected argument '--two'."),
        ("show -- one two", "Unexpected argument 'two'."),
        ("show one load", "'show' and 'load' are both verbs, and armload runs one at a time."),
        ("show one --run two", "--run is given twice."),
        ("compare one --size -- other", "--size needs a value."),
        ("compare one other --size", "--size needs a value."),
        ("compare one other --size --json", "--size needs a value."),
        ("compare --size 1 --size 1", "--size is given twice."),
    ],
)
def test_words_are_read_wherever_the_options_stand(
    line: str, words: dict[str, object] | str
) -> None:
    if isinstance(words, str):
        with pytest.raises(UsageError) as refused:
            read(line)
        assert refused.value.message == words
        assert f"See: armload {line.split()[0]}" in refused.value.remedy
    else:
        assert read(line) == words


@pytest.mark.parametrize("words", ["", "one", "one other", "one --json", "--size 1 one"])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_help_wherever_it_stands(words: str, option: str) -> None:
    assert read_options(compare, [*words.split(), option]).asks_help


def test_help_shows_arguments_apart_from_options() -> None:
    usages = {compare: "compare A B", report: "report RUNS...", show: "show [RUN]"}
    for each, usage in usages.items():
        assert verb_page(each).startswith(f"Usage: armload {usage} [--options]\n")
    page = verb_page(compare)
    lines = page.splitlines()
    arguments, options = lines.index("Arguments:"), lines.index("Options:")
    assert [line.split() for line in lines[arguments + 1 : options] if line] == [
        ["A", "the", "first"],
        ["B", "the", "other"],
    ]
    assert "--a" not in page


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            "bench --temp 0 -c 512 -ub 256 -ctk q8_0 -md d -ngl 99",
            {
                "temperature": "0",
                "context": "512",
                "micro_batch": "256",
                "speculate": "draft:d",
                "kv_type": "q8_0/f16",
            },
        ),
        ("bench -ctk q8_0 -ctv q8_0", {"kv_type": "q8_0"}),
        ("bench -ctv=q4_0 -t 4", {"kv_type": "f16/q4_0", "threads": "4"}),
        ("bench -ctk q8_0,f16 -ctv q8_0", {"kv_type": "q8_0,f16/q8_0"}),
        ("bench -fa", {"flash_attention": "on"}),
        ("bench -fa -ub 256", {"flash_attention": "on", "micro_batch": "256"}),
        ("bench -fa 0,1", {"flash_attention": "off,on"}),
        ("bench --flash-attn=auto", {"flash_attention": "auto"}),
        ("eval --flash-attn false", {"flash_attention": "off"}),
        ("bench -hf org/name:Q4_K_M", {"model": "hf:org/name:Q4_K_M"}),
        ("bench -no-cnv --ignore-eos -n 4", {"n_predict": "4"}),
        ("bench -n4 -jt2", {"n_predict": "4", "json": True, "threads": "2"}),
        ("bench --ctx-size=512 --predict 8", {"context": "512", "n_predict": "8"}),
        ("serve -np 2 --batch-size 64", {"slots": "2", "batch": "64"}),
        ("serve --ctx-size 512", "There is no option '--ctx-size'."),
        (
            "bench --prompt -fa --engine-args --mlock",
            {"prompt": ["-fa"], "engine_args": ["--mlock"]},
        ),
        ("bench --model -ub 512", "--model needs a value."),
        ("bench --model --hepl", "--model needs a value."),
        ("bench --prompt --help", "--prompt needs a value."),
        ("bench -fa maybe", "-fa maybe: must be on, off or auto."),
        ("bench -fa on,often", "-fa often: must be on, off or auto."),
        ("bench -ngl --board kitchen", "-ngl needs a value."),
        ("bench -ngl --help", "-ngl needs a value."),
        ("bench -ngl -fa", "-ngl needs a value."),
        ("bench -fa -1,0", {"flash_attention": "auto,off"}),
        ("show -hf org/name", "There is no option '-hf'."),
        ("bench --prompt='-fa on'", {"prompt": ["-fa on"]}),
        ("bench -ub", "--micro-batch needs a value."),
        ("bench -ctk q8_0 --kv-type f16", "--kv-type is given twice."),
        ("bench --temp 0 --temperature 1", "--temperature is given twice."),
        ("bench --temperature 0 --temp 1", "--temp (--temperature) is given twice."),
        ("build --temp 0", "There is no option '--temp'."),
    ],
)
def test_what_llama_cpp_spells_otherwise_is_the_option_that_means_the_same(
    typed: str, words: dict[str, object] | str
) -> None:
    name, *rest = shlex.split(typed)
    if isinstance(words, str):
        with pytest.raises(UsageError) as refused:
            read_options(VERBS[name], rest)
        assert refused.value.message == words
        assert ("the size of each slot" in refused.value.remedy) == ("--ctx-size" in words)
    else:
        fields = {each.field: each.name for each in declared_options(VERBS[name].options)}
        told = read_options(VERBS[name], rest).words
        assert {fields[field].replace("-", "_"): word for field, word in told.items()} == words


@pytest.mark.parametrize(
    ("typed", "notes"),
    [("-ngl 99", 1), ("--n-gpu-layers=all", 1), ("-ngl 0", 0), ("--temp 1", 0)],
)
def test_layers_for_a_gpu_are_said_to_have_no_effect(typed: str, notes: int) -> None:
    assert len(read_options(VERBS["bench"], typed.split()).notes) == notes


def test_no_spelling_stands_for_two_options_or_hides_one_of_the_same_verb() -> None:
    spellings = [each for several in LLAMA_CPP_SPELLINGS.values() for each in several]
    assert len(set(spellings)) == len(spellings)
    known = set[str]()
    for name, each in VERBS.items():
        declared = list(declared_options(each.options))
        ours = {option.shown for option in declared}
        assert not [word for own in declared for word in own.spellings if word in ours], name
        known |= ours
    assert {f"--{name}" for name in LLAMA_CPP_SPELLINGS} <= known


def test_the_context_of_a_service_has_no_spelling_because_it_is_that_of_a_slot() -> None:
    of = {
        verb: {option.name: option for option in declared_options(VERBS[verb].options)}
        for verb in ("serve", "bench")
    }
    assert of["serve"]["context"].spellings == ()
    assert of["bench"]["context"].spellings == ("--ctx-size",)
