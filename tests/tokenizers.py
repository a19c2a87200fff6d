"""Tokenizers of Hugging Face checkpoints, with the vocabulary of a model's GGUF file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from armload.models.byte_pairs import byte_letters

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NORMAL, _CONTROL, _BYTE = 1, (2, 3), 6


def write_byte_pairs(
    folder: Path, fields: Mapping[str, Any], rule: Literal["llama-bpe", "qwen2"]
) -> None:
    """Write ``tokenizer.json`` with pairs of bytes, as Llama 3 and Qwen2 have it.

    Each piece of the file's vocabulary keeps its number, and is made of all pairs of pieces that
    make it up, so that a text has the same tokens as with the pieces.
    """
    is_llama = rule == "llama-bpe"
    vocabulary = _spelt_in_bytes(fields)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": is_llama}
    split = {
        "type": "Split",
        "pattern": {"Regex": _SPLIT % ("{1,3}" if is_llama else "")},
        "behavior": "Isolated",
        "invert": False,
    }
    in_bytes = {**byte_level, "use_regex": False}
    _write_pairs(
        folder,
        fields,
        vocabulary,
        {"ignore_merges": is_llama},
        normalizer=None if is_llama else {"type": "NFC"},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [split, in_bytes]},
        post_processor=_begun(vocabulary) if is_llama else in_bytes,
        decoder={**byte_level, "use_regex": True},
    )
    _write_settings(
        folder,
        fields,
        tokenizer_class="PreTrainedTokenizerFast" if is_llama else "Qwen2Tokenizer",
        bos_token="<s>" if is_llama else None,
        pad_token=None if is_llama else "<unk>",
        unk_token=None,
        clean_up_tokenization_spaces=False,
    )


def write_as_today(folder: Path, fields: Mapping[str, Any]) -> None:
    """Rewrite what ``write_byte_pairs`` or ``write_sentence_pieces`` wrote as transformers 5 does.

    Sentence pieces are in ``tokenizer.json``, too, with the merges in the order of the scores.
    """
    pieces = folder / "tokenizer.model"
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    if pieces.is_file():
        pieces.unlink()
        tokens = fields["tokenizer.ggml.tokens"]
        _write_pairs(
            folder,
            fields,
            vocabulary := {token: number for number, token in enumerate(tokens)},
            {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
            normalizer=None,
            pre_tokenizer={
                "type": "Metaspace",
                "replacement": "\u2581",
                "prepend_scheme": "never",
                "split": False,
            },
            post_processor=_begun(vocabulary),
            decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        )
    (folder / "chat_template.jinja").write_text(settings.pop("chat_template"))
    for name in ("legacy", "add_bos_token", "add_eos_token", "add_prefix_space"):
        settings.pop(name, None)
    today = {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["<s>", "</s>"]}
    path.write_text(json.dumps(settings | today))


def _begun(vocabulary: Mapping[str, int]) -> dict[str, Any]:
    begins = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [begins, text],
        "pair": [begins, text, text],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [vocabulary["<s>"]], "tokens": ["<s>"]}},
    }


def _write_pairs(
    folder: Path,
    fields: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    model: Mapping[str, Any],
    **rules: object,
) -> None:
    scores, kinds = fields["tokenizer.ggml.scores"], fields["tokenizer.ggml.token_type"]
    merges = [
        [token[:at], token[at:]]
        for token, number in sorted(vocabulary.items(), key=lambda item: -scores[item[1]])
        if kinds[number] == _NORMAL
        for at in range(1, len(token))
        if token[:at] in vocabulary and token[at:] in vocabulary
    ]
    special = [token for token, number in vocabulary.items() if kinds[number] in _CONTROL]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary[each],
                "content": each,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for each in special
        ],
        **rules,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
            **model,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))


def _spelt_in_bytes(fields: Mapping[str, Any]) -> dict[str, int]:
    letters = byte_letters()
    tokens = [each.replace("\u2581", " ") for each in fields["tokenizer.ggml.tokens"]]
    plain = set(tokens)
    vocabulary = {}
    for number, token in enumerate(tokens):
        kind = fields["tokenizer.ggml.token_type"][number]
        content = token.encode()
        # A byte that is a piece of its own, too, is spelt by that.
        if kind == _BYTE and chr(byte := int(token[3:-1], 16)) not in plain:
            content = bytes([byte])
        name = token if kind in _CONTROL else "".join(letters[each] for each in content)
        vocabulary[name] = number
    return vocabulary


def _write_settings(folder: Path, fields: Mapping[str, Any], **settings: object) -> None:
    content = {
        "eos_token": "</s>",
        "chat_template": fields["tokenizer.chat_template"],
        **settings,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(content))


def write_sentence_pieces(folder: Path, fields: Mapping[str, Any]) -> None:
    """Write ``tokenizer.model``, as Llama 2 has it."""
    _write_settings(
        folder,
        fields,
        tokenizer_class="LlamaTokenizer",
        bos_token="<s>",
        unk_token="<unk>",
        add_bos_token=True,
        add_eos_token=False,
        add_prefix_space=False,
        legacy=False,
    )
    tokens = fields["tokenizer.ggml.tokens"]
    scores, kinds = fields["tokenizer.ggml.scores"], fields["tokenizer.ggml.token_type"]
    pieces = b"".join(
        _message(1, _message(1, token.encode()) + _float(2, score) + _number(3, kind))
        for token, score, kind in zip(tokens, scores, kinds, strict=True)
    )
    byte_pairs, byte_fallback = _number(3, 2), _number(35, 1)
    ids = _number(40, 0) + _number(41, 1) + _number(42, 2)
    trainer = _message(2, byte_pairs + _number(4, len(tokens)) + byte_fallback + ids)
    no_dummy_prefix, spaces_kept, spaces_marked = _number(3, 0), _number(4, 0), _number(5, 1)
    normaliser = _message(
        3, _message(1, b"identity") + no_dummy_prefix + spaces_kept + spaces_marked
    )
    (folder / "tokenizer.model").write_bytes(pieces + trainer + normaliser)


# Fields of sentencepiece_model.proto, as protocol buffers are encoded.


def _varint(number: int) -> bytes:
    content = b""
    while number > 0x7F:
        content += bytes([number & 0x7F | 0x80])
        number >>= 7
    return content + bytes([number])


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)
