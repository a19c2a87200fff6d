"""A folder that shows a converter a checkpoint's data and nothing else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from armload.conversion.checkpoints.checkpoint import (
    NEEDED_PATTERNS,
    TEXT_CLASSES,
    Checkpoint,
    read_object,
)
from armload.models.hub import matches

_TOKENIZER, _CONFIG = "tokenizer_config.json", "config.json"
_CLASSES = {"TokenizersBackend": "PreTrainedTokenizerFast"}
"""What transformers 5 calls classes of its tokenizers, and how the converters know them."""

_FIXED: dict[str, dict[str, object]] = {"cohere2": {"rotary_pct": 1.0}}
"""What the converters read from ``config.json``, and transformers leaves out of it, as its class
does nothing else."""


@contextmanager
def staged(checkpoint: Checkpoint, *, for_converters: bool = True) -> Iterator[Path]:
    """Yield a temporary folder, named like the checkpoint, of links to its files.

    The converters' libraries run Python that lies beside a checkpoint's weights. It is not
    linked, so it is not found.

    Args:
        checkpoint: whose files are shown.
        for_converters: put what transformers 5 writes otherwise than the version that the
            converters need into that version's words.
    """
    with tempfile.TemporaryDirectory(prefix="armload-") as name:
        folder = Path(name) / checkpoint.name
        folder.mkdir()
        for path in sorted([*checkpoint.folder.iterdir(), *checkpoint.folder.glob("*/*.*")]):
            place = path.relative_to(checkpoint.folder)
            if path.is_file() and matches(place.as_posix(), NEEDED_PATTERNS):
                (folder / place).parent.mkdir(exist_ok=True)
                (folder / place).symlink_to(path.resolve())
        translations = ((_TOKENIZER, _in_older_words), (_CONFIG, _whole_config))
        for file, translate in translations if for_converters else ():
            shown = folder / file
            content = read_object(shown) if shown.is_file() else {}
            if (translated := translate(content)) != content:
                shown.unlink()
                shown.write_text(json.dumps(translated), encoding="utf-8")
        yield folder


def _in_older_words(content: dict[str, Any]) -> dict[str, Any]:
    named = content.get("tokenizer_class")
    changed = {"tokenizer_class": _CLASSES[named]} if named in _CLASSES else {}
    extra = content.get("extra_special_tokens")
    if not isinstance(extra, list):
        return content | changed
    others = {key: value for key, value in content.items() if key != "extra_special_tokens"}
    return others | changed | {"additional_special_tokens": extra}


def _whole_config(content: dict[str, Any]) -> dict[str, Any]:
    inner = content.get("text_config")
    if isinstance(inner, dict):
        names = content.get("architectures")
        known = TEXT_CLASSES.get(str(names[0])) if isinstance(names, list) and names else None
        text = {"architectures": [known]} if known else {}
        return content | {"text_config": text | _whole_config(inner)}
    model_type = str(content.get("model_type", ""))
    missing = dict(_FIXED.get(model_type, {}))
    if model_type == "gpt2":
        missing["n_ctx"] = content.get("n_positions")
    rope = content.get("rope_parameters")
    if isinstance(rope, dict):
        missing |= _older_rope(rope)
    return missing | content


def _older_rope(rope: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that ``rope_parameters`` were before transformers 5."""
    local = rope.get("sliding_attention")
    rope = rope.get("full_attention", rope)
    found: dict[str, Any] = {
        key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope
    }
    if rope.get("rope_type", "default") != "default":
        found["rope_scaling"] = {key: rope[key] for key in rope if key not in found}
    if isinstance(local, dict) and "rope_theta" in local:
        found["rope_local_base_freq"] = local["rope_theta"]
    return found
