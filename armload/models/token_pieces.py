"""The bytes that each token of a GGUF model stands for, and a file with its vocabulary alone."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from armload.core.errors import UsageError
from armload.models.byte_pairs import byte_letters
from armload.models.gguf_values import Array
from armload.models.header import Header, read_header
from armload.models.vocabulary import SPACE, TokenKind

_TOKENS, _KINDS = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_COUNT_AT = 8
"""Of the number of tensors in a GGUF file."""

_ENDS = (
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
)
_END_TEXTS = frozenset(("<|eot_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|eom_id|>"))
"""Tokens that llama.cpp takes for ends of a text by their names (``llama_vocab::impl::load``)."""


def header_with_words(path: Path) -> Header:
    """Read the header of a GGUF file with its vocabulary, which takes longer than without.

    Raises:
        OSError: the file cannot be read.
    """
    return read_header(path, strings_of=_TOKENS, numbers_of=_KINDS)


def token_pieces(path: Path, words: Header, count: int) -> tuple[bytes, ...]:
    """Return the bytes of each token as llama.cpp writes them: none for control tokens.

    Args:
        words: of the file, as ``header_with_words`` reads it.
        count: of tokens that the model has; those that the vocabulary lacks are empty.

    Raises:
        UsageError: llama.cpp reads this vocabulary in another way.
    """
    found = _pieces(words)
    if found is None:
        raise UsageError(
            f"--engine dllama: armload cannot write text with the vocabulary of {path.name} "
            f"({words.metadata.get('tokenizer.ggml.model')}).",
            "Use --engine llama.cpp.",
        )
    return (*found, *[b""] * (count - len(found)))


@lru_cache(maxsize=64)
def fewest_tokens(path: Path, text: str) -> int:
    """Return how many tokens a text has at least: any cut of it into pieces of the vocabulary.

    The beginning-of-text token does not count; a tokenizer may need more. Of a vocabulary that
    is read in another way, this is 1.

    Raises:
        OSError: the file cannot be read.
    """
    found = _pieces(header_with_words(path))
    if found is None:
        return 1
    # A character that no piece has is one token or more.
    pieces = {*found, *(letter.encode() for letter in text)}
    longest = max(map(len, pieces))
    whole = text.encode()
    fewest = [0]
    for end in range(1, len(whole) + 1):
        begins = range(max(0, end - longest), end)
        fewest.append(
            min((fewest[at] + 1 for at in begins if whole[at:end] in pieces), default=end)
        )
    return max(1, fewest[-1])


def _pieces(header: Header) -> list[bytes] | None:
    tokens, kinds = header.metadata.get(_TOKENS), header.metadata.get(_KINDS)
    reader = {"llama": _of_pieces, "gpt2": _of_bytes}.get(
        str(header.metadata.get("tokenizer.ggml.model"))
    )
    if reader is None or not isinstance(tokens, Array):
        return None
    types = kinds.items if isinstance(kinds, Array) else ()
    return [
        b""
        if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN)
        else text.encode()
        if kind == TokenKind.USER_DEFINED
        else reader(text)
        for text, kind in zip(
            tokens.strings, (*types, *[1] * (len(tokens.strings) - len(types))), strict=False
        )
    ]


def _of_pieces(text: str) -> bytes:
    byte = _BYTE.fullmatch(text)
    return bytes.fromhex(byte[1]) if byte else text.replace(SPACE, " ").encode()


_BYTES = {letter: byte for byte, letter in byte_letters().items()}


def _of_bytes(text: str) -> bytes:
    if all(letter in _BYTES for letter in text):
        return bytes(_BYTES[letter] for letter in text)
    return text.encode()


def end_tokens(header: Header) -> tuple[int, ...]:
    """Return the tokens after which a text ends; of what ``header_with_words`` reads."""
    tokens = header.metadata.get(_TOKENS)
    strings = tokens.strings if isinstance(tokens, Array) else ()
    named = (header.metadata.get(key) for key in _ENDS)
    by_text = (number for number, text in enumerate(strings) if text in _END_TEXTS)
    return tuple(sorted({*(each for each in named if isinstance(each, int)), *by_text}))


def write_pieces(pieces: tuple[bytes, ...], path: Path) -> None:
    """Write their number, and of each its length in 32 bits and its bytes."""

    def parts() -> Iterator[bytes]:
        yield struct.pack("<I", len(pieces))
        for piece in pieces:
            yield struct.pack("<I", len(piece)) + piece

    path.write_bytes(b"".join(parts()))


def write_vocabulary(path: Path, header: Header, vocabulary: Path) -> None:
    """Write the metadata of a GGUF file as a file without tensors, of which llama.cpp tokenizes."""
    with path.open("rb") as file:
        content = bytearray(file.read(header.metadata_bytes))
    content[_COUNT_AT : _COUNT_AT + 8] = struct.pack("<Q", 0)
    # Nor are there further parts of the model to be looked for.
    key = struct.pack("<Q", len("split.count")) + b"split.count" + struct.pack("<I", 2)
    at = content.find(key)
    if at >= 0:
        content[at + len(key) : at + len(key) + 2] = struct.pack("<H", 0)
    vocabulary.write_bytes(content + bytes(-len(content) % header.alignment_bytes))
