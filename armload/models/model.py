"""A GGUF model: its files, its checksum, and the facts that decide how it runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePath

from armload.core.errors import DataError, UsageError
from armload.core.files import write_whole
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import Value
from armload.models.adapter import Adapter, identity_of
from armload.models.context_memory import ContextMemory
from armload.models.header import MAGIC, Header, check_whole, read_header
from armload.models.metadata import EMBEDS, RANKS


class ModelPart(Value):
    """One file of a model that is split into several.

    Attributes:
        path: on this machine.
        sha256: of the file, 64 hexadecimal digits.
    """

    path: Path
    sha256: str


class Model(Value):
    """A GGUF file that was read and found whole, or the parts of one.

    Attributes:
        path: the file on this machine; of several parts, the first.
        parts: all of them, if there are several.
        sha256: of the whole file, 64 hexadecimal digits; of several, of the list of theirs.
        size_bytes: of the whole file, or of all parts.
        architecture: ``general.architecture``, such as ``llama``.
        quantisation: the tensor type that most weights have, such as ``Q4_0``.
        parameters: number of weights.
        active_parameters: number of those that one token uses, as ``bytes_per_token`` counts them.
        layers: number of transformer blocks, of which the last ``prediction_layers`` guess further
            tokens (MTP) and take no part in plain decoding.
        context_length: the longest context the model was trained for, in tokens.
        vocabulary: number of tokens.
        bytes_per_token: weight bytes that one decode step reads.
        matrix_bytes: by tensor type, of the matrices that the engine can lay out anew: those that
            it multiplies with, among them the embedding where it is the output matrix, too.
        context_memory: KV cache and state of recurrent layers.
        activation_bytes_per_token: of the engine's buffers, for each token of a micro-batch.
        attention_heads: for queries, of the layer that has most.
        row_table_bytes: of embeddings for each layer, of which a token reads a row: they need not
            stay in memory.
        experts: of a mixture of experts, in each layer; else 0.
        expert_bytes: of all of them.
        expert_bytes_per_token: of ``bytes_per_token``, what is of experts.
        purpose: what it does instead of generating text; empty where it generates.
        pooling: how its file says that tokens become one embedding, or a score: ``none``, ``mean``,
            ``cls``, ``last`` or ``rank``; empty where it does not.
        prompt: what it is to answer where nobody says; empty for the usual text.
        adapters: with which it computes.
    """

    path: Path
    sha256: str
    size_bytes: int
    architecture: str
    quantisation: str
    parameters: int
    active_parameters: int = 0
    layers: int
    context_length: int
    vocabulary: int
    bytes_per_token: int
    matrix_bytes: Mapping[str, int] = {}
    context_memory: ContextMemory
    activation_bytes_per_token: int = 0
    attention_heads: int = 0
    row_table_bytes: int = 0
    experts: int = 0
    expert_bytes: int = 0
    expert_bytes_per_token: int = 0
    purpose: str = ""
    pooling: str = ""
    prompt: str = ""
    prediction_layers: int = 0
    parts: tuple[ModelPart, ...] = ()
    adapters: tuple[Adapter, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def identity(self) -> str:
        """A checksum that tells it from others, and from itself with other adapters."""
        return identity_of(self.sha256, self.adapters)

    @property
    def ranks(self) -> bool:
        """Whether it is a reranker."""
        return self.purpose == RANKS

    @property
    def embeds(self) -> bool:
        """Whether it was made for embeddings."""
        return self.purpose.endswith(EMBEDS)

    @property
    def adapter_bytes(self) -> int:
        """Of the adapters' weights, all of which each token reads."""
        return sum(each.weights_bytes for each in self.adapters)


def check_generates(model: Model, *, or_embeds: bool = False) -> None:
    """Check that a model can do what armload measures.

    Args:
        or_embeds: a model that embeds or ranks texts will do, too.
    """
    pools = model.embeds or model.ranks
    if model.purpose and not (or_embeds and pools):
        what = "rankings" if model.ranks else "embeddings"
        others = (
            f" For its {what}: armload bench --embed 8 --model FILE, or armload serve --model FILE "
            "--embeddings model"
            if pools
            else ""
        )
        raise DataError(
            f"{model.path}: this model ({model.architecture}) does not generate text: it "
            f"{model.purpose}.",
            f"Give a model that generates text.{others}",
        )


def check_pools(model: Model, pooling: str, option: str) -> None:
    """Check that a model can make embeddings, or scores, in a way.

    Args:
        pooling: ``model`` for the one in its file, or one of llama.cpp's.
        option: that says it.

    Raises:
        UsageError: it cannot.
    """
    if model.ranks:
        if pooling not in ("model", "rank"):
            raise UsageError(
                f"{option} {pooling}: {model.name} is a reranker, which gives scores and no "
                "embeddings.",
                f"Use {option} rank.",
            )
    elif pooling == "rank":
        raise UsageError(
            f"{option} rank: {model.name} is not a reranker: its file has no pooling of that type.",
            "Use a reranker, such as bge-reranker-v2-m3.",
        )
    elif pooling == "model" and model.pooling in ("", "none"):
        raise UsageError(
            f"{option} model: the file of {model.name} specifies no pooling.",
            f"Use {option} mean, or {option} last.",
        )


BLOCK_BYTES = 4 << 20
"""A file's blocks can be summed on several CPUs at once; its SHA-256 cannot."""

_RECORD = re.compile(r"([0-9a-f]{64})\n([0-9a-f]{64})\n")


class Checksums(Value):
    """Two checksums of the same reading of a file, so that one stands for the other.

    Attributes:
        sha256: of the whole, 64 hexadecimal digits.
        blocks_sha256: of the list of its blocks' SHA-256 sums, each as 64 hexadecimal digits and
            a newline; a block has ``BLOCK_BYTES``, the last one what is left.
    """

    sha256: str
    blocks_sha256: str


def cached_sha256(path: Path, progress: Progress) -> str:
    """Return the file's SHA-256; from where, and with which errors, as ``cached_checksums``."""
    return cached_checksums(path, progress).sha256


def cached_checksums(path: Path, progress: Progress) -> Checksums:
    """Return a file's checksums, from the cache when path, size, times and inode are the same.

    Raises:
        OSError: the file cannot be read.
    """
    before = _identity(path)
    remembered = cache_folder() / "hashes" / hashlib.sha256(os.fsencode(before)).hexdigest()
    with contextlib.suppress(OSError):
        if known := _RECORD.fullmatch(remembered.read_text()):
            return Checksums(sha256=known[1], blocks_sha256=known[2])
    computed = _computed(path, progress)
    if _identity(path) != before:
        raise DataError(
            f"{path}: the file changed while it was read.",
            "Wait until it is written completely, then retry.",
        )
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        write_whole(remembered, f"{computed.sha256}\n{computed.blocks_sha256}\n".encode())
    return computed


def _identity(path: Path) -> str:
    status = path.stat()
    # The change time catches a file that was rewritten and then given its former
    # modification time, as `cp -p` and `rsync -t` do.
    numbers = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return "\0".join((str(path.resolve()), *map(str, numbers)))


def _computed(path: Path, progress: Progress) -> Checksums:
    whole, blocks = hashlib.sha256(), hashlib.sha256()
    done = 0
    with (
        path.open("rb") as file,
        progress.step(f"Checksum of {path.name}", total=path.stat().st_size, unit="B") as step,
        ThreadPoolExecutor(1) as beside,
    ):
        while block := file.read(BLOCK_BYTES):
            of_block = beside.submit(hashlib.sha256, block)
            whole.update(block)
            blocks.update(f"{of_block.result().hexdigest()}\n".encode())
            done += len(block)
            step.update(done)
    return Checksums(sha256=whole.hexdigest(), blocks_sha256=blocks.hexdigest())


_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_KEYS = "split."


def part_names(name: str) -> tuple[str, ...]:
    """Return the names of all parts of a model from the first one's; of one file, its own."""
    match = _NAME.fullmatch(name)
    if match is None or int(match["number"]) != 1:
        return (name,)
    stem, count = match["stem"], int(match["count"])
    return tuple(f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))


def is_split(name: str) -> bool:
    """Say whether a name is that of one of several files of a model."""
    return _NAME.fullmatch(name) is not None


_PIECE = re.compile(r"(?P<whole>.+\.gguf)(?:\.part\d+of(?P<count>\d+)|-split-[a-z]+)")


def cut_piece(name: str) -> str:
    """Return what joins the pieces of a file that was cut; empty where a name is of no piece."""
    match = _PIECE.fullmatch(name)
    if match is None:
        return ""
    whole = PurePath(match["whole"]).name
    pieces = [f"{whole}-split-*"]
    if match["count"]:
        count = int(match["count"])
        pieces = [f"{whole}.part{number}of{count}" for number in range(1, count + 1)]
    return f"cat {' '.join(pieces)} > {whole}"


def read_headers(path: Path, *, need_weights: bool = True) -> tuple[Header, tuple[Path, ...]]:
    """Read the header of a model, and of all its parts if it has several.

    Args:
        need_weights: a part that ends before its weights do is refused.

    Returns:
        The header of the file that the parts would be, one after the other; and the parts, of
        which the first is ``path``, or nothing if the model is one file.

    Raises:
        OSError: a file cannot be read.
    """
    if piece := cut_piece(path.name):
        raise DataError(
            f"{path}: this is only one piece of a GGUF file.",
            f"Join all pieces, and give the result. To join them: {piece}",
        )
    first = read_header(path)
    _refuse_joined(path, first)
    parts = _parts(path, first)
    if not parts:
        return first, ()
    headers = [first, *(read_header(part) for part in parts[1:])]
    tensors, before_bytes = [], 0
    for part, header in zip(parts, headers, strict=True):
        if need_weights:
            check_whole(part, header.file_bytes, header.whole_bytes)
        tensors += [
            replace(tensor, offset_bytes=before_bytes + tensor.offset_bytes)
            for tensor in header.tensors
        ]
        before_bytes += max(header.file_bytes, header.whole_bytes)
    metadata = {key: value for key, value in first.metadata.items() if not key.startswith(_KEYS)}
    whole = replace(first, metadata=metadata, tensors=tuple(tensors), file_bytes=before_bytes)
    return whole, parts


def _refuse_joined(path: Path, header: Header) -> None:
    """Refuse several GGUF files one after the other: only ``llama-gguf-split`` joins those."""
    if header.file_bytes < header.end_bytes + len(MAGIC):
        return
    with path.open("rb") as file:
        file.seek(header.end_bytes)
        if file.read(len(MAGIC)) == MAGIC:
            raise DataError(
                f"{path}: this file is several parts of a model that were joined with cat, of "
                "which llama.cpp reads only the first.",
                "Give the first part as it was downloaded, with the others beside it, or join "
                "them with `llama-gguf-split --merge FIRST OUTPUT`.",
            )


def _parts(path: Path, header: Header) -> tuple[Path, ...]:
    count = header.metadata.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return ()
    name = _NAME.fullmatch(path.name)
    if name is None or int(name["count"]) != count:
        raise DataError(
            f"{path}: this file is one of {count} parts of a split model, and the other parts "
            "are found by its name.",
            f"Rename it to NAME-00001-of-{count:05}.gguf, and the others likewise.",
        )
    if int(name["number"]) != 1:
        raise DataError(
            f"{path}: this file is one of {count} parts of a split model.",
            f"Give the first part: {name['stem']}-00001-of-{count:05}.gguf",
        )
    parts = tuple(path.with_name(each) for each in part_names(path.name))
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise DataError(
            f"{path}: this file is one of {count} parts of a split model, and there is no "
            f"{missing[0]} beside it.",
            "Put all parts into one folder.",
        )
    return parts
