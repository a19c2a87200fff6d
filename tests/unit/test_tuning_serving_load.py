"""What a load says of a setting: cost, failures, and answers that are no answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armload.analysis.load.records import Objectives, RequestRecord
from armload.engines.service_plan import ServingPlan
from armload.tuning.request import TunedLoad
from armload.tuning.serving_load import outcome_of, too_short
from tests.unit.served_loads import keep, points
from tests.unit.simulated_server import Simulated, records_of

TOTAL = TunedLoad(rate=0.5, requests=60)
RATE = TunedLoad(requests=60, objectives=Objectives(ttft_s=60.0))


def changed(records: tuple[RequestRecord, ...], **fields: Any) -> list[RequestRecord]:
    first, *others = records
    return [first.model_copy(update=fields), *others]


@pytest.mark.parametrize("wanted", [TOTAL, RATE])
def test_a_setting_that_cuts_answers_off_violates_and_one_that_does_not_is_measured(
    wanted: TunedLoad, tmp_path: Path
) -> None:
    (point,) = points(Simulated(), rates=(0.5,))
    records = [
        each.model_copy(update={"text": f"the answer {each.number} is right"})
        for each in records_of(point)
    ]
    load = keep([point], tmp_path).load
    whole = outcome_of(load, records, wanted)
    assert (whole.status, whole.reason) == ("measured", "")
    cut = outcome_of(load, changed(tuple(records), limit_tokens=500), wanted)
    assert cut.status == "violates"
    assert cut.reason == f"1 of {len(records)} answers ended before their limit"
    failed = outcome_of(load, changed(tuple(records), outcome="dropped"), wanted)
    assert (failed.status, "1 dropped" in failed.reason) == ("violates", True)


@pytest.mark.parametrize(
    ("requests", "least"),
    [
        ({}, 256),
        ({"prompt_tokens": "500", "n_predict": "12"}, 512),
        ({"prompt_tokens": "uniform:1-500", "n_predict": "uniform:4-100"}, 600),
        ({"prompt_tokens": "lognormal:300:0.8"}, 428),
        ({"data": Path("asked.jsonl")}, 1),
        ({"data": Path("asked.jsonl"), "n_predict": "600"}, 600),
    ],
)
def test_a_slot_that_does_not_hold_prompt_and_answer_is_not_tried(
    requests: dict[str, Any], least: int
) -> None:
    wanted = TunedLoad(rate=1.0, requests=9, **requests)
    assert wanted.context_tokens == least
    assert too_short(ServingPlan(context_tokens=least), wanted) == ""
    if least > 1:
        said = too_short(ServingPlan(context_tokens=least - 1), wanted)
        assert f"prompt and answer take {least}" in said
