"""What no conversion can make a model of: weights, or chat templates that do not parse."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from armload.conversion.checkpoints.checkpoint import Checkpoint, read_object, weight_files
from armload.core.errors import DataError
from armload.core.files import unreadable
from armload.core.progress import Progress, ProgressStep

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_CHUNK_BYTES = 16 << 20
_NAMED = 5
_LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header."""


class _Bits(NamedTuple):
    """Which bit patterns of a type are no finite numbers.

    Attributes:
        width: bytes.
        exponent: bits that are all set in NaN and infinity.
        magnitude: all bits but the sign; 0 for a type without infinity.
    """

    width: int
    exponent: int
    magnitude: int


_FLOATS = {
    "F64": _Bits(8, 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF),
    "F32": _Bits(4, 0x7F80_0000, 0x7FFF_FFFF),
    "F16": _Bits(2, 0x7C00, 0x7FFF),
    "BF16": _Bits(2, 0x7F80, 0x7FFF),
    "F8_E5M2": _Bits(1, 0x7C, 0x7F),
    "F8_E4M3": _Bits(1, 0x7F, 0),
    "F8_E8M0": _Bits(1, 0xFF, 0),
}
_OUTPUT = "lm_head.weight"
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")


@dataclass(frozen=True, kw_only=True)
class _Stored:
    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    size_bytes: int

    def chunks(self, width: int) -> Iterator[NDArray[np.unsignedinteger]]:
        """Yield the weights as whole numbers of that many bytes, some at a time."""
        import numpy as np

        try:
            with self.path.open("rb") as file:
                file.seek(self.begin)
                for done in range(0, self.size_bytes, _CHUNK_BYTES):
                    length = min(_CHUNK_BYTES, self.size_bytes - done)
                    content = file.read(length)
                    if len(content) < length:
                        raise DataError(
                            f"{self.path}: this file is truncated.", "Download it again."
                        )
                    yield np.frombuffer(content, f"<u{width}")
        except OSError as error:
            raise unreadable(self.path, error) from error


def check_weights(checkpoint: Checkpoint, progress: Progress) -> None:
    """Read all weights once, and refuse those that are no model's."""
    stored = {
        each.name: each
        for file in weight_files(checkpoint.folder)
        for each in _stored(checkpoint.folder / file)
    }
    total = sum(each.size_bytes for each in stored.values())
    with progress.step("Reading the weights", total=total, unit="B") as step:
        _check_finite(checkpoint, stored, step)
    if checkpoint.tied:
        _check_tied(checkpoint, stored)


def _stored(path: Path) -> Iterator[_Stored]:
    """Yield a file's tensors. Its header is known to be in order."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = json.loads(file.read(length))
    except OSError as error:
        raise unreadable(path, error) from error
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            yield _Stored(
                path=path,
                name=name,
                dtype=about["dtype"],
                shape=tuple(about["shape"]),
                begin=_LENGTH_BYTES + length + begin,
                size_bytes=end - begin,
            )


def _check_finite(
    checkpoint: Checkpoint, stored: Mapping[str, _Stored], step: ProgressStep
) -> None:
    damaged: list[str] = []
    done_bytes = 0
    for each in stored.values():
        bits = _FLOATS.get(each.dtype)
        nans = infinities = 0
        for chunk in each.chunks(bits.width) if bits else ():
            bad = chunk[(chunk & bits.exponent) == bits.exponent] if bits else chunk
            infinite = int(((bad & bits.magnitude) == bits.exponent).sum()) if bits else 0
            nans, infinities = nans + len(bad) - infinite, infinities + infinite
            step.update(done_bytes := done_bytes + chunk.nbytes)
        if nans or infinities:
            parts = [f"{nans:,} NaN"] * (nans > 0) + [f"{infinities:,} infinite"] * (infinities > 0)
            damaged.append(
                f"{each.name} in {each.path.name}: {' and '.join(parts)} of "
                f"{math.prod(each.shape):,}"
            )
    if damaged:
        more = f"; and {len(damaged) - _NAMED} more tensors" if len(damaged) > _NAMED else ""
        raise DataError(
            f"{checkpoint.folder}: weights are NaN or infinite ("
            f"{'; '.join(damaged[:_NAMED])}{more}).",
            "Compare the files' checksums with those of the publisher, and download what differs "
            "again. If they agree, or the checkpoint is your own, its training diverged: use an "
            "earlier checkpoint.",
        )


def _check_tied(checkpoint: Checkpoint, stored: Mapping[str, _Stored]) -> None:
    outputs = [each for name, each in stored.items() if name.endswith(_OUTPUT)]
    inputs = [each for name, each in stored.items() if name.endswith(_EMBEDDINGS)]
    for output in outputs[:1]:
        for own in inputs[:1]:
            if (own.dtype, own.shape) == (output.dtype, output.shape) and all(
                bool((one == other).all())
                for one, other in zip(own.chunks(1), output.chunks(1), strict=True)
            ):
                continue
            raise DataError(
                f"{checkpoint.folder}: config.json says 'tie_word_embeddings': true, but "
                f"{output.name} and {own.name} differ.",
                "If the model was trained with two matrices, set 'tie_word_embeddings' to false in "
                f"config.json. Otherwise save it again without {output.name}.",
            )


_MOST_BYTES = 1 << 20
_SETTINGS = ("tokenizer_config.json", "chat_template.json")
_FOLDER = "additional_chat_templates"


def check_templates(folder: Path) -> None:
    """Refuse a chat template that does not parse."""
    for where, text in _templates(folder):
        if len(text) > _MOST_BYTES:
            raise DataError(
                f"{where}: the chat template is longer than {_MOST_BYTES >> 20} MiB.",
                "Use the template of the model's publisher.",
            )
        if mistake := _mistake(text):
            raise DataError(
                f"{where}: the chat template does not parse: {mistake}.",
                "Use the template of the model's publisher. Without any, the file is for plain "
                "continuations only: remove the template from the checkpoint.",
            )


def _templates(folder: Path) -> Iterator[tuple[str, str]]:
    for path in (folder / "chat_template.jinja", *sorted((folder / _FOLDER).glob("*.jinja"))):
        if path.is_file():
            yield str(path), _text(path)
    for name in _SETTINGS:
        path = folder / name
        stated = read_object(path).get("chat_template") if path.is_file() else None
        for each in stated if isinstance(stated, list) else [stated]:
            text = each.get("template") if isinstance(each, dict) else each
            if isinstance(text, str):
                named = f", {each.get('name')!r}" if isinstance(each, dict) else ""
                yield f"{path}{named}", text
            elif each is not None:
                yield str(path), "{{"  # neither a text nor a list of them


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES + 1).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Download it again.") from error
    except OSError as error:
        raise unreadable(path, error) from error


def _mistake(template: str) -> str:
    from jinja2 import TemplateSyntaxError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """What marks an assistant's words for training, which transformers adds to Jinja."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = str  # transformers' own has further arguments
    try:
        environment.compile(template)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except (SyntaxError, RecursionError, MemoryError, ValueError, OverflowError) as error:
        return f"it is nested too deep, or Python cannot compile it ({type(error).__name__})"
    return ""
