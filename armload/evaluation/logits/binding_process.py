"""The process that computes logits by llama-cpp-python.

It reads a request from standard input, and writes a line of JSON with the number and the tokens of
each prompt whose logits are saved.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Save the logits of each prompt as a ``.npy`` file, and say so."""
    asked: dict[str, Any] = json.load(sys.stdin)
    # The library itself writes to standard output at times.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import numpy as np
    from llama_cpp import Llama

    common = {"model_path": asked["model"], "verbose": False}
    vocabulary = Llama(vocab_only=True, **common)
    prompts = [
        vocabulary.tokenize(each.encode(), add_bos=True, special=True) for each in asked["prompts"]
    ]
    model = Llama(
        n_ctx=max(map(len, prompts)),
        n_threads=asked["threads"],
        n_threads_batch=asked["threads"],
        logits_all=True,
        type_k=asked["kv_types"][0],
        type_v=asked["kv_types"][1],
        flash_attn=asked["flash_attention"],
        **common,
    )
    for number, tokens in enumerate(prompts, start=1):
        model.reset()
        model.eval(tokens)
        np.save(Path(asked["folder"]) / f"{number}.npy", model.scores[: len(tokens)])
        told.write(json.dumps([str(number), tokens]) + "\n")
        told.flush()


if __name__ == "__main__":
    main()
