"""What a reader should know of a prediction's figures."""

from __future__ import annotations

from collections.abc import Mapping

from armload.analysis.distributed_forecast import LINK_BITS_PER_S, ROUND_TRIP_S
from armload.analysis.roofline import INTERVAL_LEVEL
from armload.engines.prediction import PredictionNote, PredictionNoteKind


def note(kind: PredictionNoteKind, *, subject: str = "", reason: str = "") -> PredictionNote:
    """Return a note with its sentence.

    Args:
        subject: the board or model, for kinds that name one.
        reason: in the words of the error or of the model's header.
    """
    match kind:
        case "operations failed":
            sentence = f"The model's operations were not timed on {subject}: {reason}."
        case "encoder not timed":
            sentence = (
                f"The encoder's operations were not timed on {subject}: {reason}. Its time is "
                "estimated from the board's facts."
            )
        case "memory assumed":
            sentence = f"{reason} of the installed memory is assumed to be available."
        case "read by row":
            sentence = read_by_row({subject: reason})
        case "emulated":
            sentence = (
                f"{subject} is emulated: these times apply to this machine, and say nothing about "
                "a real board's speed."
            )
        case "emulated, not timed":
            sentence = (
                f"{subject} is emulated, so its speed depends on this machine and cannot be "
                "estimated from facts. To estimate a model's speed there: armload fit --board "
                f"{subject} --model MODEL."
            )
        case _:
            sentence = _FIXED[kind]
    return PredictionNote(kind=kind, subject=subject, reason=reason, sentence=sentence)


def without_range(found: PredictionNote) -> str:
    """Return a note's sentence for times that are shown without their range."""
    return _ESTIMATED if found.kind == "estimated from facts" else found.sentence


def read_by_row(sizes: Mapping[str, str]) -> str:
    """Say that the memory of models leaves out their per-layer embeddings.

    Args:
        sizes: of them, in words, by the model's name.
    """
    of_models = ", ".join(f"{size} of {name}" for name, size in sizes.items())
    return (
        "The memory leaves out per-layer embeddings, of which a token reads only one row: "
        f"{of_models}."
    )


_ESTIMATED = (
    "The model's operations were not timed on the board: the compute time is estimated from its "
    "cores and memory."
)
_FIXED: Mapping[PredictionNoteKind, str] = {
    "estimated from facts": (
        f"{_ESTIMATED} The range is an {INTERVAL_LEVEL:.0%} interval, from the errors of the same "
        "estimate for published speeds."
    ),
    "storage rate unknown": (
        "The storage's read rate is unknown: measure it with armload board.probe, or set "
        "facts.storage_read_bytes_per_s in the board's file."
    ),
    "memory rate unknown": (
        "The memory's read rate is unknown, so times cannot be estimated: measure it with armload "
        "board.probe, or set facts.memory_bytes_per_s in the board's file."
    ),
    "cores only": (
        "The memory's read rate is unknown, so the times are those of the cores alone, and may be "
        "too short: measure it with armload board.probe, or set facts.memory_bytes_per_s in the "
        "board's file."
    ),
    "operations disturbed": (
        "Other programs kept the CPU busy while the model's operations were timed: the predicted "
        "times may be too long. Stop them, on the workstation if it emulates the board, and repeat "
        "the command."
    ),
    "memory unknown": (
        "The board's memory is unknown: set facts.memory in its file, or add the size to the "
        "hardware's name (NAME-16gb)."
    ),
    "lower bound": (
        "The KV cache of this architecture is an estimate, and may be larger: the run is not "
        "refused, but it may not fit."
    ),
    "group": (
        "The loading time is that of a first run, which transfers each member's part; later runs "
        "read it from the member's own storage."
    ),
    "group without links": (
        "The connections between the members were not measured: the forecast leaves them out, and "
        "the group will be slower."
    ),
    "cluster from facts": (
        "Times of dllama follow from the boards' cores and memory, and from an assumed network: "
        f"Ethernet of {LINK_BITS_PER_S / 1e9:.3g} Gbit/s with a round trip of "
        f"{1000 * ROUND_TRIP_S:.3g} ms. Of 13 published speeds, all of "
        "Raspberry Pi 5, the forecast is up to 79% too fast for releases of 2024, and 23% for "
        "later ones; 8 lie in the range."
    ),
}
