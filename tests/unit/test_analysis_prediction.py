"""Predictions agree with what was measured, and refuse what cannot be."""

from __future__ import annotations

from typing import Literal

import pytest

from armload.analysis.board_resources import BoardResources, MeasuredHits, Rate
from armload.analysis.compute import Compute
from armload.analysis.fitted import (
    fitted,
    forecast_notice,
    memory_source,
    of_media,
    recommendation,
    refusal,
    remedy,
    sentence,
)
from armload.analysis.prediction import predict
from armload.analysis.roofline import from_facts
from armload.boards.board import load_board
from armload.engines.engine import MemoryNeed
from armload.engines.prediction import Expected, Prediction, Sequences
from armload.engines.weights import BoardMemory
from armload.models.context_memory import ContextMemory, KvCache
from armload.models.model import Model
from armload.report.run_words import prediction_line
from armload.runs.predicting import adjusted_for_emulation
from tests.unit.published import talkative_run
from tests.unit.runs import quick_run
from tests.unit.samples import model

GB = 1_000_000_000
MB = 1_000_000
Q2_K = (3_174_260_608, 2_998_920_768)
ONE = Sequences()
Q8_0 = (8_538_000_000, 7_980_000_000)


def need(
    sizes: tuple[int, int] = Q2_K,
    *,
    kv_bytes: int = 67 * MB,
    context: int = 512,
    sequences: Sequences = ONE,
) -> MemoryNeed:
    return MemoryNeed(
        name="m.gguf",
        weights_bytes=sizes[0],
        kv_bytes=kv_bytes,
        program_bytes=64 << 20,
        context_tokens=context,
        sequences=sequences,
        bytes_per_token=sizes[1],
    )


def resources(
    available: int = 1_850 * MB, total: int = 2_062 * MB, rate: int = 165 * MB
) -> BoardResources:
    return BoardResources(
        memory=BoardMemory(total_bytes=total, available_bytes=available),
        storage=Rate(bytes_per_s=rate, kind="measured"),
        memory_rate=Rate(bytes_per_s=2_800 * MB, kind="measured"),
    )


def computing(token_s: float, prompt_token_s: float = 0.1) -> Compute:
    return Compute(
        token_s=Expected.within(token_s, 0.08),
        prompt_token_s=Expected.within(prompt_token_s, 0.2),
        load_s=Expected.within(0.5, 0.5),
        source="operations",
    )


def predicted(
    needed: MemoryNeed,
    given: BoardResources,
    compute: Compute | None,
    *,
    may_stream: bool = False,
    prompt_tokens: int = 8,
) -> Prediction:
    return predict(
        needed,
        given,
        compute,
        prompt_tokens=prompt_tokens,
        streaming="if needed" if may_stream else "never",
    )


def dayu200(sizes: tuple[int, int]) -> Compute:
    board = load_board("dayu200")
    weights = model().model_copy(
        update={"size_bytes": sizes[0], "bytes_per_token": sizes[1], "parameters": 8_030_261_312}
    )
    found = from_facts(weights, board.facts)
    assert found is not None
    return found


@pytest.mark.parametrize(("sizes", "measured_s"), [(Q2_K, 18.18), (Q8_0, 49.73)])
def test_mapped_weights_on_a_dayu200_take_as_long_as_was_measured(
    sizes: tuple[int, int], measured_s: float
) -> None:
    found = predicted(need(sizes), resources(), dayu200(sizes))
    assert found.verdict == "reads storage"
    assert found.bottleneck == "storage"
    assert found.token_s is not None
    assert found.token_s.value == pytest.approx(measured_s, rel=0.10)
    assert found.token_s.low <= measured_s <= found.token_s.high


def test_a_table_that_is_read_by_row_need_not_fit_into_memory() -> None:
    table = 1_500 * MB
    dense, by_row = (
        need((3_000 * MB, 1_500 * MB)).model_copy(update={"row_table_bytes": size})
        for size in (0, table)
    )
    given = resources(available=1_850 * MB)
    assert predicted(dense, given, computing(0.5)).verdict == "reads storage"
    found = predicted(by_row, given, computing(0.5))
    assert found.verdict == "fits"
    assert found.memory is not None
    assert found.memory.weights_bytes == 3_000 * MB
    assert found.memory.wanted_bytes == dense.wanted_bytes - table
    (note,) = found.notes
    assert note.sentence.startswith("The memory leaves out per-layer embeddings")
    assert note.sentence.endswith(": 1.5 GB of m.gguf.")
    least = need((3_000 * MB, 1_700 * MB)).model_copy(update={"row_table_bytes": 1_300 * MB})
    assert predicted(least, given, computing(0.5)).verdict == "reads storage"


def test_a_run_is_not_refused_for_a_cache_whose_size_is_a_lower_bound() -> None:
    unknown = need(kv_bytes=4 * GB).model_copy(update={"kv_is_exact": False})
    found = predicted(unknown, resources(), computing(0.5))
    assert found.verdict == "unknown"
    assert Prediction.model_validate_json(found.model_dump_json()) == found
    assert [note.kind for note in found.notes] == ["lower bound"]


def test_mapped_weights_on_fast_storage_wait_for_their_faults() -> None:
    slow, fast = (predicted(need(), resources(rate=rate * MB), None).token_s for rate in (100, 800))
    assert slow is not None
    assert fast is not None
    assert slow.value / fast.value < 8 / 1.3
    # Qwen2.5 7B on a Raspberry Pi 5 with 4 GB, from swap on a disk with PCIe 2 and 3: 0.10 and 0.16
    # tokens/s, jeanbruenn.info. Nobody has published mapped weights on such a disk.
    for disk, published_tps in ((416 * MB, 0.10), (780 * MB, 0.16)):
        given = resources(available=3_300 * MB, total=4_050 * MB, rate=disk)
        found = predicted(need((4_683 * MB, 4_378 * MB)), given, computing(0.45))
        assert found.verdict == "reads storage"
        assert found.token_s is not None
        assert 1 / found.token_s.value == pytest.approx(published_tps, rel=0.25)
        assert found.token_s.low < 1 / published_tps < found.token_s.high


def test_mapped_weights_in_a_control_group_take_as_long_as_was_measured() -> None:
    sizes = (1_170 * MB, 1_100 * MB)
    given = resources(available=690 * MB, total=700 * MB)
    found = predicted(need(sizes, kv_bytes=MB), given, computing(0.2))
    assert found.token_s is not None
    assert found.token_s.value == pytest.approx(6.33, rel=0.10)


def test_what_streams_reads_what_does_not_stay_in_memory() -> None:
    found = predicted(need(), resources(), computing(1.9), may_stream=True)
    parts = found.memory
    assert found.verdict == "streams"
    assert parts is not None
    assert parts.window_bytes == 64 << 20
    assert parts.reserve_bytes == 2_062 * MB // 20
    resident = parts.available_bytes - parts.least_bytes + parts.reserve_bytes // 4
    assert found.storage_bytes_per_token == pytest.approx(Q2_K[1] - resident, abs=1)
    assert found.token_s is not None
    limit_s = found.storage_bytes_per_token / (165 * MB)
    assert found.token_s.value == pytest.approx(limit_s, rel=0.05)
    assert found.ttft_s is not None
    assert found.ttft_s.value > Q2_K[1] / (165 * MB)


def test_streamed_weights_may_take_half_of_the_reserve_which_the_interval_contains() -> None:
    sizes, rate = (336 * MB, 336 * MB), 20 * MB
    given = resources(available=200 * MB, total=240 * MB, rate=rate)
    found = predicted(need(sizes, kv_bytes=3 * MB), given, computing(1.2), may_stream=True)
    assert found.memory is not None
    assert found.token_s is not None
    quarter, read = found.memory.reserve_bytes / 4, found.storage_bytes_per_token
    assert found.token_s.low == pytest.approx((read - quarter) / rate / 1.05, rel=0.001)
    assert found.token_s.high == pytest.approx((read + quarter) / rate * 1.05 * 1.1, rel=0.001)


def test_streaming_is_limited_by_computing_where_that_takes_longer() -> None:
    found = predicted(need(), resources(rate=2 * GB), computing(5.0), may_stream=True)
    assert found.bottleneck == "compute"
    assert found.token_s is not None
    assert 5.0 < found.token_s.value < 5.5


def test_a_longer_prompt_reads_the_rest_again_for_each_micro_batch() -> None:
    short = predicted(need(), resources(), computing(1.9, 1e-3), may_stream=True, prompt_tokens=512)
    long = predicted(need(), resources(), computing(1.9, 1e-3), may_stream=True, prompt_tokens=513)
    assert short.ttft_s is not None
    assert long.ttft_s is not None
    again_s = short.storage_bytes_per_token / (165 * MB)
    assert long.ttft_s.value - short.ttft_s.value == pytest.approx(1.03 * again_s, rel=0.01)


def test_a_model_that_fits_takes_its_computing_time_and_may_be_cold() -> None:
    small = need((770 * MB, 760 * MB))
    found = predicted(small, resources(), computing(0.9))
    assert (found.verdict, found.bottleneck) == ("fits", "compute")
    assert found.storage_bytes_per_token == 0
    assert found.token_s == computing(0.9).token_s
    assert found.load_s is not None
    assert found.load_s.low < 0.5 < 770 / 165 < found.load_s.value
    fast = predicted(small, resources(), computing(0.35))
    assert fast.bottleneck == "memory bandwidth"


def test_a_cache_that_does_not_fit_is_refused_with_the_context_that_would() -> None:
    large = need(kv_bytes=4 * GB, context=32_768)
    for may_stream in (False, True):
        found = predicted(large, resources(), computing(1.9), may_stream=may_stream)
        assert found.verdict == "cannot run"
        assert found.token_s is None
        assert found.largest_context is not None
        per_token = 4 * GB / 32_768
        fitting = need(
            kv_bytes=round(found.largest_context * per_token), context=found.largest_context
        )
        again = predicted(fitting, resources(), computing(1.9), may_stream=may_stream)
        assert again.verdict != "cannot run"
        assert f"--context {found.largest_context} or less" in sentence("m", "b", found)
    nothing = predicted(need(), resources(available=50 * MB), computing(1.9))
    assert nothing.largest_context == 0
    assert remedy(nothing).startswith("Even the smallest context")


def test_a_projector_that_does_not_fit_is_what_has_to_be_smaller() -> None:
    large = need().model_copy(update={"projector_bytes": 1_900 * MB})
    found = predicted(large, resources(), computing(1.9), may_stream=True)
    assert found.verdict == "cannot run"
    assert "the projector with its buffers (1.9 GB)" in refusal("m", "b", found)
    assert remedy(found).startswith("Name a smaller projector with --mmproj")
    nothing = predicted(large, resources(available=50 * MB), computing(1.9))
    assert remedy(nothing).startswith("Even the smallest context")


@pytest.mark.parametrize(
    ("kind", "fewer"), [("slot", "fewer --slots"), ("question", "a smaller --parallel")]
)
def test_the_context_that_would_fit_is_that_of_each_sequence(
    kind: Literal["slot", "question"], fewer: str
) -> None:
    four = Sequences(count=4, kind=kind)
    large = need(kv_bytes=1_500 * MB, context=4 * 4096, sequences=four)
    found = predicted(large, resources(available=900 * MB), computing(1.9))
    assert found.verdict == "cannot run"
    assert found.largest_context is not None
    assert 0 < found.largest_context < 4096
    assert found.largest_context % 256 == 0
    assert f"with a context of 4096 tokens for each of 4 {kind}s" in refusal("m", "b", found)
    assert remedy(found) == f"Use --context {found.largest_context} or less per {kind}, or {fewer}."
    smaller = need(
        kv_bytes=round(1_500 * MB * found.largest_context / 4096),
        context=4 * found.largest_context,
        sequences=four,
    )
    assert predicted(smaller, resources(available=900 * MB), computing(1.9)).verdict != "cannot run"
    none_each = predicted(
        need(kv_bytes=15_000 * MB, context=4 * 1024, sequences=four),
        resources(available=1_850 * MB),
        computing(1.9),
    )
    assert none_each.largest_context == 0
    assert remedy(none_each) == f"Use {fewer}, or free memory on the board."


WINDOWED = ContextMemory(
    key_values=512,
    value_values=512,
    window_tokens=1024,
    window_key_values=8192,
    window_value_values=8192,
    window_layers=20,
)
HYBRID = ContextMemory(key_values=2048, value_values=2048, state_bytes=90 * MB, recurrent_layers=30)


@pytest.mark.parametrize("memory", [WINDOWED, HYBRID])
@pytest.mark.parametrize("count", [1, 4])
def test_the_context_that_fits_follows_windows_and_states(
    memory: ContextMemory, count: int
) -> None:
    kv_cache = KvCache(memory=memory)
    four = Sequences(count=count, kind="slot")
    context = 1 << 20
    large = need(
        kv_bytes=kv_cache.size_bytes(context, count), context=count * context, sequences=four
    ).model_copy(update={"kv_cache": kv_cache})
    given = resources(available=800 * MB)
    found = predicted(large, given, computing(1.9))
    for largest, sequences in ((found.largest_context, count), (found.largest_alone, 1)):
        if largest is None:
            assert count == 1
            continue
        assert largest % 256 == 0
        for tokens, verdict in ((largest, "reads storage"), (largest + 256, "cannot run")):
            kv_bytes = kv_cache.size_bytes(tokens, sequences)
            again = predicted(need(kv_bytes=kv_bytes, context=tokens), given, computing(1.9))
            assert again.verdict == verdict, (tokens, sequences)


def test_no_context_is_advised_that_prompt_and_output_exceed() -> None:
    large = need(kv_bytes=4 * GB, context=4096, sequences=Sequences(least_tokens=2049))
    found = predicted(large, resources(), computing(1.9))
    assert found.largest_context is not None
    assert 0 < found.largest_context < 2049
    assert remedy(found) == (
        f"Prompt and output need 2049 tokens, but only {found.largest_context} fit: use fewer "
        "tokens, or free memory on the board."
    )
    enough = large.model_copy(update={"sequences": Sequences(least_tokens=found.largest_context)})
    assert remedy(predicted(enough, resources(), computing(1.9))).startswith("Use --context")


def test_no_resident_weights_are_asked_for_as_none() -> None:
    found = predict(
        need(), resources(), computing(1.9), prompt_tokens=8, streaming="always", resident_bytes=0
    )
    assert found.storage_bytes_per_token == Q2_K[1]


def test_what_is_unknown_is_said() -> None:
    unknown = predicted(need(), BoardResources(), computing(1.9))
    assert unknown.verdict == "unknown"
    assert "memory is" in sentence("m", "b", unknown)
    media = talkative_run().prediction
    assert media is not None
    assert media.media is not None
    assert media.media.encoder_s is None
    assert "unknown" in of_media(media)
    assert "unknown" in memory_source([])
    no_rate = resources().model_copy(update={"storage": None})
    found = predicted(need(), no_rate, computing(1.9), may_stream=True)
    assert found.verdict == "streams"
    assert found.token_s is None
    assert "facts.storage_read_bytes_per_s" in sentence("m", "b", found)
    mapped = predicted(need(), no_rate, computing(1.9))
    assert (mapped.verdict, mapped.bottleneck, mapped.token_s) == ("reads storage", "storage", None)


def test_declared_rates_and_facts_widen_the_interval() -> None:
    declared = resources().model_copy(
        update={"storage": Rate(bytes_per_s=165 * MB, kind="declared")}
    )
    wide, narrow = (
        predicted(need(), each, computing(1.9)).token_s for each in (declared, resources())
    )
    assert wide is not None
    assert narrow is not None
    assert wide.low < narrow.low < narrow.high < wide.high
    assert wide.value == narrow.value


def test_a_sentence_says_how_long_why_and_what_to_choose() -> None:
    found = predicted(need(), resources(), computing(1.9), may_stream=True)
    said = sentence("like:llama-3.1-8b:Q2_K", "dayu200", found)
    assert said.startswith("like:llama-3.1-8b:Q2_K streams on dayu200: about 8.9")
    assert "limited by storage; use a file smaller than 1.5 GB" in said
    assert forecast_notice("m", "b", found).startswith("m streams on b")
    estimated = "The compute time is estimated from the board's facts."
    assert estimated not in forecast_notice("m", "b", found)
    from_facts_alone = found.model_copy(update={"compute": "roofline"})
    assert forecast_notice("m", "b", from_facts_alone).endswith(estimated)
    slow = predicted(need(), resources(rate=40 * MB), computing(1.9))
    words = forecast_notice("m", "b", slow, " (a control group is limited to 2.0 GB)")
    assert words.startswith("warning: m does not stay in b's memory")
    assert words.endswith("1.9 GB are available (a control group is limited to 2.0 GB).")
    small = predicted(need((770 * MB, 760 * MB)), resources(), computing(0.9))
    assert forecast_notice("m", "b", small) == ""


def of_size(size_bytes: int) -> Model:
    return model().model_copy(update={"size_bytes": size_bytes})


def test_the_largest_model_that_stays_in_memory_is_recommended() -> None:
    small, medium = need((400 * MB, 390 * MB)), need((770 * MB, 760 * MB))
    models = [
        fitted(
            name,
            "b",
            of_size(needed.weights_bytes),
            predicted(needed, resources(), computing(time)),
        )
        for name, needed, time in (("s", small, 0.4), ("m", medium, 0.9), ("l", need(), 1.9))
    ]
    said = recommendation("b", models)
    assert said.startswith("Recommended: m (about 900 ms per token), the largest")
    assert "Models that read from storage take at least 21.1 times as long." in said
    slow = predicted(medium, resources(), computing(100.0))
    slower = [fitted("m", "b", of_size(medium.weights_bytes), slow), models[2]]
    assert "from storage" not in recommendation("b", slower)
    assert recommendation("b", models[2:]).startswith("Recommended: l")
    alone = recommendation("b", models[:1])
    assert alone == "Recommended: s (about 400 ms per token); it stays in memory."
    refused = predicted(need(kv_bytes=4 * GB), resources(), None)
    assert "None of these" in recommendation("b", [fitted("x", "b", of_size(1), refused)])


def test_a_model_that_can_be_downloaded_is_recommended_before_a_larger_one() -> None:
    small, medium = need((400 * MB, 390 * MB)), need((770 * MB, 760 * MB))
    models = [
        fitted(name, "b", of_size(each.weights_bytes), found, has_file=has_file)
        for name, each, has_file in (("s", small, True), ("m", medium, False))
        for found in [predicted(each, resources(), computing(0.4))]
    ]
    said = recommendation("b", models)
    assert said.startswith("Recommended: s (")
    assert "m is larger and stays in memory, too" in said
    assert recommendation("b", models[1:]).startswith("Recommended: m (")


MIXTURE = need((6 * GB, 1 * GB)).model_copy(
    update={
        "expert_bytes": 5_500 * MB,
        "expert_bytes_per_token": 600 * MB,
        "expert_layer_bytes": 5_500 * MB // 48,
    }
)


def of_mixture(
    prompt_tokens: int = 8, hits: MeasuredHits | None = None, resident: int | None = None
) -> Prediction:
    return predict(
        MIXTURE,
        resources(),
        computing(1.0),
        prompt_tokens=prompt_tokens,
        streaming="if needed",
        hits=hits,
        resident_bytes=resident,
    )


def test_of_a_mixture_the_experts_that_stay_are_assumed_to_be_the_hits() -> None:
    found = of_mixture()
    assert found.verdict == "streams"
    assert found.hit_rate is not None
    assert found.hit_rate.kind == "assumed"
    assert found.memory is not None
    dense = MIXTURE.bytes_per_token - MIXTURE.expert_bytes_per_token
    room = found.memory.available_bytes - found.memory.least_bytes - dense
    room += found.memory.reserve_bytes // 4
    assert found.hit_rate.value == pytest.approx(room / MIXTURE.expert_bytes, rel=0.01)
    missed = found.storage_bytes_per_token
    assert missed == pytest.approx((1 - found.hit_rate.value) * 600 * MB, rel=0.01)
    assert found.token_s is not None
    # What a token has chosen is not read while it is computed.
    assert found.token_s.value == pytest.approx(1.03 * (1.03 + missed / (165 * MB)), rel=0.01)
    assert "(assuming even routing)" in sentence("m", "b", found)


def test_hits_that_were_measured_with_as_many_slots_replace_the_assumption() -> None:
    assumed = of_mixture()
    assert assumed.hit_rate is not None
    share = assumed.hit_rate.value
    near, far = (
        of_mixture(hits=MeasuredHits(hit_rate=0.8, slot_share=share + more)) for more in (0.05, 0.2)
    )
    assert near.hit_rate is not None
    assert (near.hit_rate.value, near.hit_rate.kind) == (0.8, "measured")
    assert near.storage_bytes_per_token == round(0.2 * 600 * MB)
    assert far == assumed
    assert "with an expert hit rate of 80% (measured in an earlier run)" in sentence("m", "b", near)


@pytest.mark.parametrize("further", [-0.104, -0.096, 0.0, 0.096, 0.104])
@pytest.mark.parametrize("hit_rate", [0.1, 0.8])
def test_the_interval_contains_the_value_whether_or_not_hits_were_measured(
    further: float, hit_rate: float
) -> None:
    assumed = of_mixture().hit_rate
    assert assumed is not None
    hits = MeasuredHits(hit_rate=hit_rate, slot_share=assumed.value + further)
    token_s = of_mixture(hits=hits).token_s
    assert token_s is not None
    assert token_s.low <= token_s.value <= token_s.high


def test_a_long_prompt_of_a_mixture_reads_nearly_all_experts_and_a_short_one_few() -> None:
    short, long = of_mixture(1).ttft_s, of_mixture(500).ttft_s
    assert short is not None
    assert long is not None
    assert long.value > 5_500 * MB / (165 * MB)
    assert short.value < 0.3 * long.value


def test_what_is_requested_to_stay_of_a_mixture_is_of_experts_last() -> None:
    found = of_mixture(resident=200 * MB)
    assert found.hit_rate is not None
    assert found.hit_rate.value == 0
    assert found.storage_bytes_per_token == 200 * MB + 600 * MB


def test_a_mixture_one_of_whose_layers_does_not_fit_stays_mapped_and_is_not_refused() -> None:
    found = predict(
        MIXTURE.model_copy(update={"expert_layer_bytes": 3 * GB}),
        resources(),
        computing(1.0),
        prompt_tokens=8,
        streaming="if needed",
    )
    assert (found.verdict, found.hit_rate) == ("reads storage", None)


def test_times_of_an_emulated_board_are_said_to_be_no_real_ones() -> None:
    found = predicted(need(), resources(), computing(1.9), may_stream=True)
    emulated = adjusted_for_emulation(load_board("virtual"), found)
    said = "virtual is emulated: these times apply to this machine"
    assert said in forecast_notice("m", "virtual", emulated)
    run = quick_run().model_copy(update={"prediction": emulated})
    assert "per token for the emulated board (streams" in prediction_line(run)
    assert adjusted_for_emulation(load_board("dayu200"), found) == found
    unknown = found.model_copy(update={"token_s": None})
    assert adjusted_for_emulation(load_board("virtual"), unknown) == unknown, "without times"


def test_times_of_an_emulated_board_that_are_estimated_from_facts_are_not_shown() -> None:
    computed = computing(1.9).model_copy(update={"source": "roofline"})
    small = need((400 * MB, 390 * MB))
    estimated = predicted(small, resources(), computed)
    assert estimated.token_s
    assert adjusted_for_emulation(load_board("dayu200"), estimated) == estimated
    shown = adjusted_for_emulation(load_board("virtual"), estimated)
    assert (shown.verdict, shown.token_s, shown.ttft_s) == ("fits", None, None)
    said = sentence("m", "virtual", shown)
    assert "its speed cannot be predicted" in said
    assert "To estimate a model's speed there: armload fit --board" in said
    models = [
        fitted(name, "virtual", of_size(size), shown)
        for name, size in (("s", 100 * MB), ("m", 400 * MB))
    ]
    assert recommendation("virtual", models).startswith("Recommended: s, the smallest")
