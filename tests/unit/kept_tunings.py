"""Searches for settings, with trials of which every figure is given."""

from __future__ import annotations

from pathlib import Path

from armload.boards.power import EnergyBasis
from armload.tuning.record import Quality, TuningEntry, TuningFolder, new_tuning
from armload.tuning.space import Choice, Parameter, Setting, Space
from armload.tuning.trial import Outcome, Status, Trial
from armload.tuning.wanted import Constraints, Objective

SPACE = Space(
    parameters=(
        Parameter(name="threads", choices=(1, 2, 4), is_ordered=True),
        Parameter(name="kv_type", choices=(None, "q8_0", "q4_0")),
    ),
    defaults=Setting(choices={"threads": None, "kv_type": None}),
)


def setting(threads: Choice, kv_type: Choice = None) -> Setting:
    return Setting(choices={"threads": threads, "kv_type": kv_type})


def entry(
    number: int,
    tried: Setting,
    cost: float | None,
    *,
    rung: int = 0,
    status: Status = "measured",
    reason: str = "",
    rss: int | None = 100_000_000,
    same: bool | None = True,
    run: str = "",
) -> TuningEntry:
    return TuningEntry(
        trial=Trial(number=number, setting=tried, rung=rung),
        outcome=Outcome(
            status=status,
            cost=cost,
            reason=reason,
            evidence=(run,) if run else (),
            took_s=5.0,
        ),
        max_rss_bytes=rss,
        quality=Quality(same_text=same),
        ended_s=10.0 * (number + 1),
    )


def kept(
    folder: Path,
    entries: tuple[TuningEntry, ...],
    *,
    objective: Objective = "decode",
    board: str = "kitchen",
    n_predict: int = 64,
    energy_basis: EnergyBasis | None = None,
) -> TuningFolder:
    tuning = new_tuning(
        board=board,
        model="m.gguf",
        model_sha256="0" * 64,
        model_reference="m.gguf",
        engine="llama-completion of a source",
        binary_sha256="1" * 64,
        objective=objective,
        work={"n_predict": n_predict},
        constraints=Constraints(max_kld=0.05),
        space=SPACE,
        seed=7,
        energy_basis=energy_basis,
    )
    place = folder / "tunings" / tuning.id
    place.mkdir(parents=True)
    (place / "tuning.json").write_text(tuning.model_dump_json())
    tuned = TuningFolder(place, tuning)
    for each in entries:
        tuned.append(each)
    return tuned
