"""One measurement of an engine's speed, ours or another program's, as comparisons need it."""

from __future__ import annotations

from typing import Literal

from armload.boards.power import EnergyBasis
from armload.core.values import Value
from armload.engines.output import ReportedFigure


class Work(Value):
    """What was done, as far as it is known; two speeds compare where it is the same.

    Attributes:
        model: file name.
        model_sha256: of the file; empty where an engine does not say it.
        model_format: two files of different formats may hold the same model.
        board: a name; none for figures that came from elsewhere.
        is_emulated: the board is virtual, and shares the CPU of a workstation.
        prompt: its text.
        prompt_tokens, output_tokens: as planned.
        depth_tokens: in the context before a benchmark's test; none where decode follows the
            prompt.
        filled_tokens: in the context before the prompt of a run; none for what is no run.
        context_tokens: length of the KV cache.
        kv_type: types of the cache's halves, such as ``f16/f16``.
        media: checksums of the image and the sound that came before the prompt; empty without.
        sampling: temperature, seed, and whether the model may end its text.
    """

    model: str | None = None
    model_sha256: str = ""
    model_format: Literal["GGUF", "other"] = "GGUF"
    board: str | None = None
    is_emulated: bool = False
    prompt: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    depth_tokens: int | None = None
    filled_tokens: int | None = None
    context_tokens: int | None = None
    kv_type: str | None = None
    media: str = ""
    sampling: str | None = None


class Method(Value):
    """How it was done; this is what a comparison is about.

    Attributes:
        engine: the program, with its version and build.
        threads: that decode.
        repacked: whether the engine could rearrange the weights, for kernels of their own; none
            where that is unknown.
        options: further words for the engine.
        memory_mhz: the memory's average clock meanwhile; none where that is unknown.
    """

    engine: str
    threads: int | None = None
    repacked: bool | None = None
    options: str = ""
    memory_mhz: int | None = None


class KnownAccuracy(Value):
    """How often a measured program was right in an evaluation.

    Attributes:
        side: what ``tradeoff`` takes: the evaluation and its model.
        task: its name.
        asked: a checksum over questions, prompt and grader.
        questions, correct: how many were answered, and rightly.
        budget: tokens of an answer.
    """

    side: str
    task: str
    asked: str
    questions: int
    correct: int
    budget: int


class Measurement(Value):
    """One measurement.

    Attributes:
        name: a run's id, or the file and which measurement of it.
        work, method: what was done and how.
        is_watched: its program is not armload's, so what it did is known only in part.
        weight_type: of the model's weights; empty where it is unknown.
        equalities: what calls its board equal to others.
        ttft_s, prefill_tps, decode_tps: as in a run's summary; none where unknown.
        token_s: seconds of every output token but the first, in order; empty where an engine
            gives only their mean.
        max_rss_bytes: peak memory.
        reported: further figures that the program printed of itself.
        text: what was written; none where it is unknown.
        garbage: why nobody should look at the speed: how it failed, or what is wrong with its text.
        doubts: what else was found, in words.
        is_judged: nothing speaks against comparing it, but perhaps that it is imprecise.
        is_disturbed: something slowed it down from outside; it is left out where it has repeats
            without that.
        predicted_token_s: expected seconds per output token; none without a prediction.
        predicted_ttft_s: expected seconds to the first token after an image or a sound.
        joules_per_token: of decode; none without a valid figure.
        energy_basis: what another energy must share to be compared with that.
        accuracies: of the same program and model, the newest first.
    """

    name: str
    work: Work
    method: Method
    is_watched: bool = False
    weight_type: str = ""
    equalities: tuple[str, ...] = ()
    ttft_s: float | None = None
    prefill_tps: float | None = None
    decode_tps: float | None = None
    token_s: tuple[float, ...] = ()
    max_rss_bytes: int | None = None
    reported: tuple[ReportedFigure, ...] = ()
    text: str | None = None
    garbage: str = ""
    doubts: tuple[str, ...] = ()
    is_judged: bool = True
    is_disturbed: bool = False
    predicted_token_s: float | None = None
    predicted_ttft_s: float | None = None
    joules_per_token: float | None = None
    energy_basis: EnergyBasis | None = None
    accuracies: tuple[KnownAccuracy, ...] = ()
