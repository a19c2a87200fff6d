"""What ``fit`` predicts of models that fit into memory, beside what runs then take.

    python benchmarks/forecast_cells.py [--untouched] [--only TEXT] [--threads 2] [--board NAME]

For each cell, what the model computes is timed by operation, the model predicted, and then run
three times. Figures are times per token and of the prompt; measured are the medians of the runs.
``CPU`` is the median CPU time of a token, which other programs disturb less: with one thread it is
what a token takes on a quiet machine. Run it while nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typed import armload

sys.path.insert(0, str(Path(__file__).parents[1]))
from armload.conversion.quantising import quantised_for
from armload.core.progress import Silent
from armload.engines.plan import SEED_N_PREDICT
from armload.models.find import resolve
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.runs.request import Request
from tests.other_models import WRITERS

MIXTURE = Shape(
    layers=12,
    width=1024,
    feed_forward=512,
    heads=16,
    kv_heads=4,
    vocabulary=32_000,
    context_length=8192,
    experts=64,
    experts_used=8,
)
RUNS = 3


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A model and how it runs.

    Attributes:
        model: as armload calls it, or ``hybrid``, ``recurrent``, ``windowed``, ``mixture``.
        type: that it is quantised to; none for the model as it is.
        prompt_tokens: of the prompt.
        options: further ones of ``fit`` and ``bench``.
    """

    model: str
    type: str = ""
    prompt_tokens: int = 128
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is selected by ``--only``."""
        return " ".join((self.model, self.type, str(self.prompt_tokens), *self.options))


CELLS = (
    Cell(model="smollm2"),
    Cell(model="smollm2", prompt_tokens=1500),
    Cell(model="like:llama-3.2-1b:Q4_0"),
    Cell(model="like:llama-3.2-1b:Q4_0", prompt_tokens=2000),
    Cell(model="like:llama-3.2-1b:Q8_0"),
    Cell(model="like:llama-3.2-1b:Q4_K_M"),
    Cell(model="like:llama-3.2-1b:Q4_0", options=("--kv-type", "q8_0")),
    Cell(model="like:qwen2.5-0.5b:Q8_0"),
    Cell(model="like:qwen3-0.6b:F16", type="IQ4_XS"),
    Cell(model="like:qwen3-0.6b:F16", type="BF16"),
    Cell(model="like:qwen3-0.6b:Q2_K"),
    Cell(model="hybrid"),
    Cell(model="hybrid", prompt_tokens=1500),
    Cell(model="recurrent"),
    Cell(model="windowed"),
    Cell(model="windowed", prompt_tokens=2000),
    Cell(model="mixture", type="Q4_0"),
    Cell(model="mixture", type="MXFP4_MOE"),
)

# Constants were set with the cells above, and these run afterwards.
UNTOUCHED = (
    Cell(model="like:tinyllama-1.1b:Q5_K_M"),
    Cell(model="like:tinyllama-1.1b:Q4_0", prompt_tokens=1000),
    Cell(model="like:qwen2.5-1.5b:Q4_0"),
    Cell(model="like:qwen2.5-1.5b:Q6_K"),
    Cell(model="like:qwen3-1.7b:Q4_K_M", prompt_tokens=500),
    Cell(model="like:llama-3.2-3b:Q4_0"),
    Cell(model="hybrid", prompt_tokens=600),
    Cell(model="recurrent", prompt_tokens=300),
    Cell(model="windowed", prompt_tokens=1000),
    Cell(model="mixture", type="Q8_0", prompt_tokens=300),
)


def model_of(cell: Cell, folder: Path, board: str) -> str:
    """Return the cell's model, made where it is missing."""
    name = cell.model
    if name in WRITERS:
        name = str(folder / f"{cell.model}.gguf")
        if not Path(name).is_file():
            WRITERS[cell.model](Path(name))
    if name == "mixture":
        name = str(folder / "mixture.gguf")
        if not Path(name).is_file():
            synthesise(MIXTURE, Path(name), quantisation="F16", seed=1, progress=Silent())
    if cell.type:
        base = str(resolve(name, Silent()))
        (name,) = quantised_for(Request(board=board), [base], [cell.type], Silent())
    return name


def run_of(path: Path) -> Mapping[str, Any]:
    """Return a run as it was kept."""
    found: Mapping[str, Any] = json.loads(path.read_text())
    return found


def measure(
    cell: Cell, folder: Path, board: str, threads: int, tokens: int
) -> tuple[float, float, bool]:
    """Predict and run a cell, and print both.

    Returns:
        The relative errors of token and prompt, and whether the token's interval holds.
    """
    before = {*folder.glob("runs/*/run.json")}
    model = model_of(cell, folder, board)
    both = ("--board", board, "--model", model, "--threads", str(threads), *cell.options)
    both += ("--prompt-tokens", str(cell.prompt_tokens))
    context = cell.prompt_tokens + max(tokens, SEED_N_PREDICT) + 16
    both += ("--context", str(-(-context // 256) * 256))
    armload(folder, "fit", *both, "--json")
    armload(folder, "bench", *both, "-n", str(tokens), "--repeats", str(RUNS), "--new", "--json")
    runs = [run_of(each) for each in {*folder.glob("runs/*/run.json")} - before]
    token_s = statistics.median(run["summary"]["token_s"]["p50"] for run in runs)
    prompt_s = statistics.median(run["summary"]["prefill_s"] for run in runs)
    load_s = statistics.median(
        run["summary"]["ttft_s"] - run["summary"]["prefill_s"] for run in runs
    )
    steps = [step for run in runs for step in run["steps"] if step["generated_tokens"]]
    cpu_s = statistics.median(step["cpu_ns"] / 1e9 for step in steps) / threads
    predicted = runs[0]["prediction"]
    token, load = predicted["token_s"], predicted["load_s"]["value"]
    prompt = predicted["ttft_s"]["value"] - load
    errors = token["value"] / token_s - 1, prompt / prompt_s - 1
    print(
        f"| {cell.name} | {predicted['compute']} | "
        f"{token['value'] * 1e3:.1f} ({token['low'] * 1e3:.1f} to {token['high'] * 1e3:.1f}) | "
        f"{token_s * 1e3:.1f} | {errors[0]:+.1%} | {cpu_s * 1e3:.1f} | "
        f"{prompt:.2f} | {prompt_s:.2f} | {errors[1]:+.1%} | {load:.2f} | {load_s:.2f} |",
        flush=True,
    )
    return *errors, token["low"] <= token_s <= token["high"]


def main() -> None:
    """Measure the cells, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--untouched", action="store_true", help="ten cells of other models")
    parser.add_argument("--board", default="this-machine")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    print(
        "| cell | from | predicted ms/token | measured | error | CPU "
        "| predicted s/prompt | measured | error | predicted s of loading | measured |"
    )
    print("|---" * 11 + "|")
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        errors = [
            measure(cell, Path(name), given.board, given.threads, given.tokens)
            for cell in (UNTOUCHED if given.untouched else CELLS)
            if given.only in cell.name
        ]
    tokens, prompts, held = zip(*errors, strict=True)
    for what, each in (("token", tokens), ("prompt", prompts)):
        sizes = [abs(error) for error in each]
        print(f"{what}: median error {statistics.median(sizes):.1%}, worst {max(sizes):.1%}")
    print(f"intervals that hold: {sum(held)} of {len(held)}")


if __name__ == "__main__":
    main()
