"""Streamed experts: texts, what is read for them, and where something is in their way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from armload.analysis.streaming import streamed_weights
from armload.analysis.summary import summarise
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.engines.trace import Step, Weights
from armload.models.shape import Shape
from armload.models.synth import synthesise
from armload.models.vocabulary import english_words
from tests.split import in_two_parts
from tests.system.engines import LAST_WITH_DECODE, engine
from tests.system.lacking import with_meminfo, without_calls
from tests.system.llama_servers import serving
from tests.system.scoring import generated, score
from tests.system.streaming import (
    AS_NOBODY,
    COVERED,
    MEMINFO,
    a_folder_of_nobodys,
    starts,
    streamed,
    text_of,
    traced,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.build

exhaustive = pytest.mark.exhaustive(covers=COVERED)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")

MIXTURE = Shape(
    architecture="qwen3moe",
    layers=4,
    width=256,
    feed_forward=512,
    heads=4,
    kv_heads=2,
    head_width=64,
    vocabulary=2048,
    context_length=1024,
    experts=32,
    experts_used=4,
    expert_feed_forward=128,
)
UNALIGNED = {"expert_feed_forward": 96}
"""An expert's matrix is no whole pages: it begins anywhere in one."""

WORDS = ("--no-repack", "--no-warmup", "--poll", "0", "--temp", "1", "--seed", "1")
INPUT_OUTPUT_ERROR = 74
DENSE_BYTES = 5 << 19
"""Of all weights that are no experts'."""


@pytest.fixture(
    scope="module", params=["llama_process", pytest.param("llama_decode", marks=exhaustive)]
)
def binary(request: pytest.FixtureRequest) -> Binary:
    return engine(None if request.param == "llama_process" else LAST_WITH_DECODE)


@pytest.fixture(scope="module")
def server_program() -> Path:
    (binary,) = build(load_target("host"), programs=["llama-server"])
    return binary.path


def made(folder: Path, **changed: object) -> Path:
    path = folder / "mixture.gguf"
    shape = Shape.model_validate({**MIXTURE.model_dump(), **changed})
    synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())
    return path


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("mixture"))


def some(share: float, model: Path) -> dict[str, str]:
    """Return what has a share of a mixture's experts stay in memory."""
    return streamed(DENSE_BYTES + round(share * (model.stat().st_size - DENSE_BYTES)))


def experts_of(trace: Path) -> tuple[Weights, list[Step]]:
    header, steps = traced(trace)
    weights = streamed_weights(header)
    assert weights is not None, header.weights
    assert weights.expert_bytes > 0
    return weights, list(steps)


def missed_share(steps: Sequence[Step]) -> float:
    missed = sum(step.missed_bytes or 0 for step in steps)
    return missed / sum(step.expert_bytes or 0 for step in steps)


def cached_share(weights: Weights) -> float:
    return weights.expert_slot_bytes / weights.expert_bytes


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="whole pages", marks=exhaustive),
        pytest.param(UNALIGNED, id="no whole pages"),
    ],
)
def test_the_text_is_that_of_mapped_weights_and_no_more_is_missed_than_does_not_stay(
    binary: Binary, tmp_path: Path, changed: dict[str, int]
) -> None:
    model, trace = made(tmp_path, **changed), tmp_path / "trace.jsonl"
    words = (*WORDS, "-n", "40")
    expected = text_of(starts(binary, model, tmp_path / "mapped", {}, *words))
    assert text_of(starts(binary, model, trace, some(0.5, model), *words)) == expected
    weights, steps = experts_of(trace)
    assert 0.3 < cached_share(weights) < 0.6
    settled = [step for step in steps if step.step >= weights.before_step]
    assert len(settled) > 10
    assert 0 < missed_share(settled) <= 1.05 * (1 - cached_share(weights))
    assert weights.expert_held_bytes >= weights.expert_slot_bytes
    read = sum(step.read_bytes or 0 for step in settled)
    missed = sum(step.missed_bytes or 0 for step in settled)
    if not changed:
        assert read < 1.1 * missed + (1 << 20)
    reads = summarise(*traced(trace)).experts
    assert reads is not None
    assert reads.missed_bytes_per_token < reads.bytes_per_token
    assert 0 < reads.hit_rate < 1


@pytest.mark.exhaustive(covers=["toolchains"])
def test_experts_that_a_text_favours_stay_and_follow_it_as_it_drifts(
    binary: Binary, tmp_path: Path
) -> None:
    model, trace = made(tmp_path, planted_router=True), tmp_path / "trace.jsonl"
    words = (*WORDS, "-n", "100")
    expected = text_of(starts(binary, model, tmp_path / "mapped", {}, *words))
    assert text_of(starts(binary, model, trace, some(0.4, model), *words)) == expected
    weights, steps = experts_of(trace)
    late = [step for step in steps if step.step > 30]
    assert missed_share(late) < 0.6 * (1 - cached_share(weights))


@exhaustive
def test_of_a_long_prompt_each_expert_is_read_once_for_each_micro_batch(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    prompt, trace = tmp_path / "prompt", tmp_path / "trace.jsonl"
    prompt.write_text(" ".join(english_words()[:240]))
    words = (*WORDS, "-n", "3", "-c", "512", "-f", str(prompt), "-b", "512", "-ub", "128")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    assert text_of(starts(binary, mixture, trace, some(0.5, mixture), *words)) == expected
    weights, steps = experts_of(trace)
    first = steps[0]
    assert 128 < first.tokens <= 256
    # Nothing is read again of what stays: loading and a first prompt read the file once.
    again = weights.expert_bytes - weights.expert_slot_bytes
    assert (first.missed_bytes or 0) <= weights.expert_bytes + again
    assert (first.expert_bytes or 0) > 1.5 * weights.expert_bytes


@exhaustive
def test_a_warm_up_that_uses_all_experts_is_computed_with_a_window(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    words = ("--no-repack", "-n", "6")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    trace = tmp_path / "trace.jsonl"
    assert text_of(starts(binary, mixture, trace, some(0.2, mixture), *words)) == expected
    assert cached_share(experts_of(trace)[0]) < 0.3


@exhaustive
def test_experts_that_all_stay_are_read_once(binary: Binary, mixture: Path, tmp_path: Path) -> None:
    words = (*WORDS, "-n", "20")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    trace = tmp_path / "trace.jsonl"
    assert text_of(starts(binary, mixture, trace, streamed(1 << 30), *words)) == expected
    weights, steps = experts_of(trace)
    assert cached_share(weights) == 1
    assert sum(step.missed_bytes or 0 for step in steps) <= weights.expert_bytes


@exhaustive
def test_where_not_even_all_other_weights_fit_both_are_streamed(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    words = (*WORDS, "-n", "6")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    trace = tmp_path / "trace.jsonl"
    assert text_of(starts(binary, mixture, trace, streamed(1 << 20), *words)) == expected
    weights, steps = experts_of(trace)
    assert weights.expert_slot_bytes == 0
    assert weights.streamed_bytes > 0
    assert missed_share(steps) == 1


@exhaustive
def test_experts_are_streamed_from_all_parts_of_a_model(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    trace, parts = tmp_path / "trace.jsonl", in_two_parts(mixture, tmp_path)
    words = (*WORDS, "-n", "6")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    assert text_of(starts(binary, parts, trace, some(0.5, mixture), *words)) == expected
    assert experts_of(trace)[0].expert_bytes == 32 * 4 * 3 * 256 * 128 * 34 // 32


@exhaustive
def test_several_sequences_at_a_time_use_the_experts_of_all(
    scorer: Path, mixture: Path, tmp_path: Path
) -> None:
    prompts = ("one two", "red green blue", "if it is so", "who was there")
    items = [
        {"id": prompt, "kind": "generate", "prompt": prompt, "max_tokens": 6} for prompt in prompts
    ]
    words = ("--no-repack", "--parallel", "4")
    expected = score(scorer, tmp_path, items, *words, model=mixture)
    found = score(
        *(scorer, tmp_path, items, *words, "--poll", "0"),
        model=mixture,
        variables=some(0.4, mixture),
    )
    for name, answer in expected.items():
        assert generated(found[name]).tokens == generated(answer).tokens
    _, steps = experts_of(tmp_path / "trace.jsonl")
    assert any(step.sequences == 4 for step in steps)


def answers(
    program: Path, model: Path, folder: Path, variables: dict[str, str], *words: str
) -> list[tuple[int, str, object]]:
    """Ask a server with four slots several times; return texts and probabilities.

    A request's prompts begin together, so that the same tokens go through the model in each step.
    """
    prompts = ["one two", "red green blue", " ".join(english_words()[:200]), "who was there"]
    asked = {"n_predict": 24, "n_probs": 3, "ignore_eos": True, "temperature": 0}
    folder.mkdir()
    with serving(program, folder, *words, "-np", "4", model=model, variables=variables) as served:
        found = [
            served.ask("completion", prompt=part, **asked)
            for part in (prompts, prompts[:2], prompts[::-1])
        ]
    return [
        (each["index"], each["content"], each["completion_probabilities"])
        for answer in found
        for each in answer
    ]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("-c", "2048", "--no-kv-unified"), id="a KV cache each"),
        pytest.param(
            ("-c", "2048", "-b", "32", "-ub", "16"),
            id="one KV cache, small batches",
            marks=exhaustive,
        ),
    ],
)
def test_a_server_with_four_slots_answers_as_with_mapped_weights(
    server_program: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    model = made(tmp_path, planted_router=True)
    words = (*words, *WORDS[:4])
    expected = answers(server_program, model, tmp_path / "mapped", {}, *words)
    streamed_folder = tmp_path / "streamed"
    assert answers(server_program, model, streamed_folder, some(0.4, model), *words) == expected
    weights, steps = experts_of(streamed_folder / "trace.jsonl")
    assert weights.weights == "streamed"
    assert any(step.generated_tokens == step.sequences == 4 for step in steps)
    assert 0 < missed_share(steps) < 1 - cached_share(weights)


def await_steps(trace: Path, count: int) -> None:
    wait_until(
        lambda: trace.exists() and trace.read_bytes().count(b'"step":') >= count, within_s=120
    )


@as_root
@pytest.mark.exhaustive(covers=["toolchains"])
def test_memory_that_others_take_meanwhile_is_given_back_slot_by_slot(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    words = (*WORDS, "-n", "60")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    text = "MemTotal: 1048576 kB\nMemAvailable: {} kB\nSwapTotal: 0 kB\n"
    machine = with_meminfo(text.format(262144), tmp_path)
    trace = tmp_path / "trace.jsonl"
    process = starts(binary, mixture, trace, some(0.6, mixture), *words, launcher=machine)
    await_steps(trace, 8)
    # Less than half of the reserve of 5%.
    (tmp_path / "meminfo").write_text(text.format(26000))
    await_steps(trace, 20)
    (tmp_path / "meminfo").write_text(text.format(262144))
    assert text_of(process) == expected
    header, _ = traced(trace)
    first, last = header.weights[0], header.weights[-1]
    assert last.released_bytes > 0
    assert last.expert_slot_bytes < first.expert_slot_bytes
    assert last.weights == "streamed"


@exhaustive
def test_a_mixture_that_is_truncated_meanwhile_ends_the_run_with_a_message(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    model, trace = tmp_path / "model.gguf", tmp_path / "trace.jsonl"
    model.write_bytes(mixture.read_bytes())
    process = starts(binary, model, trace, some(0.2, model), *WORDS, "-n", "250")
    await_steps(trace, 3)
    os.truncate(model, model.stat().st_size // 2)
    _, log = process.communicate(timeout=120)
    assert process.returncode == INPUT_OUTPUT_ERROR
    assert "the model cannot be read" in log.splitlines()[-1]


@exhaustive
def test_a_mixture_that_is_replaced_meanwhile_is_read_on(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    model, trace = tmp_path / "model.gguf", tmp_path / "trace.jsonl"
    model.write_bytes(mixture.read_bytes())
    words = (*WORDS, "-n", "30")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    process = starts(binary, model, trace, some(0.2, model), *words)
    await_steps(trace, 3)
    (tmp_path / "other").write_bytes(bytes(model.stat().st_size))
    (tmp_path / "other").replace(model)
    assert text_of(process) == expected


@exhaustive
@as_root
@pytest.mark.parametrize("has_swap", [False, True], ids=["no swap", "swap"])
def test_where_locking_is_refused_experts_stay_only_where_swap_cannot_take_them(
    binary: Binary, mixture: Path, tmp_path: Path, *, has_swap: bool
) -> None:
    words = (*WORDS, "-n", "8")
    expected = text_of(starts(binary, mixture, tmp_path / "mapped", {}, *words))
    swap = "SwapTotal: 524288 kB\n" if has_swap else "SwapTotal: 0 kB\n"
    machine = with_meminfo(MEMINFO + swap, tmp_path)
    folder = a_folder_of_nobodys(tmp_path)
    trace, model = folder / "trace.jsonl", folder / mixture.name
    model.write_bytes(mixture.read_bytes())
    # Where builds are kept may be closed to others, as root's home is.
    reachable = binary.model_copy(update={"path": shutil.copy(binary.path, folder)})
    launcher = [*machine, *AS_NOBODY]
    process = starts(reachable, model, trace, some(0.5, model), *words, launcher=launcher)
    assert text_of(process) == expected
    weights, steps = experts_of(trace)
    assert weights.lock_refused
    assert (weights.expert_held_bytes == 0) == has_swap
    assert (missed_share(steps[1:]) == 1) == has_swap


def test_a_kernel_that_cannot_share_memory_leaves_a_mixture_mapped(
    binary: Binary, mixture: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    launcher = without_calls("memfd_create")
    text_of(
        starts(
            binary, mixture, trace, some(0.5, mixture), "-n", "2", "--no-repack", launcher=launcher
        )
    )
    (weights,) = traced(trace)[0].weights
    assert weights.weights == "mapped"
    assert "cannot share memory between mappings" in weights.reason


@exhaustive
def test_512_experts_in_48_layers_take_few_mappings(binary: Binary, tmp_path: Path) -> None:
    if binary.program == "llama-cli":
        pytest.skip("llama.cpp of 2025 takes no more than 384 experts")
    many = {"experts": 512, "experts_used": 10, "layers": 48}
    small = {"width": 64, "expert_feed_forward": 32, "feed_forward": 64, "head_width": 32}
    model, trace = made(tmp_path, **many, **small), tmp_path / "trace.jsonl"
    words = (*WORDS, "-n", "12")
    expected = text_of(starts(binary, model, tmp_path / "mapped", {}, *words))
    process = starts(binary, model, trace, some(0.5, model), *words)
    await_steps(trace, 6)
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    assert len(maps) < 2500
    assert text_of(process) == expected
    weights, _ = experts_of(trace)
    assert weights.expert_bytes == 48 * 512 * 3 * 64 * 32 * 34 // 32
