"""The projector of a checkpoint that sees: a second file, compared by what it makes of an image."""

from __future__ import annotations

import tempfile
from pathlib import Path

from armload.build.builder import build
from armload.build.programs import SEEING_SCORER
from armload.build.target import HOST, load_target
from armload.conversion.checkpoints.checkpoint import CONFIG, Checkpoint, read_object
from armload.conversion.checkpoints.environment import Environment, FailedProgramError
from armload.conversion.checkpoints.forms import GGUF_BITS, gguf_projectors
from armload.conversion.checkpoints.program import OFFLINE
from armload.conversion.checkpoints.staging import staged
from armload.core.errors import BuildError, DataError, MissingToolError, UsageError
from armload.core.places import data_path
from armload.core.progress import Progress
from armload.core.values import Count, Finite, Value

PROJECTOR_TYPES = ("F32", "F16", "BF16", "Q8_0")
_OTHERS = "F16"


class ComparedImage(Value):
    """How far the embeddings of an image are from those of the checkpoint.

    Attributes:
        width, height: of the image, in pixels.
        tokens: that it becomes.
        difference: the largest of two values.
        largest: of the checkpoint's values.
        relative: root mean square of the differences of a token, as a share of the values'
            standard deviation there, in the median of the tokens.
    """

    width: Count
    height: Count
    tokens: Count
    difference: Finite
    largest: Finite
    relative: Finite


class ImageFindings(Value):
    """What the script in the converters' environment found.

    Attributes:
        image: how far the embeddings differ; none if they were not compared.
        unchecked: why not; empty if they were.
        engine: why llama.cpp could not compute them; empty if it could.
    """

    image: ComparedImage | None = None
    unchecked: str = ""
    engine: str = ""


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


def compare_images(
    checkpoint: Checkpoint,
    file: Path,
    projector: Path,
    held: Environment,
    progress: Progress,
    *,
    most: float,
) -> ImageFindings:
    """Compare the embeddings of an image with those that transformers computes.

    Args:
        file, projector: as converted.
        most: that they may differ, as ``ComparedImage.relative``.

    Raises:
        DataError: they are others, or llama.cpp cannot compute them.
    """
    try:
        (scorer,) = build(load_target(HOST), programs=[SEEING_SCORER], progress=progress)
    except (BuildError, MissingToolError, UsageError) as error:
        return ImageFindings(unchecked=f"{SEEING_SCORER} is unavailable: {error.message}")
    script = data_path("toolchains", "converters", "check_projector.py")
    with (
        progress.step(f"Comparing how {checkpoint.name} sees"),
        staged(checkpoint, for_converters=False) as stage,
        tempfile.TemporaryDirectory(prefix="armload-") as name,
    ):
        result = Path(name) / "result.json"
        words = [script, stage, file.absolute(), projector.absolute(), scorer.path, result]
        variables = {**OFFLINE, "PYTHONPATH": str(held.comparing)}
        try:
            held.run(
                ["-s", *map(str, words)],
                folder=stage.parent,
                variables=variables,
                watch=lambda _: None,
            )
        except FailedProgramError as error:
            return ImageFindings(unchecked=f"the comparison ended with status {error.status}")
        found = ImageFindings.model_validate_json(result.read_bytes())
    if found.engine:
        raise DataError(
            f"{checkpoint.folder}: llama.cpp cannot use the converted projector: {found.engine}.",
            "The pinned llama.cpp may not support this variant: use a projector that the "
            "publisher offers.",
        )
    if found.image and found.image.relative > most:
        raise DataError(
            f"{checkpoint.folder}: the projector computes different embeddings of an image: they "
            f"differ by up to {found.image.difference:.2g}, in the median of the tokens by "
            f"{found.image.relative:.1%} of their spread (at most {most:.0%} is allowed).",
            "Compare config.json and the preprocessor's with those of the model's publisher.",
        )
    return found


def projector_bytes(checkpoint: Checkpoint, type_name: str) -> int:
    """Return what a projector takes at most: no more than the whole checkpoint."""
    return round(checkpoint.parameters * GGUF_BITS[projector_type(type_name)] / 8)
