"""One of every table that a person reads, with names, paths and words as long as real ones."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from rich.console import RenderableType

from armload.analysis.compare import compare
from armload.analysis.measurement import measurement_of
from armload.boards.board import load_board
from armload.boards.connect import is_running
from armload.boards.probe import parse_probe
from armload.build.binary import FeatureUse
from armload.build.cached import CachedBuild
from armload.build.fit import Compatibility
from armload.build.inspection import Inspection
from armload.core.cache import CacheItem, CacheKind
from armload.core.workspace import data_names
from armload.deploy.clean import BoardItem
from armload.deploy.rates import Missing
from armload.engines.plan import Plan
from armload.models.context_memory import ContextMemory
from armload.models.model_summary import CacheSize, FileSection, ModelSummary, TypeShare
from armload.report.binaries import binaries_table, inspection_table
from armload.report.boards import ListedBoard, boards_table, contents_table, probe_table
from armload.report.cache import builds_table, kinds_table
from armload.report.comparison import comparison_view
from armload.report.fitted import fit_view
from armload.report.model_summary import summary_table
from armload.report.sweep import cell_results, sweep_table
from armload.report.table import list_table, run_table
from tests.unit.runs import failed_run, quick_run, storage_run
from tests.unit.samples import binary, plan_cells, sweep_of
from tests.unit.sweeps import Q4, Q8, made_run
from tests.unit.test_boards_probe import core, output
from tests.unit.test_report_fitted import three_models

HOME = Path("/home/somebody/models on the large disk/armload/0123456789abcdef")
MODEL = HOME / "Llama-3.1-8B-Instruct-Q2_K.gguf"
SYMBOL = "ggml_vec_dot_q4_0_q8_0_with_a_name_that_is_longer_than_a_line_of_a_terminal_is_wide"
FEATURES = tuple(
    FeatureUse(feature=name, count=1909, address=0x15F16A4, mnemonic="sdot", symbol=SYMBOL)
    for name in ("asimddp", "asimdhp", "asimdrdm", "atomics", "lrcpc")
)
BINARIES = tuple(
    binary(HOME / "builds/ad887c5ea11e" / name, features=FEATURES)
    for name in ("llama-completion", "llama-bench")
)
PLANS = tuple(Plan(threads=threads) for threads in (1, 2, 4))


def _summary() -> ModelSummary:
    return ModelSummary(
        path=MODEL,
        sha256="f" * 64,
        size_bytes=3_179_131_104,
        architecture="llama",
        quantisation="Q2_K",
        parameters=8_030_261_312,
        layers=32,
        context_length=131_072,
        vocabulary=128_256,
        bytes_per_token=3_006_000_000,
        context_memory=ContextMemory(key_values=32_768, value_values=32_768),
        title="Meta Llama 3.1 8B Instruct",
        whole_bytes=3_179_131_104,
        missing_bytes=0,
        width=4096,
        feed_forward=14_336,
        heads=32,
        kv_heads=(8,),
        experts=0,
        experts_used=0,
        tokenizer="gpt2 (llama-bpe)",
        types=(TypeShare(type="Q2_K", tensors=129, size_bytes=2_100_000_000, share=0.66),),
        cache=(CacheSize(type="f16", bytes_per_token=131_072, context_bytes=17_179_869_184),),
        sections=(
            FileSection(part="embedding", tensors=1, size_bytes=172_000_000),
            FileSection(
                part="layers", first_layer=0, last_layer=31, tensors=288, size_bytes=2_600_000_000
            ),
        ),
        notes=(
            "Its tokens are read with a window of 4,096: what is older does not count any more.",
        ),
    )


def _inspection() -> RenderableType:
    inspection = Inspection(
        path=BINARIES[0].path,
        sha256="0123456789abcdef" * 4,
        size_bytes=8_000_000,
        architecture="aarch64",
        is_static=False,
        interpreter="/lib/ld-linux-aarch64.so.1",
        needed=("libc.so.6", "libstdc++.so.6", "libm.so.6", "libgomp.so.1"),
        is_stripped=False,
        features=FEATURES,
    )
    fits = [
        Compatibility(target=name, verdict="no", reason=f"the CPU lacks {', '.join(lacks)}")
        for name, lacks in (("rpi4", ["asimddp", "asimdhp"]), ("rk3568", ["lrcpc", "atomics"] * 4))
    ]
    return inspection_table(inspection, fits)


def _sweep() -> RenderableType:
    models = {each.name: each for each in (Q4, Q8)}
    cells = tuple(cell for name in models for cell in plan_cells(*PLANS, model=name))
    runs = {
        number: [made_run(models[cell.model], cell.plan.threads or 1, repeat=n) for n in range(3)]
        for number, cell in enumerate(cells[:5])
    }
    sweep = sweep_of(*cells, repeats=3)
    return sweep_table(cell_results(sweep, runs, {5: "kitchen: no space left."}))


def _threads() -> RenderableType:
    cells = plan_cells(*PLANS, model=Q4.name)
    runs = {
        number: [made_run(Q4, cell.plan.threads or 1, repeat=n, throttled=n == 2) for n in range(3)]
        for number, cell in enumerate(cells)
    }
    return sweep_table(cell_results(sweep_of(*cells, repeats=3), runs, {}))


def _comparison(*, same: bool) -> RenderableType:
    a = [measurement_of(made_run(Q4, 4, repeat=n)) for n in range(3)]
    b = [measurement_of(made_run(Q4, 4, repeat=n + 5) if same else storage_run()) for n in range(3)]
    (compared,) = compare(a, b if same else b[:1])
    return comparison_view(compared)


def _kinds() -> RenderableType:
    def kind(name: str, what: str, again: str) -> CacheKind:
        item = CacheItem(label=name, paths=(HOME / name,), size_bytes=1_234_567_890)
        return CacheKind(name=name, what=what, again=again, read=lambda: [item])

    kinds = [
        kind(
            "builds",
            "programs that were built, and their logs",
            "minutes of compiling per build, unless it is prebuilt",
        ),
        kind("compilers", "zig's own libraries, compiled for a target", "half a minute"),
        kind("packages", "QEMU, and what virtual boards boot", "a download of some 60 MB"),
    ]
    return kinds_table(kinds, kinds[:1])


def every_table() -> dict[str, RenderableType]:
    """Return the tables by what shows them."""
    virtual = load_board("virtual-dayu200")
    found = parse_probe(output(core(0) + core(1)), virtual.name)
    entries = [
        BoardItem(
            name=PurePosixPath("runs") / quick_run().id,
            kind="run",
            state="uncollected",
            size_bytes=120_000,
            used_days=None,
        ),
        BoardItem(
            name=PurePosixPath("models/4e5f6a7b8c9d"),
            kind="model",
            state="unused",
            size_bytes=3_179_131_104,
            used_days=31,
        ),
    ]
    builds = [
        CachedBuild(
            build_id="ad887c5ea11e",
            path=HOME,
            state="finished",
            reason="",
            when_utc="2026-11-21T02:15:00+00:00",
            size_bytes=61_000_000,
            programs=BINARIES,
        )
    ]
    return {
        "show": list_table([quick_run(), storage_run(), failed_run()]),
        "show --run": run_table(storage_run()),
        "show --run, failed": run_table(failed_run()),
        "compare": _comparison(same=True),
        "compare, not comparable": _comparison(same=False),
        "board.list": boards_table(
            [
                ListedBoard(
                    **dict(board),
                    is_running=is_running(board),
                    is_default=board.name == "virtual",
                    is_shipped=True,
                )
                for board in map(load_board, data_names("boards"))
            ]
        ),
        "board.probe": probe_table(
            virtual,
            found,
            Missing.of(found.rates, "not measured, because the board is in use"),
            in_use="somebody@workstation for 12 min",
        ),
        "board.clean": contents_table(entries),
        "build": binaries_table(BINARIES),
        "build --list": builds_table(builds),
        "clean": _kinds(),
        "fit": fit_view(three_models()),
        "model.inspect": summary_table(_summary()),
        "inspect": _inspection(),
        "bench, two models": _sweep(),
        "bench, threads": _threads(),
    }
