"""How users behave: what is drawn for them, and what they send."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from armload.core.errors import UsageError
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest
from armload.serving.dialects.registry import dialect_named
from armload.serving.users import Seconds, Users, read_seconds
from armload.serving.workload import read_lengths


def numbered() -> Callable[[], CompletionRequest]:
    numbers = itertools.count()
    return lambda: CompletionRequest(prompt=str(next(numbers)), max_tokens=4)


def users(turns: str = "", think: str = "", patience: str = "", **known: Any) -> Users:
    return Users(
        turns=read_lengths("turns", turns) if turns else None,
        think=read_seconds("think-time", think) if think else None,
        patience=read_seconds("patience", patience) if patience else None,
        **known,
    )


@pytest.mark.parametrize("text", ["5", "0.25", "uniform:2-10", "exponential:5", "lognormal:5:0.8"])
def test_a_distribution_of_times_is_written_as_it_is_read(text: str) -> None:
    assert str(read_seconds("patience", text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "nan", "inf", "2s", "uniform:5", "uniform:9-2", "exponential:0", "gamma:2"],
)
def test_what_is_no_distribution_of_times_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(UsageError, match="--patience"):
        read_seconds("patience", text)


@pytest.mark.parametrize(
    ("text", "middle"),
    [
        ("5", 5.0),
        ("uniform:2-10", 6.0),
        ("exponential:5", 5 * math.log(2)),
        ("lognormal:5:0.8", 5.0),
    ],
)
def test_times_are_drawn_as_told(text: str, middle: float) -> None:
    found, generator = read_seconds("patience", text), random.Random(1)
    drawn = [found.draw(generator) for _ in range(20_000)]
    assert statistics.median(drawn) == pytest.approx(middle, rel=0.05)


def test_a_user_sends_one_request_as_it_is_unless_told_otherwise() -> None:
    alone = Users().conversation(0, numbered())
    assert alone.requests == (CompletionRequest(prompt="0", max_tokens=4),)
    assert (alone.think_s, alone.patience_s, alone.stands_alone) == ((), (math.inf,), True)
    assert str(Users()) == ""


def test_conversations_are_the_same_for_the_same_seed_and_each_its_own() -> None:
    told = users("uniform:2-9", "exponential:5", "uniform:1-99")
    take, again = numbered(), numbered()
    first = [told.conversation(number, take) for number in range(50)]
    assert first == [told.conversation(number, again) for number in range(50)]
    assert {len(each.requests) for each in first} == set(range(2, 10))
    for each in first:
        assert len(each.patience_s) == len(each.requests) == len(each.think_s) + 1
    pauses = [pause for each in first for pause in each.think_s]
    assert len(set(pauses)) == len(pauses)
    prompts = [request.prompt for each in first for request in each.requests]
    assert prompts == [str(number) for number in range(len(prompts))]


def test_the_share_that_begins_with_the_prefix_is_as_told() -> None:
    told, take = users(prefix="You are kind.", prefix_share=0.3), numbered()
    requests = [told.conversation(number, take).requests[0] for number in range(2000)]
    begun = [request for request in requests if request.prompt.startswith("You are kind. ")]
    assert len(begun) == pytest.approx(600, rel=0.1)
    assert all(request.may_reuse for request in requests)


def test_a_conversation_begins_with_the_prefix_once() -> None:
    told = users("3", prefix="You are kind.")
    requests = told.conversation(0, numbered()).requests
    assert [request.prompt for request in requests] == ["You are kind. 0", "1", "2"]


@pytest.mark.parametrize("first", ["user", "system"])
def test_the_prefix_of_a_chat_is_the_systems_message(first: Any) -> None:
    chat = (ChatMessage(role=first, content="Hello"), ChatMessage(role="user", content="there"))
    request = CompletionRequest(messages=chat, max_tokens=4).begun_with("You are kind.")
    assert [message.role for message in request.chat].count("system") == 1
    contents = [str(message.content) for message in request.chat]
    assert contents[0].startswith("You are kind.")
    assert contents[-1] == "there"
    assert "Hello" in "".join(contents)


def test_a_server_may_reuse_a_prompt_only_where_prompts_repeat() -> None:
    told = dialect_named("llama-server")
    (alone,) = Users().conversation(0, numbered()).requests
    (turn,) = users("1").conversation(0, numbered()).requests
    assert told.body(alone, "m")["cache_prompt"] is False
    assert "cache_prompt" not in told.body(turn, "m")


def test_users_are_described_in_a_line() -> None:
    told = users(
        *("uniform:2-6", "exponential:5", "20"),
        prefix="a b",
        prefix_length="2 tokens",
        prefix_share=0.8,
    )
    assert str(told) == (
        "80% of conversations begin with the same 2 tokens; conversations of uniform:2-6 turns, "
        "exponential:5 s between them; patience of 20 s"
    )
    assert str(Users(patience=Seconds(first=3))) == "patience of 3 s"
