"""Garbage is found out; language, however plain, is left alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armload.analysis.sanity import TextFault, departure, doubts_about_text, loops_at_end
from tests.outside_data import STORY, needs
from tests.unit.runs import TEXT

CODE = """
def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)

for i in range(10):
    print(fib(i))
    print(fib(i))
"""
GREEDY = (
    "to be happy. I am not sure if I am happy or not, but I know that I want to be. "
    + "I want to be happy, and I want to be with the people that I love. " * 6
)

SANE = {
    "words at random": TEXT,
    "code": CODE,
    "a list": "\n".join(f"{number}. Item number {number}" for number in range(1, 30)),
    "a table": "| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |\n| 4 | 5 | 6 |\n",
    "a table's ruler, cut": "Results by quarter\n\n| quarter | sales |\n|---|---|---|---|---|",
    "a ruler, cut": "Title\n" + "-" * 60,
    "a contents page": "\n".join(f"Chapter {n} " + "." * 40 + f" {10 * n}" for n in range(1, 9)),
    "zeros in code": "static const int t[8][4] = {\n    {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0",
    "Chinese": "生命的意义在于不断地学习和成长。我们每天都会遇到新的事物。哈哈哈哈。生活真美好。",
    "Japanese": "人生の意味とは何でしょうか。私は、それは毎日を大切に生きることだと思います。",
    "Thai, without spaces": "ฉันเชื่อว่าความหมายของชีวิตคือการมีความสุขกับสิ่งที่เราทำในทุกวัน",
    "emoji": "I love it 😀😀😀😀 so much!",
    "a sentence that a greedy model repeats": GREEDY,
    "cheers": "He won! Yes! Yes! Yes! Yes! Yes!",
    "counting": ", ".join(str(number) for number in range(80)),
    "one word": "Yes",
    "cut inside a character": "caf\ufffd",
    "digits": "3.14159265358979323846264338327950288419716939937510",
}

GARBAGE = {
    "commas": "," * 60,
    "an exclamation mark after a good start": "so: " + "!" * 24,
    "one Chinese character": "我认为" + "的" * 40,
    "a word": "The meaning is" + " the" * 30,
    "two words": "I believe the meaning" + " of the" * 15,
    "a few characters": "We" + "s,s" * 20,
    "Chinese words": "你好" + "谢谢你" * 20,
    "lines": "1\n" * 40,
    "a sentence for good": "I do not know what to say. " * 40,
    "nothing": " \n\t",
    "white space": "a" + "\n" * 200 + "b",
    "broken bytes": "x\ufffd\ufffdyz",
    "a line without end": "=" * 300,
}


@pytest.mark.parametrize("name", SANE)
def test_language_is_left_alone(name: str) -> None:
    assert doubts_about_text(SANE[name]) == []


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_found_out(name: str) -> None:
    assert doubts_about_text(GARBAGE[name])


def test_a_loop_is_named_with_its_unit_and_how_often() -> None:
    (doubt,) = doubts_about_text("The meaning is" + " of the" * 15)
    assert doubt == TextFault(kind="loop", repeated=" of the", times=15)


@needs(STORY)
def test_every_beginning_of_a_small_models_story_is_left_alone() -> None:
    story = STORY.read_text(encoding="utf-8")
    assert not [end for end in range(1, len(story)) if doubts_about_text(story[:end])]


def test_random_words_are_left_alone_in_999_of_1000_texts() -> None:
    words = TEXT.split()
    found = 0
    for seed in range(1000):
        chance = random.Random(seed)
        found += bool(doubts_about_text(" ".join(chance.choice(words) for _ in range(128))))
    assert found <= 1


@given(st.text(alphabet="ab \n", max_size=60), st.text(min_size=1, max_size=5), st.integers(2, 9))
def test_every_repetition_at_the_end_is_seen(start: str, unit: str, times: int) -> None:
    text = start + unit * times
    found = loops_at_end(text)
    assert any(len(unit) % len(each) == 0 and text.endswith(each * 2) for each, _ in found)
    for each, often in found:
        assert often >= 2
        assert text.endswith(each * often)


def test_a_text_of_a_million_characters_is_searched_to_its_start() -> None:
    assert loops_at_end("ab" * 500_000)[0] == ("ab", 500_000)


def test_the_same_text_does_not_depart() -> None:
    assert departure("a b c", "a b c", name="r").kind == "same"


@pytest.mark.parametrize(
    ("text", "reference"), [("a b", "a b c"), ("a b c", "a b"), ("caf\ufffd", "café au")]
)
def test_a_text_that_is_only_shorter_does_not_depart(text: str, reference: str) -> None:
    assert departure(text, reference, name="r").kind == "same"


def test_where_a_text_departs_is_said_in_words_and_characters() -> None:
    found = departure("the cat sat on the mat", "the cat sat by the door", name="20260101-r")
    assert (found.kind, found.at_character, found.at_word) == ("differs", 12, 3)
    assert (found.here, found.there) == ("on the mat", "by the door")
    assert found.reference == "20260101-r"


def test_an_empty_text_departs_at_once() -> None:
    assert departure("", "something", name="r").at_character == 0


def test_another_models_text_may_differ() -> None:
    assert departure("x", "y", name="r", same_model=False).kind == "other model"
