"""What comparisons, loads, repeats and predictions find is written as sentences, one for a kind."""

from __future__ import annotations

import typing

import pytest

from armload.analysis.comparison_findings import (
    ComparisonFigures,
    ConstraintsDiffer,
    DegenerateOutput,
    Differs,
    Disturbed,
    DoubtfulLoad,
    EnergyMixed,
    EnergyPerToken,
    EqualBoardsDiffer,
    Excluded,
    FailedRequests,
    ModelUnverified,
    NothingInCommon,
    NotInterleaved,
    OnlyOneSide,
    OutputDiffers,
    Remark,
    RequestsDiffer,
    SettingDiffers,
    SpacesDiffer,
    TooFewRuns,
)
from armload.analysis.load.findings import (
    AnswersAtOnce,
    AnswersCutOff,
    AnswersShort,
    Cancelled,
    ClientLate,
    ClientLimited,
    CountsRefused,
    Incomplete,
    LinesIgnored,
    LoadFigures,
    NoneSucceeded,
    PromptsCut,
    ServiceEnded,
    TokensUncounted,
)
from armload.analysis.prediction_notes import note
from armload.analysis.repeats import (
    DisturbedInARow,
    NothingTimed,
    NotRepeatable,
    OutOfTime,
    PrecisionReached,
    Stop,
)
from armload.analysis.sanity import Departure
from armload.analysis.wording import comparisons
from armload.analysis.wording.loads import doubt
from armload.boards.power import EnergyBasis
from armload.core.values import Value
from armload.engines.prediction import PredictionNoteKind

WALL = EnergyBasis(sees="wall")

DIFFERENCES: tuple[tuple[ComparisonFigures, str], ...] = (
    (Differs(name="board", a="kitchen", b=None), "board: A kitchen, B unknown"),
    (SettingDiffers(name="threads", a=None, b=4), "threads: A default, B 4"),
    (SettingDiffers(name="stop at end", a=True, b=False), "stop at end: A yes, B no"),
    (OnlyOneSide(side="B"), "only B has runs with this configuration"),
    (DegenerateOutput(side="A", faults="a1: It loops."), "A: a1: It loops."),
    (NothingInCommon(what="figure"), "the two sides have no metric in common"),
    (
        NothingInCommon(what="load level"),
        "the loads have no rate or number of clients in common",
    ),
    (NothingInCommon(what="answered request"), "no request was answered in both loads"),
    (RequestsDiffer(), "requests: the content of the file differs"),
)
REMARKS: tuple[tuple[ComparisonFigures, str], ...] = (
    (Differs(name="options", a="", b="-b 64"), "Options: A none, B -b 64."),
    (
        Differs(name="weights repacked", a=True, b=None),
        (
            "Weights repacked: A yes, B unknown, so different kernels ran. armload repacks weights "
            "if memory allows; to disable it on both sides, use --engine-args --no-repack."
        ),
    ),
    (SettingDiffers(name="slots", a=2, b=4), "Slots: A 2, B 4."),
    (Excluded(side="A", names=("a1", "a2")), "Disturbed and excluded from A: a1, a2."),
    (
        ModelUnverified(a="m.gguf", b=None),
        "Cannot verify that both sides ran the same model: A m.gguf, B unknown.",
    ),
    (
        EqualBoardsDiffer(a="kitchen", b="cellar", called="@rk rk3568"),
        (
            "kitchen and cellar are declared identical (@rk rk3568), but differ by more than their "
            "repeats."
        ),
    ),
    (
        TooFewRuns(needed_runs=4),
        (
            "With fewer than 4 runs per side, run-to-run variation is unknown; the interval is "
            "widened to allow for it."
        ),
    ),
    (
        EnergyPerToken(a_j=3.214, b_j=2.5, a_basis=WALL, b_basis=WALL),
        ("Energy at the wall, idle power included: A 3.21, B 2.5 J per token, B uses 0.778× A's."),
    ),
    (
        EnergyPerToken(a_j=3.214, b_j=1.6, a_basis=WALL, b_basis=EnergyBasis(sees="board")),
        (
            "Energy: A 3.21 J per token at the wall, idle power included, B 1.6 J per token on the "
            "board, idle power included. These cannot be compared: only the wall includes the "
            "supply's losses."
        ),
    ),
    (
        EnergyPerToken(
            a_j=3.214, b_j=1.6, a_basis=WALL, b_basis=EnergyBasis(sees="wall", subtracts_idle=True)
        ),
        (
            "Energy: A 3.21 J per token at the wall, idle power included, B 1.6 J per token at the "
            "wall, idle power subtracted. These cannot be compared: the idle power is subtracted "
            "from only one of them."
        ),
    ),
    (
        EnergyMixed(side="B", basis=WALL, left_out=2),
        (
            "Energy of B: only runs measured at the wall, idle power included, are used; 2 "
            "measured differently were excluded."
        ),
    ),
    (
        OutputDiffers(departure=Departure(reference="a1", kind="same")),
        "The text matches that of a1.",
    ),
    (ConstraintsDiffer(), "The constraints differ."),
    (SpacesDiffer(options=("threads", "slots")), "The search spaces differ: threads, slots."),
    (
        NotInterleaved(side="B", was_disturbed=False),
        "B had no final comparison: its figures are from its longest trials.",
    ),
    (
        NotInterleaved(side="A", was_disturbed=True),
        (
            "A had too many disturbed runs in its final comparison: its figures are from its "
            "longest trials."
        ),
    ),
    (DoubtfulLoad(side="A", figures=NoneSucceeded()), "A: No request succeeded."),
    (FailedRequests(side="B", failed=2, requests=9), "B: 2 of 9 requests failed."),
    (Disturbed(side="B", reason="It was hot."), "B: It was hot."),
)
LOADS: tuple[tuple[LoadFigures, str], ...] = (
    (NoneSucceeded(), "No request succeeded."),
    (
        ClientLate(late_s=0.026, allowed_s=0.025),
        (
            "The client was late: 1% of the requests began 26 ms or more behind schedule; up to 25 "
            "ms is acceptable. This machine is too busy, or too slow for this rate."
        ),
    ),
    (
        ClientLimited(limited=106, requests=300),
        (
            "106 of 300 requests were not sent: this machine had no open files or ports left. "
            "Raise its limit (ulimit -n), or use a lower rate."
        ),
    ),
    (
        ServiceEnded(reason="kitchen no longer serves tiny: killed."),
        "The service ended before the load did. kitchen no longer serves tiny: killed.",
    ),
    (
        LinesIgnored(lines=3, answers=1),
        (
            "Ignored 3 lines in the streams of 1 answer that are not events. Text may be missing: "
            "check the service, and any proxy in front of it."
        ),
    ),
    (
        AnswersShort(short=3, fewest=6, answers=4),
        (
            "3 of 4 answers have fewer tokens than demanded, down to 6, and count as outside the "
            "SLO. The service seems to ignore ignore_eos (llama-server, vLLM and SGLang support "
            "it). Let answers end where the model does: --stop-at-end."
        ),
    ),
    (
        PromptsCut(cut=3, most_tokens=2050, answers=4),
        (
            "The prompts of 3 of 4 answers seem to be cut: the service counts fewer tokens than "
            "they have words, at most 2,050. These answers count as outside the SLO. Give the "
            "service a larger context, or use shorter prompts."
        ),
    ),
    (
        CountsRefused(refused=3, answers=4),
        (
            "The service's token counts of 3 of 4 answers are not used: they are impossible, such "
            "as negative, not whole, more than the request allows, or fewer than the parts in "
            "which the text arrived. The records have them as refused_counts."
        ),
    ),
    (
        AnswersAtOnce(at_once=1, answers=1),
        (
            "1 of 1 answer arrived in one piece, or most of their tokens with the first one. "
            "Their time per output token was not observed, and they count as outside the SLO: the "
            "service does not stream, or a proxy in front of it collects what it sends. Remove "
            "tpot from --slo."
        ),
    ),
    (
        AnswersCutOff(cut_off=3, filled=0, answers=4),
        (
            "3 of 4 answers ended before the limit: the server generated fewer tokens than "
            "requested and gives the length as the reason. It may have its own limit, or too "
            "small a context."
        ),
    ),
    (
        Cancelled(cancelled=3, requests=1200),
        "Ended early: 3 of 1,200 requests were cancelled.",
    ),
    (
        Incomplete(recorded=40, requests=0),
        (
            "Incomplete: only 40 requests were recorded. The load is still running, or its command "
            "was killed."
        ),
    ),
    (
        AnswersCutOff(cut_off=1, filled=1, answers=2),
        (
            "1 of 2 answers ended before the limit, because prompt and answer filled the context: "
            "the server generated fewer tokens than requested. Use a larger --context, or shorter "
            "requests."
        ),
    ),
    (
        TokensUncounted(uncounted=1, answers=1),
        (
            "The service reported no token count for 1 of 1 answer. These have no time per output "
            "token and count as outside the SLO: remove tpot from --slo."
        ),
    ),
)
OUT_OF_TIME = OutOfTime(
    more_runs=1,
    run_s=13.2,
    allowed_s=60,
    needed_s=70,
    runs=8,
    disturbed=0,
    reason="",
    is_storage_limited=True,
)
STOPS: tuple[tuple[Stop, str], ...] = (
    (PrecisionReached(), "the requested precision was reached."),
    (NotRepeatable(reason="It crashed."), "repeating would not help: It crashed."),
    (NothingTimed(), "no output token was timed."),
    (
        DisturbedInARow(runs=3, reason="It was hot."),
        "3 runs in a row were disturbed. It was hot.",
    ),
    (
        OUT_OF_TIME,
        (
            "1 more run of about 13 s would be needed, which exceeds the time limit for repeats "
            "(60 s). To allow it, use --precision-time 70. Tokens wait for storage, whose speed "
            "varies."
        ),
    ),
)


@pytest.mark.parametrize(("figures", "sentence"), DIFFERENCES)
def test_each_difference_is_a_part_of_a_sentence(figures: ComparisonFigures, sentence: str) -> None:
    assert comparisons.differences([figures]) == (Remark(figures=figures, sentence=sentence),)
    found = comparisons.differences([figures, Differs(name="seed", a=1, b=2)])
    assert comparisons.not_comparable(found) == f"Not comparable: {sentence}; seed: A 1, B 2."


@pytest.mark.parametrize(("figures", "sentence"), REMARKS)
def test_each_remark_has_its_sentence(figures: ComparisonFigures, sentence: str) -> None:
    (found,) = comparisons.remarks([figures])
    assert (found.figures, found.sentence) == (figures, sentence)
    assert Remark.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(("figures", "sentence"), LOADS)
def test_each_doubt_about_a_load_has_its_sentence(figures: LoadFigures, sentence: str) -> None:
    assert doubt(figures) == sentence


@pytest.mark.parametrize(("figures", "sentence"), STOPS)
def test_each_reason_to_stop_has_its_words(figures: Stop, sentence: str) -> None:
    assert figures.fact() == sentence


def test_every_kind_is_written_here() -> None:
    written = {type(figures) for figures, _ in (*DIFFERENCES, *REMARKS)}
    assert written == kinds(ComparisonFigures)
    assert {type(figures) for figures, _ in LOADS} == kinds(LoadFigures)
    assert {type(figures) for figures, _ in STOPS} == {*Stop.__subclasses__()}


@pytest.mark.parametrize("kind", typing.get_args(PredictionNoteKind))
def test_a_note_on_a_prediction_holds_what_it_is_made_from(kind: PredictionNoteKind) -> None:
    found = note(kind, subject="kitchen", reason="it is full")
    assert (found.kind, found.subject, found.reason) == (kind, "kitchen", "it is full")
    assert found.sentence.endswith(".")
    if kind == "operations failed":
        assert "kitchen" in found.sentence
        assert "it is full" in found.sentence


def kinds(union: object) -> set[type[Value]]:
    return set(typing.get_args(typing.get_args(union)[0]))
