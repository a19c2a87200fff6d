"""Each finding is written as one sentence with its figures."""

from __future__ import annotations

import typing

import pytest

from armload.analysis.findings import Figures
from armload.analysis.limit_figures import (
    BandwidthLimit,
    ComputeLimit,
    GroupLimit,
    IdleThreads,
    LimitFigures,
    NothingDecoded,
    OtherProgram,
    StorageLimit,
    StorageReads,
    UnknownBandwidth,
)
from armload.analysis.sanity import Departure
from armload.analysis.streaming import WeightsNote
from armload.analysis.wording import findings, limits
from armload.core.values import Value
from tests.unit.findings import SENTENCES

STORAGE = StorageLimit(
    has_single_tokens=True,
    pass_s=18.18,
    read_bytes_per_pass=2.9e9,
    faults_per_pass=0,
    storage_bytes_per_s=165_000_000,
    storage_rate=None,
    free_bytes=1_700_000_000,
    memory_limit_bytes=None,
    held_bytes=None,
    weights_bytes=None,
    model_bytes=3_000_000_000,
)
COMPUTE = ComputeLimit(
    threads=2,
    cores=2,
    busy_share=1.01,
    reads=StorageReads(),
    weights_bytes_per_s=4e8,
    memory_bytes_per_s=None,
    memory_rate=None,
    cpus=None,
    cpus_cores=2,
    quantisation="Q4_K",
)
IDLE = IdleThreads(
    threads=2,
    busy_share=0.6,
    reads=StorageReads(time_share=0.08, bytes_per_token=3e6),
    switches_per_token=40,
)
SMALLER = (
    "Use a model file smaller than 1.4 GB (80% of the free memory), so that its weights stay in "
    "memory."
)
FASTER = (
    "Try the model in Q4_0, the cheapest quantisation to compute on this CPU, or a smaller model."
)
COMPUTES = (
    "Limited by compute: 2 of 2 cores were busy 100% of the time, nothing was read from storage, "
    "and weights were read from memory at 400.0 MB/s, "
)
READS = "Limited by storage: each token reads 2.9 GB at 159.5 MB/s, 97% of "

LIMITS: tuple[tuple[LimitFigures, str, str], ...] = (
    (
        STORAGE,
        (
            f"{READS}this board's 165.0 MB/s; the model is 1.3 GB larger than the 1.7 GB of free "
            "memory."
        ),
        SMALLER,
    ),
    (
        STORAGE.model_copy(update={"storage_rate": "measured", "memory_limit_bytes": 2 * 10**9}),
        (
            f"{READS}the measured 165.0 MB/s; the model is 1.3 GB larger than the 1.7 GB of free "
            "memory (control group limit: 2.0 GB)."
        ),
        SMALLER,
    ),
    (
        STORAGE.model_copy(
            update={"read_bytes_per_pass": None, "faults_per_pass": 20_000, "model_bytes": None}
        ),
        (
            "Limited by storage: each token took 20,000 major faults and 18 s, including compute "
            "(this kernel does not count the bytes read); the board had 1.7 GB of free memory."
        ),
        SMALLER,
    ),
    (
        STORAGE.model_copy(update={"model_bytes": 529_000_000}),
        (
            f"{READS}this board's 165.0 MB/s; the model's 529.0 MB did not stay in the 1.7 GB of "
            "free memory."
        ),
        (
            "The model fitted before the run. If free memory fell by more than the model's size, "
            "another program took it: compare the free memory before and after the run."
        ),
    ),
    (
        STORAGE.model_copy(
            update={
                "has_single_tokens": False,
                "storage_bytes_per_s": None,
                "held_bytes": 10**8,
                "weights_bytes": 3 * 10**9,
            }
        ),
        (
            "Limited by storage: each pass over the weights reads 2.9 GB at 159.5 MB/s; 100.0 MB "
            "of the 3.0 GB of weights stay in memory, with 1.7 GB of free memory before the run."
        ),
        SMALLER,
    ),
    (
        BandwidthLimit(
            has_single_tokens=True,
            weights_bytes=1_100_000_000,
            weights_bytes_per_s=2.75e9,
            memory_bytes_per_s=3 * 10**9,
            memory_rate="declared",
        ),
        (
            "Limited by memory bandwidth: each token reads 1.1 GB of weights at 2.8 GB/s, 92% of "
            "the declared 3.0 GB/s."
        ),
        "Use a quantisation with fewer bits; more threads will not help.",
    ),
    (
        UnknownBandwidth(
            busy_share=0.98,
            reads=StorageReads(time_share=0.004, bytes_per_token=2200),
            weights_bytes_per_s=4e9,
        ),
        (
            "Limited by memory bandwidth or compute: the threads were busy 98% of the time, "
            "reading storage took less than 1% of the time (2.2 kB per token), and weights were "
            "read from memory at 4.0 GB/s; this board's memory bandwidth is unknown."
        ),
        "Set facts.memory_bytes_per_s in the board's file to tell the two apart.",
    ),
    (COMPUTE, f"{COMPUTES}below the 1.5 GB/s of the slowest supported board.", FASTER),
    (
        COMPUTE.model_copy(
            update={
                "memory_bytes_per_s": 3 * 10**9,
                "memory_rate": "measured",
                "quantisation": "Q4_0",
            }
        ),
        f"{COMPUTES}below the measured 3.0 GB/s.",
        "Use a smaller model: this quantisation is already the cheapest to compute.",
    ),
    (
        COMPUTE.model_copy(
            update={"threads": 1, "reads": StorageReads(time_share=0.02, faults_per_token=4)}
        ),
        (
            "Limited by compute: 1 of 2 cores was busy 100% of the time, reading storage took "
            "about 2% of the time (4.0 major faults per token), and weights were read from memory "
            "at 400.0 MB/s, below the 1.5 GB/s of the slowest supported board."
        ),
        "Try more threads: --threads 2.",
    ),
    (
        COMPUTE.model_copy(update={"cores": 8, "cpus": "4,5"}),
        f"{COMPUTES}below the 1.5 GB/s of the slowest supported board.".replace("of 2", "of 8"),
        "Try more cores than --cpus 4,5.",
    ),
    (
        IDLE,
        (
            "The engine's 2 threads ran only 60% of the time, and reading storage took about 8% "
            "of the time (3.0 MB per token): they waited for each other or were preempted (40 "
            "involuntary context switches per token)."
        ),
        "Check for other programs on the board, and try fewer threads with --threads.",
    ),
    (
        IDLE.model_copy(update={"threads": 1, "reads": StorageReads()}),
        (
            "The engine's 1 thread ran only 60% of the time, and nothing was read from storage: "
            "it was preempted (40 involuntary context switches per token)."
        ),
        "Check for other programs on the board.",
    ),
    (
        OtherProgram(busy_cores=1.2, cores=4, reads=StorageReads()),
        (
            "During decode, the program kept 1.2 of 4 cores busy, and nothing was read from "
            "storage; memory and compute limits can be told apart only for armload's own engine."
        ),
        "Try more threads if the program has an option for it.",
    ),
    (
        GroupLimit(first="a", others=("b", "c"), token_s=0.5, own_s=0.1, alone_s=0.3),
        (
            "Spread over a group: of 500 ms per token, a computed for 100 ms and waited 400 ms "
            "for b and c and the connections between them."
        ),
        "The model fits on a alone, where a token should take about 300 ms.",
    ),
    (
        GroupLimit(first="a", others=("b", "c"), token_s=0.5, own_s=0.2, alone_s=0.6),
        (
            "Spread over a group: of 500 ms per token, a computed for 200 ms and waited 300 ms "
            "for b and c and the connections between them."
        ),
        "",
    ),
    (
        NothingDecoded(lacking="trace"),
        "The engine exited before it decoded a token.",
        "Check how the program ended.",
    ),
    (
        NothingDecoded(lacking="token times"),
        "Without times per token, the limit cannot be determined.",
        "",
    ),
    (
        NothingDecoded(lacking="tokens"),
        "Too few tokens were generated to determine the limit.",
        "Generate more tokens with -n.",
    ),
)


@pytest.mark.parametrize(("figures", "sentence"), SENTENCES)
def test_each_finding_has_its_sentence(figures: Figures, sentence: str) -> None:
    verdict = findings.verdict([figures])
    assert verdict.reasons == (sentence,)
    (found,) = verdict.findings
    assert (found.name, found.figures) == (figures.name, figures)
    assert type(verdict).model_validate_json(verdict.model_dump_json()) == verdict


@pytest.mark.parametrize(("figures", "sentence", "advice"), LIMITS)
def test_each_limit_has_its_sentence_and_its_advice(
    figures: LimitFigures, sentence: str, advice: str
) -> None:
    limit = limits.limit(figures)
    assert (limit.cause, limit.sentence, limit.advice) == (figures.cause, sentence, advice)
    assert type(limit).model_validate_json(limit.model_dump_json()) == limit


def test_every_kind_of_finding_and_limit_is_written_here() -> None:
    assert _kinds(Figures) == {type(figures) for figures, _ in SENTENCES}
    assert _kinds(LimitFigures) == {type(figures) for figures, _, _ in LIMITS}


def _kinds(union: object) -> set[type[Value]]:
    (kinds, *_) = typing.get_args(union)
    return set(typing.get_args(kinds))


@pytest.mark.parametrize(
    ("note", "sentence"),
    [
        (
            WeightsNote(kind="not streamed", reason="the file is not regular"),
            "The weights were not streamed: the file is not regular.",
        ),
        (
            WeightsNote(kind="lock refused", weights_bytes=10**8),
            (
                "Locking weights in memory was refused after 100.0 MB; the rest was left in the "
                "page cache. To permit it, log in as root, or add 'USER - memlock "
                "unlimited' to the board's /etc/security/limits.conf."
            ),
        ),
        (
            WeightsNote(kind="lock refused", weights_bytes=10**8, is_anonymous=True),
            (
                "Locking weights in memory was refused after 100.0 MB; the rest was kept in "
                "anonymous memory. To permit it, log in as root, or add 'USER - memlock "
                "unlimited' to the board's /etc/security/limits.conf."
            ),
        ),
        (
            WeightsNote(kind="memory ran short", weights_bytes=10**8),
            (
                "Memory ran short during the run: 100.0 MB of resident weights were released, and "
                "streamed from then on."
            ),
        ),
    ],
)
def test_each_note_on_weights_has_its_sentence(note: WeightsNote, sentence: str) -> None:
    assert findings.weights_note(note) == sentence


def test_a_text_is_told_to_match_a_reference_or_to_be_another_model_s() -> None:
    assert (
        findings.departure(Departure(reference="r", kind="same")) == "The text matches that of r."
    )
    other = Departure(
        reference="r", kind="other model", at_character=0, at_word=0, here="a", there="b"
    )
    assert findings.departure(other) == (
        "The text differs from that of r (another model, prompt or sampling) from the first word "
        "on: 'a' instead of 'b'."
    )
