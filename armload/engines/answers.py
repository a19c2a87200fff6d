"""What the scorer answers: one JSON line for each item."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, RootModel, TypeAdapter, model_validator

from armload.core.errors import DataError
from armload.core.files import content
from armload.core.values import Count, Finite, Value, parse_json

Stop = Literal["end", "budget", "stop", "context"]


class ThoughtTags(Value):
    """What encloses a model's thoughts, by its chat template.

    Attributes:
        begin, end: of the thoughts.
        answer: what stands before the answer; empty where nothing does.
    """

    begin: Annotated[str, Field(min_length=1)] = "<think>"
    end: Annotated[str, Field(min_length=1)] = "</think>"
    answer: str = ""

    def answer_in(self, text: str) -> str:
        """Return what follows the thoughts; nothing if they were cut short.

        Chat templates may open them in the prompt, so that the text only closes them.
        """
        before, opened, rest = text.rpartition(self.end)[2].partition(self.begin)
        found = before if opened else before + rest
        return found.rpartition(self.answer)[2] if self.answer else found


class GeneratedAnswer(Value):
    """A text that the model wrote.

    Attributes:
        id: the item's.
        prompt_tokens: of the prompt, as the model was given it.
        start_ns: when the item was begun, on the board's ``CLOCK_MONOTONIC``.
        tokens: without the one that ended the text.
        times_ns: when each was known, on the same clock.
        text_bytes: length of the text's UTF-8 after each token.
        text: all of it.
        think_tokens: up to and including the end of the thoughts; 0 without one.
        thinks_from_start: the prompt ended inside a reasoning section, which the chat template
            had opened.
        thought_tags: what encloses that section.
        stop: the model ended it; the budget, or the context, was used up; or a text came at
            which it was to stop.
        conclude_from: number of the first token that was appended to make the model conclude.
    """

    id: str
    kind: Literal["generate"] = "generate"
    prompt_tokens: Count
    start_ns: Count
    tokens: tuple[int, ...]
    times_ns: tuple[Count, ...]
    text_bytes: tuple[Count, ...]
    text: str
    think_tokens: Count
    thinks_from_start: bool = False
    thought_tags: ThoughtTags = ThoughtTags()
    stop: Stop
    conclude_from: Count | None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not len(self.tokens) == len(self.times_ns) == len(self.text_bytes):
            raise ValueError("tokens, times_ns and text_bytes differ in length")
        if any(after < before for before, after in pairwise(self.text_bytes)):
            raise ValueError("text_bytes decreases")
        whole = self.text.encode()
        if any(0x80 <= byte < 0xC0 for end in self.text_bytes for byte in whole[end : end + 1]):
            raise ValueError("text_bytes ends within a character")
        return self

    def text_after(self, tokens: int) -> str:
        """Return the beginning of the text that the first tokens gave."""
        if tokens <= 0 or not self.tokens:
            return ""
        return self.text.encode()[: self.text_bytes[min(tokens, len(self.tokens)) - 1]].decode()


class Continuation(Value):
    """How likely one continuation of a context is.

    Attributes:
        tokens: of the continuation.
        log_likelihoods: natural logarithm of each token's probability after all before it.
        greedy: whether each is the most likely one there.
    """

    tokens: tuple[int, ...]
    log_likelihoods: tuple[float, ...]
    greedy: tuple[bool, ...]

    @property
    def log_likelihood(self) -> float:
        return sum(self.log_likelihoods)

    @property
    def is_greedy(self) -> bool:
        """Whether the model would have written it."""
        return all(self.greedy)


class LikelihoodAnswer(Value):
    """How likely the continuations of a context are.

    Attributes:
        id: the item's.
        context_tokens: that all have before them.
        continuations: in the item's order.
        start_ns, end_ns: on the board's ``CLOCK_MONOTONIC``.
    """

    id: str
    kind: Literal["likelihood"] = "likelihood"
    context_tokens: Count
    continuations: tuple[Continuation, ...]
    start_ns: Count
    end_ns: Count


class TopLogits(Value):
    """The highest logits at one position, in descending order."""

    ids: tuple[int, ...]
    values: tuple[float, ...]


class LogitsAnswer(Value):
    """The logits of a prompt.

    Attributes:
        id: the item's.
        tokens: of the prompt.
        positions: of the rows, ascending.
        top: of each row, where only these were asked for.
        offset_bytes: where the rows begin in the file of logits; none with ``top``.
        rows, columns: of little-endian 32-bit floats there.
    """

    id: str
    kind: Literal["logits"] = "logits"
    tokens: tuple[int, ...]
    positions: tuple[Count, ...]
    top: tuple[TopLogits, ...] = ()
    offset_bytes: Count | None = None
    rows: Count | None = None
    columns: Count | None = None


class TokenizedAnswer(Value):
    """The tokens of a text."""

    id: str
    kind: Literal["tokenize"] = "tokenize"
    tokens: tuple[int, ...]


class PrintedAnswer(Value):
    """A text that a program wrote which armload did not build, as its reader finds it.

    Attributes:
        id: the question's.
        prompt_tokens, tokens: of the prompt and of the text, as the program counts them.
        prefill_s, decode_s: the program's own times; none where it prints none.
        wall_s: from the program's start, so with loading the model, to its last write.
        text: without what the program prints besides.
    """

    id: str
    kind: Literal["printed"] = "printed"
    prompt_tokens: Count
    tokens: Count
    prefill_s: Finite | None
    decode_s: Finite | None
    wall_s: Finite
    text: str

    @property
    def seconds(self) -> float:
        """Of prompt and text, by the program's own times if it prints both."""
        if self.prefill_s is None or self.decode_s is None:
            return self.wall_s
        return self.prefill_s + self.decode_s

    @property
    def first_token_s(self) -> float:
        """Of the prompt; 0 where it is not known."""
        return 0.0 if self.decode_s is None else self.prefill_s or 0.0


class FailedAnswer(Value):
    """An item that could not be answered.

    Attributes:
        id, kind: the item's.
        error: why.
    """

    id: str
    kind: str
    error: str


_Answered = GeneratedAnswer | LikelihoodAnswer | LogitsAnswer | TokenizedAnswer | PrintedAnswer
_ANSWERED: TypeAdapter[_Answered] = TypeAdapter(Annotated[_Answered, Field(discriminator="kind")])
Answer = _Answered | FailedAnswer


class AnswerLine(RootModel[Annotated[_Answered, Field(discriminator="kind")] | FailedAnswer]):
    """An answer as a document of its own."""

    model_config = ConfigDict(frozen=True)


def read_answers(path: Path) -> tuple[Answer, ...]:
    """Read the scorer's output, in the order in which the items were finished.

    A line that was cut off, with the program or by full storage, is left out; a file that is
    missing has no answers.

    Raises:
        DataError: a whole line is no answer.
    """
    answers: list[Answer] = []
    # Where a power cut took the content of a block, some file systems leave zeros.
    *lines, _ = content(path).partition(b"\0")[0].split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            answers.append(_answer(parse_json(line)))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{path}, line {number}: not an answer that this armload can read.",
                "The file was changed, or written by a newer armload. Update armload, or "
                "restore the file.",
            ) from error
    return tuple(answers)


def parse_answers(lines: Iterable[str]) -> tuple[Answer, ...]:
    """Read lines of a scorer's output; one whose begin is cut off is left out."""
    answers: list[Answer] = []
    for line in lines:
        with contextlib.suppress(ValueError, TypeError):
            answers.append(_answer(parse_json(line)))
    return tuple(answers)


def _answer(found: Mapping[str, object]) -> Answer:
    if "error" in found:
        return FailedAnswer.model_validate(found)
    return _ANSWERED.validate_python(found)
