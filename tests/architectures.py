"""Writes small checkpoints with random weights: architectures.py FOLDER [NAME …].

Runs in the converters' environment with today's transformers, and with -P: this folder has modules
with names of packages. The tokenizers come from elsewhere.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

KEPT = ("A_log", "dt_bias", ".D")
"""Weights of state-space models, in whose usual values alone the recurrence is stable."""


def main() -> None:
    """Write those that are named, or all."""
    folder, *names = sys.argv[1:]
    content = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    described = import_module("yaml").safe_load(content)
    for name in names or described["architectures"]:
        one = described["architectures"][name]
        write(Path(folder) / name, one["model_type"], described["usual"] | one.get("settings", {}))


def write(folder: Path, model_type: str, settings: dict[str, Any]) -> None:
    """Write a checkpoint without its tokenizer."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.dim() > 1:
                values.normal_(0, values.shape[-1] ** -0.5)
            elif not name.endswith(KEPT):
                values.add_(torch.randn_like(values) * 0.1)
    model.save_pretrained(folder, safe_serialization=True)


if __name__ == "__main__":
    main()
