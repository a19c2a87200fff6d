"""What a reader should know of a prediction's figures."""

from __future__ import annotations

from armload.analysis.roofline import INTERVAL_LEVEL
from armload.engines.prediction import PredictionNote, PredictionNoteKind


def note(kind: PredictionNoteKind, *, subject: str = "", reason: str = "") -> PredictionNote:
    """Return a note with its sentence.

    Args:
        subject: the board or model, for kinds that name one.
        reason: in the words of the error or of the model's header.
    """
    return PredictionNote(
        kind=kind, subject=subject, reason=reason, sentence=_sentence(kind, subject, reason)
    )


def _sentence(kind: PredictionNoteKind, subject: str, reason: str) -> str:  # noqa: C901 - one case for each
    match kind:
        case "estimated from facts":
            return (
                "The model's operations were not timed on the board: the compute time is estimated "
                f"from its cores and memory. The range is an {INTERVAL_LEVEL:.0%} interval, from "
                "the errors of the same estimate for published speeds."
            )
        case "storage rate unknown":
            return (
                "The storage's read rate is unknown: measure it with armload board.probe, or set "
                "facts.storage_read_bytes_per_s in the board's file."
            )
        case "operations disturbed":
            return (
                "Other programs kept the cores busy while the model's operations were timed: the "
                "forecast may be too slow. Repeat the command when the board is idle."
            )
        case "operations failed":
            return f"The model's operations were not timed on {subject}: {reason}."
        case "memory assumed":
            return f"{reason} of the installed memory is assumed to be available."
        case "memory unknown":
            return (
                "The board's memory is unknown: set facts.memory in its file, or add the size to "
                "the hardware's name (NAME-16gb)."
            )
        case "read by row":
            return (
                f"{reason} of {subject} are embeddings for each layer, of which a token reads a "
                "row: they need not stay in memory."
            )
        case "lower bound":
            return (
                "The size of this architecture's KV cache is only known to be this large or "
                "larger, so the run is not refused; it may not fit."
            )
        case "emulated":
            return (
                f"{subject} is emulated: these times are for it on this machine, and say nothing "
                "of a real board's speed."
            )
        case "group":
            return (
                "The time of a group is what its members compute, without the connections between "
                "them. Loading is not predicted: each member stores its part after the first run, "
                "which transfers it."
            )
