"""Requests of lm-evaluation-harness as items of the scorer."""

from __future__ import annotations

import pytest

from armload.core.errors import RunError
from armload.engines.answers import (
    Answer,
    Continuation,
    FailedAnswer,
    GeneratedAnswer,
    LikelihoodAnswer,
    TokenizedAnswer,
)
from armload.evaluation.harness.requests import (
    Window,
    generation_items,
    likelihood_items,
    likelihoods,
    texts,
    tokenizing_items,
    tokens_of,
    window_items,
    window_sums,
)

PAIRS = [("Two", " cats"), ("One", " cat"), ("Two", " dogs"), ("Two", " cats")]


def likely(name: str, *values: float) -> LikelihoodAnswer:
    return LikelihoodAnswer(
        id=name,
        context_tokens=1,
        continuations=tuple(
            Continuation(tokens=(1, 2), log_likelihoods=(value, -1.0), greedy=(True, value > -1))
            for value in values
        ),
        start_ns=0,
        end_ns=1,
    )


def test_continuations_of_one_context_are_one_item_and_come_back_in_the_order_of_the_requests() -> (
    None
):
    items = likelihood_items(PAIRS)
    assert [(item["context"], item["continuations"]) for item in items] == [
        ("Two", [" cats", " dogs"]),
        ("One", [" cat"]),
    ]
    answers: dict[str, Answer] = {"0": likely("0", -0.5, -3.0), "1": likely("1", -2.0)}
    assert likelihoods(PAIRS, items, answers) == [
        (-1.5, True),
        (-3.0, False),
        (-4.0, False),
        (-1.5, True),
    ]


def test_arguments_of_generating_are_limits_and_stops_and_sampling_only_where_it_is_asked() -> None:
    greedy = {"until": ["\n", "."], "max_gen_toks": 20, "do_sample": False, "temperature": 0.0}
    first, second, third = generation_items(
        [("a", greedy), ("b", {"until": "\n"}), ("c", {"do_sample": True, "temperature": 0.7})]
    )
    assert first == {
        "id": "0",
        "kind": "generate",
        "prompt": "a",
        "max_tokens": 20,
        "stop": ["\n", "."],
    }
    assert (second["max_tokens"], second["stop"]) == (256, ["\n"])
    assert third["temperature"] == 0.7


def test_a_request_without_an_answer_says_why() -> None:
    items = generation_items([("a", {})])
    failed: Answer = FailedAnswer(id="0", kind="generate", error="it has 90 tokens")
    with pytest.raises(RunError, match=r"1 of 1 request of .* with 'a': it has 90") as e:
        texts(items, {"0": failed})
    assert "--context" in e.value.remedy
    with pytest.raises(RunError, match="no answer"):
        likelihoods([("a", "b")], likelihood_items([("a", "b")]), {})


def test_texts_come_back_in_the_order_of_the_requests() -> None:
    def generated(name: str) -> GeneratedAnswer:
        return GeneratedAnswer(
            id=name,
            prompt_tokens=1,
            start_ns=0,
            tokens=(1,),
            times_ns=(1,),
            text_bytes=(1,),
            text=name,
            think_tokens=0,
            stop="stop",
            conclude_from=None,
        )

    items = generation_items([("a", {}), ("b", {})])
    assert texts(items, {"1": generated("1"), "0": generated("0")}) == ["0", "1"]


@pytest.mark.parametrize("before", [(), (1,)])
def test_tokens_of_a_text_are_without_the_one_that_begins_every_text(
    before: tuple[int, ...],
) -> None:
    items = tokenizing_items(["a b", "", "<s>a"])
    found = [(*before, 7, 8), before, (*before, 1, 7), before]
    answers: dict[str, Answer] = {
        str(item["id"]): TokenizedAnswer(id=str(item["id"]), tokens=tokens)
        for item, tokens in zip(items, found, strict=True)
    }
    assert tokens_of(items, answers) == [[7, 8], [], [1, 7]]
    with pytest.raises(RunError, match="no answer"):
        tokens_of(items, {})


def test_the_windows_of_a_text_are_summed_whatever_the_order_of_their_answers() -> None:
    windows: list[list[Window]] = [[([], [7, 8]), ([8], [9, 9])], [], [([], [5, 5])]]
    items = window_items(windows)
    assert [(item["context"], item["continuations"]) for item in items] == [
        ([], [[7, 8]]),
        ([8], [[9, 9]]),
        ([], [[5, 5]]),
    ]
    names = [str(item["id"]) for item in items]
    answers: dict[str, Answer] = {
        name: likely(name, value)
        for name, value in reversed(list(zip(names, (-0.5, -2.0, -4.0), strict=True)))
    }
    assert window_sums(windows, items, answers) == [-4.5, 0.0, -5.0]
    with pytest.raises(RunError, match="no answer"):
        window_sums(windows, items, {})
