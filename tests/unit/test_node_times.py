"""What of distributed-llama's nodes is timed, and what follows from it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from armload.engines.plan import Plan
from armload.models.distributed_llama import DistributedModel
from armload.runs.node_times import NodePart, TimedNode

LARGE = DistributedModel(
    name="8B",
    architecture="llama",
    matrices="Q4_0",
    output_type="Q4_0",
    width=4096,
    feed_forward=14336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_width=128,
    vocabulary=128256,
    context_length=8192,
    epsilon=1e-5,
    theta=500000,
    is_tied=False,
)
SMALL = LARGE.model_copy(update={"width": 512, "feed_forward": 1024, "vocabulary": 2048})


def _part(model: DistributedModel, nodes: int = 4, depth: float = 300.0) -> NodePart:
    plan = Plan(prompt="x", n_predict=8)
    return NodePart(model=model, nodes=nodes, plan=plan, depth=depth, is_first=True)


def test_of_a_large_model_some_layers_are_timed_and_of_a_small_one_all() -> None:
    assert _part(SMALL).timed.layers == 32
    assert _part(SMALL).times_timed == 1
    layers = [_part(LARGE, nodes).timed.layers for nodes in (1, 2, 4, 8)]
    assert layers == sorted(layers)
    assert layers[0] < layers[-1]
    for nodes in (1, 2, 4, 8):
        timed = _part(LARGE, nodes).timed
        *_, node = timed.memory(nodes, 256, 32)
        assert node.weights_bytes <= 384 << 20 or timed.layers == 1


def test_the_whole_node_takes_as_many_times_longer_as_it_has_more_weights() -> None:
    part = _part(LARGE)
    times = TimedNode(
        first_ns=(2_000_000, 1_000_000, 9_000_000), last_ns=(4_000_000,), prompt_ns=(1,)
    )
    found = part.token_s(times)
    deep_s = 0.002 + 0.002 * 300 / 1024
    assert found.value == pytest.approx(deep_s * part.times_timed)
    assert part.times_timed > 32 / part.timed.layers / 2
    assert found.low < found.value < found.high


def test_times_that_something_disturbed_are_not_steady() -> None:
    def timed(*last_ns: int) -> TimedNode:
        return TimedNode(first_ns=(1,), last_ns=last_ns, prompt_ns=(1,))

    assert timed(100).is_steady
    assert timed(100, 101, 104, 110, 109, 103, 900).is_steady
    assert not timed(100, 101, 104, 180, 170, 190, 900).is_steady


def test_runs_of_usual_depths_share_their_times() -> None:
    assert _part(LARGE, depth=300).context_tokens == _part(LARGE, depth=30).context_tokens == 1024
    assert _part(LARGE, depth=3000).context_tokens > _part(LARGE, depth=300).context_tokens
    assert _part(LARGE, depth=1e6).context_tokens == LARGE.context_length


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{}",
        '{"first_ns":[],"last_ns":[1],"prompt_ns":[1]}',
        '{"first_ns":[1],"last_ns":[0],"prompt_ns":[1]}',
        "[" * 9000,
    ],
)
def test_what_a_board_says_is_checked(said: str) -> None:
    with pytest.raises(ValidationError):
        TimedNode.model_validate_json(said)
