"""Loads on the simulated server, as they are kept on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from armload.analysis.load.records import Load, Objectives
from armload.analysis.load.telemetry import ObservedPoint
from armload.core.files import write_whole
from armload.core.values import as_json
from armload.engines.job import Job
from armload.serving.loads import SERVICE_FILE, LoadFolder
from tests.unit.runs import quick_run
from tests.unit.simulated_server import Asked, Simulated, records_of

OBJECTIVES = Objectives(ttft_s=9.0, tpot_s=0.9)
RATES = (0.2, 0.5, 1.0)
LENGTH_S = 480


def points(server: Simulated, rates: Sequence[float] = RATES) -> list[ObservedPoint]:
    """Serve requests that come at random, with some long prompts among them."""
    found = []
    for rate in rates:
        random, at_s, asked = Random(3), 0.0, list[Asked]()
        while at_s < LENGTH_S:
            prompt = int(min(900, 20 + random.expovariate(1 / 80)))
            asked.append(Asked(at_s=at_s, prompt=prompt, answer=random.randint(5, 40)))
            at_s += random.expovariate(rate)
        found.append(server.serve(asked, rate=rate))
    return found


def keep(
    observed: Sequence[ObservedPoint],
    folder: Path,
    *,
    objectives: Objectives | None = OBJECTIVES,
    board: str = "kitchen",
    model: str = "llama-3.2-1b-q4_0.gguf",
) -> LoadFolder:
    """Write a load as the client and the board leave it."""
    load = Load(
        id=folder.name,
        started_utc="2026-11-23T07:08:22+00:00",
        armload="0.1.0",
        url="http://127.0.0.1:8080",
        board=board,
        run="20261123T070800Z-kitchen-llama-aaaa",
        model=model,
        service={"slots": observed[0].slots, "context_tokens": 2048},
        dialect="openai",
        arrivals="poisson",
        seed=1,
        requests_from="questions.jsonl",
        requests_sha256="0" * 64,
        objectives=objectives,
        subtracts_idle=observed[0].subtracts_idle,
        points=tuple(each.point for each in observed),
    )
    write_whole(folder / "load.json", as_json(load).encode())
    fields = quick_run().model_dump()
    job = Job.model_validate({name: fields[name] for name in Job.model_fields})
    write_whole(folder / SERVICE_FILE, as_json(job).encode())
    for number, each in enumerate(observed):
        assert each.header is not None
        for name, values in (
            ("requests", records_of(each)),
            ("trace", (each.header, *each.steps)),
            ("board", each.samples),
            *([("power", each.power)] if each.power else []),
        ):
            lines = "".join(
                f"{value.model_dump_json(exclude_defaults=name == 'requests')}\n"
                for value in values
            )
            write_whole(folder / f"{name}-{number}.jsonl", lines.encode())
    return LoadFolder.read(folder)
