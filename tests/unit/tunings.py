"""A search of two settings for the decode rate, as the tests of it use it."""

from __future__ import annotations

from armload.boards.power import EnergyBasis
from armload.tuning.record import TuningFolder, new_tuning
from armload.tuning.space import Choice, Parameter, Setting, Space
from armload.tuning.wanted import Constraints, Objective

SPACE = Space(
    parameters=(
        Parameter(name="threads", choices=(1, 2, 3, 4), is_ordered=True),
        Parameter(name="kv_type", choices=(None, "q8_0", "q4_0")),
        Parameter(name="engine_args", choices=(None, "--no-repack")),
    ),
    defaults=Setting(choices={"threads": None, "kv_type": None, "engine_args": None}),
)
BEST = Setting(choices={"threads": 3, "kv_type": "q8_0", "engine_args": None})
TRAP = Setting(choices={"threads": 4, "kv_type": "q4_0", "engine_args": "--no-repack"})


WORK: dict[str, Choice] = {"n_predict": 64, "prompt": "Once"}


def tuned(
    seed: int = 1, objective: Objective = "decode", work: dict[str, Choice] | None = None
) -> TuningFolder:
    """Return the record of a search that has not tried anything."""
    return TuningFolder.begin(
        new_tuning(
            board="kitchen",
            model="m.gguf",
            model_sha256="0" * 64,
            model_reference="m.gguf",
            engine="llama-completion of a source",
            binary_sha256="1" * 64,
            objective=objective,
            work=WORK if work is None else work,
            constraints=Constraints(),
            space=SPACE,
            seed=seed,
            energy_basis=EnergyBasis(sees="wall") if objective == "energy" else None,
        )
    )
