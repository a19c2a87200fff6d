"""Projectors: the encoders that turn images and sound into tokens of a model.

llama.cpp keeps them in a GGUF file of their own, ``mmproj-*.gguf``, of the architecture ``clip``.
Keys and rules: ``tools/mtmd/clip.cpp`` of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from armload.core.errors import ArmloadError, DataError
from armload.core.files import require_file, unreadable
from armload.core.progress import Progress, Silent
from armload.core.values import Value
from armload.models.header import Header, check_whole, read_header
from armload.models.model import cached_sha256
from armload.models.model_summary import TypeShare, type_shares

Modality = Literal["vision", "audio"]
MODALITIES: tuple[Modality, ...] = ("vision", "audio")

ARCHITECTURE = "clip"
_DAMAGED = "The file is damaged. Download, copy or convert it again."
_CONVERT = "Convert it again with a current llama.cpp: armload model.convert CHECKPOINT"

_MOST = {
    "block_count": 1 << 10,
    "embedding_length": 1 << 17,
    "feed_forward_length": 1 << 20,
    "projection_dim": 1 << 17,
    "attention.head_count": 1 << 12,
    "image_size": 46_000,  # what llama.cpp multiplies without overflow
    "patch_size": 1 << 10,
    "num_mel_bins": 1 << 10,
}
"""Larger numbers are nonsense, with which arithmetic would go on for ages."""
_MOST_FACTOR = 64

_BLOCK = re.compile(r"([va])\.blk\.(\d{1,6})\.")

_FACTORS = (
    "projector.scale_factor",
    "spatial_merge_size",
    "projector.stack_factor",
)
_USUAL_FACTOR: Mapping[str, int] = {
    "gemma3": 4,
    "gemma4v": 3,
    "glm4v": 2,
    "mimovl": 2,
    "qwen2.5vl_merger": 2,
    "qwen2vl_merger": 2,
    "qwen3vl_merger": 2,
}

_OUTPUTS: Mapping[str, tuple[str, int]] = {
    "gemma3": ("mm.input_projection.weight", 0),
    "gemma3nv": ("mm.input_projection.weight", 0),
    "gemma4v": ("mm.input_projection.weight", 1),
    "idefics3": ("mm.model.fc.weight", 1),
    "internvl": ("mm.3.weight", 1),
    "lfm2": ("mm.2.weight", 1),
    "mlp": ("mm.2.weight", 1),
    "pixtral": ("mm.2.weight", 1),
    "qwen2.5vl_merger": ("mm.2.bias", 0),
    "qwen2a": ("mm.a.fc.weight", 1),
    "qwen2vl_merger": ("mm.2.bias", 0),
    "qwen3vl_merger": ("mm.2.bias", 0),
    "ultravox": ("mm.a.mlp.2.weight", 1),
    "voxtral": ("mm.a.mlp.2.weight", 1),
}
"""The tensor, and its dimension, by which llama.cpp knows the width that a kind gives."""

TOKEN_LIMITS: Mapping[str, tuple[int, int]] = {
    "gemma4uv": (70, 1120),
    "gemma4v": (70, 1120),
    "glm4v": (8, 4096),
    "hunyuanvl": (256, 16384),
    "kimivl": (8, 1024),
    "lfm2": (64, 256),
    "ling3vl": (8, 4096),
    "minimax_m3": (8, 576),
    "muse-glimmer": (1, 4096),
    "pixtral": (8, 1024),
    "qwen2.5vl_merger": (8, 4096),
    "qwen2vl_merger": (8, 4096),
    "qwen3vl_merger": (8, 4096),
    "youtuvl": (1, 62500),
}
"""Tokens that an image has at least and at most, in kinds that scale it
(``set_limit_image_tokens`` in ``clip.cpp``)."""
_OTHERS_LIMITED = frozenset({"glm5v", "idefics3", "lightonocr"})
"""Whose limits are in the header, or none."""

_DEEPSTACK = re.compile(r"v\.deepstack\.\d{1,6}\.norm\.weight")


class Encoder(Value):
    """What turns an image or a sound into embeddings.

    Attributes:
        modality: what it encodes.
        kind: llama.cpp's name of how its output is projected, such as ``idefics3``.
        layers: transformer blocks; 0 of a convolutional encoder.
        width: of its residual stream.
        feed_forward: inner width of its layers.
        heads: of attention.
        image_size: edge of the square image, or tile, that it was trained with, in pixels.
        patch_size: edge of what becomes one vector, in pixels.
        factor: patches per side, or frames, that are merged into one token.
        longest_edge: to which an image is scaled before it is cut into tiles; 0 of others.
        mel_bins: of a sound's spectrogram.
        weights_bytes: of its tensors, with those that project.
        parameters: number of weights.
    """

    modality: Modality
    kind: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    image_size: int = 0
    patch_size: int = 0
    factor: int = 1
    longest_edge: int = 0
    mel_bins: int = 0
    weights_bytes: int
    parameters: int


class Projector(Value):
    """A projector file.

    Attributes:
        path: on this machine.
        sha256: of the file; empty where only its header is known.
        size_bytes: of the whole file.
        missing_bytes: that it lacks at its end.
        title: ``general.name``; empty when there is none.
        quantisation: the tensor type that holds most bytes.
        embedding_width: of the vectors that it gives, which is that of the model it belongs to.
        breaks_rows: each row of an image's tokens but the last ends with one more.
        encoders: one or two, that of images first.
        types: most bytes first.
    """

    path: Path
    sha256: str
    size_bytes: int
    missing_bytes: int
    title: str
    quantisation: str
    embedding_width: int
    breaks_rows: bool = False
    encoders: tuple[Encoder, ...]
    types: tuple[TypeShare, ...]

    def encoder(self, modality: Modality) -> Encoder | None:
        return next((each for each in self.encoders if each.modality == modality), None)

    @property
    def weights_bytes(self) -> int:
        return sum(each.weights_bytes for each in self.encoders)

    @property
    def kind(self) -> str:
        """Of its vision encoder, or of the only one."""
        return self.encoders[0].kind

    @property
    def is_dynamic(self) -> bool:
        """Whether a larger image gives more tokens, which can be limited."""
        encoder = self.encoder("vision")
        return encoder is not None and encoder.kind in TOKEN_LIMITS.keys() | _OTHERS_LIMITED


def is_projector(header: Header) -> bool:
    """Say whether a file is a projector, and no model."""
    return header.metadata.get("general.architecture") == ARCHITECTURE


def is_projector_file(path: Path) -> bool:
    """Say the same of a file; no where it is no GGUF file that can be read."""
    try:
        return is_projector(read_header(path))
    except (ArmloadError, OSError):
        return False


def read_projector(path: Path, progress: Progress | None = None) -> Projector:
    """Read a projector's file; of one that was cut short, what its header says.

    Raises:
        DataError: it is no projector, or none that llama.cpp could load.
    """
    require_file(path, "projector", "Give the path of an mmproj-*.gguf file.")
    try:
        found = projector_of_header(path, read_header(path))
        if found.missing_bytes:
            return found
        return found.model_copy(update={"sha256": cached_sha256(path, progress or Silent())})
    except OSError as error:
        raise unreadable(path, error) from error


def read_whole_projector(path: Path, progress: Progress) -> Projector:
    """Read a projector's file, which must be whole.

    Raises:
        UsageError: there is no such file.
        DataError: it is no projector, none that llama.cpp could load, or cut short.
        DiskError: it cannot be read.
    """
    found = read_projector(path, progress)
    check_whole(path, found.size_bytes - found.missing_bytes, found.size_bytes)
    return found


def projector_of_header(path: Path, header: Header) -> Projector:
    """Return a projector by its header alone, without its checksum."""
    if not is_projector(header):
        raise DataError(
            f"{path}: this GGUF file is not a projector: its architecture is "
            f"{str(header.metadata.get('general.architecture'))[:64]!a} instead of "
            f"{ARCHITECTURE!r}.",
            "Give the mmproj-*.gguf file that lies beside the model's.",
        )
    reader = _Reader(path, header)
    encoders = tuple(reader.encoders())
    if not encoders:
        raise DataError(
            f"{path}: this projector has neither a vision nor an audio encoder.", _CONVERT
        )
    whole_bytes = max(header.file_bytes, header.whole_bytes)
    shares = tuple(type_shares(header.tensors))
    title = header.metadata.get("general.name")
    return Projector(
        path=path,
        sha256="",
        size_bytes=whole_bytes,
        missing_bytes=whole_bytes - header.file_bytes,
        title=title if isinstance(title, str) else "",
        quantisation=shares[0].type if shares else "",
        embedding_width=reader.embedding_width(encoders),
        breaks_rows="v.token_embd.img_break" in reader.tensors,
        encoders=encoders,
        types=shares,
    )


class _Reader:
    """Reads the keys of one projector; every method raises DataError where they are nonsense."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path, self._metadata = path, header.metadata
        self.tensors = {tensor.name: tensor for tensor in header.tensors}

    def encoders(self) -> Iterator[Encoder]:
        for modality in MODALITIES:
            if self._metadata.get(f"clip.has_{modality}_encoder") is True:
                yield self._encoder(modality)

    def embedding_width(self, encoders: tuple[Encoder, ...]) -> int:
        """Return the width by the tensors, or by the key of kinds that are not known here."""
        widths = {each.modality: self._width_of(each) for each in encoders}
        if len(set(widths.values())) > 1:
            raise DataError(
                f"{self._path}: its encoders give embeddings of different widths: "
                f"{' and '.join(f'{width:,}' for width in widths.values())}.",
                _DAMAGED,
            )
        return next(iter(widths.values()))

    def _width_of(self, encoder: Encoder) -> int:
        name, dimension = _OUTPUTS.get(encoder.kind, ("", 0))
        if not name:
            return self._number(encoder.modality, "projection_dim")
        tensor = self.tensors.get(name)
        if tensor is None or len(tensor.shape) <= dimension or not tensor.shape[dimension]:
            raise DataError(
                f"{self._path}: this projector of the kind {encoder.kind} lacks the tensor "
                f"{name!r}.",
                _DAMAGED,
            )
        stacked = sum(1 for each in self.tensors if _DEEPSTACK.fullmatch(each))
        return tensor.shape[dimension] * (1 + stacked)

    def _encoder(self, modality: Modality) -> Encoder:
        kind = self._kind(modality)
        own = [each for each in self.tensors.values() if _modality_of(each.name) == modality]
        layers = self._number(modality, "block_count", least=0)
        letter = modality[0]
        blocks = {
            int(match[2])
            for each in own
            if (match := _BLOCK.match(each.name)) and match[1] == letter
        }
        if layers and (len(blocks) < layers or max(blocks, default=0) >= layers):
            raise DataError(
                f"{self._path}: clip.{modality}.block_count is {layers}, but the file has tensors "
                f"of {len(blocks)} layer{'' if len(blocks) == 1 else 's'}.",
                _DAMAGED,
            )
        found = Encoder(
            modality=modality,
            kind=kind,
            layers=layers,
            width=self._number(modality, "embedding_length"),
            feed_forward=self._number(modality, "feed_forward_length", least=0),
            heads=self._number(modality, "attention.head_count", least=0),
            factor=self._factor(modality, kind),
            weights_bytes=sum(each.size_bytes for each in own),
            parameters=sum(each.elements for each in own),
        )
        if found.layers and (not found.heads or found.width % found.heads):
            raise DataError(
                f"{self._path}: clip.{modality}.embedding_length is {found.width}, which "
                f"{found.heads} heads do not divide.",
                _DAMAGED,
            )
        if modality == "audio":
            return found.model_copy(update={"mel_bins": self._number(modality, "num_mel_bins")})
        sizes = {key: self._number(modality, key) for key in ("image_size", "patch_size")}
        if sizes["patch_size"] * found.factor > sizes["image_size"]:
            raise DataError(
                f"{self._path}: clip.vision.image_size is {sizes['image_size']}, less than the "
                f"{sizes['patch_size'] * found.factor} pixels of a token.",
                _DAMAGED,
            )
        edge = self._optional(modality, "preproc_image_size", _MOST["image_size"]) or 0
        return found.model_copy(update={**sizes, "longest_edge": edge})

    def _kind(self, modality: Modality) -> str:
        for key in ("clip.projector_type", f"clip.{modality}.projector_type"):
            value = self._metadata.get(key)
            if isinstance(value, str) and value:
                if not re.fullmatch(r"[\w.-]{1,64}", value, re.ASCII):
                    raise DataError(
                        f"{self._path}: {key} is {value[:64]!a}, which is no kind of projector.",
                        _DAMAGED,
                    )
                # llama.cpp renames what older converters wrote for both encoders.
                omni = "qwen2.5vl_merger" if modality == "vision" else "qwen2a"
                return omni if value == "qwen2.5o" else value
        raise self._lacks(f"clip.{modality}.projector_type")

    def _factor(self, modality: Modality, kind: str) -> int:
        for key in _FACTORS:
            found = self._optional(modality, key, _MOST_FACTOR)
            if found:
                return found
        return _USUAL_FACTOR.get(kind, 1)

    def _number(self, modality: Modality, key: str, *, least: int = 1) -> int:
        found = self._optional(modality, key, _MOST[key])
        if found is None:
            raise self._lacks(f"clip.{modality}.{key}")
        if found < least:
            raise self._bad(f"clip.{modality}.{key}", found, least, _MOST[key])
        return found

    def _optional(self, modality: Modality, key: str, most: int) -> int | None:
        name = f"clip.{modality}.{key}"
        value = self._metadata.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise self._bad(name, value, 0, most)
        return value

    def _bad(self, name: str, value: object, least: int, most: int) -> DataError:
        shown = str(value)[:32] if isinstance(value, int | float) else type(value).__name__
        return DataError(
            f"{self._path}: {name} is {shown} instead of a number from {least} to {most:,}.",
            _DAMAGED,
        )

    def _lacks(self, key: str) -> DataError:
        return DataError(f"{self._path}: this projector lacks the metadata key {key!r}.", _CONVERT)


def _modality_of(name: str) -> Modality:
    return "audio" if name.startswith(("a.", "mm.a.")) else "vision"
