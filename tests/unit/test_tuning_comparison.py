"""Two searches for settings, compared by what won in each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from armload.boards.power import EnergyBasis
from armload.core.errors import UsageError
from armload.report.comparison import comparison_view
from armload.tuning.comparison import compare_tunings
from armload.tuning.confirming import Compared, confirm
from armload.tuning.record import SearchResult, TuningFolder
from armload.tuning.space import Setting
from armload.tuning.trial import Outcome
from armload.tuning.wanted import Objective
from tests.command_line import typed
from tests.unit.kept_tunings import SPACE, entry, kept, setting

NOISE = (0.99, 1.0, 1.01, 1.005)


def ended(
    folder: Path,
    winner: Setting,
    cost: float,
    *,
    default_cost: float = 0.4,
    board: str = "kitchen",
    n_predict: int = 64,
    objective: Objective = "decode",
    disturbance: str = "",
    energy_basis: EnergyBasis | None = None,
) -> TuningFolder:
    """Keep a search whose last runs, four of each side in turn, cost about as much."""
    entries = (entry(0, SPACE.defaults, 0.9), entry(1, winner, 0.8))
    tuned = kept(
        folder,
        entries,
        board=board,
        n_predict=n_predict,
        objective=objective,
        energy_basis=energy_basis,
    )
    made = {"defaults": 0, "leader": 0}

    def measure(tried: Setting, place: object) -> Outcome:
        del place
        side = "defaults" if tried == SPACE.defaults else "leader"
        made[side] += 1
        level = default_cost if side == "defaults" else cost
        return Outcome(
            status="measured", cost=level * NOISE[made[side] % len(NOISE)], disturbance=disturbance
        )

    def heard(one: Compared) -> None:
        del one

    found = confirm(measure, winner, SPACE.defaults, tuned, heard)
    tuned.end(
        SearchResult(
            winner=winner if found.is_faster else SPACE.defaults,
            cost=cost,
            ended="All was tried.",
            trials=2,
            took_s=20.0,
            confirmation=found,
            sentence="Found.",
        )
    )
    return tuned


def test_a_search_that_found_better_settings_is_faster_and_says_which(tmp_path: Path) -> None:
    found = compare_tunings(
        ended(tmp_path, setting(2), 0.3), ended(tmp_path, setting(4, "q8_0"), 0.2)
    )
    assert found.finding == "faster"
    winner, defaults = found.figures
    assert winner.ratio.ratio == pytest.approx(2 / 3, rel=0.01)
    assert winner.ratio.unit == "runs"
    assert defaults.finding == "not significant"
    assert [(each.name, each.a, each.b) for each in found.differences] == [
        ("winner's threads", 2, 4),
        ("winner's kv type", None, "q8_0"),
    ]
    assert {each.role for each in found.differences} == {"setting"}


def test_the_same_settings_may_win_and_yet_have_become_slower(tmp_path: Path) -> None:
    a = ended(tmp_path, setting(4), 0.2)
    b = ended(tmp_path, setting(4), 0.24, default_cost=0.48)
    found = compare_tunings(a, b)
    assert not found.differences
    assert [each.finding for each in found.figures] == ["slower", "slower"]


def test_a_search_in_which_the_defaults_won_has_them_as_its_winner(tmp_path: Path) -> None:
    found = compare_tunings(ended(tmp_path, setting(4), 0.2), ended(tmp_path, setting(4), 0.41))
    assert found.b.about.endswith("Winner: the defaults")
    assert found.figures[0].b == pytest.approx(0.4, rel=0.01)


def for_energy(folder: Path, cost: float, basis: EnergyBasis) -> TuningFolder:
    return ended(folder, setting(2), cost, objective="energy", energy_basis=basis)


def test_searches_for_energy_say_which_winner_takes_less(tmp_path: Path) -> None:
    wall = EnergyBasis(sees="wall")
    found = compare_tunings(for_energy(tmp_path, 0.3, wall), for_energy(tmp_path, 0.2, wall))
    assert found.finding == "faster"
    assert found.sentence.startswith(
        "The same configuration won. B's winner takes less energy: 0.201 J/token against 0.301 "
        "J/token, 0.667× A's energy (95% CI "
    )
    console = Console(width=200, record=True)
    console.print(comparison_view(found))
    shown = console.export_text()
    assert "less energy" in shown
    assert "× the default efficiency" in shown
    for word in ("faster", "long", "speed"):
        assert word not in shown


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (EnergyBasis(sees="board"), "on the board, idle power included"),
        (
            EnergyBasis(sees="wall", subtracts_idle=True),
            "at the wall, idle power subtracted",
        ),
    ],
)
def test_energies_that_were_measured_differently_are_not_compared(
    tmp_path: Path, other: EnergyBasis, words: str
) -> None:
    a = for_energy(tmp_path, 0.3, EnergyBasis(sees="wall"))
    found = compare_tunings(a, for_energy(tmp_path, 0.1, other))
    assert found.finding == "not comparable"
    assert found.obstacles == [f"energy measurement: A at the wall, idle power included, B {words}"]
    assert found.figures == (), "energies of two kinds have no ratio"
    assert a.tuning.fingerprint != for_energy(tmp_path, 0.1, other).tuning.fingerprint


def test_energy_of_an_unknown_kind_is_compared(tmp_path: Path) -> None:
    unknown = ended(tmp_path, setting(2), 0.3, objective="energy")
    found = compare_tunings(unknown, for_energy(tmp_path, 0.2, EnergyBasis(sees="wall")))
    assert (found.finding, len(found.figures)) == ("faster", 2)


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ({"board": "garage"}, "board: A kitchen, B garage"),
        ({"objective": "ttft"}, "objective: A decode, B ttft"),
        ({"n_predict": 128}, "n predict: A 64, B 128"),
    ],
)
def test_searches_of_other_work_are_not_comparable(
    tmp_path: Path, difference: dict[str, object], words: str
) -> None:
    a = ended(tmp_path, setting(4), 0.2)
    b = ended(tmp_path, setting(4), 0.1, **difference)  # type: ignore[arg-type]
    found = compare_tunings(a, b)
    assert found.finding == "not comparable"
    assert found.obstacles == [words]


def test_without_a_comparison_at_the_end_the_longest_trials_count_and_are_named(
    tmp_path: Path,
) -> None:
    a = ended(tmp_path, setting(4), 0.2)
    trials = (
        entry(0, SPACE.defaults, 0.5),
        entry(1, SPACE.defaults, 0.41, rung=1),
        entry(2, SPACE.defaults, 0.39, rung=1),
    )
    b = kept(tmp_path, trials)
    b.end(
        SearchResult(
            winner=SPACE.defaults,
            cost=0.4,
            ended="",
            trials=3,
            took_s=30.0,
            sentence="No configuration.",
        )
    )
    found = compare_tunings(a, b)
    assert found.figures[0].b == pytest.approx(0.4)
    assert found.figures[0].b_runs == 2
    assert [each.sentence for each in found.findings] == [
        "B had no final comparison: its figures are from its longest trials.",
    ]


def test_a_search_that_has_not_ended_has_no_winner(tmp_path: Path) -> None:
    a = ended(tmp_path, setting(4), 0.2)
    with pytest.raises(UsageError, match="has not finished"):
        compare_tunings(a, kept(tmp_path, (entry(0, SPACE.defaults, 0.5),)))


def test_the_verb_tells_the_finding_and_its_gate_fails_a_slower_search(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir()
    a = ended(tmp_path, setting(4), 0.2)
    b = ended(tmp_path, setting(2), 0.3)
    c = ended(tmp_path, setting(2), 0.3, disturbance="Another program ran.")
    shown = typed(tmp_path, "compare", a.tuning.id, b.tuning.id)
    words = " ".join(shown.stdout.split())
    assert "Different configurations won. B's winner is slower: 3.33 tokens/s" in words
    assert "tokens/s against 4.99 tokens/s" in words
    assert "Winner's threads: A 4, B 2." in words
    gated = ("--fail-if-slower", "3%")
    assert typed(tmp_path, "compare", a.tuning.id, b.tuning.id, *gated).returncode == 11
    assert typed(tmp_path, "compare", a.tuning.id, c.tuning.id, *gated).returncode == 12
    assert typed(tmp_path, "compare", b.tuning.id, a.tuning.id, *gated).returncode == 0
    (found,) = json.loads(typed(tmp_path, "compare", a.folder.name, "latest-tune", "--json").stdout)
    assert found["a"]["settings"] == {"threads": 4, "kv_type": None}
    mixed = typed(tmp_path, "compare", a.tuning.id, "latest")
    assert mixed.returncode == 2
    assert "a tuning can only be compared with another tuning" in mixed.stderr
