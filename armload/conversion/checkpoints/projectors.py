"""The projector of a checkpoint that sees: a second file, compared by what it makes of an image."""

from __future__ import annotations

from pathlib import Path

from armload.build.programs import SEEING_SCORER
from armload.conversion.checkpoints.checkpoint import CONFIG, Checkpoint, read_object
from armload.conversion.checkpoints.environment import Environment
from armload.conversion.checkpoints.forms import GGUF_BITS, gguf_projectors
from armload.conversion.checkpoints.program import Findings, compared_by
from armload.core.errors import DataError
from armload.core.progress import Progress
from armload.core.values import Count, Finite, Value

PROJECTOR_TYPES = ("F32", "F16", "BF16", "Q8_0")
_OTHERS = "F16"


class ComparedRows(Value):
    """How far rows of values are from those of the checkpoint.

    Attributes:
        difference: the largest of two values.
        largest: of the checkpoint's values.
        relative: root mean square of the differences in a row, as a share of the values'
            standard deviation there, in the median of the rows.
    """

    difference: Finite
    largest: Finite
    relative: Finite


class ComparedMedia(ComparedRows):
    """How far the embeddings of an image or a sound are, where both encoders get the same.

    Attributes:
        tokens: that it becomes, in all its parts.
        after: how far the logits of the token after it and a question are.
    """

    tokens: Count
    after: ComparedRows


class ComparedImage(ComparedMedia):
    """How far the embeddings of an image are.

    Attributes:
        width, height: of the image, in pixels.
    """

    width: Count
    height: Count


class ComparedSound(ComparedMedia):
    """How far the embeddings of a sound are."""

    seconds: Finite


class MediaFindings(Findings):
    """How far embeddings of media and the logits after them differ.

    Attributes:
        image: none if its embeddings were not compared.
        sound: as ``image``; a checkpoint either sees or hears.
    """

    compares = "sees or hears"

    image: ComparedImage | None = None
    sound: ComparedSound | None = None


def projector_path(path: Path) -> Path:
    """Return where a model's projector goes: by such a name, it is found beside the model."""
    return path.with_name(f"mmproj-{path.name}")


def projector_type(type_name: str) -> str:
    """Return the type of a projector's weights beside a model of a type."""
    return type_name if type_name in PROJECTOR_TYPES else _OTHERS


def has_projector(folder: Path, source: Path) -> bool:
    """Tell whether llama.cpp's converter makes a projector of a checkpoint, too.

    Args:
        source: of llama.cpp.
    """
    config = read_object(folder / CONFIG)
    names = config.get("architectures")
    parts = ("vision_config", "audio_config")
    return (
        any(isinstance(config.get(each), dict) for each in parts)
        and isinstance(names, list)
        and bool(names)
        and names[0] in gguf_projectors(source)
    )


def compare_media(
    checkpoint: Checkpoint,
    file: Path,
    projector: Path,
    held: Environment,
    progress: Progress,
    *,
    most: float,
) -> MediaFindings:
    """Compare the embeddings of an image or a sound with those that transformers computes.

    Args:
        file, projector: as converted.
        most: that they may differ, as ``ComparedRows.relative``.

    Raises:
        DataError: they are others, or llama.cpp cannot compute them.
    """
    found = compared_by(
        *("check_projector.py", [file, projector], SEEING_SCORER, checkpoint, held),
        kind=MediaFindings,
        progress=progress,
    )
    if found.engine:
        raise DataError(
            f"{checkpoint.folder}: llama.cpp cannot use the converted projector: {found.engine}.",
            "The pinned llama.cpp may not support this variant: use a projector that the "
            "publisher offers.",
        )
    media = found.image or found.sound
    compared = {"embeddings of it": media, "logits after it": media.after} if media else {}
    for what, rows in compared.items():
        if rows.relative > most:
            raise DataError(
                f"{checkpoint.folder}: with {'an image' if found.image else 'a sound'}, the "
                f"converted files compute different {what}: they differ by up to "
                f"{rows.difference:.2g}, in the median by {rows.relative:.1%} of their spread (at "
                f"most {most:.0%} is allowed).",
                "Compare config.json and the preprocessor's with those of the model's publisher.",
            )
    return found


def projector_bytes(checkpoint: Checkpoint, type_name: str) -> int:
    """Return what a projector takes at most: no more than the whole checkpoint."""
    return round(checkpoint.parameters * GGUF_BITS[projector_type(type_name)] / 8)
