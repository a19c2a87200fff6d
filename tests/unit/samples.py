"""Values to compute with: the parts of a run, each with what a test does not care about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from armload.analysis.repeats import Precision
from armload.bench.sweep import Sweep, SweepCell
from armload.boards.conditions import ClusterState, Conditions
from armload.build.binary import Binary, FeatureUse
from armload.engines.job import BoardRecord, ModelRecord, RateKind
from armload.engines.plan import Plan
from armload.engines.trace import Step, Trace
from armload.models.context_memory import ContextMemory
from armload.models.model import Model


def step(
    number: int,
    *,
    phase: Literal["prompt", "generate"] = "generate",
    tokens: int = 1,
    duration_s: float = 0.1,
    read_bytes: int | None = 0,
    busy_threads: float = 2.0,
    major_faults: int = 0,
    involuntary_switches: int = 0,
    cpu_khz: tuple[int, ...] = (),
    celsius: float | None = None,
) -> Step:
    start_ns = 10_000_000_000 + number * 1_000_000_000
    return Step(
        step=number,
        tokens=tokens,
        prompt_tokens=tokens if phase == "prompt" else 0,
        generated_tokens=tokens if phase == "generate" else 0,
        start_ns=start_ns,
        end_ns=start_ns + round(duration_s * 1e9),
        major_faults=major_faults,
        read_bytes=read_bytes,
        rss_bytes=100_000_000,
        cpu_ns=round(busy_threads * duration_s * 1e9),
        involuntary_switches=involuntary_switches,
        cpu_khz=cpu_khz,
        celsius=celsius,
    )


def trace(threads: int = 2) -> Trace:
    return Trace(
        format=2,
        clock="CLOCK_MONOTONIC",
        engine_commit="abc",
        page_bytes=4096,
        threads=threads,
        start_ns=9_000_000_000,
    )


def steps_with_prompt(durations_s: Sequence[float]) -> tuple[Step, ...]:
    prompt = step(0, phase="prompt", tokens=8, duration_s=0.4)
    return (prompt, *(step(n, duration_s=each) for n, each in enumerate(durations_s, start=1)))


def model_record(size_bytes: int = 40_000_000) -> ModelRecord:
    return ModelRecord(
        name="m.gguf",
        sha256="0" * 64,
        size_bytes=size_bytes,
        architecture="llama",
        quantisation="Q4_0",
        parameters=size_bytes * 2,
        bytes_per_token=size_bytes,
        context_memory=ContextMemory(key_values=1_024, value_values=1_024),
    )


def model(path: Path = Path("m.gguf"), context_length: int = 2048) -> Model:
    return Model(
        path=path,
        sha256="0" * 64,
        size_bytes=40_000_000,
        architecture="llama",
        quantisation="Q4_0",
        parameters=70_000_000,
        layers=8,
        context_length=context_length,
        vocabulary=512,
        bytes_per_token=39_000_000,
        context_memory=ContextMemory(key_values=1_024, value_values=1_024),
    )


def binary(
    path: Path = Path("/b/llama-completion"),
    *,
    sha256: str = "0" * 64,
    size_bytes: int = 7_990_616,
    features: tuple[FeatureUse, ...] = (),
) -> Binary:
    return Binary(
        program=path.name,
        path=path,
        sha256=sha256,
        size_bytes=size_bytes,
        target="rk3568",
        architecture="aarch64",
        compiler="zig 0.15.2",
        source="llama-cpp-python 0.3.36",
        engine_commit="b7000",
        build_id="ad887c5ea11e",
        features=features,
    )


def sweep_of(
    *cells: SweepCell,
    identity: str = "one",
    begun: datetime = datetime(2026, 11, 21, tzinfo=UTC),
    repeats: int = 1,
    warmups: int = 0,
    precision: Precision | None = None,
    boards: tuple[str, ...] = ("b",),
) -> Sweep:
    return Sweep(
        id=f"{begun:%Y%m%dT%H%M%SZ}-sweep-b-{identity}",
        fingerprint="abc",
        started_utc=begun.isoformat(timespec="seconds"),
        armload="0",
        boards=boards,
        cells=cells,
        repeats=repeats,
        warmups=warmups,
        precision=precision,
    )


def plan_cells(*plans: Plan, model: str = "m.gguf") -> tuple[SweepCell, ...]:
    return tuple(SweepCell(model=model, fingerprint=str(plan), plan=plan) for plan in plans)


def board_record(
    *,
    cores: int = 2,
    memory_bytes_per_s: int | None = None,
    memory_rate: RateKind | None = None,
    storage: int | None = None,
    storage_rate: RateKind | None = None,
) -> BoardRecord:
    return BoardRecord(
        name="b",
        target="rk3568",
        cpu_features=("fp", "asimd"),
        cores=cores,
        memory_bytes_per_s=memory_bytes_per_s,
        memory_rate=memory_rate,
        storage_read_bytes_per_s=storage,
        storage_read_rate=storage_rate,
    )


def conditions(
    *,
    boot_id: str = "boot-1",
    available: int = 1_800_000_000,
    swap_used: int = 0,
    clusters: tuple[ClusterState, ...] = (),
) -> Conditions:
    return Conditions(
        boot_id=boot_id,
        uptime_s=60.0,
        kernel="6.12.0",
        load_1min=0.1,
        memory_total_bytes=2_000_000_000,
        memory_available_bytes=available,
        swap_used_bytes=swap_used,
        swap_total_bytes=1_000_000_000,
        workdir_free_bytes=8_000_000_000,
        clusters=clusters,
    )
