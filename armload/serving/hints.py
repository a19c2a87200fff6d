r"""What a person can do about requests that services refuse, or answer otherwise than asked.

A JSON schema's ``pattern`` is what llama.cpp makes a grammar of. What it lacks (escapes such as
``\d``, lookarounds, anchors inside) it does not refuse: it accepts any string then, and says so in
its log alone (json-schema-to-grammar.cpp); older versions refuse the request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from armload.analysis.load.records import Refusal, RequestRecord
from armload.core.values import counted
from armload.serving.dialects.dialect import CompletionRequest

_UNGRAMMATICAL = re.compile(r"\\[dDwWsSbBpPkK1-9]|\(\?(?!:)")
_DEEPEST = 200

_REMEDIES = (
    (
        r"context (?:size|length|window)|prompt_out_of_range|prompt is too long",
        "Use shorter prompts and answers, or give the service a larger context.",
    ),
    (
        r"ignore_eos",
        "It does not know ignore_eos: add --stop-at-end.",
    ),
    (
        (
            r"assistant messages? at the end|prefill|continue_final_message|last (?:role|message)|"
            r"end with a user message"
        ),
        "End the messages in --data with one of the user, not of the assistant.",
    ),
    (
        r"chat template",
        "Use --dialect openai, with prompts instead of messages in --data.",
    ),
    (
        r"grammar|json.?schema|\bpattern\b|regex",
        (
            r"Simplify the schema: llama.cpp's patterns begin with ^, end with $, and have no \d, "
            r"\w or \s; write [0-9] for \d."
        ),
    ),
    (
        r"model\b.*(?:not found|not exist)|unknown model|no such model",
        "Give the model's name as the service knows it: --model NAME.",
    ),
    (
        r"rate limit|too many requests|quota",
        "Use a lower --rate, or --max-concurrency.",
    ),
    (
        r"image|audio|multimodal|content part",
        "Leave parts that are not text out of the messages, or serve a model that takes them.",
    ),
)

_MOST_DIFFERENT = 100
_FIRST_STATUS, _LAST_STATUS = 300, 499


class Refusals:
    """The messages with which a service refuses requests, as far as they repeat."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, str]] = Counter()

    def add(self, record: RequestRecord) -> None:
        status = record.status or 0
        key = status, record.error
        is_refused = record.outcome == "http" and _FIRST_STATUS <= status <= _LAST_STATUS
        if is_refused and (key in self._counts or len(self._counts) < _MOST_DIFFERENT):
            self._counts[key] += 1

    @property
    def most_frequent(self) -> Refusal | None:
        """The message of most of them; none where none was refused."""
        if not self._counts:
            return None
        ((status, message), count), *_ = self._counts.most_common(1)
        return Refusal(status=status, message=message, requests=count, remedy=remedy_for(message))


def remedy_for(message: str) -> str:
    """Return what to do about a service's refusal."""
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, message, re.IGNORECASE):
            return remedy
    return "See the service's log."


def hints_about(requests: Iterable[CompletionRequest]) -> Iterator[str]:
    """Say what of requests services are known to refuse, or not to follow."""
    pattern, of_assistant, count = "", 0, 0
    for request in requests:
        count += 1
        of_assistant += bool(request.messages) and request.messages[-1].role == "assistant"
        schemas = [request.json_schema, *(tool for tool in request.tools)]
        pattern = pattern or next(filter(None, map(_ungrammatical, schemas)), "")
    if of_assistant:
        yield (
            f"The messages of {of_assistant} of {counted(count, 'request')} end with one of the "
            "assistant: services continue it, or refuse the request with status 400. End them with "
            "one of the user."
        )
    if pattern:
        yield (
            f"The schema's pattern {pattern[:60]!a} has what llama.cpp's grammars lack: it accepts "
            r"any string there, or refuses the request. Write [0-9] for \d, [A-Za-z0-9_] for \w, "
            r"[ \t\r\n] for \s, and no lookarounds."
        )


def _ungrammatical(schema: object, depth: int = 0) -> str:
    if depth > _DEEPEST:
        return ""
    if isinstance(schema, dict):
        found = schema.get("pattern")
        if isinstance(found, str) and _UNGRAMMATICAL.search(found):
            return found
        schema = list(schema.values())
    if not isinstance(schema, list):
        return ""
    return next(filter(None, (_ungrammatical(each, depth + 1) for each in schema)), "")
