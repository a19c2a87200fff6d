"""Projectors: files by which a language model sees or hears, as llama.cpp's ``mmproj``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, unreadable
from armload.core.progress import Progress
from armload.core.values import Value
from armload.models.header import Header, check_whole, read_header
from armload.models.metadata import Metadata
from armload.models.model import Model, cached_sha256, read_headers

Modality = Literal["image", "audio"]

_PARTS: Mapping[Modality, str] = {"image": "vision", "audio": "audio"}
_WORDS: Mapping[Modality, str] = {"image": "images", "audio": "sounds"}
_TYPES = ("Q8_0", "F16", "BF16", "F32")

DYNAMIC = frozenset(
    (
        *("idefics3", "lfm2", "pixtral", "lightonocr", "kimivl", "gemma4v", "gemma4uv", "ling3vl"),
        *("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "minimax_m3", "muse-glimmer"),
        *("glm4v", "glm5v", "hunyuanvl"),
    )
)
"""Types whose number of tokens follows from the image's size (``set_limit_image_tokens`` in
``clip.cpp``)."""


class Projector(Value):
    """A projector, by its header.

    Attributes:
        kind: llama.cpp's name of its type, such as ``qwen2.5vl_merger``; of images where it takes
            both.
        modalities: what it takes.
        width: of the embeddings that it gives a language model; none where the header is silent.
        image_size, patch_size: in pixels; none of one for sounds alone.
        size_bytes: of its file.
        path: on this machine.
        sha256: of the file; empty where it was not read.
    """

    kind: str
    modalities: tuple[Modality, ...]
    width: int | None
    image_size: int | None = None
    patch_size: int | None = None
    size_bytes: int = 0
    path: Path = Path()
    sha256: str = ""

    @property
    def is_dynamic(self) -> bool:
        """Whether a larger image gives more tokens, which can be limited."""
        return self.kind in DYNAMIC


def read_projector(header: Header) -> Projector:
    """Return a projector by the header of its file.

    Raises:
        UsageError: it is none.
    """
    values = header.metadata

    def number(key: str) -> int | None:
        value = values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    if values.get("general.architecture") != "clip":
        raise UsageError(
            "This GGUF file is not a projector.",
            "Give the model's mmproj file, such as mmproj-MODEL-f16.gguf.",
        )
    has = {
        "image": values.get("clip.has_vision_encoder"),
        "audio": values.get("clip.has_audio_encoder"),
    }
    modalities: tuple[Modality, ...] = tuple(
        each for each in ("image", "audio") if has[each] is True
    )
    parts = [_PARTS[each] for each in modalities]
    kinds = [
        values.get("clip.projector_type"),
        *(values.get(f"clip.{each}.projector_type") for each in parts),
    ]
    widths = [number(f"clip.{each}.projection_dim") for each in parts]
    return Projector(
        kind=next((each for each in kinds if isinstance(each, str)), ""),
        modalities=modalities,
        width=next((each for each in widths if each is not None), None),
        image_size=number("clip.vision.image_size"),
        patch_size=number("clip.vision.patch_size"),
        size_bytes=header.file_bytes,
    )


def projector_called(path: Path, progress: Progress) -> Projector:
    """Read a projector's file, with its checksum.

    Raises:
        UsageError: there is no such file, or it is no projector.
        DataError: it is damaged.
        DiskError: it cannot be read.
    """
    require_file(path, "projector", "Give the model's mmproj file, such as mmproj-MODEL-f16.gguf.")
    try:
        header = read_header(path)
        check_whole(path, header.file_bytes, header.end_bytes)
        found = read_projector(header)
        return found.model_copy(update={"path": path, "sha256": cached_sha256(path, progress)})
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.remedy) from error
    except OSError as error:
        raise unreadable(path, error) from error


def choose_projector(names: Sequence[str], model: str) -> str:
    """Return the projector of a model among files that lie beside it; empty where there is none.

    Of several types the smallest of a usual one is taken, as ``llama-cli -hf`` would for a
    quantised model.

    Args:
        names: of all files, with their folders.
        model: the name of the model's file.
    """
    found = [each for each in names if "mmproj" in each and each.endswith(".gguf")]
    family = re.split(r"[.-](?:I?Q\d|BF16|F16|F32)", model.rpartition("/")[2], flags=re.IGNORECASE)[
        0
    ]
    found = [each for each in found if family.casefold() in each.casefold()] or found
    for kind in _TYPES:
        for each in found:
            if re.search(rf"(?<![a-z0-9]){kind}(?![a-z0-9])", each, re.IGNORECASE):
                return each
    return found[0] if found else ""


def projector_beside(model: Path) -> Path | None:
    """Return the projector that lies beside a model; none where there is none."""
    names = sorted(each.name for each in model.parent.glob("*mmproj*.gguf"))
    chosen = choose_projector(names, model.name)
    return model.parent / chosen if chosen else None


def check_fits(projector: Projector, model: Model, wanted: Modality | None = None) -> None:
    """Check by the headers that a projector is for a model, and takes what it is to be given.

    Raises:
        UsageError: it is another model's, or does not take that.
        DataError: the model has no template, by which an image would get its place.
    """
    header, _ = read_headers(model.path)
    width = Metadata(model.path, header).number("embedding_length", 0)
    if projector.width is not None and width and projector.width != width:
        raise UsageError(
            f"{projector.path}: this projector is for another model: its embeddings have "
            f"{projector.width:,} values, those of {model.name} have {width:,}.",
            "Give the mmproj file that was published with the model: --mmproj FILE",
        )
    if wanted is not None and wanted not in projector.modalities:
        takes = " and ".join(_WORDS[each] for each in projector.modalities)
        raise UsageError(
            f"--{wanted}: {projector.path.name} takes {takes or 'neither images nor sounds'} only.",
            f"Remove --{wanted}, or give a projector that takes it: --mmproj FILE",
        )
    if "tokenizer.chat_template" not in header.metadata:
        raise DataError(
            f"{model.path}: this model has no chat template, which says where an image belongs.",
            "Give a file of the model that was converted with its chat template.",
        )
