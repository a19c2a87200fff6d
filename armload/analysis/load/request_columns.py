"""What figures need of each request, in columns: a load may have a million requests.

A record holds all chunks of its answer, prompt and text, and takes some ten kilobytes in memory; a
row of these columns takes 200 bytes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, get_args, overload

from armload.analysis.load.records import Outcome, RequestRecord

Known = TypeVar("Known", covariant=True)

MOST_GAPS = 1 << 20
"""Inter-token latencies that are kept: of more, those of every second, fourth, ... request are."""

_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_FIRST_ERROR = 400
_UNKNOWN = -1
_MOST_COUNT = (1 << 63) - 1

_SECONDS = ("scheduled_s", "begun_s", "held_s", "sent_s", "header_s", "first_chunk_s", "end_s")
_COUNTS = (
    *("number", "conversation", "turn", "turns", "status", "dimensions", "ignored_lines"),
    *("prompt_tokens", "generated_tokens", "cached_tokens", "new_prompt_tokens", "received_tokens"),
    *("later_tokens", "chunk_count", "image_width", "image_height"),
)
_FLAGS = (
    *("is_warmup", "is_timed", "is_cut_off", "is_truncated"),
    *("is_at_once", "is_short", "is_prompt_cut", "has_refused_counts", "has_uncounted_chunks"),
)


class EndedRequest(Protocol):
    """What figures need of a request; the attributes are those of a record."""

    @property
    def number(self) -> int: ...
    @property
    def is_warmup(self) -> bool: ...
    @property
    def conversation(self) -> int | None: ...
    @property
    def turn(self) -> int: ...
    @property
    def turns(self) -> int: ...
    @property
    def scheduled_s(self) -> float: ...
    @property
    def begun_s(self) -> float | None: ...
    @property
    def held_s(self) -> float: ...
    @property
    def sent_s(self) -> float | None: ...
    @property
    def header_s(self) -> float | None: ...
    @property
    def first_chunk_s(self) -> float | None: ...
    @property
    def end_s(self) -> float: ...
    @property
    def outcome(self) -> Outcome: ...
    @property
    def status(self) -> int | None: ...
    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def generated_tokens(self) -> int | None: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def new_prompt_tokens(self) -> int | None: ...
    @property
    def received_tokens(self) -> int: ...
    @property
    def later_tokens(self) -> int | None: ...
    @property
    def chunk_count(self) -> int: ...
    @property
    def image_width(self) -> int | None: ...
    @property
    def image_height(self) -> int | None: ...
    @property
    def dimensions(self) -> int | None: ...
    @property
    def ignored_lines(self) -> int: ...
    @property
    def is_timed(self) -> bool: ...
    @property
    def is_cut_off(self) -> bool: ...
    @property
    def is_truncated(self) -> bool: ...
    @property
    def is_at_once(self) -> bool: ...
    @property
    def is_short(self) -> bool: ...
    @property
    def is_prompt_cut(self) -> bool: ...
    @property
    def has_refused_counts(self) -> bool: ...
    @property
    def has_uncounted_chunks(self) -> bool: ...

    def gaps_s(self) -> Iterable[float]: ...


def failure(request: EndedRequest) -> str:
    """Return the outcome, with the status of HTTP where that was an error."""
    if request.outcome in ("http", "server-error") and (request.status or 0) >= _FIRST_ERROR:
        return f"{request.outcome} {request.status}"
    return request.outcome


def did_less(request: EndedRequest) -> bool:
    """Return whether a service did less for an answer than it was asked to."""
    return request.is_short or request.is_cut_off or request.is_prompt_cut


def has_filled(request: EndedRequest, context_tokens: int | None) -> bool:
    """Return whether prompt and answer are known to have filled the context of a slot."""
    if not request.is_cut_off:
        return False
    tokens = (request.prompt_tokens or 0) + (request.generated_tokens or 0)
    return request.is_truncated or (context_tokens is not None and tokens >= context_tokens - 1)


class RequestColumns(Sequence[EndedRequest]):
    """Requests in the order in which they were added, without what figures do not need.

    Args:
        records: the first ones.
    """

    def __init__(self, records: Iterable[RequestRecord] = ()) -> None:
        self.seconds = {name: array("d") for name in _SECONDS}
        self.counts = {name: array("q") for name in _COUNTS}
        self.outcomes, self.flags = array("B"), array("H")
        self.gaps_s = array("d")
        self.gaps_from, self.gap_counts = array("q"), array("q")
        self._every = 1
        for record in records:
            self.add(record)

    def add(self, record: RequestRecord) -> None:
        for name, seconds in self.seconds.items():
            time_s = getattr(record, name)
            seconds.append(math.nan if time_s is None else time_s)
        for name, counts in self.counts.items():
            count = getattr(record, name)
            counts.append(_UNKNOWN if count is None else min(count, _MOST_COUNT))
        self.flags.append(sum(getattr(record, name) << bit for bit, name in enumerate(_FLAGS)))
        self.outcomes.append(_OUTCOMES.index(record.outcome))
        self.gaps_from.append(len(self.gaps_s))
        if (len(self) - 1) % self._every == 0 and record.outcome == "ok":
            self.gaps_s.extend(record.gaps_s())
        self.gap_counts.append(len(self.gaps_s) - self.gaps_from[-1])
        while len(self.gaps_s) > MOST_GAPS and self._every < len(self):
            self._thin()

    def sort(self) -> Self:
        """Put them in the order of their numbers, and return them."""
        import numpy as np

        order = np.argsort(np.frombuffer(self.counts["number"], dtype=np.int64), kind="stable")
        columns: tuple[array[Any], ...] = (
            *self.seconds.values(),
            *self.counts.values(),
            *(self.outcomes, self.flags, self.gaps_from, self.gap_counts),
        )
        for column in columns:
            column[:] = array(column.typecode, np.asarray(column)[order].tobytes())
        return self

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[EndedRequest]:
        return (_Row(self, place) for place in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> EndedRequest: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[EndedRequest]: ...
    def __getitem__(self, place: int | slice) -> EndedRequest | Sequence[EndedRequest]:
        if isinstance(place, slice):
            return [_Row(self, each) for each in range(len(self))[place]]
        return _Row(self, range(len(self))[place])

    def _thin(self) -> None:
        self._every *= 2
        kept = array("d")
        for place in range(len(self)):
            first, count = self.gaps_from[place], self.gap_counts[place]
            self.gaps_from[place] = len(kept)
            if place % self._every:
                self.gap_counts[place] = 0
            else:
                kept.extend(self.gaps_s[first : first + count])
        self.gaps_s = kept


class _Seconds(Generic[Known]):
    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, row: _Row, _: type) -> Known:
        time_s = row.of.seconds[self._name][row.place]
        return None if math.isnan(time_s) else time_s  # type: ignore[return-value]


class _Count(Generic[Known]):
    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, row: _Row, _: type) -> Known:
        count = row.of.counts[self._name][row.place]
        return None if count == _UNKNOWN else count  # type: ignore[return-value]


class _Flag:
    def __set_name__(self, _: type, name: str) -> None:
        self._bit = 1 << _FLAGS.index(name)

    def __get__(self, row: _Row, _: type) -> bool:
        return bool(row.of.flags[row.place] & self._bit)


class _Row:
    __slots__ = ("of", "place")

    def __init__(self, of: RequestColumns, place: int) -> None:
        self.of = of
        self.place = place

    scheduled_s, held_s, end_s = _Seconds[float](), _Seconds[float](), _Seconds[float]()
    begun_s, sent_s = _Seconds[float | None](), _Seconds[float | None]()
    header_s, first_chunk_s = _Seconds[float | None](), _Seconds[float | None]()
    number, turn, turns = _Count[int](), _Count[int](), _Count[int]()
    conversation, status, dimensions = (_Count[int | None]() for _ in range(3))
    prompt_tokens, generated_tokens = _Count[int | None](), _Count[int | None]()
    cached_tokens, new_prompt_tokens = _Count[int | None](), _Count[int | None]()
    image_width, image_height = _Count[int | None](), _Count[int | None]()
    received_tokens, ignored_lines = _Count[int](), _Count[int]()
    later_tokens, chunk_count = _Count[int | None](), _Count[int]()
    is_warmup, is_timed, is_cut_off, is_truncated = _Flag(), _Flag(), _Flag(), _Flag()
    is_at_once, is_short, is_prompt_cut = _Flag(), _Flag(), _Flag()
    has_refused_counts, has_uncounted_chunks = _Flag(), _Flag()

    @property
    def outcome(self) -> Outcome:
        return _OUTCOMES[self.of.outcomes[self.place]]

    def gaps_s(self) -> Iterable[float]:
        first = self.of.gaps_from[self.place]
        return self.of.gaps_s[first : first + self.of.gap_counts[self.place]]
