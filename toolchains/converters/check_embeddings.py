"""Compares the embeddings of texts that a GGUF file gives with those of its checkpoint.

    check_embeddings.py CHECKPOINT FILE PROGRAM RESULT

Runs in the converters' environment, where armload is not installed. transformers computes the
tokens' vectors; what sentence-transformers does with them is in modules.json: pooling, dense
layers, and a length of 1. PROGRAM is llama-embedding, which does the same with FILE.
"""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from check_gguf import EngineError, said
from check_projector import difference

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "A cat sleeps on the mat while it rains outside.",
    "Storage that is read slowly limits how fast a large model answers.",
)
BEYOND_TOKENS, MOST_TOKENS = 64, 1024
"""One more text is that much longer than a sliding window, and no longer than the second."""

MODES = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}


def main() -> None:
    """Write what was found as JSON."""
    checkpoint, file, program, result = sys.argv[1:]
    found: dict[str, Any] = {}
    try:
        found = compared(Path(checkpoint), file, program, Path(result).parent)
    except EngineError as error:
        found["engine"] = str(error)
    except Exception as error:  # noqa: BLE001 - transformers raises any; it is told
        found["unchecked"] = f"transformers cannot compute them ({said(error)})"
    Path(result).write_text(json.dumps(found, allow_nan=False), encoding="utf-8")


def compared(checkpoint: Path, file: str, program: str, folder: Path) -> dict[str, Any]:
    """Return how far the embeddings differ, or why they were not compared."""
    numpy, torch = import_module("numpy"), import_module("torch")
    transformers = import_module("transformers")
    modules = checkpoint / "modules.json"
    if not modules.is_file():
        return {"unchecked": "the checkpoint does not say how tokens are pooled (modules.json)"}
    steps = json.loads(modules.read_text(encoding="utf-8"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    settings = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = transformers.AutoModel.from_pretrained(checkpoint, **settings).eval()
    window = getattr(model.config, "sliding_window", None) or 0
    longest = min(MOST_TOKENS, getattr(model.config, "max_position_embeddings", MOST_TOKENS))
    texts = [*SENTENCES, long_text(tokenizer, min(longest, window + BEYOND_TOKENS))]
    rows, tokens = [], 0
    with torch.inference_mode():
        for text in texts:
            given = tokenizer(text, return_tensors="pt")
            tokens = max(tokens, given["input_ids"].shape[1])
            row = model(**given).last_hidden_state[0]
            for step in steps:
                row = after(checkpoint / step["path"], step["type"].rpartition(".")[2], row)
            rows.append((row / row.norm()).double().numpy())
    own, other = numpy.stack(rows), embedded(program, file, folder, texts, tokens)
    if own.shape != other.shape:
        return {"engine": f"{other.shape} values instead of {own.shape}"}
    found = difference(own, other)
    return {"rows": found} if found else {"engine": "they are not finite numbers"}


def long_text(tokenizer: Any, tokens: int) -> str:
    """Return a text of about so many tokens, and no more."""
    words: list[str] = []
    for word in " ".join(SENTENCES * tokens).split():
        words.append(word)
        if len(tokenizer(" ".join(words))["input_ids"]) > tokens:
            return " ".join(words[:-1])
    return " ".join(words)


def after(folder: Path, kind: str, row: Any) -> Any:
    """Return what a module of sentence-transformers makes of vectors."""
    torch = import_module("torch")
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if kind == "Pooling":
        on = [
            mode
            for mode, name in MODES.items()
            if config.get(f"pooling_mode_{name}") or config.get("pooling_mode") == mode
        ]
        pooled = {"cls": row[0], "mean": row.mean(0), "lasttoken": row[-1]}
        return torch.cat([pooled[mode] for mode in on])
    if kind == "Dense":
        weights = import_module("safetensors.torch").load_file(folder / "model.safetensors")
        return torch.nn.functional.linear(row, weights["linear.weight"].float())
    return row


def embedded(program: str, file: str, folder: Path, texts: list[str], tokens: int) -> Any:
    """Return what llama-embedding makes of texts."""
    path = folder / "texts"
    path.write_text("\n".join(texts), encoding="utf-8")
    length = str(tokens)
    words = [program, "-m", file, "-f", str(path), "--no-repack", "-fa", "off", "-np", length]
    words += ["-c", length, "-b", length, "-ub", length, "--embd-output-format", "array"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        raise EngineError(next((" ".join(x.split()) for x in reversed(lines) if x.strip()), ""))
    return import_module("numpy").array(json.loads(done.stdout), dtype="f8")


if __name__ == "__main__":
    main()
