"""The search for the setting with the lowest cost.

New settings are tried on the cheapest rung. Those that may be faster than the leader race against
it: one at a time gets another trial, a longer one each time until the longest, which is repeated.
Three of four trials are of new settings until these stop bringing new leaders; then the race goes
on alone, until no rival may be faster by more than a margin.

All decisions follow from the seed and from the outcomes so far, and from nothing else. So a search
that is told a journal's outcomes goes on as the one that wrote it would have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from armload.tuning.estimating import (
    ChoiceEstimate,
    Ended,
    SearchState,
    Tried,
    estimates_of,
    leader_of,
    rivals_of,
)
from armload.tuning.record import Violation
from armload.tuning.space import Choice, Feasibility, Key, Parameter, Setting, Space
from armload.tuning.trial import Outcome, Trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


MOST_OF_ONE = 8
"""Trials of a setting; one that so many have not told from the leader is as good as it is."""

PATIENCE = 60
"""New settings since the leader's first trial, or since the start while nothing works, after which
no more are tried."""

_BY_CHANCE = 10
_CHANCE_EVERY = 8
_GUESSES = 5
_GUESSED_FROM = 64
_NEW_FOR_EACH_RACED = 3
_WORSE_THAN_ALL = 1.0


class Search:
    """A search that is under way.

    Args:
        space: what may be tried. Its defaults are always tried, and first.
        seed: with the same one, the same outcomes lead to the same trials.
        most_trials: after which it ends; none for no such limit.
        rungs: how many lengths of trials there are, at least one.
        prior: what is expected of a setting; always the same for the same setting.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        most_trials: int | None,
        rungs: int,
        prior: Callable[[Setting], Feasibility] | None = None,
    ) -> None:
        self.space = space
        self._seed = seed
        self._most_trials = most_trials
        self._top = rungs - 1
        self._prior = prior
        self._expected: dict[Key, Feasibility] = {}
        self._tried: dict[Key, Tried] = {}
        self._told = 0
        self._estimates: list[ChoiceEstimate] = []
        self._able: list[ChoiceEstimate] = []
        self._upcoming: Trial | Ended | None = None

    def ask(self) -> Trial | None:
        """Return what to try next; none once the search has ended.

        Until it is told how that went, it returns the same trial.
        """
        next_one = self._next()
        return next_one if isinstance(next_one, Trial) else None

    def tell(self, trial: Trial, outcome: Outcome) -> None:
        """Take in how a trial went; those of a journal are told in its order.

        Raises:
            ValueError: it was measured, and its cost is not a positive number.
        """
        fresh = Tried(setting=trial.setting, order=len(self._tried))
        self._tried.setdefault(trial.setting.key, fresh).add(trial, outcome)
        self._told += 1
        self._estimates = estimates_of(self._tried.values())
        self._able = [each for each in self._estimates if self._of(each).may_win]
        self._upcoming = None

    @property
    def hopeless(self) -> dict[Key, str]:
        """The settings that the prior kept from being tried, and why."""
        return {key: found.hopeless for key, found in self._expected.items() if found.hopeless}

    @property
    def state(self) -> SearchState:
        leader = leader_of(self._able)
        next_one = self._next()
        broken = [each for each in self._estimates if self._of(each).violates]
        fastest = min(broken, key=lambda each: each.cost, default=None)
        if fastest is None or (leader is not None and fastest.cost >= leader.cost):
            violation = None
        else:
            reason = self._of(fastest).violates
            violation = Violation(setting=fastest.setting, cost=fastest.cost, reason=reason)
        return SearchState(
            leader=leader,
            rivals=tuple(rivals_of(leader, self._able)) if leader else (),
            violation=violation,
            ended=None if isinstance(next_one, Trial) else next_one,
        )

    def _next(self) -> Trial | Ended:
        if self._upcoming is None:
            self._upcoming = self._decided()
        return self._upcoming

    def _decided(self) -> Trial | Ended:
        if self._most_trials is not None and self._told >= self._most_trials:
            return "trials used"
        leader = leader_of(self._able)
        rivals = rivals_of(leader, self._able) if leader else []
        racing = self._raced(leader, rivals)
        since = self._of(leader).order if leader else 0
        is_patient = len(self._tried) - since <= PATIENCE
        new = None
        if is_patient and (racing is None or self._is_new_one_due()):
            new = self._new()
        if new is not None:
            return Trial(number=self._told, setting=new, rung=0)
        if racing is not None:
            rung = min(racing.rung + 1, self._top)
            return Trial(number=self._told, setting=racing.setting, rung=rung)
        if leader is None:
            return "nothing works"
        if rivals:
            return "equal"
        return "all tried" if is_patient else "separated"

    def _is_new_one_due(self) -> bool:
        raced = self._told - len(self._tried)
        return len(self._tried) <= self._by_chance or len(self._tried) < _NEW_FOR_EACH_RACED * raced

    def _raced(
        self, leader: ChoiceEstimate | None, rivals: list[ChoiceEstimate]
    ) -> ChoiceEstimate | None:
        # LUCB (Kalyanakrishnan et al., 2012): of the leader and the most promising rival, the one
        # that is less well known.
        if leader is None:
            return None
        if leader.rung < self._top:
            return leader
        for rival in rivals:
            pair = [each for each in (rival, leader) if each.trials < MOST_OF_ONE]
            if pair:
                return max(pair, key=lambda each: each.log_error)
        return None

    def _new(self) -> Setting | None:
        number = len(self._tried)
        if number == 0:
            return self.space.defaults
        if self._prior is not None and number <= _GUESSES:
            return self._guessed()
        seed = f"{self._seed} {number}"
        if number <= self._by_chance:
            wanted = filter(self._is_wanted, spread(self.space, self._by_chance, f"{self._seed}"))
            return next(wanted, None) or random_wanted(self.space, self._is_wanted, seed)
        if number % _CHANCE_EVERY == 0:
            return random_wanted(self.space, self._is_wanted, seed)
        return proposed(self.space, self._known(), self._is_wanted, seed)

    @property
    def _by_chance(self) -> int:
        most = max((len(each.choices) for each in self.space.parameters), default=1)
        return max(_BY_CHANCE, 2 * most)

    def _guessed(self) -> Setting | None:
        generator = random.Random(f"{self._seed}")  # noqa: S311 - no secret
        drawn = [random_setting(self.space, generator) for _ in range(_GUESSED_FROM)]
        fit = [each for each in drawn if self._is_wanted(each)]
        if not fit:
            return random_wanted(self.space, self._is_wanted, f"{self._seed}")
        return min(fit, key=lambda each: self._expectation(each).cost or math.inf)

    def _is_wanted(self, setting: Setting) -> bool:
        return setting.key not in self._tried and not self._expectation(setting).hopeless

    def _expectation(self, setting: Setting) -> Feasibility:
        if self._prior is None:
            return Feasibility()
        if setting.key not in self._expected:
            self._expected[setting.key] = self._prior(setting)
        return self._expected[setting.key]

    def _known(self) -> list[tuple[Setting, float]]:
        good = [(each.setting, math.log(each.cost)) for each in self._able]
        bad = max((cost for _, cost in good), default=0.0) + _WORSE_THAN_ALL
        return good + [(each.setting, bad) for each in self._tried.values() if not each.may_win]

    def _of(self, estimate: ChoiceEstimate) -> Tried:
        return self._tried[estimate.setting.key]


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
