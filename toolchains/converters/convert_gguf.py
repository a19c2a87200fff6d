"""Converts a checkpoint to GGUF: convert_gguf.py CONVERTER ARGUMENTS.

Runs llama.cpp's own converter in the converters' environment, where armload is not installed.

The converter recognises how a byte-pair tokenizer splits text by what it makes of one text, so
that it knows published vocabularies only. Here one that it does not know is recognised by the rule
that its ``tokenizer.json`` states.
"""

import json
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN = {
    (rf"{_WORDS}|\p{{N}}{_REST}", False): "qwen2",
    (rf"{_WORDS}|\p{{N}}{{1,3}}{_REST}", True): "llama-bpe",
    (rf"{_WORDS}|\p{{N}}{{1,3}}{_REST}", False): "dbrx",
    ("", False): "gpt-2",
}
"""What llama-vocab.cpp calls a rule: the expression that splits text, none for ByteLevel's own;
and whether a word of the vocabulary is taken whole, whatever the merges."""


def main() -> None:
    """Run the converter, with one more way to recognise a tokenizer."""
    script, *arguments = sys.argv[1:]
    sys.path.insert(0, str(Path(script).parent))
    model = import_module("conversion.base").TextModel
    published = model.get_vocab_base_pre

    def get_vocab_base_pre(self: Any, tokenizer: Any) -> str:
        try:
            return str(published(self, tokenizer))
        except NotImplementedError:
            stated = getattr(tokenizer, "backend_tokenizer", None)
            name = KNOWN.get(rule_of(json.loads(stated.to_str()))) if stated else None
            if name is None:
                raise
            return name

    model.get_vocab_base_pre = get_vocab_base_pre
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def rule_of(tokenizer: Any) -> tuple[str, bool]:
    """Return how a ``tokenizer.json`` splits text, as in ``KNOWN``; a mismatch has no expression.

    The bytes must be spelt as GPT-2 does, with no space added in front.
    """
    unknown = ("unknown", False)
    rule = tokenizer["pre_tokenizer"] or {}
    *splits, last = rule["pretokenizers"] if rule.get("type") == "Sequence" else [rule]
    if last.get("type") != "ByteLevel" or last["add_prefix_space"] or len(splits) > 1:
        return unknown
    whole = bool(tokenizer["model"].get("ignore_merges"))
    if not splits:
        return ("", whole) if last["use_regex"] else unknown
    (split,) = splits
    isolates = split.get("type") == "Split" and split["behavior"] == "Isolated"
    if not isolates or split["invert"] or last["use_regex"]:
        return unknown
    return str(split["pattern"].get("Regex", "unknown")), whole


if __name__ == "__main__":
    main()
