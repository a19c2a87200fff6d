"""Which projector is a model's own: by its name, its header, and what it is to be given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from armload.core.errors import ArmloadError, DataError, UsageError
from armload.models.header import Header, read_header
from armload.models.model_summary import ProjectorBeside
from armload.models.projector import TOKEN_LIMITS, Modality, Projector, projector_of_header

PATTERN = "*mmproj*.gguf"
"""What projectors are called, as llama.cpp looks for them."""
_TYPES = ("Q8_0", "F16", "BF16", "F32")
_MOST_READ = 8
_OPTIONS: dict[Modality, Literal["image", "audio"]] = {"vision": "image", "audio": "audio"}
_WORDS: dict[Modality, str] = {"vision": "images", "audio": "sounds"}


def by_likelihood(names: Sequence[str], model: str) -> list[str]:
    """Return the projectors among files that lie beside a model, the likeliest first.

    Those of the model's name come first, then the smallest of a usual type, as ``llama-cli -hf``
    would take for a quantised model.

    Args:
        names: of all files, with their folders.
        model: the name of the model's file.
    """
    found = [each for each in names if "mmproj" in each and each.endswith(".gguf")]
    name = model.rpartition("/")[2]
    family = re.split(r"[.-](?:I?Q\d|BF16|F16|F32)", name, flags=re.IGNORECASE)[0].casefold()

    def rank(name: str) -> tuple[bool, int, str]:
        types = (rf"(?<![a-z0-9]){kind}(?![a-z0-9])" for kind in _TYPES)
        hits = [bool(re.search(each, name, re.IGNORECASE)) for each in types]
        is_other = family not in name.casefold()
        return is_other, hits.index(True) if any(hits) else len(hits), name

    return sorted(found, key=rank)


def projectors_beside(path: Path, input_width: int) -> Iterator[ProjectorBeside]:
    """Yield the projectors in a model's folder, the likeliest first; a few that can be read.

    Args:
        path: of the model.
        input_width: of the embeddings that it takes.
    """
    names = [each.name for each in path.parent.glob(PATTERN)]
    for name in by_likelihood(names, path.name)[:_MOST_READ]:
        each = path.with_name(name)
        try:
            projector = projector_of_header(each, read_header(each))
        except (ArmloadError, OSError):
            continue
        yield ProjectorBeside(
            file=name,
            kinds=tuple(encoder.kind for encoder in projector.encoders),
            embedding_width=projector.embedding_width,
            belongs=projector.embedding_width == input_width,
        )


def check_belongs(projector: Projector, model: str, input_width: int) -> None:
    """Refuse a projector of another model, as llama.cpp does when it loads both.

    Args:
        model: what it is called.
        input_width: of the embeddings that the model takes.
    """
    if projector.embedding_width != input_width:
        raise UsageError(
            f"{projector.path}: this projector is for another model: its embeddings have "
            f"{projector.embedding_width:,} values, those of {model} have {input_width:,}.",
            "With --mmproj, give the mmproj-*.gguf file that was published with the model.",
        )


def check_takes(
    projector: Projector,
    model: Path,
    header: Header,
    wanted: Sequence[Modality] = (),
    *,
    most_tokens: int | None = None,
) -> None:
    """Refuse what a model with its projector cannot be given.

    Args:
        header: of the model.
        wanted: what it is to be given; none where requests decide.
        most_tokens: of an image, where that was limited.

    Raises:
        UsageError: the projector does not take that.
        DataError: the model has no template, by which an image would get its place.
    """
    name = projector.path.name
    for each in wanted:
        if projector.encoder(each) is None:
            takes = " and ".join(_WORDS[one.modality] for one in projector.encoders)
            raise UsageError(
                f"--{_OPTIONS[each]}: {name} takes {takes} only.",
                f"Remove --{_OPTIONS[each]}, or give a projector that takes it with --mmproj.",
            )
    if "tokenizer.chat_template" not in header.metadata:
        raise DataError(
            f"{model}: this model has no chat template, which says where an image belongs.",
            "Give a file of the model that was converted with its chat template.",
        )
    if most_tokens is None:
        return
    if not projector.is_dynamic:
        raise UsageError(
            f"--image-max-tokens {most_tokens}: with {name} ({projector.kind}), the number of "
            "tokens does not follow from an image's size.",
            "Remove --image-max-tokens.",
        )
    least, _ = TOKEN_LIMITS.get(projector.kind, (1, 0))
    if most_tokens < least:
        raise UsageError(
            f"--image-max-tokens {most_tokens}: with {name} ({projector.kind}), an image has at "
            f"least {least} tokens.",
            f"Use --image-max-tokens {least} or more.",
        )
