"""How far distributed-llama's logits are from llama.cpp's on one GGUF file, on this machine.

python benchmarks/distributed_llama.py MODEL.gguf [TEXT.txt]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armload.build.builder import build
from armload.build.programs import DLLAMA, SCORER
from armload.build.source import distributed_source
from armload.build.target import load_target
from armload.conversion.distributed import converted_files
from armload.core.progress import Silent
from armload.models.gguf import read_model

_TEXT = (
    "The river was the colour of slate, and the boats that went down it in the morning carried "
    "coal and timber and sometimes passengers, who stood at the rail and looked at the fields. "
    "Nobody spoke of the war. In the town there was a market on Thursdays, where farmers sold what "
    "they had grown, and the mayor, who was old and fond of birds, walked between the stalls and "
    "asked everybody how the harvest had been. He knew the answers. It had rained too little in "
    "May and too much in July, and the barley was short."
)


def main(gguf: Path, text: str, folder: Path) -> None:
    """Print the mean divergence, the share of equal top tokens, and both perplexities."""
    target = load_target("host")
    (engine,) = build(target, programs=(DLLAMA,), source=distributed_source())
    (scorer,) = build(target, programs=(SCORER,))
    converted = converted_files(read_model(gguf), Silent())
    theirs, ours = folder / "llama.f32", folder / "distributed.f32"
    item = {"id": "0", "kind": "logits", "prompt": text, "positions": "all"}
    (folder / "items").write_text(f"{json.dumps(item)}\n")
    words: list[str | Path] = [
        "-m",
        gguf,
        "--items",
        folder / "items",
        "--logits",
        theirs,
        "-c",
        "1024",
    ]
    answer = subprocess.run([scorer.path, *words], capture_output=True, check=True).stdout
    (folder / "prompt").write_bytes(answer)
    tokens = np.array(json.loads(answer)["tokens"])
    words = ["--model", converted.weights.local, "--prompt", folder / "prompt", "--logits", ours]
    words += ["--context", "1024"]
    subprocess.run([engine.path, "root", *words], capture_output=True, check=True)
    one, other = (_log_shares(path, len(tokens)) for path in (theirs, ours))
    divergence = (np.exp(one) * (one - other)).sum(axis=-1)
    same = (one.argmax(axis=-1) == other.argmax(axis=-1)).mean()
    perplexities = [_perplexity(each, tokens) for each in (one, other)]
    print(f"{gguf.name}, {len(tokens)} tokens; output {converted.facts.output_type}")
    print(f"KL divergence {divergence.mean():.4g} (at most {divergence.max():.4g})")
    print(f"top token equal {same:.1%}; perplexity {perplexities[0]:.2f}, {perplexities[1]:.2f}")


def _log_shares(path: Path, rows: int) -> NDArray[np.float64]:
    logits = np.fromfile(path, dtype="<f4").reshape(rows, -1).astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return shares


def _perplexity(log_shares: NDArray[np.float64], tokens: NDArray[np.int64]) -> float:
    return float(np.exp(-log_shares[np.arange(len(tokens) - 1), tokens[1:]].mean()))


if __name__ == "__main__":
    given = Path(sys.argv[2]).read_text(encoding="utf-8") if len(sys.argv) > 2 else _TEXT
    with tempfile.TemporaryDirectory() as name:
        main(Path(sys.argv[1]), given, Path(name))
