"""Answers one prompt with MNN's Python wheel: mnn_answer.py CONFIG PROMPT_FILE TOKENS.

Runs on a board, with whatever Python is there. The wheel writes each token by itself; the figures
are printed behind, in the layout of MNN's llm_demo.
"""

import sys
from pathlib import Path
from typing import Any

RULER = "#" * 33


def main() -> None:
    """Load, answer, tell the figures."""
    config, prompt_file, tokens = sys.argv[1:]
    if not Path(config).is_file():
        sys.exit(f"{config}: there is no such file; an MNN model has a config.json")
    prompt = Path(prompt_file).read_text(encoding="utf-8")

    import MNN.llm as llm

    model = llm.create(config)
    model.load()
    if not hasattr(model, "context"):
        sys.exit("this wheel of MNN tells no figures: install a newer one")
    if int(model.context.status) < 0:
        sys.exit(f"{config}: MNN could not load this model")
    model.set_config({"max_new_tokens": int(tokens), "async": False})
    say(f"prompt file is {prompt_file}")
    stream = True
    model.response(prompt, stream)
    tell(model.context)


def tell(context: Any) -> None:
    """Print what MNN has counted."""
    prefill_s, decode_s = context.prefill_us / 1e6, context.decode_us / 1e6
    say(f"\n{RULER}")
    say(f"prompt tokens num = {context.prompt_len}")
    say(f"decode tokens num = {context.gen_seq_len}")
    say(f"prefill time = {prefill_s:.6f} s")
    say(f" decode time = {decode_s:.6f} s")
    if prefill_s > 0:
        say(f"prefill speed = {context.prompt_len / prefill_s:.2f} tok/s")
    if decode_s > 0:
        say(f" decode speed = {context.gen_seq_len / decode_s:.2f} tok/s")
    say(RULER)


def say(line: str) -> None:
    """Write a line at once, so that it never shares a write with a token."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


main()
