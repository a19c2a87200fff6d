"""Settings to try next: by chance, evenly spread, or where earlier trials promise most."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from armload.tuning.space import Choice, Parameter, Setting, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_PROPOSALS = 32
"""Before chance decides: of a small space, most of what is proposed was tried."""


def random_wanted(space: Space, wanted: Callable[[Setting], bool], seed: str) -> Setting | None:
    """Return a random setting that is wanted; none if no setting is."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(_PROPOSALS):
        drawn = random_setting(space, generator)
        if wanted(drawn):
            return drawn
    left = [setting for setting in space.settings() if wanted(setting)]
    return generator.choice(left) if left else None


def random_setting(space: Space, generator: random.Random) -> Setting:
    """Return a setting with a random choice of each parameter."""
    return Setting(choices={each.name: generator.choice(each.choices) for each in space.parameters})


def spread(space: Space, count: int, seed: str) -> list[Setting]:
    """Return random settings among which every choice of a parameter is equally frequent."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    columns = {}
    for parameter in space.parameters:
        column: list[Choice] = []
        while len(column) < count:
            column += generator.sample(parameter.choices, len(parameter.choices))
        columns[parameter.name] = column[:count]
    return [
        Setting(choices={name: column[row] for name, column in columns.items()})
        for row in range(count)
    ]


def proposed(
    space: Space,
    known: Sequence[tuple[Setting, float]],
    wanted: Callable[[Setting], bool],
    seed: str,
) -> Setting | None:
    """Return the setting that is wanted and promises most; none if no setting is wanted.

    Optuna's tree-structured Parzen estimator (Bergstra et al., 2011; its form for several
    parameters together, Falkner et al., 2018) compares how often a choice is among the good
    settings and among the others.

    Args:
        known: settings, each with the logarithm of its cost, which is minimised.
        seed: the same one, with the same knowledge, gives the same proposal.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    varied = [each for each in space.parameters if len(each.choices) > 1]
    if not varied:
        return random_wanted(space, wanted, seed)
    distributions = {each.name: _distribution(each) for each in varied}
    sampler = optuna.samplers.TPESampler(
        seed=random.Random(seed).getrandbits(32),  # noqa: S311 - no secret
        n_startup_trials=0,
        multivariate=True,
        constant_liar=True,
    )
    study = optuna.create_study(sampler=sampler)
    study.add_trials(
        [
            optuna.trial.create_trial(params=params, distributions=distributions, value=value)
            for setting, value in known
            if (params := _indices(varied, setting)) is not None
        ]
    )
    for _ in range(_PROPOSALS):
        asked = study.ask(distributions)
        setting = Setting(
            choices={
                each.name: each.choices[asked.params.get(each.name, 0)] for each in space.parameters
            }
        )
        if wanted(setting):
            return setting
    return random_wanted(space, wanted, seed)


def _distribution(parameter: Parameter) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    last = len(parameter.choices) - 1
    if parameter.is_ordered:
        return IntDistribution(0, last)
    return CategoricalDistribution(range(last + 1))


def _indices(parameters: Sequence[Parameter], setting: Setting) -> dict[str, Any] | None:
    indices = {}
    for each in parameters:
        choice = setting.choices.get(each.name)
        if choice not in each.choices:
            return None  # the defaults need not be in the space
        indices[each.name] = each.choices.index(choice)
    return indices
