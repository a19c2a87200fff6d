"""What the forecast from facts says of speeds that others have published.

    python benchmarks/published.py [--rows FILE] [--fit | --json | --all-cores]

Prints each row with its forecast and error. Rows of llama.cpp are forecast with constants that were
fitted without their source: all rows of one source are left out, the constants are fitted to the
rest, and the rows that were left out are forecast. Dense models that exceed the memory are forecast
as mapped weights, where a row's notes tell the rate of the storage (``416 MB/s``), or name a disk
whose usual rate the catalogue has. Rows of ``--rows`` that are not in
``published.csv`` take no part in any fit. ``--fit`` prints the constants that all rows give, which
``armload/analysis/roofline.py`` holds as ``FITTED``; ``--json`` prints the summary. ``--all-cores``
forecasts the rows on mixed chips whose engine takes a thread for each core by itself, with that
rule and without it, each time fitted to rows under the same rule.

The columns are those of ``published.csv``: what a source says, as it says it. Where a source does
not say how large the file is, its size follows from the model's outline
(``published_models.yaml``). Mixtures of experts are forecast with the constants of dense models.
Skipped rows are counted by the reason.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist

import yaml

from armload.analysis.board_resources import BoardResources, Rate
from armload.analysis.compute import Compute
from armload.analysis.kernels import CORES, KERNELS, WITHOUT_SDOT
from armload.analysis.prediction import predict
from armload.analysis.roofline import (
    FITTED,
    INTERVAL_LEVEL,
    Fitted,
    Times,
    TokenWork,
    forecast,
)
from armload.boards.hardware import Hardware, load_hardware
from armload.boards.specs import CpuCluster, DeclaredSpecs
from armload.core.workspace import data_names
from armload.core.yamlfile import load_named
from armload.engines.engine import MemoryNeed
from armload.engines.prediction import Expected
from armload.engines.weights import BoardMemory
from armload.models.file_types import TENSOR_TYPES
from armload.models.outline import Outline, outline_called, outlined

ROWS = Path(__file__).with_name("published.csv")
MODELS = Path(__file__).with_name("published_models.yaml")

FORKS = re.compile(r"ik_llama|T-MAC|bitnet\.cpp", re.IGNORECASE)
"""Their kernels are others."""

OWN_ENGINES = re.compile(r"^(?!PowerInfer).*(llama\.cpp|ollama|llama-bench)", re.IGNORECASE)

ALL_CORES = re.compile(r"^(?!.*PowerInfer).*(ollama|llama-bench)", re.IGNORECASE)
"""Engines that take a thread for each core of an ARM chip, fast or slow, where nobody says."""

UNKNOWN_SIZE = "a model of unknown size"
BEYOND_MEMORY = "a model beyond the memory, read at an unknown rate"

SKIPPED = (
    ("several boards", "board", r"^([2-9]|1\d) ?x "),
    ("an accelerator", "engine", r"CUDA|NPU|Vulkan|OpenCL|rkllm|\bGPU\b"),
    ("an accelerator", "notes", r"CUDA|\bNPU\b|Vulkan"),
    ("weights that are skipped as the engine predicts", "model", r"sparse"),
)
"""Why a row is not forecast, the column that says so, and the words there."""

MIXTURES = re.compile(r"\bA\d+B\b|mixtral|moe|gpt-oss|deepseek-v", re.IGNORECASE)

USES = {
    "fit": "llama.cpp",
    "mixture": "Mixtures of experts",
    "fork": "Forks of llama.cpp",
    "other engine": "Other engines",
    "storage": "Weights read from storage",
}
"""Only llama.cpp's own rows of dense models take part in the fit."""

QWEN_2_5_3B_OUTPUT_B = 0.311
"""Weights of the one model whose files' sizes a source gives with a second output matrix."""

REPACKED_SINCE = (
    ("2024-11", ("Q4_0", "IQ4_NL")),
    ("2025-11", ("Q4_K",)),
    ("2026-02", ("Q5_K", "Q6_K", "Q8_0", "MXFP4")),
)
"""Since when, roughly, llama.cpp repacks which types on ARM."""

USUAL_DATE = "2025-06"

USUAL_CONTEXT = 512

SDOT_BY_CMAKE = "2024-12-18"
"""Since when llama.cpp's CMake compiles for the ARM core that it runs on (its pull request 10890):
before, its builds had no ``sdot`` unless flags asked for it. Its Makefile always did."""

BUILT_WITH_CMAKE = re.compile(r"^microsoft/T-MAC")
"""Sources that say so (docs/e2e.md)."""

NO_SDOT = " without sdot"
KERNELS |= {
    f"{name}{NO_SDOT}": each._replace(plain=each.plain + WITHOUT_SDOT, repacked=None)
    for name, each in KERNELS.items()
}

SHORTEST_PROMPT = 32
"""Tokens from which a prompt's rate is that of its kernels: a few take hardly longer than one."""

CHIPS = (
    ("BCM2712", "raspberry-pi-5-8gb"),
    ("BCM2711", "raspberry-pi-4-8gb"),
    ("BCM2837", "raspberry-pi-3b-plus"),
    ("RP3A0", "raspberry-pi-zero-2-w"),
    ("RK3588", "orange-pi-5-16gb"),
    ("RK3576", "rock-4d-8gb"),
    ("RK3568", "rock-3a-4gb"),
    ("RK3566", "quartz64-a"),
    ("RK3399", "rockpro64"),
    ("CIX", "orion-o6-16gb"),
    ("QCS6490", "rubik-pi-3"),
    ("H618", "orange-pi-zero-2w-2gb"),
    ("A311D2", "khadas-vim4"),
    ("A311D", "khadas-vim3"),
    ("S922X", "odroid-n2-plus"),
    ("S905X3", "odroid-c4"),
    ("8cx", "thinkpad-x13s"),
    ("AmpereOne", "ampereone-a192-32x"),
    ("Altra", "ampere-altra-q80-30"),
    ("Graviton2", "aws-graviton2"),
    ("Graviton3", "aws-graviton3"),
    ("Graviton4", "aws-graviton4"),
    ("Yitian", "yitian710"),
    ("GB10", "dell-gb10"),
)
"""What stands for a board that the catalogue does not name."""


EMBEDDINGS_B = (
    (r"llama-?\s?3(\.1)?[ :-]*8b", 0.525),
    (r"llama-?\s?3(\.[13])?[ :-]*70b", 1.051),
    (r"llama-?\s?2[ :-]*7b", 0.131),
    (r"llama-?\s?2[ :-]*13b", 0.164),
    (r"llama-?\s?2[ :-]*70b", 0.262),
    (r"(deepseek-r1:|qwen-?2(\.5)?[ :-]*)14b", 0.779),
    (r"(deepseek-r1:|qwen-?2(\.5)?[ :-]*)7b", 0.545),
    (r"(deepseek-r1:|qwen-?2(\.5)?[ :-]*)32b", 0.779),
    (r"qwen-?3[ :-]*8b", 0.622),
    (r"qwen-?3[ :-]*14b", 0.778),
    (r"mistral.*7b", 0.131),
    (r"tinyllama", 0.066),
    (r"phi-?3[ -]mini", 0.099),
    (r"cogito.* 3b", 0.394),
)
"""Weights, in billions, of embeddings beside the output matrix, which decoding does not read: the
vocabulary times the width, as in the models' configurations."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A published speed.

    Attributes:
        hardware: of the catalogue; empty where only the row tells of the board.
        threads: none for the fastest cluster.
        takes_all_cores: its engine takes a thread for each core of a mixed chip, by itself.
        repacked: types that the engine's release repacks.
        use: "fit", or why it takes no part in it.
        storage: what reads weights that exceed ``memory_bytes``; none of others.
    """

    id: str
    source: str
    model: str
    hardware: str
    specs: DeclaredSpecs
    work: TokenWork
    threads: int | None
    takes_all_cores: bool
    repacked: frozenset[str]
    decode_tps: float
    prefill_tps: float | None
    use: str
    memory_bytes: int = 0
    storage: Rate | None = None

    def times(self, fitted: Fitted) -> Times:
        found = forecast(
            self.work, self.specs, threads=self.threads, repacked=self.repacked, fitted=fitted
        )
        if found is None:
            raise ValueError(f"{self.id}: nothing is known of this board")
        return found if self.storage is None else self._mapped(found, self.storage)

    def _mapped(self, computing: Times, storage: Rate) -> Times:
        """Return the times of weights that llama.cpp leaves to the page cache."""
        memory = BoardMemory(total_bytes=self.memory_bytes, available_bytes=self.memory_bytes)
        size = round(self.work.size_bytes)
        need = MemoryNeed(
            name=self.model,
            weights_bytes=max(size, self.memory_bytes),
            kv_bytes=0,
            program_bytes=0,
            context_tokens=USUAL_CONTEXT,
            bytes_per_token=size,
        )
        compute = Compute(
            token_s=computing.token_s,
            prompt_token_s=computing.prompt_token_s or computing.token_s,
            load_s=Expected.nothing(),
            source="roofline",
        )
        resources = BoardResources(memory=memory, storage=storage)
        found = predict(need, resources, compute, prompt_tokens=1, streaming="never")
        if found.token_s is None:
            raise ValueError(f"{self.id}: {found.verdict}")
        return Times(
            token_s=found.token_s, prompt_token_s=None, limit="storage", is_memory_bound=None
        )


def read_rows(path: Path) -> list[Row]:
    """Return the rows that can be forecast."""
    return [row for row in _read(path) if isinstance(row, Row)]


def skipped(path: Path) -> Counter[str]:
    """Return how many rows cannot be forecast, by the reason."""
    return Counter(row for row in _read(path) if isinstance(row, str))


def _read(path: Path) -> list[Row | str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [_row(each) for each in csv.DictReader(file)]


def _row(row: dict[str, str]) -> Row | str:
    """Return a row, or why it cannot be forecast."""
    for reason, column, words in SKIPPED:
        if re.search(words, row[column], re.IGNORECASE):
            return reason
    decode = _number(row["decode_tps"])
    if not decode:
        return "no speed of decode"
    work = _work(row)
    if isinstance(work, str):
        return work
    hardware, specs = _board(row)
    if not specs.clusters and not specs.memory_peak_bytes_per_s and not specs.memory_bytes_per_s:
        return "an unknown board"
    use = "fit" if OWN_ENGINES.search(row["engine"]) else "other engine"
    if FORKS.search(row["engine"]):
        use = "fork"
    elif not work.is_dense:
        use = "mixture"
    memory_bytes = _memory_bytes(row)
    storage = None
    if "storage-bound" in row["notes"] or 0 < memory_bytes < work.size_bytes:
        storage = _storage(row, specs)
        if storage is None or not work.is_dense:
            return BEYOND_MEMORY
        use = "storage"
    threads = int(_number(row["threads"] or row["cores_used"]) or 0) or None
    if BUILT_WITH_CMAKE.search(row["source"]) and row["engine_date"] < SDOT_BY_CMAKE:
        work = work.model_copy(update={"type_name": f"{work.type_name}{NO_SDOT}"})
    takes_all = not row["threads"] and threads is None and bool(ALL_CORES.search(row["engine"]))
    if takes_all:
        threads = sum(cluster.cores for cluster in specs.clusters) or None
    prompt = _number(row["prompt_tokens"]) or 0
    return Row(
        id=row["id"],
        source=row["source"],
        model=row["model"],
        hardware=hardware,
        specs=specs,
        work=work,
        threads=threads,
        takes_all_cores=takes_all and len(specs.clusters) > 1,
        repacked=frozenset(
            name
            for since, names in REPACKED_SINCE
            if (row["engine_date"][:7] or USUAL_DATE) >= since
            for name in names
        ),
        decode_tps=decode,
        prefill_tps=None if 0 < prompt < SHORTEST_PROMPT else _number(row["prefill_tps"]),
        use=use,
        memory_bytes=memory_bytes,
        storage=storage,
    )


def _memory_bytes(row: dict[str, str]) -> int:
    """Return the memory that a run was limited to, else the board's; 0 where it is not said."""
    limit = re.search(r"limit (\d+)G", row["notes"])
    gb = float(limit[1]) if limit else _number(re.sub(r"^\d+x", "", row["mem_gb"]))
    return round((gb or 0.0) * (1 << 30))


def _storage(row: dict[str, str], specs: DeclaredSpecs) -> Rate | None:
    """Return what the storage reads: as the source says, else as is usual with the board."""
    words = row["notes"]
    if found := re.search(r"(\d+(?:\.\d+)?) ?([MG])B/s", words):
        rate = float(found[1]) * {"M": 1e6, "G": 1e9}[found[2]]
        return Rate(bytes_per_s=round(rate), kind="measured")
    usual = specs.storage_read_bytes_per_s
    is_disk = re.search(r"NVMe|SSD|PCIe", words, re.IGNORECASE)
    return Rate(bytes_per_s=usual, kind="declared") if usual and is_disk else None


def _work(row: dict[str, str]) -> TokenWork | str:
    """Return what a token reads: of the file that the source names, else of the model's outline.

    A string is why it is unknown.
    """
    size = _number(row["file_gb"])
    type_name = _type_name(row, size or 0.0)
    is_mixture = bool(MIXTURES.search(row["model"]) or "MoE" in row["notes"])
    if is_mixture or not size:
        outline = _outline(row["model"])
        file_type = _file_type(row["quant"], type_name)
        if outline is None or file_type is None:
            return UNKNOWN_SIZE
        model, _ = outlined(outline, file_type)
        file_bytes = size * 1e9 if size else model.size_bytes
        memory_gb = _number(row["mem_gb"])
        if is_mixture and memory_gb and file_bytes > memory_gb * (1 << 30):
            return BEYOND_MEMORY
        work = TokenWork.of(model)
        scale = file_bytes / model.size_bytes
        return work.model_copy(update={"size_bytes": scale * work.size_bytes})
    if type_name is None:
        return UNKNOWN_SIZE
    weights = _number(row["params_b"]) or 8 * size / (1.05 * KERNELS[type_name].bits)
    weights, size = _read_per_token(row, type_name, weights, size)
    return TokenWork(
        type_name=type_name,
        weights=weights * 1e9,
        size_bytes=size * 1e9,
        layers=round(15 * weights**0.4),
    )


def _file_type(quant: str, type_name: str | None) -> str | None:
    """Return the file type that a source names, else the usual one with most weights of a type."""
    found = re.match(r"(I?Q\d_(?:K(?:_[SML])?|\d|[SM]|XX?S|NL))\b", quant)
    usual = {"MXFP4": "MXFP4_MOE"} | {f"Q{bits}_K": f"Q{bits}_K_M" for bits in (3, 4, 5)}
    name = found[1] if found else type_name
    name = usual.get(name or "", name)
    return name if name in TENSOR_TYPES else None


@cache
def _outline(model: str) -> Outline | None:
    for each in yaml.safe_load(MODELS.read_text(encoding="utf-8")):
        if re.search(each.pop("words"), model, re.IGNORECASE):
            name = each.pop("outline", None)
            return outline_called(name) if name else Outline.model_validate(each | {"name": "none"})
    return None


def _read_per_token(
    row: dict[str, str], type_name: str, weights: float, size: float
) -> tuple[float, float]:
    """Return billions of weights and of bytes without embeddings that are only looked up."""
    model = row["model"].lower()
    rows = next((each for words, each in EMBEDDINGS_B if re.search(words, model)), 0.0)
    if "duplicated output tensor" in row["notes"]:
        size -= QWEN_2_5_3B_OUTPUT_B * KERNELS["Q6_K"].bits / 8
    bits = 32 if "f32 embeddings" in row["notes"] else KERNELS[type_name].bits
    return weights - rows, size - rows * bits / 8


def _number(text: str) -> float | None:
    match = re.search(r"\d+(?:\.\d+)?", text)
    return float(match[0]) if match else None


def _type_name(row: dict[str, str], size: float) -> str | None:
    """Return the type that is named, else one with as many bits per weight."""
    name = row["quant"]
    if name.startswith("ollama"):
        return "Q4_0" if "llama2" in row["model"] else "Q4_K"
    name = name.replace("Q40", "Q4_0").replace("Q80", "Q8_0").replace("IQ2_BN", "TQ2_0")
    named = [each for each in KERNELS if each in name]
    if named:
        return max(named, key=len)
    weights = _number(row["params_b"])
    if not weights or not size:
        return None
    return min(KERNELS, key=lambda each: abs(KERNELS[each].bits - 8 * size / weights))


def _board(row: dict[str, str]) -> tuple[str, DeclaredSpecs]:
    words = f"{row['board']} {row['soc']}"
    found = next((_named(each) for each in _by_name(words)), None) or next(
        (name for chip, name in CHIPS if chip.lower() in words.lower()), ""
    )
    specs = _specs(found) if found else DeclaredSpecs()
    if not found:
        cores = [name for name in CORES if name.removeprefix("Cortex-") in words]
        if count := int(_number(row["cores_used"] or row["threads"]) or 0):
            name = max(cores, key=len, default="unknown")
            specs = DeclaredSpecs(clusters=(CpuCluster(cores=count, name=name),))
    if clock := _number(row["clock_mhz"]):
        clusters = [each.model_copy(update={"max_mhz": int(clock)}) for each in specs.clusters[:1]]
        specs = specs.model_copy(update={"clusters": (*clusters, *specs.clusters[1:])})
    return found, specs


@cache
def _catalogue() -> tuple[Hardware, ...]:
    return tuple(load_named("hardware", name, Hardware) for name in data_names("hardware"))


def _by_name(words: str) -> list[Hardware]:
    """Return the entries whose name occurs, the longest first."""
    plain = re.sub(r"[^a-z0-9]", "", words.lower())
    found = [each for each in _catalogue() if each.name.replace("-", "") in plain]
    return sorted(found, key=lambda each: -len(each.name))


@cache
def _specs(name: str) -> DeclaredSpecs:
    return load_hardware(name).specs


def _named(hardware: Hardware) -> str:
    return hardware.names[-1]


START = Fitted(
    instructions=1.0,
    prompt_instructions=1.0,
    thread_exponent=0.9,
    of_measured=0.9,
    of_copy=(0.7, 1.0),
    of_peak=0.7,
    doubts=FITTED.doubts,
)
"""What one would assume without any row."""

START_DOUBTS = {
    "instructions": 0.15,
    "prompt_instructions": 0.15,
    "thread_exponent": 0.05,
    "of_measured": 0.1,
    "of_copy_older": 0.3,
    "of_copy_newer": 0.3,
    "of_peak": 0.2,
}
"""Standard deviation of each constant's logarithm before any row: few rows change little."""

ASSUMED_DOUBTS = {
    "instructions": 0.2,
    "all cores": 0.15,
    "one core": 0.2,
    "peak": 0.35,
    "prompt": 0.3,
}
QUANTILE = NormalDist().inv_cdf((1 + INTERVAL_LEVEL) / 2)

ASSUMED_SOURCES = 2
"""As many sources as the doubts that are assumed before any row count for."""

PROMPT_SAY = 0.5
"""Of a prompt's error in the fit: prompts depend on more than is known of a row."""

BEND = 0.1
"""Errors of logarithms below count by their squares, larger ones by their size."""


def fit(rows: Sequence[Row], *, without: str = "") -> Fitted:
    """Fit the constants and what they leave in doubt; sources have nearly equal say.

    The doubts are those of rows whose source took no part in the constants.

    Args:
        without: the source that takes part in neither.
    """
    fitted = _constants(tuple(row for row in rows if row.source != without))
    return fitted.model_copy(update={"doubts": _doubts(rows, without)})


@cache
def _constants(rows: tuple[Row, ...]) -> Fitted:
    start = _values(START)
    counts = Counter(row.source for row in rows)

    def loss(values: dict[str, float]) -> float:
        fitted = _fitted(values)
        misfit = math.fsum(
            (_cost(error) + PROMPT_SAY * _cost(prompt_error)) / math.sqrt(counts[row.source])
            for row in rows
            for error, prompt_error in [_errors(row, fitted)]
        )
        return misfit + math.fsum(
            (math.log(values[name] / start[name]) / START_DOUBTS[name]) ** 2 for name in start
        )

    # Those of all rows are near those without a source or two.
    return _fitted(_minimised(loss, _values(FITTED)))


def _cost(error: float | None) -> float:
    return 0.0 if error is None else math.hypot(error, BEND) / BEND - 1


def _errors(row: Row, fitted: Fitted) -> tuple[float, float | None]:
    """Return the logarithms of forecast over published speed, of decode and prefill."""
    times = row.times(fitted)
    decode = -math.log(row.decode_tps * times.token_s.value)
    if not row.prefill_tps or times.prompt_token_s is None:
        return decode, None
    return decode, -math.log(row.prefill_tps * times.prompt_token_s.value)


def _minimised(
    loss: Callable[[dict[str, float]], float], start: dict[str, float]
) -> dict[str, float]:
    """Minimise along one constant after the other, with ever smaller steps."""
    values, least, step = dict(start), loss(start), 0.04
    while step > 0.004:
        before = least
        for name in values:
            for factor in (math.exp(step), math.exp(-step)):
                moved = values | {name: values[name] * factor}
                if (found := loss(moved)) < least:
                    values, least = moved, found
        if before - least < 1e-4:
            step /= 2
    return values


def _values(fitted: Fitted) -> dict[str, float]:
    values = fitted.model_dump(exclude={"of_copy", "doubts"})
    older, newer = fitted.of_copy
    return values | {"of_copy_older": older, "of_copy_newer": newer}


def _fitted(values: dict[str, float]) -> Fitted:
    rest = dict(values)
    of_copy = rest.pop("of_copy_older"), rest.pop("of_copy_newer")
    return Fitted(**rest, of_copy=of_copy, doubts=FITTED.doubts)


def _doubts(rows: Sequence[Row], without: str) -> dict[str, float]:
    """Return what errors the rows leave, by what a forecast follows from."""
    errors: dict[str, dict[str, list[float]]] = {limit: {} for limit in ASSUMED_DOUBTS}
    for source in dict.fromkeys(row.source for row in rows if row.source != without):
        fitted = _constants(tuple(row for row in rows if row.source != source))
        for row in (each for each in rows if each.source == source):
            decode, prefill = _errors(row, fitted)
            for limit, error in ((row.times(fitted).limit, decode), ("prompt", prefill)):
                if error is not None:
                    errors[limit].setdefault(source, []).append(abs(error))
    doubts = dict(FITTED.doubts)
    for limit, assumed in ASSUMED_DOUBTS.items():
        count = len(errors[limit])
        seen = _held_by_most(errors[limit].values()) / QUANTILE
        total = count * seen**2 + ASSUMED_SOURCES * assumed**2
        doubts[limit] = math.sqrt(total / (count + ASSUMED_SOURCES))
    return doubts


def _held_by_most(sources: Collection[Sequence[float]]) -> float:
    """Return what 80% of the errors do not exceed, where every source has equal say."""
    shares = sorted((error, 1 / len(each)) for each in sources for error in each)
    least, left = 0.0, INTERVAL_LEVEL * len(sources)
    for error, share in shares:
        if left > 0:
            least, left = error, left - share
    return least


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A row, and what constants say that were fitted without its source."""

    row: Row
    times: Times

    @property
    def error(self) -> float:
        """Of the speed of decode, as a share of the published one."""
        return 1 / (self.times.token_s.value * self.row.decode_tps) - 1

    @property
    def holds(self) -> bool:
        return _holds(self.times.token_s, self.row.decode_tps)

    @property
    def prefill_error(self) -> float | None:
        prompt = self.times.prompt_token_s
        if prompt is None or not self.row.prefill_tps:
            return None
        return 1 / (prompt.value * self.row.prefill_tps) - 1

    @property
    def prefill_holds(self) -> bool:
        prompt = self.times.prompt_token_s
        return bool(prompt and self.row.prefill_tps and _holds(prompt, self.row.prefill_tps))


def _holds(time: Expected, tps: float) -> bool:
    return time.low <= 1 / tps <= time.high


def forecasts(known: Sequence[Row], rows: Sequence[Row]) -> list[Forecast]:
    """Forecast rows with what the known rows of other sources give."""
    found = []
    for source in dict.fromkeys(row.source for row in rows):
        fitted = fit([row for row in known if row.use == "fit"], without=source)
        found += [
            Forecast(row=row, times=row.times(fitted)) for row in rows if row.source == source
        ]
    return found


def summary(found: Sequence[Forecast]) -> dict[str, float | None]:
    errors = [abs(each.error) for each in found]
    prefill = [each for each in found if each.prefill_error is not None]
    of_prefill = [abs(each.prefill_error or 0.0) for each in prefill]
    return {
        "rows": len(found),
        "sources": len({each.row.source for each in found}),
        "median_error": statistics.median(errors),
        "within_30_percent": statistics.fmean(error <= 0.3 for error in errors),
        "in_80_percent_interval": statistics.fmean(each.holds for each in found),
        "in_80_percent_interval_by_source": statistics.fmean(
            statistics.fmean(each.holds for each in found if each.row.source == source)
            for source in {each.row.source for each in found}
        ),
        "prefill_rows": len(prefill),
        "prefill_median_error": statistics.median(of_prefill) if prefill else None,
        "prefill_in_80_percent_interval": (
            statistics.fmean(each.prefill_holds for each in prefill) if prefill else None
        ),
    }


def print_table(found: Sequence[Forecast]) -> None:
    print("| row | hardware | model | threads | published | forecast (80% interval) | error |")
    print("|---|---|---|---|---|---|---|")
    for each in found:
        row, time = each.row, each.times.token_s
        speeds = f"{1 / time.value:.3g} ({1 / time.high:.3g} to {1 / time.low:.3g})"
        outside = "" if each.holds else ", outside"
        print(
            f"| {row.id} | {row.hardware or 'unknown'} | {row.model} {row.work.type_name} "
            f"| {row.threads or 'default'} | {row.decode_tps:g} | {speeds} "
            f"| {each.error:+.0%}{outside} |"
        )


def print_summary(name: str, found: Sequence[Forecast]) -> None:
    if not found:
        return
    said = summary(found)
    print(
        f"\n{name}: {said['rows']} rows of {said['sources']} sources. Decode: median error "
        f"{said['median_error']:.0%}, {said['within_30_percent']:.0%} within 30%, "
        f"{said['in_80_percent_interval']:.0%} in the 80% interval "
        f"({said['in_80_percent_interval_by_source']:.0%} where every source has equal say)."
    )
    if said["prefill_rows"]:
        print(
            f"Prefill, {said['prefill_rows']} rows: median error "
            f"{said['prefill_median_error']:.0%}, "
            f"{said['prefill_in_80_percent_interval']:.0%} in the 80% interval."
        )


def print_all_cores(known: Sequence[Row], rows: Sequence[Row]) -> None:
    """Print what the rule gains that some engines take all cores."""
    for name, ruled in (
        ("a thread for each core", (known, rows)),
        ("the fastest cluster", (_on_fast_cores(known), _on_fast_cores(rows))),
    ):
        found = forecasts(*ruled)
        concerned = [each for each in found if each.row.takes_all_cores]
        print(f"\n{name}\n")
        print_table(concerned)
        print_summary("Engines that choose on mixed chips", concerned)
        print_summary("All rows of llama.cpp", [each for each in found if each.row.use == "fit"])


def _on_fast_cores(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, threads=None) if row.takes_all_cores else row for row in rows]


def main() -> None:
    """Print the forecasts of the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=ROWS)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--fit", action="store_true")
    kind.add_argument("--json", action="store_true")
    kind.add_argument("--all-cores", action="store_true")
    chosen = parser.parse_args()
    known = read_rows(ROWS)
    if chosen.fit:
        print(fit([row for row in known if row.use == "fit"]).model_dump_json(indent=1))
        return
    if chosen.all_cores:
        print_all_cores(known, read_rows(chosen.rows))
        return
    found = forecasts(known, read_rows(chosen.rows))
    uses = {use: [each for each in found if each.row.use == use] for use in USES}
    if chosen.json:
        print(json.dumps({use: summary(each) for use, each in uses.items() if each}, indent=1))
        return
    for use, name in USES.items():
        print(f"\n{name}\n")
        print_table(uses[use])
    for use, name in USES.items():
        print_summary(name, uses[use])
    for reason, count in skipped(chosen.rows).most_common():
        print(f"Skipped, {reason}: {count}")


if __name__ == "__main__":
    main()
