"""A search for settings: what is searched, every trial of it, and how it ended.

It lies in ``tunings/<id>/``: ``tuning.json`` says what is searched, ``journal.jsonl`` has one line
for each trial, and ``result.json`` is there once the search has ended. The trials are runs, loads
and evaluations like any other.
"""

from __future__ import annotations

import json
from typing import Literal

from armload.analysis.statistics import Interval, Ratio
from armload.boards.power import EnergyBasis
from armload.core.files import is_there, write_whole
from armload.core.ids import begins_now, fingerprint_of
from armload.core.journal import CommandHeader, CommandJournal, JournalKind
from armload.core.progress import Progress
from armload.core.values import Value, as_json, counted
from armload.core.workspace import tunings_folder
from armload.tuning.space import Choice, Setting, Space
from armload.tuning.trial import Outcome, Trial
from armload.tuning.wanted import Constraints, Objective

RESULT_FILE = "result.json"


class Tuning(CommandHeader):
    """What is searched.

    Attributes:
        board: its name.
        model, model_sha256: the file's name, and its checksum.
        model_reference: as it was named, such as ``hf:ORG/REPO/FILE.gguf``.
        engine: the program, and the source that it was built from.
        objective: which cost is minimised.
        work: what all trials have in common, by the names of options, such as ``prompt_tokens``.
        energy_basis: how energies are measured; none for another objective.
        seed: of the search.
    """

    format: Literal[1] = 1
    board: str
    model: str
    model_sha256: str
    model_reference: str
    engine: str
    objective: Objective
    work: dict[str, Choice]
    energy_basis: EnergyBasis | None = None
    constraints: Constraints
    space: Space
    seed: int


class Quality(Value):
    """What is known of the output with a setting; none where it was not looked at.

    Attributes:
        same_text: it equals that of the defaults, as far as both go.
        kl_mean: Kullback-Leibler divergence from the defaults' distribution, in nats.
        accuracy, accuracy_low: share of right answers, and the lower bound of its interval.
        questions: that were asked for it.
    """

    same_text: bool | None = None
    kl_mean: float | None = None
    accuracy: float | None = None
    accuracy_low: float | None = None
    questions: int | None = None


class TuningEntry(Value):
    """A trial of a search.

    Attributes:
        trial: what was tried.
        outcome: what became of it.
        max_rss_bytes: peak resident memory; none where it was not measured.
        quality: of its output.
        ended_s: when the trial ended, counted from the search's start without interruptions.
    """

    trial: Trial
    outcome: Outcome
    max_rss_bytes: int | None = None
    quality: Quality = Quality()
    ended_s: float


class Confirmation(Value):
    """The search's leader beside the defaults, in alternating runs.

    Attributes:
        leader: what the search found; it wins if it is faster.
        defaults_costs, leader_costs: of the runs that count, those of undisturbed pairs.
        defaults_runs, leader_runs: their ids.
        speed: how many times as fast the leader is; none where too many runs were disturbed to
            tell.
        is_faster: the interval lies above 1.
        runs: how many were made, disturbed ones included.
        disturbances: what slowed down some of the runs, for each of these.
    """

    leader: Setting
    defaults_costs: tuple[float, ...]
    leader_costs: tuple[float, ...]
    defaults_runs: tuple[str, ...]
    leader_runs: tuple[str, ...]
    speed: Ratio | None
    is_faster: bool
    runs: int
    disturbances: tuple[str, ...] = ()


class Violation(Value):
    """A setting that was measured to be quicker than the winner, and breaks a constraint.

    Attributes:
        reason: which one, with figures.
    """

    setting: Setting
    cost: float
    reason: str


class SearchResult(Value):
    """How a search ended.

    Attributes:
        winner: the quickest setting that breaks no constraint; the defaults where nothing is
            faster than they are.
        cost: of the winner: the median of its runs in the comparison, else as the search estimates
            it.
        interval: of that cost; none where too little was measured for one.
        ended: why the search ended, in a sentence.
        trials: how many were run.
        took_s: in all, without interruptions.
        violation: none where no quicker setting broke a constraint.
        confirmation: none where the defaults lead, or do not run.
        sentence: what came out, for people.
        plan: the plan file's path.
    """

    winner: Setting
    cost: float
    interval: Interval | None = None
    ended: str
    trials: int
    took_s: float
    violation: Violation | None = None
    confirmation: Confirmation | None = None
    sentence: str
    plan: str = ""

    @property
    def is_unconfirmed(self) -> bool:
        """Whether too many runs of the comparison were disturbed to tell what is faster."""
        return self.confirmation is not None and self.confirmation.speed is None


class TuningDocument(Value):
    """A search with its trials so far.

    Attributes:
        result: none for a search that has not ended.
    """

    tuning: Tuning
    trials: tuple[TuningEntry, ...]
    result: SearchResult | None


class TuningFolder(CommandJournal[Tuning, TuningEntry]):
    """A search with its trials so far, in order."""

    kind = JournalKind(
        noun="tuning",
        words=("tune",),
        header=Tuning,
        entry=TuningEntry,
        root=tunings_folder,
        make="armload tune",
        repair="Use --new to start the tuning again; its runs are kept.",
    )

    @property
    def tuning(self) -> Tuning:
        return self.header

    @property
    def is_finished(self) -> bool:
        """Whether it has ended with a reliable result."""
        result = self.result()
        return result is not None and not result.is_unconfirmed

    @property
    def spent_s(self) -> float:
        """How long its trials took, interruptions left out."""
        return self.entries[-1].ended_s if self.entries else 0.0

    def say_begun(self, progress: Progress) -> None:
        """Say what is there already, how much there is to search, and where trials are kept."""
        self.say_resumed(progress, "trial")
        size = counted(self.tuning.space.size, "configuration")
        progress.say(f"The search space has {size}. Trials are kept in {self.folder}.")

    def learn(self, setting: Setting, quality: Quality) -> None:
        """Add what was found out of a setting's output to its last trial, durably."""
        last = max(
            n for n, each in enumerate(self.entries) if each.trial.setting.key == setting.key
        )
        known = self.entries[last].quality.model_copy(update=quality.model_dump(exclude_none=True))
        learnt = self.entries[last].model_copy(update={"quality": known})
        self.rewrite([*self.entries[:last], learnt, *self.entries[last + 1 :]])

    def end(self, result: SearchResult) -> None:
        """Keep how it ended."""
        write_whole(self.folder / RESULT_FILE, as_json(result).encode())

    def document(self) -> TuningDocument:
        return TuningDocument(tuning=self.tuning, trials=tuple(self.entries), result=self.result())

    def result(self) -> SearchResult | None:
        """Return how it ended; none for a search that has not.

        Raises:
            DataError: the file was changed.
            DiskError: it cannot be read.
        """
        path = self.folder / RESULT_FILE
        return self.kind.read(path, SearchResult) if is_there(path) else None


def new_tuning(
    *,
    board: str,
    model: str,
    model_sha256: str,
    model_reference: str,
    engine: str,
    binary_sha256: str,
    objective: Objective,
    work: dict[str, Choice],
    constraints: Constraints,
    space: Space,
    seed: int,
    texts_sha256: str = "",
    energy_basis: EnergyBasis | None = None,
) -> Tuning:
    """Describe a search that starts now.

    Args:
        binary_sha256: of the program, which decides the search as all else does.
        texts_sha256: likewise of the requests, texts and questions of its trials and checks; empty
            without any.
    """
    decisive = (
        *(board, model_sha256, binary_sha256, objective, json.dumps(work, sort_keys=True)),
        *(constraints.model_dump_json(), space.model_dump_json(), str(seed)),
        *([texts_sha256] if texts_sha256 else []),
        *([energy_basis.model_dump_json()] if energy_basis else []),
    )
    return Tuning(
        **begins_now("tune", board),
        fingerprint=fingerprint_of(decisive),
        board=board,
        model=model,
        model_sha256=model_sha256,
        model_reference=model_reference,
        engine=engine,
        objective=objective,
        work=work,
        energy_basis=energy_basis,
        constraints=constraints,
        space=space,
        seed=seed,
    )
