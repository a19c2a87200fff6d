"""What is searched: what the board offers, narrowed by a person's file."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from armload.analysis.energy import Energy
from armload.analysis.run import Run
from armload.analysis.verdict import FindingName
from armload.boards.conditions import ClusterState
from armload.core.cpu_sets import cpu_numbers, cpu_words
from armload.core.errors import DataError, UsageError
from armload.engines.contradictions import contradictions
from armload.engines.plan import Plan
from armload.engines.server import SERVER
from armload.runs.session import Session
from armload.tuning.choices import SEARCHED, AvailableChoices, core_sets, require_feasible, space_of
from armload.tuning.continuing import outcome_of, require_samples
from armload.tuning.outcome_words import cost_words
from armload.tuning.request import TunedLoad, TuningRequest
from armload.tuning.settings import differing, keeps_text, options_of, scored, words_of
from armload.tuning.space import Choice, Feasibility, Setting, Space
from armload.tuning.tune import offer_of
from armload.tuning.wanted import Objective
from tests.unit.findings import verdict_of
from tests.unit.runs import failed_run, quick_run
from tests.unit.samples import binary, conditions, model
from tests.unit.test_engines_speculation import context

LITTLE = ClusterState(cores=(0, 1, 2, 3), max_khz=1_800_000)
BIG = ClusterState(cores=(4, 5), max_khz=2_400_000)
BIG_TOO = ClusterState(cores=(6, 7), max_khz=2_400_000)
BIGGEST = ClusterState(cores=(8,), max_khz=3_000_000)


def offer(
    clusters: tuple[ClusterState, ...] = (LITTLE, BIG, BIG_TOO),
    *,
    prompt_tokens: int = 512,
    streamed_bytes: int | None = None,
) -> AvailableChoices:
    return AvailableChoices(
        clusters=clusters,
        context_length=1024,
        prompt_tokens=prompt_tokens,
        repacks=True,
        streamed_bytes=streamed_bytes,
    )


def choices(space: Space) -> dict[str, tuple[Choice, ...]]:
    return {each.name: each.choices for each in space.parameters}


def narrowed(tmp_path: Path, text: str, objective: Objective = "decode") -> Space:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return space_of(objective, offer(), path)


def setting(**given: Choice) -> Setting:
    return Setting(choices=given)


def test_placing_of_threads_is_searched_on_a_board_with_several_numa_nodes() -> None:
    two = offer().model_copy(update={"nodes": 2})
    for objective in SEARCHED:
        assert "numa" not in choices(space_of(objective, offer(), None))
        found = choices(space_of(objective, two, None))
        assert found["numa"] == (None, "distribute", "isolate")
    alone, spread = setting(numa=None), setting(numa="distribute")
    assert words_of(spread, alone, {}) == "numa distribute"
    assert keeps_text(spread, alone)


def test_cores_are_offered_by_cluster_and_threads_up_to_the_cores() -> None:
    found = choices(space_of("decode", offer(), None))
    assert found["cpus"] == (None, "0-3", "4-7", "0-7")
    assert found["threads"] == (1, 2, 3, 4, 5, 6, 7, 8)
    assert "resident" not in found
    assert core_sets((LITTLE, BIG, BIG_TOO, BIGGEST)) == {
        "0-3": "the little cluster",
        "4-7": "a middle cluster",
        "8": "the big cluster",
        "4-8": "all but the little cores",
    }


def test_equal_cores_leave_no_choice_among_them() -> None:
    found = choices(space_of("decode", offer((LITTLE,)), None))
    assert "cpus" not in found
    assert found["threads"] == (1, 2, 3, 4)


def test_many_cores_give_few_thread_counts_up_to_the_last() -> None:
    many = ClusterState(cores=tuple(range(64)), max_khz=2_750_000)
    threads = choices(space_of("decode", offer((many,)), None))["threads"]
    assert len(threads) <= 9
    assert (threads[0], threads[-1]) == (1, 64)


@pytest.mark.parametrize("objective", list(SEARCHED))
def test_the_defaults_leave_every_option_to_the_engine(objective: Objective) -> None:
    space = space_of(objective, offer(streamed_bytes=10**9), None)
    assert set(space.defaults.choices) == {each.name for each in space.parameters}
    assert set(space.defaults.choices.values()) == {None}
    for each in space.settings():
        options_of(each)  # refuses what no plan file may say


def test_a_batch_that_holds_the_whole_prompt_is_offered_once() -> None:
    assert choices(space_of("prefill", offer(prompt_tokens=128), None))["micro_batch"] == (
        *(32, 64),
        None,
    )
    assert "batch" not in choices(space_of("prefill", offer(prompt_tokens=128), None))
    long_prompt = choices(space_of("prefill", offer(prompt_tokens=900), None))
    assert long_prompt["batch"] == (512, None)


def test_parts_of_streamed_weights_are_offered_where_they_are_streamed() -> None:
    found = choices(space_of("decode", offer(streamed_bytes=1000), None))
    assert found["resident"] == (500, 750, None)


@pytest.mark.parametrize(("available", "is_streamed"), [(1_800_000_000, False), (90_000_000, True)])
def test_a_service_whose_weights_are_streamed_is_offered_parts_of_them(
    tmp_path: Path, available: int, *, is_streamed: bool
) -> None:
    program = tmp_path / SERVER
    program.write_bytes(b"\x7fELF\0ARMLOAD_WEIGHTS\0--no-repack\0")
    found = context().found.model_copy(update={"conditions": conditions(available=available)})
    where = cast("Session", SimpleNamespace(found=found, binaries={SERVER: binary(program)}))
    goal = TuningRequest(model="m", objective="rate", requests=TunedLoad(requests=40))
    offered = offer_of(where, model(), goal)
    assert (offered.streamed_bytes is not None) == is_streamed
    assert ("resident" in choices(space_of("rate", offered, None))) == is_streamed


def test_a_list_in_the_file_replaces_what_would_be_searched(tmp_path: Path) -> None:
    found = choices(narrowed(tmp_path, "threads: [4, 2]\nflash_attention: on\nresident: 1 MB\n"))
    assert found["threads"] == (2, 4)
    assert found["flash_attention"] == ("on",)
    assert found["resident"] == (1_000_000,)
    assert found["kv_type"] == (None, "q8_0", "q4_0")


def test_an_option_that_is_not_searched_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"slots is not a parameter of a search for decode"):
        narrowed(tmp_path, "slots: [1, 2]\n")
    with pytest.raises(DataError, match=r"space\.yaml, line 1.*thread"):
        narrowed(tmp_path, "thread: [1, 2]\n")
    with pytest.raises(DataError, match=r"space\.yaml, line 1: threads: the list is empty"):
        narrowed(tmp_path, "threads: []\n")


def test_a_space_without_a_setting_that_can_run_is_refused(tmp_path: Path) -> None:
    space = narrowed(tmp_path, "threads: [16]\nkv_type: f16\nengine_args: ''\nspeculate: none\n")

    def hopeless(each: Setting) -> Feasibility:
        return Feasibility(hopeless="16 threads on 8 cores")

    with pytest.raises(UsageError, match=r"are infeasible\. threads 16.*on 8 cores\.") as error:
        require_feasible(space, hopeless, "space.yaml")
    assert "space.yaml" in error.value.remedy
    require_feasible(space, lambda each: Feasibility(), "space.yaml")


def test_what_the_engine_does_by_itself_is_no_difference() -> None:
    defaults = setting(threads=None, kv_type=None, speculate=None)
    same = setting(threads=None, kv_type="f16", speculate="none")
    assert differing(same, defaults) == {}
    assert words_of(same, defaults, {}) == "the defaults"


def test_threads_and_cores_must_keep_the_text_and_kernels_need_not() -> None:
    defaults = setting(threads=None, cpus=None, kv_type=None, engine_args=None)
    assert keeps_text(setting(threads=2, cpus="4-7", kv_type="f16", engine_args=""), defaults)
    assert not keeps_text(setting(threads=2, kv_type="q8_0"), defaults)
    assert not keeps_text(setting(engine_args="--no-repack"), defaults)
    assert scored(setting(threads=2, kv_type="q8_0", engine_args="--no-repack"), defaults) == {
        "kv_type": "q8_0"
    }


def test_a_setting_is_said_in_words() -> None:
    defaults = setting(threads=None, cpus=None, kv_type=None, engine_args=None, resident=None)
    chosen = setting(
        threads=4, cpus="4-7", kv_type="q8_0", engine_args="--no-repack", resident=400_000_000
    )
    words = words_of(chosen, defaults, core_sets((LITTLE, BIG, BIG_TOO)))
    assert words == ("4 threads on the big cluster, KV cache q8_0, no repacking, 400.0 MB resident")
    assert words_of(setting(threads=1, cpus="0,2"), defaults, {}) == "1 thread on cores 0,2"


@pytest.mark.parametrize("words", ["0", "0-3", "0-3,6", "1,3,5", "0,2-4"])
def test_cores_are_written_as_they_are_read(words: str) -> None:
    assert cpu_words(cpu_numbers(words)) == words


def test_costs_are_said_as_rates_where_people_do() -> None:
    assert cost_words("decode", 0.4) == "2.50 tokens/s"
    assert cost_words("prefill", 1 / 2345.6) == "2,346 tokens/s"
    assert cost_words("prefill", 1 / 999.6) == "1,000 tokens/s"
    assert cost_words("ttft", 0.1234) == "0.123 s"
    assert cost_words("energy", 1.2345) == "1.23 J/token"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch_tokens": 64, "micro_batch_tokens": 128}, "micro-batch"),
        ({"batch_tokens": 64}, ""),
        ({"flash_attention": "off", "kv_type": "q8_0"}, "flash attention"),
        ({"flash_attention": "off", "kv_type": "f16/q4_0"}, "flash attention"),
        ({"flash_attention": "off", "kv_type": "q4_0/f16"}, ""),
        ({"flash_attention": "off", "kv_type": "bf16"}, ""),
        ({"flash_attention": "off"}, ""),
        ({"numa": "distribute", "cpus": "0-63"}, "--numa"),
        ({"numa": "numactl", "cpus": "0-63"}, ""),
        ({"numa": "isolate"}, ""),
        ({"kv_type": "q8_0"}, ""),
    ],
)
def test_what_the_engine_would_refuse_is_not_tried(fields: dict[str, Any], reason: str) -> None:
    found = [each.reason for each in contradictions(Plan.model_validate(fields))]
    assert len(found) == bool(reason)
    assert reason in "".join(found)


@pytest.mark.parametrize(
    ("name", "disturbance"),
    [("contended", "It was contended."), ("imprecise", ""), ("degenerate text", "")],
)
def test_a_run_is_disturbed_by_what_slows_it_down_from_outside(
    name: FindingName, disturbance: str
) -> None:
    run = quick_run().model_copy(update={"verdict": verdict_of(**{name: f"It was {name}."})})
    assert outcome_of(run, "decode").disturbance == disturbance


def metered(**figures: Any) -> Run:
    shown = {"source": "shelly at http://plug", "sees": "wall", "samples": 60, **figures}
    return quick_run().model_copy(update={"energy": Energy(**shown)})


def test_the_cost_of_a_run_for_energy_is_its_joules_per_token() -> None:
    found = outcome_of(metered(joules_per_token=1.5), "energy")
    assert (found.status, found.cost, found.samples) == ("measured", 1.5, ())


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (quick_run(), "no valid energy: the power meter was not read"),
        (metered(problem="only 3 samples within 2.1 s"), "energy: only 3 samples within 2.1 s"),
        (metered(joules=9.0), "energy: decode is too short for the power meter"),
        (metered(joules_per_token=-0.1), "no valid energy"),
    ],
)
def test_a_run_without_valid_energy_fails_and_says_why(run: Run, reason: str) -> None:
    found = outcome_of(run, "energy")
    assert (found.status, found.cost, found.evidence) == ("failed", None, (run.id,))
    assert reason in found.reason
    assert outcome_of(run, "decode").status == "measured"


def test_runs_for_energy_that_are_too_short_end_the_search_and_say_what_is_enough() -> None:
    short = metered(samples=2, problem="only 2 samples within 2.4 s")
    decode_s = short.summary.decode_s
    assert decode_s is not None
    with pytest.raises(UsageError, match=r"31 tokens took 2\.1 s, too short") as caught:
        require_samples(short)
    assert caught.value.remedy == f"Use --n-predict {math.ceil(12 / decode_s * 31)} or more."
    long = short.summary.model_copy(update={"decode_s": 60.0})
    for run in (
        quick_run(),
        metered(joules_per_token=1.5),
        short.model_copy(update={"summary": long}),
        failed_run().model_copy(update={"energy": short.energy}),
        metered(samples=0, problem="the meter reported nothing: no answer"),
        metered(samples=5, problem="the average of 3.00 W does not exceed the idle board's 3.10 W"),
    ):
        require_samples(run)
