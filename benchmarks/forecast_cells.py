"""What ``fit`` predicts of models that fit into memory, beside what runs then take.

    python benchmarks/forecast_cells.py [--images [--real-time]] [--untouched] [--only TEXT]
        [--threads 2] [--board NAME]

For each cell, what the model computes is timed by operation, the model predicted, and then run
three times. Figures are times per token and of the prompt; measured are the medians of the runs.
``CPU`` is the median CPU time of a token, which other programs disturb less: with one thread it is
what a token takes on a quiet machine. Run it while nothing else runs.

With ``--images``, models that see or hear are given an image or a sound: random weights in the
sizes of the outlines, which are kept in ``--folder``. Predicted and measured are the encoder, the
time to the first token after dropping the page cache, and the peak of the memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from PIL import Image
from typed import armload

sys.path.insert(0, str(Path(__file__).parents[1]))
from armload.conversion.quantising import quantised_for
from armload.core.progress import Silent
from armload.engines.plan import SEED_N_PREDICT
from armload.models.blocks import bytes_per_row, elements_per_block, random_rows
from armload.models.find import resolve
from armload.models.gguf_values import Array
from armload.models.header import Header
from armload.models.outline import load_outline, outlined, outlined_projector
from armload.models.quant_mix import with_types
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.models.vocabulary import BEGIN_ID, END_ID, UNKNOWN_ID, TokenKind, vocabulary
from armload.runs.request import Request
from tests.other_models import WRITERS
from tests.projectors import TEMPLATE

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


@dataclass(frozen=True, kw_only=True)
class SeenCell:
    """A model that sees or hears, and what it is given.

    Attributes:
        model: an outline.
        type: of the model.
        projector: type of its projector.
        given: size of an image, or seconds of a sound.
        layers: of the model's own; none for all.
    """

    model: str
    type: str = "Q8_0"
    projector: str
    given: str
    layers: int | None = None

    @property
    def name(self) -> str:
        """As it is selected by ``--only``."""
        return " ".join((self.model, self.type, self.projector, self.given))


SEEN = (
    SeenCell(model="smolvlm2-256m", projector="F16", given="2048x512"),
    SeenCell(model="smolvlm2-500m", projector="Q8_0", given="2048x512"),
    SeenCell(model="lfm2-vl-450m", projector="F16", given="640x480"),
    SeenCell(model="lfm2-vl-450m", projector="Q8_0", given="256x256"),
    SeenCell(model="qwen2.5-vl-3b", type="Q4_0", projector="F16", given="224x224"),
    SeenCell(model="qwen2.5-vl-3b", type="Q4_0", projector="Q8_0", given="448x336"),
    SeenCell(model="gemma-3-4b", type="Q4_0", projector="F16", given="896x896"),
    SeenCell(model="ultravox-v0.5-8b", type="Q4_0", projector="F16", given="20 s", layers=8),
)
SEEN_UNTOUCHED = (
    SeenCell(model="smolvlm2-256m", projector="Q8_0", given="640x480"),
    SeenCell(model="lfm2-vl-1.6b", projector="Q8_0", given="512x512"),
    SeenCell(model="qwen2.5-vl-3b", type="Q4_0", projector="F16", given="640x480"),
    SeenCell(model="qwen3-vl-2b", projector="F16", given="320x240"),
)
SEEN_RUNS = 1
MARKERS = (
    *("\n", "\n\n"),
    *("<|vision_start|>", "<|vision_end|>", "<start_of_image>", "<end_of_image>"),
    *("<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
    *("<fake_token_around_image>", "<global-img>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
    *(f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11)),
)
"""What llama.cpp writes around an image and its parts: one token each, as in the real models."""


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


def written(path: Path, header: Header, extra: Mapping[str, Any]) -> str:
    """Write a file of random weights with a header's tensors, where it is missing."""
    if path.is_file():
        return str(path)
    writer = GGUFWriter(path, str(header.metadata["general.architecture"]))
    for key, value in {**header.metadata, **extra}.items():
        if key == "general.architecture":
            continue
        plain = list(value.items) if isinstance(value, Array) else value
        adding: dict[type, Callable[[str, Any], None]] = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            list: writer.add_array,
        }
        adding[type(plain)](key, plain)
    random = np.random.default_rng(1)
    for tensor in header.tensors:
        columns, *others = tensor.shape
        if others and ".bias" not in tensor.name:
            rows = int(np.prod(others))
            deviations = np.full(rows, columns**-0.5)
            stored = random_rows(tensor.type_name, columns, deviations, random)
            data = stored.reshape(*reversed(others), bytes_per_row(tensor.type_name, columns))
            kind = GGMLQuantizationType[tensor.type_name]
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
        else:
            one = 0.0 if tensor.name.endswith(".bias") else 1.0
            shape = tuple(reversed(tensor.shape))
            writer.add_tensor(tensor.name, np.full(shape, one, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def seeing_files(cell: SeenCell, folder: Path) -> tuple[str, str]:
    """Return a cell's model and its projector."""
    outline = load_outline(cell.model)
    if cell.layers:
        keys = {**outline.keys, "block_count": cell.layers}
        outline = outline.model_copy(update={"keys": keys})
    _, header = outlined(outline, cell.type)
    size = outline.tensors["token_embd.weight"][1]
    words = vocabulary(size)
    free = size - len(MARKERS)
    tokens = [*words.tokens[:free], *MARKERS]
    kinds = [int(each) for each in words.kinds[:free]] + [int(TokenKind.CONTROL)] * len(MARKERS)
    extra: Mapping[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": list(words.scores),
        "tokenizer.ggml.bos_token_id": BEGIN_ID,
        "tokenizer.ggml.eos_token_id": END_ID,
        "tokenizer.ggml.unknown_token_id": UNKNOWN_ID,
        "tokenizer.chat_template": TEMPLATE,
    }
    model = written(folder / f"{cell.model}-{cell.type}.gguf", header, extra)
    found = outlined_projector(outline)
    assert found is not None
    types = {
        each.name: cell.projector
        if each.type_name == "F16" and not each.shape[0] % elements_per_block(cell.projector)
        else each.type_name
        for each in found[1].tensors
    }
    projector = folder / f"mmproj-{cell.model}-{cell.projector}.gguf"
    return model, written(projector, with_types(found[1], types), {})


def given_words(given: str, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options of ``fit`` and of ``bench`` for what a model is given."""
    if "x" in given:
        width, height = map(int, given.split("x"))
        path = folder / f"{given}.png"
        Image.effect_noise((width, height), 90).convert("RGB").save(path)
        return ("--image-size", given), ("--image", str(path))
    path = folder / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        noise = np.random.default_rng(1).normal(0, 2000, int(given.split()[0]) * 16_000)
        file.writeframes(noise.astype("<i2").tobytes())
    return (), ("--audio", str(path))


def measure_seen(
    cell: SeenCell, folder: Path, kept: Path, board: str, threads: int
) -> tuple[float, float, float]:
    """Predict and run a cell, and print both.

    Returns:
        The relative errors of encoder, time to the first token, and memory.
    """
    before = {*folder.glob("runs/*/run.json")}
    model, projector = seeing_files(cell, kept)
    both = (
        *("--board", board, "--model", model, "--mmproj", projector, "--threads", str(threads)),
        *("--prompt-tokens", "16", "--context", "4096"),
    )
    size, given = given_words(cell.given, folder)
    found = json.loads(armload(folder, "fit", *both, *size, "--json"))
    (predicted,) = [each["prediction"] for each in found["models"]]
    words = ("-n", "4", "--repeats", str(SEEN_RUNS), "--cold", "--new", "--json")
    armload(folder, "bench", *both, *given, *words)
    runs = [run_of(each) for each in {*folder.glob("runs/*/run.json")} - before]
    stages = [{one["name"]: one for one in run["summary"]["stages"]} for run in runs]
    encoder_s = statistics.median(each["encoder"]["seconds"] for each in stages)
    ttft_s = statistics.median(run["summary"]["ttft_s"] for run in runs)
    peak_bytes = max(run["memory"]["max_rss_bytes"] for run in runs)
    memory = predicted["memory"]
    parts = ("weights_bytes", "kv_bytes", "program_bytes", "projector_bytes")
    expected_bytes = sum(memory[part] for part in parts)
    media, ttft = predicted["media"], predicted["ttft_s"]
    encoder = media["encoder_s"]
    errors = (
        encoder["value"] / encoder_s - 1,
        ttft["value"] / ttft_s - 1,
        expected_bytes / peak_bytes - 1,
    )
    tokens = {run["summary"]["stages"][3]["tokens"] for run in runs}
    others = {
        name: round(statistics.median(each[name]["seconds"] for each in stages), 2)
        for name in stages[0]
        if name not in ("encoder", "output")
    }
    print(
        f"| {cell.name} | {media['need']['passes']} | {media['compute']} | "
        f"{encoder['value']:.2f} ({encoder['low']:.2f} to {encoder['high']:.2f}) s | "
        f"{encoder_s:.2f} s | {errors[0]:+.1%} | {ttft['value']:.2f} s | {ttft_s:.2f} s | "
        f"{errors[1]:+.1%} | {expected_bytes / 1e6:.0f} MB | {peak_bytes / 1e6:.0f} MB | "
        f"{errors[2]:+.1%} |",
        flush=True,
    )
    print(f"{media['need']['tokens']} tokens, measured {tokens}; {others}", file=sys.stderr)
    return errors


def real_time_board(folder: Path, kept: Path) -> str:
    """Describe this machine as a board whose programs get their cores before all others."""
    (folder / "boards").mkdir()
    (folder / "boards" / "real-time.yaml").write_text(
        "target: host\nreach:\n  kind: local\n  launcher: [chrt, -f, '1']\n"
        f"workdir: {kept / 'work'}\n"
    )
    armload(folder, "trust", str(folder), "--yes")
    return "real-time"


def measure_all_seen(cells: Sequence[SeenCell], given: argparse.Namespace) -> None:
    """Measure cells of models that see or hear, and print a table."""
    print(
        "| cell | passes | from | encoder predicted | measured | error | first token predicted "
        "| measured | error | memory predicted | measured | error |"
    )
    print("|---" * 12 + "|")
    kept = given.folder / "forecast-cells"
    kept.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        board = real_time_board(Path(name), kept) if given.real_time else given.board
        errors = [measure_seen(cell, Path(name), kept, board, given.threads) for cell in cells]
    for what, each in zip(
        ("encoder", "first token", "memory"), zip(*errors, strict=True), strict=True
    ):
        sizes = [abs(error) for error in each]
        print(f"{what}: median error {statistics.median(sizes):.1%}, worst {max(sizes):.1%}")


def main() -> None:
    """Measure the cells, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--untouched", action="store_true", help="cells that set no constant")
    parser.add_argument("--board", default="this-machine")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--images", action="store_true", help="models that see or hear")
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="with --images: programs get their cores before all others (root)",
    )
    given = parser.parse_args()
    if given.images:
        cells = SEEN_UNTOUCHED if given.untouched else SEEN
        measure_all_seen([each for each in cells if given.only in each.name], given)
        return
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
