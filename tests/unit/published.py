"""A run that holds every text that a run can hold, and texts that must not be published."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from armload.analysis.clocks import MeasuredClock
from armload.analysis.conditions_log import Swapped
from armload.analysis.device_clocks import ClockUse, TimeAtClock
from armload.analysis.emulation import Emulation
from armload.analysis.energy import Energy
from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import GroupLimit, Limit, SharedLimit
from armload.analysis.run import Run
from armload.analysis.sanity import departure
from armload.analysis.speculation import WithoutSpeculation
from armload.analysis.verdict import Verdict
from armload.boards.conditions import ClusterState, SwapDevice
from armload.boards.device_clocks import DeviceClock
from armload.boards.sensors import Sensor
from armload.boards.throttling import ThrottleState
from armload.engines.job import (
    AdapterRecord,
    MediaRecord,
    ProjectorRecord,
    PutFile,
    SweepPoint,
    Watched,
    Workstation,
)
from armload.engines.media import MediaNeed
from armload.engines.output import ReportedFigure
from armload.engines.placement import CpuOperation, DeviceShare, Placement
from armload.engines.prediction import (
    Alternative,
    Division,
    GroupForecast,
    MediaForecast,
    PartTime,
    Prediction,
    PredictionNote,
)
from armload.engines.spread import ChosenSplit, LinkRates, Share, Spread
from armload.engines.trace import Weights
from armload.engines.watched.reader import Reader
from tests.unit.findings import CC1, EXAMPLES
from tests.unit.runs import SMALL_MODEL, planned, quick_run

Path = tuple[str | int, ...]


def talkative_run() -> Run:
    """Return a run with something in every field."""
    run = planned(
        quick_run(prompt="My address is"),
        speculate="draft:small.gguf",
        cpus="0-1",
        governor="performance",
        device="Vulkan0",
        kv_type="q8_0",
        lora="tuned.gguf",
        image="street.jpg",
        audio="hello.wav",
        mmproj="mmproj.gguf",
        extra=("--no-repack", "-ub=256", "--override-kv", "a=b"),
    )
    assert run.trace is not None
    now = run.before.model_copy(
        update={
            "swaps": (SwapDevice(name="/dev/sda", kind="disk", total_bytes=1, used_bytes=0),),
            "workdir_filesystem": "ext4",
            "governors": ("schedutil",),
            "clusters": (ClusterState(cores=(0, 1), governor="schedutil", max_khz=1_992_000),),
            "device_clocks": (
                DeviceClock(path="/sys/x", name="dmc", kind="memory", governor="dmc_ondemand"),
            ),
            "celsius": 45.0,
            "sensors": (Sensor(name="soc-thermal", celsius=45.0),),
            "throttling": (ThrottleState(kind="cooling", name="cpufreq-0", value=0),),
        }
    )
    departed = departure("one text", "another text", name="a reference", same_model=True)
    return run.model_copy(
        update={
            "watched": Watched(
                words=("./bench", "-m", "model"),
                reader=Reader(
                    name="mine",
                    description="a program",
                    engine="engine",
                    seen_in=("1.0",),
                    programs=("bench",),
                    units={"npu_load": "%"},
                    lines=("load {npu_load}",),
                    optional_lines=("again {npu_load}",),
                    hint="a hint",
                    note="a note",
                ),
                stdin="stdin-0123",
                files=(PutFile(name="model", sha256="c" * 64, size_bytes=1),),
                time_limit_s=60.0,
            ),
            "arguments": {"task": "words"},
            "placement": Placement(
                passes=9,
                devices=(DeviceShare(name="Vulkan0", description="a GPU", operations=99),),
                on_cpu=(CpuOperation(name="GET_ROWS", type="q4_0", operations=9),),
            ),
            "reported": (ReportedFigure(name="npu_load", value=83.0, unit="%"),),
            "model": run.model.model_copy(
                update={
                    "adapters": (
                        AdapterRecord(
                            name="tuned.gguf",
                            sha256="a" * 64,
                            size_bytes=1,
                            scale=0.5,
                            rank=8,
                            weights_bytes=1,
                        ),
                    )
                }
            ),
            "projector": ProjectorRecord(kind="idefics3", sha256="b" * 64, size_bytes=1),
            "images": (MediaRecord(name="street.jpg", sha256="e" * 64, size_bytes=1),),
            "audio": MediaRecord(name="hello.wav", sha256="f" * 64, size_bytes=1),
            "draft": SMALL_MODEL.model_copy(update={"name": "small.gguf", "sha256": "d" * 64}),
            "binary": run.binary.model_copy(update={"features": ("asimd", "asimddp")}),
            "place": SweepPoint(sweep="20261121T021500Z-sweep-1f2e", cell=0, round=0),
            "spread": Spread(
                split="layer",
                shares=(Share(board="kitchen", layers=4, weights_bytes=1, memory_bytes=2),),
                links=(
                    LinkRates(
                        board="cellar", round_trip_s=0.1, to_bytes_per_s=1.0, from_bytes_per_s=1.0
                    ),
                ),
                chosen=ChosenSplit(layer_s=0.1, tensor_s=0.2, reason="kitchen is quick"),
            ),
            "environment": {"HOME": "/home/somebody"},
            "board": run.board.model_copy(
                update={
                    "labels": ("shelf",),
                    "device": "Raspberry Pi 5 Model B Rev 1.0",
                    "hardware": "raspberry-pi-5-8gb",
                    "memory_bytes_per_s": 11_000_000_000,
                    "memory_rate": "measured",
                    "storage_read_rate": "declared",
                    "workstation": Workstation(cores=2, load=0.1),
                }
            ),
            "before": now,
            "after": now,
            "prediction": Prediction(
                division=Division(
                    refused="a member has too little memory",
                    alternatives=(Alternative(kind="dllama", refused="its matrices are Q2_K"),),
                ),
                media=MediaForecast(
                    need=MediaNeed(
                        what="image of 8x8",
                        projector="mmproj.gguf",
                        tokens=1,
                        passes=1,
                        weights_bytes=1,
                        buffer_bytes=1,
                        products={"F16": 1.0},
                        attention=1.0,
                    )
                ),
                verdict="fits",
                context_tokens=256,
                prompt_tokens=8,
                group=GroupForecast(
                    split="layer",
                    parts=(PartTime(kind="link", board="cellar", token_s=0.1),),
                ),
                notes=(
                    PredictionNote(
                        kind="memory assumed", subject="b", reason="all", sentence="All of it."
                    ),
                ),
            ),
            "trace": run.trace.model_copy(
                update={
                    "khz_cores": "0-1",
                    "allowed_cores": "0-1",
                    "weights": (
                        Weights(weights="mapped", before_step=0, reason="fits", reads_because="x"),
                    ),
                }
            ),
            "limit": Limit.of(
                find_limit(
                    run.steps,
                    run.trace,
                    model=run.model,
                    board=run.board,
                    before=run.before,
                    cpus="0-1",
                )
            ),
            "exit": run.exit.model_copy(update={"remedy": "Nothing."}),
            "verdict": Verdict.of(EXAMPLES),
            "cache": "dropped",
            "governor": "performance",
            "background_processes": (CC1,),
            "swapped": Swapped(in_bytes=0, out_bytes=0),
            "clocks": (
                MeasuredClock(
                    moment="before", core=0, cycles=2, ns=1, by="loop", shown_khz=1_992_000
                ),
            ),
            "device_clocks": (
                ClockUse(
                    name="dmc",
                    kind="memory",
                    governor="dmc_ondemand",
                    phase="decode",
                    times=(TimeAtClock(hz=528_000_000, share=1.0),),
                ),
            ),
            "emulation": Emulation(watched_s=9.0, ran_s=8.0, waited_s=1.0, cores=2, load=1.5),
            "energy": Energy(
                source="shelly at http://plug",
                sees="wall",
                samples=9,
                interval_s=1.0,
                average_w=5.0,
                peak_w=6.0,
                joules=9.0,
                prefill_j=1.0,
                decode_j=8.0,
                joules_per_prompt_token=0.1,
                joules_per_token=0.2,
                problem="no samples",
            ),
            "reference": departed,
            "without_speculation": WithoutSpeculation(
                runs=("20261121-a",), valid=True, text=departed, s_per_token=(0.1,), ratio=None
            ),
            "result": {"score": "high"},
            "notes": ("a note",),
        }
    )


def planted(run: Run, secret: Callable[[str], str], places: Sequence[Path] = ()) -> Run:
    """Return a run with a secret in every text that may hold it.

    The engine's name stays: a run of an unknown one is refused as a whole.

    Args:
        places: as ``free_texts`` gives them, where they are known.
    """
    content = json.loads(run.model_dump_json())
    for path in places or free_texts(run):
        if path == ("engine_name",):
            continue
        holder = content
        for key in path[:-1]:
            holder = holder[key]
        text = secret(holder[path[-1]])
        # What follows an adapter's last colon is its scale: the address of a network card has five.
        holder[path[-1]] = f"{text}:1" if path[:2] == ("plan", "lora") else text
    return Run.model_validate(content)


def on_a_group(run: Run) -> Run:
    """Return the same run as if a group had limited it."""
    limit = GroupLimit(first="one", others=("other",), token_s=0.2, own_s=0.1, alone_s=None)
    return run.model_copy(update={"limit": Limit.of(limit)})


def on_boards_that_share_layers(run: Run) -> Run:
    """Return the same run as if one of several boards had held the others up."""
    part = PartTime(kind="member", board="one", token_s=0.1)
    limit = SharedLimit(token_s=0.2, parts=(part,), crowded=("other",))
    return run.model_copy(update={"limit": Limit.of(limit)})


def free_texts(run: Run) -> list[Path]:
    """Return where a run holds texts that may be any."""
    content = json.loads(run.model_dump_json(exclude={"steps"}))
    content["steps"] = []
    found = []
    for path in list(_texts(content)):
        holder = content
        for key in path[:-1]:
            holder = holder[key]
        former = holder[path[-1]]
        holder[path[-1]] = "anything else"
        with suppress(ValidationError):
            Run.model_validate(content)
            found.append(path)
        holder[path[-1]] = former
    return found


def _texts(content: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(content, str):
        yield path
    elif isinstance(content, dict | list):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in pairs:
            yield from _texts(value, (*path, key))


def text_fields(kind: type[BaseModel] = Run) -> set[str]:
    """Return ``Model.field`` of every text in a run that is not one of a fixed list."""
    found: set[str] = set()
    seen: set[type[BaseModel]] = set()
    left = [kind]
    while left:
        model = left.pop()
        if model in seen:
            continue
        seen.add(model)
        for name, field in model.model_fields.items():
            for part in _parts(field.annotation):
                if part is str:
                    found.add(f"{model.__name__}.{name}")
                elif isinstance(part, type) and issubclass(part, BaseModel):
                    left.append(part)
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    if get_origin(annotation) is not Literal:
        for inner in get_args(annotation):
            yield from _parts(inner)


def fields_at(run: Run, places: Sequence[Path]) -> set[str]:
    """Return ``Model.field`` of the places in a run."""
    found = set()
    for path in places:
        holder: Any = run
        field = ""
        for key in path:
            if isinstance(holder, BaseModel):
                field = f"{type(holder).__name__}.{key}"
                holder = getattr(holder, str(key))
            else:
                holder = holder[key]
        found.add(field)
    return found


def records_in(value: object) -> Iterator[BaseModel]:
    """Yield every record in a value, and the value itself if it is one."""
    if isinstance(value, BaseModel):
        yield value
    if isinstance(value, BaseModel | tuple):
        for held in dict(value).values() if isinstance(value, BaseModel) else value:
            yield from records_in(held)
