"""Options as llama.cpp's programs spell them."""

from __future__ import annotations

import shlex

import pytest
from invoke.parser.context import ParserContext

from armload.cli.llama_cpp_spellings import note_on, spellings_of, translated
from armload.cli.program import namespace
from armload.core.options import LLAMA_CPP_SPELLINGS, declared_options

VERBS = {
    name: ParserContext(name=name, args=namespace[name].get_arguments())
    for name in ("bench", "eval", "serve", "show", "build")
}


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (
            "bench --temp 0 -c 512 -ub 256 -ctk q8_0 -md d -ngl 99",
            "bench --temperature 0 -c 512 --micro-batch 256 --speculate draft:d --kv-type q8_0/f16",
        ),
        ("bench -ctk q8_0 -ctv q8_0", "bench --kv-type q8_0"),
        ("bench -ctv=q4_0 -t 4", "bench -t 4 --kv-type f16/q4_0"),
        ("bench -ctk q8_0,f16 -ctv q8_0", "bench --kv-type q8_0,f16/q8_0"),
        ("bench -fa", "bench --flash-attention on"),
        ("bench -fa -ub 256", "bench --flash-attention on --micro-batch 256"),
        ("bench -fa 0,1", "bench --flash-attention off,on"),
        ("bench --flash-attn=auto", "bench --flash-attention auto"),
        ("eval --flash-attn false", "eval --flash-attention off"),
        ("bench -hf org/name:Q4_K_M", "bench --model hf:org/name:Q4_K_M"),
        ("bench -no-cnv --ignore-eos -n 4", "bench -n 4"),
        ("bench --ctx-size=512 --predict 8", "bench --context 512 --n-predict 8"),
        ("serve -np 2 --batch-size 64", "serve --slots 2 --batch 64"),
        ("serve --ctx-size 512", "serve --ctx-size 512"),
        ("bench --prompt -fa --model -ub", "bench --prompt -fa --model -ub"),
        ("bench --prompt='-fa on'", "bench '--prompt=-fa on'"),
        ("bench -ub", "bench --micro-batch"),
        ("bench -ctk", "bench --kv-type"),
        ("show -ngl 99", "show -ngl 99"),
        ("build --temp 0", "build --temp 0"),
        ("-ub 4 bench", "-ub 4 bench"),
        ("nothing -ub 4", "nothing -ub 4"),
    ],
)
def test_what_llama_cpp_spells_otherwise_is_read_as_the_option_that_means_the_same(
    typed: str, read: str
) -> None:
    assert translated(shlex.split(typed), VERBS)[0] == shlex.split(read)


@pytest.mark.parametrize(
    ("typed", "notes"),
    [("-ngl 99", 1), ("--n-gpu-layers=all", 1), ("-ngl 0", 0), ("-ngl", 0), ("--temp 1", 0)],
)
def test_layers_for_a_gpu_are_said_to_have_no_effect(typed: str, notes: int) -> None:
    assert len(translated(["bench", *typed.split()], VERBS)[1]) == notes


def test_no_spelling_stands_for_two_options_or_hides_one_of_the_same_verb() -> None:
    spellings = [each for several in LLAMA_CPP_SPELLINGS.values() for each in several]
    assert len(set(spellings)) == len(spellings)
    known = set[str]()
    for name in namespace.task_names:
        ours = {each.shown for each in declared_options(namespace[name].options)}
        assert not [each for own in ours for each in spellings_of(own, ours) if each in ours], name
        known |= ours
    assert {f"--{name}" for name in LLAMA_CPP_SPELLINGS} <= known


def test_the_context_of_a_service_has_no_spelling_because_it_is_that_of_a_slot() -> None:
    assert spellings_of("--context", ["--context", "--slots"]) == ()
    assert spellings_of("--context", ["--context"]) == ("--ctx-size",)


def test_why_a_spelling_is_not_taken_is_said_of_verbs_with_slots_alone() -> None:
    assert "--context is the size of each slot" in note_on("--ctx-size", ["--context", "--slots"])
    assert not note_on("--ctx-size", ["--context"])
    assert not note_on("--batch-size", ["--batch", "--slots"])
    assert not note_on("--nonsense", ["--context", "--slots"])
