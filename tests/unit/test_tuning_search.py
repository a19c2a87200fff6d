import itertools
import math
import random
from collections.abc import Callable, Iterator
from statistics import mean

import pytest

from armload.tuning.estimating import MARGIN, SearchState, Tried, estimates_of, rivals_of
from armload.tuning.search import MOST_OF_ONE, PATIENCE, Search
from armload.tuning.space import Feasibility, Parameter, Setting, Space
from armload.tuning.trial import Outcome, Trial

often = pytest.mark.exhaustive(covers=["armload/tuning"])

THREADS = Parameter(name="threads", choices=(1, 2, 3, 4), is_ordered=True)
BATCH = Parameter(name="micro_batch", choices=(8, 16, 32, 64, 128), is_ordered=True)
KV_TYPE = Parameter(name="kv_type", choices=("f32", "f16", "q8_0", "q4_0"))
FLASH = Parameter(name="flash_attention", choices=("on", "off"))
DEFAULTS = {"threads": 4, "micro_batch": 128, "kv_type": "f16", "flash_attention": "on"}
SPACE = Space(parameters=(THREADS, BATCH, KV_TYPE, FLASH), defaults=Setting(choices=DEFAULTS))
FASTEST = Setting(
    choices={"threads": 3, "micro_batch": 32, "kv_type": "f32", "flash_attention": "on"}
)

Measure = Callable[[Trial], Outcome]


def true_cost(setting: Setting) -> float:
    """Three threads, a micro-batch of 32 and 32-bit keys are best; each choice counts."""
    chosen = setting.choices
    cost = {1: 2.4, 2: 1.4, 3: 1.0, 4: 1.2}[int(str(chosen["threads"]))]
    cost *= 1 + 0.1 * abs(math.log2(int(str(chosen["micro_batch"])) / 32))
    cost *= {"f32": 1.0, "f16": 1.06, "q8_0": 1.15, "q4_0": 1.25}[str(chosen["kv_type"])]
    return cost * (1.0 if chosen["flash_attention"] == "on" else 1.08)


def measured(seed: int, noise: float = 0.03) -> Measure:
    """Give a figure with the same noise for the same trial."""

    def measure(trial: Trial) -> Outcome:
        chosen = trial.setting.choices
        if str(chosen["kv_type"]).startswith("q") and chosen["flash_attention"] == "off":
            return Outcome(status="failed", reason="quantised keys need flash attention")
        off = random.Random(f"{seed} {trial.number}").gauss(0, noise)
        return Outcome(status="measured", cost=true_cost(trial.setting) * math.exp(off))

    return measure


def steps_of(search: Search, measure: Measure) -> Iterator[tuple[Trial, Outcome]]:
    while (trial := search.ask()) is not None:
        outcome = measure(trial)
        search.tell(trial, outcome)
        yield trial, outcome


def searched(
    measure: Measure, *, seed: int = 1, most: int | None = 60, space: Space = SPACE, rungs: int = 3
) -> tuple[SearchState, list[tuple[Trial, Outcome]]]:
    search = Search(space, seed=seed, most_trials=most, rungs=rungs)
    steps = list(steps_of(search, measure))
    return search.state, steps


@pytest.mark.parametrize("seeds", [3, pytest.param(10, marks=often)])
def test_a_search_of_a_third_of_the_space_finds_a_setting_within_five_percent_of_the_best(
    seeds: int,
) -> None:
    found = []
    for seed in range(seeds):
        state, _ = searched(measured(seed), seed=seed, most=SPACE.size // 3)
        assert state.leader is not None
        found.append(true_cost(FASTEST) / true_cost(state.leader.setting))
    assert sum(share >= 0.95 for share in found) >= 0.9 * seeds, found


def test_the_defaults_are_tried_first_even_if_the_space_lacks_them() -> None:
    space = SPACE.model_copy(update={"parameters": (THREADS, BATCH)})
    search = Search(space, seed=1, most_trials=1, rungs=1)
    steps = list(steps_of(search, measured(1)))
    assert steps[0][0] == Trial(number=0, setting=SPACE.defaults, rung=0)


def test_a_trial_is_of_a_setting_that_is_new_or_on_a_rung_that_follows_its_last() -> None:
    _, steps = searched(measured(2), most=80)
    last: dict[object, int] = {}
    for number, (trial, _) in enumerate(steps):
        assert trial.number == number
        reached = last.get(trial.setting.key, -1)
        assert trial.rung == min(reached + 1, 2)
        last[trial.setting.key] = trial.rung


def test_asking_again_without_telling_returns_the_same_trial() -> None:
    search = Search(SPACE, seed=3, most_trials=None, rungs=2)
    for _ in range(20):
        trial = search.ask()
        assert trial is not None
        assert search.ask() == trial
        assert search.state.ended is None
        assert search.ask() == trial
        search.tell(trial, measured(3)(trial))


@pytest.mark.parametrize(
    "interrupted_after", [12, *(pytest.param(number, marks=often) for number in (1, 7, 41))]
)
def test_a_search_that_is_told_a_journal_goes_on_as_the_one_that_wrote_it(
    interrupted_after: int,
) -> None:
    def prior(setting: Setting) -> Feasibility:
        hopeless = "too large" if setting.choices["micro_batch"] == 64 else ""
        return Feasibility(hopeless=hopeless, cost=true_cost(setting))

    whole = Search(SPACE, seed=5, most_trials=50, rungs=3, prior=prior)
    steps = list(steps_of(whole, measured(5)))
    resumed = Search(SPACE, seed=5, most_trials=50, rungs=3, prior=prior)
    for trial, outcome in steps[:interrupted_after]:
        resumed.tell(trial, outcome)
    assert list(steps_of(resumed, measured(5))) == steps[interrupted_after:]
    assert resumed.state == whole.state


def test_another_seed_tries_other_settings() -> None:
    first, other = (
        [trial.setting for trial, _ in searched(measured(1), seed=seed, most=12)[1]]
        for seed in (1, 2)
    )
    assert first != other


@pytest.mark.parametrize("found_on_rung", [pytest.param(0, marks=often), 2])
def test_a_faster_setting_that_violates_never_wins(found_on_rung: int) -> None:
    caught = []
    for seed in range(10):

        def trapped(trial: Trial, seed: int = seed) -> Outcome:
            outcome = measured(seed)(trial)
            if trial.setting.choices["kv_type"] != "q4_0" or outcome.cost is None:
                return outcome
            garbage = trial.rung >= found_on_rung
            return Outcome(
                status="violates" if garbage else "measured",
                cost=outcome.cost / 4,
                reason="not text" if garbage else "",
            )

        state, steps = searched(trapped, seed=seed, most=40)
        caught.append(any(outcome.status == "violates" for _, outcome in steps))
        assert state.leader is not None
        assert state.leader.setting.choices["kv_type"] != "q4_0"
        if caught[-1]:
            assert state.violation is not None
            assert state.violation.reason == "not text"
            assert state.violation.cost < state.leader.cost
    assert sum(caught) >= 8


def test_a_setting_that_fails_on_a_longer_trial_does_not_win() -> None:
    def crashing(trial: Trial) -> Outcome:
        if trial.setting == FASTEST and trial.rung == 2:
            return Outcome(status="failed", reason="out of memory")
        return measured(1)(trial)

    state, steps = searched(crashing, most=None)
    assert (FASTEST, "failed") in [(trial.setting, outcome.status) for trial, outcome in steps]
    assert state.leader is not None
    assert state.leader.setting != FASTEST


def test_the_leader_was_measured_on_the_longest_rung() -> None:
    for seed in range(3):
        state, _ = searched(measured(seed, noise=0.1), seed=seed, most=40)
        assert state.leader is not None
        assert state.leader.rung == 2


def test_a_search_without_a_limit_ends_with_a_separated_leader() -> None:
    state, steps = searched(measured(4, noise=0.01), most=None)
    assert state.ended == "separated"
    assert state.leader is not None
    assert state.leader.setting == FASTEST
    assert not state.rivals
    assert len(steps) < SPACE.size


def test_settings_that_are_equal_do_not_keep_a_search_going() -> None:
    def all_equal(trial: Trial) -> Outcome:
        off = random.Random(trial.number).gauss(0, 0.05)
        return Outcome(status="measured", cost=math.exp(off))

    state, steps = searched(all_equal, most=None, space=SPACE)
    assert state.ended in {"equal", "separated"}
    each = [
        sum(trial.setting.key == key for trial, _ in steps)
        for key in {s[0].setting.key for s in steps}
    ]
    assert max(each) <= MOST_OF_ONE


def test_settings_within_the_margin_are_told_apart_no_further() -> None:
    def nearly_equal(trial: Trial) -> Outcome:
        cost = 1.0 if trial.setting.choices["flash_attention"] == "on" else 1 + MARGIN / 2
        return Outcome(status="measured", cost=cost, samples=(cost,) * 20)

    space = Space(parameters=(FLASH,), defaults=Setting(choices={"flash_attention": "on"}))
    state, steps = searched(nearly_equal, most=None, space=space)
    assert state.ended == "all tried"
    assert len(steps) < 2 * MOST_OF_ONE


def test_a_small_space_is_tried_whole() -> None:
    space = Space(parameters=(THREADS,), defaults=Setting(choices={"threads": 2}))

    def by_threads(trial: Trial) -> Outcome:
        return Outcome(status="measured", cost=1 / int(str(trial.setting.choices["threads"])))

    state, steps = searched(by_threads, most=None, space=space)
    assert {trial.setting.choices["threads"] for trial, _ in steps} == {1, 2, 3, 4}
    assert state.leader is not None
    assert state.leader.setting.choices == {"threads": 4}
    assert state.ended == "all tried"


def test_a_search_in_which_everything_fails_ends_and_has_no_leader() -> None:
    state, steps = searched(lambda _: Outcome(status="failed", reason="exit 1"), most=None)
    assert state.leader is None
    assert state.ended == "nothing works"
    assert len(steps) <= PATIENCE + 1


def test_hopeless_settings_are_not_tried_and_can_be_listed() -> None:
    def prior(setting: Setting) -> Feasibility:
        return Feasibility(hopeless="does not fit" if setting.choices["threads"] == 3 else "")

    search = Search(SPACE, seed=1, most_trials=60, rungs=2, prior=prior)
    steps = list(steps_of(search, measured(1)))
    assert all(trial.setting.choices["threads"] != 3 for trial, _ in steps)
    assert set(search.hopeless.values()) == {"does not fit"}


def test_when_every_setting_is_hopeless_the_defaults_alone_are_tried() -> None:
    search = Search(
        SPACE, seed=1, most_trials=None, rungs=1, prior=lambda _: Feasibility(hopeless="too large")
    )
    assert [trial.setting for trial, _ in steps_of(search, measured(1))] == [SPACE.defaults]
    assert search.state.ended == "all tried"


def test_good_guesses_come_before_those_by_chance() -> None:
    def prior(setting: Setting) -> Feasibility:
        return Feasibility(cost=true_cost(setting))

    everything = mean(true_cost(setting) for setting in SPACE.settings())
    for seed in range(5):
        search = Search(SPACE, seed=seed, most_trials=5, rungs=1, prior=prior)
        guessed = [true_cost(trial.setting) for trial, _ in steps_of(search, measured(seed))][1:]
        assert mean(guessed) < 0.85 * everything


def test_short_trials_that_are_all_quicker_do_not_make_a_leader() -> None:
    def growing(trial: Trial) -> Outcome:
        # What a short trial misses, such as a longer context, costs 40% more.
        outcome = measured(8)(trial)
        factor = (1.0, 1.2, 1.4)[trial.rung]
        return outcome.model_copy(update={"cost": outcome.cost and outcome.cost * factor})

    state, _ = searched(growing)
    assert state.leader is not None
    assert true_cost(state.leader.setting) <= 1.05 * true_cost(FASTEST)
    assert state.leader.cost == pytest.approx(1.4 * true_cost(state.leader.setting), rel=0.08)


def test_a_leader_by_luck_does_not_make_the_others_seem_slow() -> None:
    first, second = itertools.islice(SPACE.settings(), 2)
    lucky, other = Tried(setting=first, order=0), Tried(setting=second, order=1)
    lucky.add(Trial(number=0, setting=first, rung=0), Outcome(status="measured", cost=1.0))
    lucky.add(Trial(number=1, setting=first, rung=1), Outcome(status="measured", cost=1.36))
    other.add(Trial(number=2, setting=second, rung=0), Outcome(status="measured", cost=1.1))
    leader, rival = estimates_of([lucky, other])
    assert rival.cost == pytest.approx(1.1)
    assert rivals_of(leader, [leader, rival]) == [rival]


def test_an_interval_holds_the_true_cost_nearly_always() -> None:
    generator = random.Random(1)
    held = []
    for _ in range(20):
        tried = []
        for order, setting in enumerate(itertools.islice(SPACE.settings(), 10)):
            tried.append(Tried(setting=setting, order=order))
            for number in range(1 + order % 4):
                cost = true_cost(setting) * math.exp(generator.gauss(0, 0.06))
                trial = Trial(number=number, setting=setting, rung=0)
                tried[-1].add(trial, Outcome(status="measured", cost=cost))
        held += [
            each.interval.low <= true_cost(each.setting) <= each.interval.high
            for each in estimates_of(tried)
        ]
    assert 0.9 < mean(held) < 1.0


def test_a_cost_that_is_not_positive_is_refused() -> None:
    search = Search(SPACE, seed=1, most_trials=None, rungs=1)
    trial = search.ask()
    assert trial is not None
    with pytest.raises(ValueError, match="trial 0"):
        search.tell(trial, Outcome(status="measured", cost=0.0))
