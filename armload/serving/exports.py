"""A load in the formats of other programs, written into its folder."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from armload.analysis.load import latency
from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.quantiles import Distribution
from armload.analysis.load.records import LoadPoint, Objectives, RequestRecord
from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.values import as_csv
from armload.serving.loads import LoadFolder

FORMATS = ("vllm", "csv", "seed")

_CSV = (
    *("point", "rate", "concurrency", "number", "conversation", "turn", "is_warmup", "outcome"),
    *("status", "scheduled_s", "sent_s", "header_s", "first_token_s", "end_s", "prompt_tokens"),
    *("cached_tokens", "generated_tokens", "limit_tokens", "e2e_s", "ttft_s", "tpot_s"),
    *("queue_s", "lateness_s", "held_s", "error"),
)


def read_formats(names: Sequence[str], *, has_rates: bool) -> tuple[str, ...]:
    """Check the names of formats.

    Args:
        has_rates: whether the load is an open loop.
    """
    for name in names:
        if name not in FORMATS:
            raise UsageError(
                f"--export: {name!a} is not a format.",
                f"The formats are {', '.join(FORMATS)}.",
            )
    if "seed" in names and not has_rates:
        raise UsageError("--export seed names its files by rates.", "Use --rate.")
    return tuple(dict.fromkeys(names))


def export(kept: LoadFolder, formats: Sequence[str], objectives: Objectives | None) -> list[Path]:
    """Write a load in other formats, and return the files.

    ``vllm``: one JSON file for each point, with the keys of ``vllm bench serve``; ``csv``: one
    line for each request of all points; ``seed``: ``result_{X}_x.json`` for each rate X, as the
    test client of llm-serving writes it, with the requests of all repeats and no warm-up.
    """
    files: dict[str, str] = {}
    by_rate: defaultdict[float | None, list[dict[str, Any]]] = defaultdict(list)
    points = [(point, kept.requests(number)) for number, point in enumerate(kept.load.points)]
    if "csv" in formats:
        files["requests.csv"] = as_csv(
            _CSV,
            (
                _csv_row(number, point, record)
                for number, (point, records) in enumerate(points)
                for record in records
            ),
        )
    for number, (point, records) in enumerate(points):
        if "vllm" in formats:
            metrics = metrics_of(point, records, objectives, percentiles=kept.load.percentiles)
            content = _vllm(kept, point, records, metrics)
            files[f"vllm-{number}.json"] = json.dumps(content, ensure_ascii=False)
        if "seed" in formats:
            by_rate[point.rate] += _seed(records)
    for rate, results in by_rate.items():
        files[f"result_{rate}_x.json"] = json.dumps(results, ensure_ascii=False)
    for name, text in files.items():
        write_whole(kept.folder / name, text.encode())
    return [kept.folder / name for name in files]


def _csv_row(number: int, point: LoadPoint, record: RequestRecord) -> dict[str, object]:
    row = record.model_dump(mode="json") | {
        "point": number,
        "rate": point.rate,
        "concurrency": point.concurrency,
        "first_token_s": record.first_chunk_s,
        "lateness_s": latency.lateness_s(record),
    }
    if record.outcome == "ok":
        row |= {
            "e2e_s": latency.e2e_s(record),
            "ttft_s": latency.ttft_s(record),
            "tpot_s": latency.tpot_s(record),
            "queue_s": latency.queue_s(record),
        }
    return row


def _seed(records: Sequence[RequestRecord]) -> list[dict[str, Any]]:
    ended = sorted(records, key=lambda record: record.end_s)
    return [
        {
            "input": record.prompt,
            "resp_text": record.text,
            "res_time": record.end_s - record.sent_s,
            "first_token_time": _ttft_from_sent(record),
        }
        for record in ended
        if record.outcome == "ok" and record.sent_s is not None and not record.is_warmup
    ]


def _vllm(
    kept: LoadFolder, point: LoadPoint, records: Sequence[RequestRecord], metrics: Metrics
) -> dict[str, Any]:
    # Latencies are counted from the send time, as vLLM counts them.
    measured = [record for record in records if not record.is_warmup]
    prompt_tokens, output_tokens = metrics.prompt_tokens, metrics.output_tokens
    is_counted = None not in (prompt_tokens, output_tokens)
    duration_s = metrics.duration_s
    load = kept.load
    kind, _, shape = load.arrivals.partition(":")
    return {
        "date": point.started_utc,
        "endpoint_type": load.dialect,
        "backend": load.dialect,
        "label": load.id,
        "model_id": load.model,
        "tokenizer_id": load.model,
        "num_prompts": len(measured),
        "request_rate": "inf" if point.rate is None else point.rate,
        "burstiness": float(shape) if kind == "gamma" else 1.0,
        "max_concurrency": point.concurrency or point.max_concurrency,
        "duration": duration_s,
        "completed": metrics.ok,
        "failed": sum(metrics.failed.values()),
        "total_input_tokens": prompt_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": metrics.requests_per_s,
        "request_goodput": metrics.goodput.requests_per_s if metrics.goodput else None,
        "output_throughput": metrics.output_tokens_per_s,
        "total_token_throughput": ((prompt_tokens or 0) + (output_tokens or 0)) / duration_s
        if is_counted and duration_s
        else None,
        "input_lens": [_length(record, record.prompt_tokens) for record in measured],
        "output_lens": [_length(record, record.generated_tokens) for record in measured],
        "ttfts": [_ttft_from_sent(record) for record in measured],
        "itls": [
            [after - before for (before, _), (after, _) in pairwise(record.chunks)]
            for record in measured
        ],
        "generated_texts": [record.text for record in measured],
        "errors": [record.error for record in measured],
        **_in_ms("ttft", metrics.from_sent.ttft),
        **_in_ms("tpot", metrics.tpot),
        **_in_ms("itl", metrics.itl),
        **_in_ms("e2el", metrics.from_sent.e2e),
    }


def _length(record: RequestRecord, tokens: int | None) -> int | None:
    """Return a length; vLLM writes 0 for a request that failed."""
    return tokens if record.outcome == "ok" else tokens or 0


def _ttft_from_sent(record: RequestRecord) -> float:
    if record.outcome != "ok" or record.sent_s is None:
        return 0.0  # as vLLM writes it
    first_s = record.end_s if record.first_chunk_s is None else record.first_chunk_s
    return first_s - record.sent_s


def _in_ms(name: str, found: Distribution | None) -> dict[str, float]:
    if found is None:
        return {}
    seconds = {
        "mean": found.mean_s,
        "median": found.median.value_s,
        "std": found.std_s,
        **{key: each.value_s for key, each in found.percentiles.items()},
    }
    return {f"{key}_{name}_ms": 1000 * value for key, value in seconds.items()}
