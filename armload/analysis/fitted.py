"""What a prediction means for a person: a sentence for each model, and one for the choice."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.limit_findings import ROOM_TO_STAY
from armload.core.values import Value, counted, format_bytes, three_figures
from armload.engines.prediction import (
    AlternativeKind,
    Bottleneck,
    Division,
    Expected,
    HitRate,
    Prediction,
)
from armload.models.model import Model

SLOW_TOKEN_S = 60.0
"""Before a run that takes longer per token, a person is warned."""

_FEWER = {"slot": "fewer --slots", "question": "a smaller --parallel", "text": "a smaller --embed"}


class FittedModel(Value):
    """A model, and what is expected of it.

    Attributes:
        model: as a person called it.
        family: the same without its file type, where a list has several types of it.
        size_bytes: of its file.
        parameters: number of weights.
        active_parameters: number of those that one token uses.
        prediction: of a run.
        sentence: what it means, and what to choose.
        command: which runs it; empty where it cannot run, or armload knows no file of it.
        has_file: it was given as one, or armload can get one.
    """

    model: str
    family: str
    size_bytes: int
    parameters: int
    active_parameters: int
    prediction: Prediction
    sentence: str
    command: str = ""
    has_file: bool = True


def fitted(
    name: str,
    board: str,
    model: Model,
    found: Prediction,
    *,
    family: str = "",
    command: str = "",
    has_file: bool = True,
) -> FittedModel:
    """Describe a model; the family is its name where none is given."""
    return FittedModel(
        model=name,
        family=family or name,
        size_bytes=model.size_bytes,
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        prediction=found,
        sentence=sentence(name, board, found),
        command=command,
        has_file=has_file,
    )


def sentence(name: str, board: str, found: Prediction) -> str:
    """Say what is expected of a model on a board or group, and what to choose."""
    if found.division is not None and found.division.refused:
        others = _alternatives(found.division)
        return f"{name} cannot run on {board}: {found.division.refused}{others}"
    divided = _divided(found.division) if found.division is not None else ""
    if found.memory is None:
        return f"Cannot tell whether {name} fits on {board}: the board's memory is unknown."
    if found.verdict == "cannot run":
        return f"{refusal(name, board, found)} {remedy(found)}"
    doing = {"fits": "fits on", "streams": "streams on"}.get(found.verdict)
    opening = f"{name} {doing} {board}" if doing else f"{name} does not stay in {board}'s memory"
    each = found.texts
    if each is not None and each.text_s is not None:
        count = each.at_a_time
        at_a_time = "alone" if count == 1 else f"with {count} at a time"
        of_text = f"a text of {counted(each.tokens, 'token')}"
        return f"{opening}: about {per_token(each.text_s)} for {of_text}, {at_a_time}."
    if found.token_s is None:
        notes = " ".join(note.sentence for note in found.notes)
        return f"{opening}; its speed cannot be predicted. {notes}".strip() + divided
    limit = limit_of(found)
    limited = "" if limit == "unknown" else f", limited by {limit}"
    stays = format_bytes(ROOM_TO_STAY * found.memory.available_bytes)
    by: dict[Bottleneck, str] = {
        "memory bandwidth": "a quantisation with fewer bits is faster",
        "compute": "",
        "unknown": "time it with armload bench",
        "storage": f"use a file smaller than {stays} to avoid reading from storage",
    }
    advice = f"; {by[found.bottleneck]}" if by[found.bottleneck] else ""
    hits = _hits(found.hit_rate) if found.hit_rate else ""
    about = f"about {per_token(found.token_s)} per token"
    return f"{opening}: {about}{limited}{hits}{advice}.{divided}{of_media(found)}"


_ENCODER = {
    "operations": ", from its operations, timed on the board",
    "roofline": ", estimated from the board's facts",
    "unknown": "",
}


def of_media(found: Prediction) -> str:
    """Say what an image or a sound takes before the first token; nothing without one."""
    if found.media is None:
        return ""
    need, taken = found.media.need, found.media.encoder_s
    size = format_bytes(need.weights_bytes + need.buffer_bytes)
    released = (
        f" The projector with its buffers ({size}) is released before the model computes."
        if found.verdict in ("streams", "reads storage")
        else ""
    )
    passes = "1 pass" if need.passes == 1 else f"{need.passes} passes"
    named = need.called[0].upper() + need.called[1:]
    became = f"{named} becomes {need.tokens:,} tokens in {passes} of the encoder"
    if taken is None:
        return f" {became}, whose time is unknown.{released}"
    share = f" of {per_token(found.ttft_s)} to the first token" if found.ttft_s else ""
    how = _ENCODER[found.media.compute]
    return f" {became}, which takes about {per_token(taken)}{share}{how}.{released}"


def _divided(found: Division) -> str:
    said = " Layers: " + ", ".join(f"{share.board} {share.layers}" for share in found.shares) + "."
    if found.tensor_s is not None:
        said += f" With --split tensor: about {per_token(found.tensor_s)} per token."
    return said + _alternatives(found)


def _alternatives(found: Division) -> str:
    said, alone = "", []
    for kind, weights in _ALONE.items():
        way = found.alternative(kind)
        if way is not None and way.token_s is not None:
            alone.append(f"{per_token(way.token_s)} with {weights} weights")
    if alone:
        said = f" The first board alone: about {', '.join(alone)}."
    shared = found.alternative("dllama")
    if shared is not None and shared.token_s is not None:
        said += f" With --engine dllama: about {per_token(shared.token_s)} per token."
    elif shared is not None and shared.refused:
        said += f" With --engine dllama: not possible: {shared.refused}"
    return said


_ALONE: dict[AlternativeKind, str] = {"alone, mapped": "mapped", "alone, streamed": "streamed"}


def limit_of(found: Prediction) -> str:
    """Say what limits the speed: of a group, the member or connection that takes longest."""
    if found.group is None:
        return found.bottleneck
    longest = found.group.longest
    # Of equal boards there is no slowest, and what limits one limits all.
    are_equal = found.bottleneck != "unknown" and longest.kind == "member"
    return found.bottleneck if are_equal else longest.name


def _hits(found: HitRate) -> str:
    how = {"assumed": "assuming even routing", "measured": "measured in an earlier run"}[found.kind]
    return f", with an expert hit rate of {found.value:.0%} ({how})"


def remedy(found: Prediction) -> str:
    largest, sequences = found.largest_context or 0, found.sequences
    kind, least = sequences.kind, max(1, sequences.least_tokens)
    if largest >= least:
        each = "" if sequences.count == 1 else f" per {kind}, or {_FEWER[kind]}"
        return f"Use --context {largest} or less{each}."
    if (found.largest_alone or 0) >= least:
        return f"Use {_FEWER[kind]}, or free memory on the board."
    if largest:
        return (
            f"Prompt and output need {least} tokens, but only {largest} fit: use fewer tokens, or "
            "free memory on the board."
        )
    parts = found.memory
    if parts and parts.least_bytes - parts.projector_bytes <= parts.available_bytes:
        return (
            "Name a smaller projector with --mmproj, such as one in Q8_0, give a smaller image, or "
            "free memory on the board."
        )
    return "Even the smallest context does not fit: free memory on the board."


def forecast_notice(name: str, board: str, found: Prediction, within: str = "") -> str:
    """Say what is expected of a run that reads from storage or is slow; of others nothing.

    Args:
        within: which limit bounds the available memory, in brackets.
    """
    is_slow = found.token_s is not None and found.token_s.value > SLOW_TOKEN_S
    if not is_slow and found.verdict not in ("streams", "reads storage"):
        return ""
    parts = found.memory
    free = f" {format_bytes(parts.available_bytes)} are available{within}." if parts else ""
    warning = "warning: " if is_slow or found.verdict == "reads storage" else ""
    is_estimated = found.token_s is not None and found.compute == "roofline"
    estimated = " The compute time is estimated from the board's facts." if is_estimated else ""
    emulated = "".join(f" {each.sentence}" for each in found.notes if each.kind == "emulated")
    return f"{warning}{sentence(name, board, found)}{free}{estimated}{emulated}"


def recommended(models: Sequence[FittedModel]) -> FittedModel | None:
    """Return the largest model that stays in memory, or else the fastest; none if none runs.

    Models that armload has a file of, or can get one of, come first.
    """
    running = _running(models)
    if resident := _resident(running):
        choose = min if _are_slow(resident) else max
        return choose(_with_file(resident), key=_size_bytes)
    timed = [each for each in running if each.prediction.token_s]
    return min(_with_file(timed or running), key=_token_s, default=None)


def _with_file(models: Sequence[FittedModel]) -> Sequence[FittedModel]:
    """Return those of some models that have a file; all where none has."""
    return [each for each in models if each.has_file] or models


def _resident(models: Sequence[FittedModel]) -> list[FittedModel]:
    return [each for each in models if each.prediction.verdict == "fits"]


def _are_slow(models: Sequence[FittedModel]) -> bool:
    """Return whether models run on an emulated board, and none was timed there."""
    kinds = [{note.kind for note in each.prediction.notes} for each in models]
    return all("emulated, not timed" in found for found in kinds)


def _size_bytes(each: FittedModel) -> int:
    return each.size_bytes


def _running(models: Sequence[FittedModel]) -> list[FittedModel]:
    return [each for each in models if each.prediction.verdict not in ("cannot run", "unknown")]


def recommendation(board: str, models: Sequence[FittedModel]) -> str:
    running, best = _running(models), recommended(models)
    if best is None:
        return f"None of these models can run on {board} with this configuration."
    if best.prediction.verdict == "fits":
        resident = _resident(running)
        largest = max(resident, key=_size_bytes)
        others = [each for each in running if each not in resident]
        why = (
            ", the largest of these that stays in memory"
            if len(running) > 1
            else "; it stays in memory"
        )
        larger = ""
        if largest.size_bytes > best.size_bytes and _are_slow(resident):
            why = ", the smallest, because emulated boards are slow"
        elif largest.size_bytes > best.size_bytes:
            why = ", the largest with a known file that stays in memory"
            larger = f" {largest.model} is larger and stays in memory, too, if you have its file."
        more = f"{larger}{_slower(best, others)}{_where_to_get(best)}"
        return f"Recommended: {best.model}{_speed(best)}{why}.{more}"
    return (
        f"Recommended: {best.model}{_speed(best)}, the fastest of these; none stays in "
        f"{board}'s memory.{_where_to_get(best)}"
    )


def _where_to_get(best: FittedModel) -> str:
    """Say how a model is run of which armload has no file; nothing of another."""
    if best.has_file:
        return ""
    name, _, file_type = best.model.removeprefix("like:").partition(":")
    return (
        f" armload knows no file of it: search the hub for {name} GGUF, and give it to bench as "
        f"hf:ORG/REPO:{file_type or 'TYPE'}."
    )


def shortlist(model: str, boards: Sequence[tuple[str, FittedModel]]) -> str:
    """Say which hardware to take for a model.

    Args:
        boards: names of hardware, and what is expected of the model there.
    """
    resident = [each for each in boards if each[1].prediction.verdict == "fits"]
    if not resident:
        return f"{model} does not stay in the memory of any of these boards."
    name, best = min(resident, key=lambda each: _token_s(each[1]))
    fastest = f"Fastest for {model}: {name}{_speed(best)}."

    def memory_then_time(each: tuple[str, FittedModel]) -> tuple[int, float]:
        parts = each[1].prediction.memory
        return (parts.available_bytes if parts else 0, _token_s(each[1]))

    smallest, found = min(resident, key=memory_then_time)
    if smallest == name:
        return fastest
    return f"{fastest} With the least memory that holds it: {smallest}{_speed(found)}."


def per_token(time: Expected) -> str:
    """Write a time with its interval: its value, then its bounds in brackets."""
    unit, scale = ("s", 1.0) if time.value >= 1 else ("ms", 1000.0)
    value, low, high = (three_figures(each * scale) for each in (time.value, time.low, time.high))
    return f"{value} {unit} ({low}\u2013{high})"


def refusal(name: str, board: str, found: Prediction, within: str = "") -> str:
    """Say why a model cannot run with its context.

    Args:
        within: which limit bounds the available memory, in brackets.
    """
    parts = found.memory
    assert parts is not None  # noqa: S101 - only a known memory can be too small
    count, kind = found.sequences.count, found.sequences.kind
    context = f"a context of {found.context_tokens // count} tokens"
    if count > 1:
        context = f"{context} for each of {counted(count, kind)}"
    size = format_bytes(parts.projector_bytes)
    projector = f", the projector with its buffers ({size})" if parts.projector_bytes else ""
    return (
        f"{name} cannot run on {board} with {context}: the KV cache "
        f"({format_bytes(parts.kv_bytes)}), the program{projector} and the memory reserve need "
        f"{format_bytes(parts.least_bytes)}, and {format_bytes(parts.available_bytes)} are "
        f"available{within}."
    )


def memory_source(models: Sequence[FittedModel]) -> str:
    """Say how the memory that models need is known."""
    known = [each.prediction.memory for each in models if each.prediction.memory]
    exact = [parts for parts in known if parts.is_exact]
    if not known:
        return "The memory of the board is unknown."
    if len(exact) == len(known):
        return "KV cache and program: llama.cpp's own figures, from a simulation."
    estimated = "estimated from the model's header, and llama.cpp may need more"
    if exact:
        names = ", ".join(
            each.model
            for each in models
            if each.prediction.memory and not each.prediction.memory.is_exact
        )
        return f"KV cache and program: llama.cpp's own figures; for {names}, {estimated}."
    return f"KV cache and program: {estimated}."


def _speed(each: FittedModel) -> str:
    """Return the time per token, or per text, in brackets; nothing where it is unknown."""
    time, unit = each.prediction.unit_s, "text" if each.prediction.texts else "token"
    return f" (about {per_token(time).split(' (')[0]} per {unit})" if time else ""


def _slower(best: FittedModel, others: Sequence[FittedModel]) -> str:
    timed = [each for each in others if each.prediction.token_s]
    if not timed or not best.prediction.token_s:
        return ""
    times = _token_s(min(timed, key=_token_s)) / _token_s(best)
    if times < 1:  # a smaller model may be faster although it reads from storage
        return ""
    at_least = three_figures(times)
    return f" Models that read from storage take at least {at_least} times as long."


def _token_s(each: FittedModel) -> float:
    time = each.prediction.unit_s
    return time.value if time else float("inf")
