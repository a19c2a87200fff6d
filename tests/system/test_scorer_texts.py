"""armload-score: what the model is given, and what its logits and its bytes mean."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from armload.engines.answers import (
    LikelihoodAnswer,
    LogitsAnswer,
    TokenizedAnswer,
)
from tests.chat_models import with_chat_template
from tests.recurrent import recurrent_model
from tests.system.scoring import (
    PROMPT,
    Item,
    generated,
    refused,
    score,
    steps,
    story,
)

pytestmark = pytest.mark.build

exhaustive = pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])


def test_likelihoods_are_those_of_the_logits(scorer: Path, tmp_path: Path) -> None:
    context, choices = "Once upon a time", [" there was a little girl", " a xylophone", " the"]
    items: list[Item] = [
        {"id": f"x{n}", "kind": "logits", "prompt": context + choice, "positions": "all"}
        for n, choice in enumerate(choices)
    ]
    items.append({"id": "l", "kind": "likelihood", "context": context, "continuations": choices})
    # A cache of 16 bits would round otherwise where the tokens come in other batches.
    answers = score(scorer, tmp_path, items, "-ctk", "f32", "-ctv", "f32")
    likelihood = answers["l"]
    assert isinstance(likelihood, LikelihoodAnswer)
    assert len(likelihood.continuations) == 3
    for number, continuation in enumerate(likelihood.continuations):
        rows = answers[f"x{number}"]
        assert isinstance(rows, LogitsAnswer)
        logits = rows_of(rows, tmp_path / "logits.f32")
        first = likelihood.context_tokens
        assert rows.tokens[first:] == continuation.tokens
        shifted = logits - logits.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        before = logs[first - 1 : -1]
        expected = before[np.arange(len(before)), list(continuation.tokens)]
        assert continuation.log_likelihoods == pytest.approx(expected, abs=1e-4)
        greedy = before.argmax(axis=1) == continuation.tokens
        assert list(continuation.greedy) == greedy.tolist()
    assert {(step.generated_tokens, step.speculated_tokens) for step in steps(tmp_path)} == {(0, 0)}


def rows_of(answer: LogitsAnswer, file: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    assert answer.rows is not None
    assert answer.columns is not None
    count = answer.rows * answer.columns
    found = np.fromfile(file, dtype="<f4", count=count, offset=answer.offset_bytes or 0)
    return found.astype(np.float64).reshape(answer.rows, answer.columns)


def test_context_and_continuation_are_tokenized_together(scorer: Path, tmp_path: Path) -> None:
    items: list[Item] = [
        {"id": "l", "kind": "likelihood", "context": "Once upon  ", "continuations": ["a time"]},
        {"id": "context", "kind": "tokenize", "text": "Once upon"},
        {"id": "whole", "kind": "tokenize", "text": "Once upon  a time"},
        {"id": "empty", "kind": "likelihood", "context": "", "continuations": ["Once", "Lily"]},
    ]
    answers = score(scorer, tmp_path, items)
    context, whole, found = answers["context"], answers["whole"], answers["l"]
    assert isinstance(context, TokenizedAnswer)
    assert isinstance(whole, TokenizedAnswer)
    assert isinstance(found, LikelihoodAnswer)
    assert found.context_tokens == len(context.tokens)
    assert found.continuations[0].tokens == whole.tokens[len(context.tokens) :]
    empty = answers["empty"]
    assert isinstance(empty, LikelihoodAnswer)
    assert empty.context_tokens == 1


@exhaustive
def test_chatml_is_given_as_plain_text_to_a_model_without_it(scorer: Path, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    items = [
        story("chat", prompt=None, messages=messages, template="chatml", max_tokens=3),
        story("plain", prompt=None, messages=messages, template="none", max_tokens=3),
        {"id": "x", "kind": "tokenize", "text": CHATML},
    ]
    answers = score(scorer, tmp_path, items)
    tokens = answers["x"]
    assert isinstance(tokens, TokenizedAnswer)
    assert generated(answers["chat"]).prompt_tokens == len(tokens.tokens)
    assert generated(answers["plain"]).prompt_tokens < 5


CHATML = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


OWN = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if whisper %}(softly) {% endif %}{% if add_generation_prompt %}[answer]{% endif %}"
)


def test_messages_are_given_in_the_models_own_template(
    scorer: Path, stories: Path, tmp_path: Path
) -> None:
    model = with_chat_template(stories, tmp_path / "chat.gguf", OWN)
    messages = [{"role": "user", "content": "Tell me of Lily"}]
    items = [
        story("chat", prompt=None, messages=messages),
        story("loud", prompt="[user] Tell me of Lily\n[answer]"),
        story("arguments", prompt=None, messages=messages, template_arguments={"whisper": True}),
        story("soft", prompt="[user] Tell me of Lily\n(softly) [answer]"),
        story("prompt", prompt="Tell me of Lily", template="model"),
    ]
    answers = score(scorer, tmp_path, items, model=model)
    told = {name: generated(each).tokens for name, each in answers.items()}
    assert told["chat"] == told["loud"] == told["prompt"]
    assert told["arguments"] == told["soft"]
    assert told["loud"] != told["soft"]


DATED = (
    "{{ strftime_now('%d %b %Y') }}, {{ date_string | default('') }}: "
    "{% for message in messages %}{{ message.content }}{% endfor %}"
)


@exhaustive
def test_a_template_is_given_the_items_date_and_not_the_boards(
    scorer: Path, stories: Path, tmp_path: Path
) -> None:
    model = with_chat_template(stories, tmp_path / "chat.gguf", DATED)
    messages = [{"role": "user", "content": "Hi"}]
    items = [
        story("dated", prompt=None, messages=messages, date="2019-03-07"),
        story("written", prompt="07 Mar 2019, 07 Mar 2019: Hi"),
        story("today", prompt=None, messages=messages),
        story("dated again", prompt=None, messages=messages, date="2019-03-07"),
        story(
            "overridden",
            prompt=None,
            messages=messages,
            date="2019-03-07",
            template_arguments={"date_string": "today"},
        ),
        story("as overridden", prompt="07 Mar 2019, today: Hi"),
        *(story(each, prompt=None, messages=messages, date=each) for each in NO_DATES),
    ]
    answers = score(scorer, tmp_path, items, model=model, variables={"TZ": "Pacific/Kiritimati"})
    told = {
        name: generated(answer).tokens for name, answer in answers.items() if name not in NO_DATES
    }
    assert told["dated"] == told["written"] == told["dated again"]
    assert told["today"] != told["dated"]
    assert told["overridden"] == told["as overridden"]
    for each in NO_DATES:
        assert "such as 2026-01-31" in refused(answers[each])


NO_DATES = ("tomorrow", "2026-02-30", "2026-01-31T00:00", "2026-13-01")


def test_a_template_that_cannot_be_read_is_not_replaced_by_another(
    scorer: Path, stories: Path, tmp_path: Path
) -> None:
    model = with_chat_template(stories, tmp_path / "chat.gguf", "{% for message in %}")
    item = story(prompt=None, messages=[{"role": "user", "content": "Hi"}])
    answer = score(scorer, tmp_path, [item], model=model)["story"]
    assert "chat template" in refused(answer)


def test_thinking_ends_with_its_tag(scorer: Path, tmp_path: Path) -> None:
    item = story(max_tokens=7, conclude=" so</think> The end.", conclude_tokens=3)
    answer = generated(score(scorer, tmp_path, [item])["story"])
    assert answer.text_after(answer.think_tokens).endswith("</think>")
    assert 7 < answer.think_tokens < len(answer.tokens) - 3
    assert not answer.thinks_from_start
    assert generated(score(scorer, tmp_path, [story()])["story"]).think_tokens == 0


@exhaustive
def test_a_model_that_still_thinks_stops_thinking_before_it_concludes(
    scorer: Path, stories: Path, tmp_path: Path
) -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %} <think>"
    model = with_chat_template(stories, tmp_path / "chat.gguf", template)
    item = story(template="model", max_tokens=7, conclude=" The end.", conclude_tokens=3)
    answer = generated(score(scorer, tmp_path, [item], model=model)["story"])
    assert answer.thinks_from_start
    assert answer.conclude_from == 7
    assert answer.text_after(answer.think_tokens).endswith("\n</think>")
    assert answer.text.partition("</think>")[2].startswith("\n\n The end.")


@exhaustive
def test_bytes_that_are_no_text_are_replaced_as_python_does(
    scorer: Path, stories: Path, tmp_path: Path
) -> None:
    items = [story(str(n), max_tokens=200, temperature=50, seed=n) for n in range(5)]
    fields = GGUFReader(stories).fields
    pieces = fields["tokenizer.ggml.tokens"].contents()
    for each in score(scorer, tmp_path, items).values():
        answer = generated(each)
        assert "\ufffd" in answer.text
        decoder = getincrementaldecoder("utf-8")(errors="replace")
        text = ""
        for count, token in enumerate(answer.tokens, start=1):
            text += decoder.decode(bytes_of(pieces[token]) if token > CONTROL else b"")
            assert answer.text_after(count) == text


CONTROL = 2
"""The last of the tokens that stand for no text."""


def bytes_of(piece: str) -> bytes:
    byte = re.fullmatch("<0x(..)>", piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace("\u2581", " ").encode()


@exhaustive
def test_a_model_without_single_tokens_to_give_back_is_scored_too(
    scorer: Path, stories: Path, tmp_path: Path
) -> None:
    model = recurrent_model(stories, tmp_path / "recurrent.gguf")
    choices = [" there was", " a cat", " the end"]
    items: list[Item] = [
        {"id": str(n), "kind": "likelihood", "context": PROMPT, "continuations": choices[n:]}
        for n in range(3)
    ]
    answers = score(scorer, tmp_path, items, "--parallel", "2", model=model)
    sums = [
        [each.log_likelihood for each in answer.continuations]
        for _, answer in sorted(answers.items())
        if isinstance(answer, LikelihoodAnswer)
    ]
    assert sums[1] == pytest.approx(sums[0][1:], abs=0.01)
    assert sums[2] == pytest.approx(sums[0][2:], abs=0.01)
