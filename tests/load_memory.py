"""A load in a process of its own, which says how much memory it took at most.

    python -m tests.load_memory URL REQUESTS

Prints the peak of its resident memory in bytes after the requests, and after their figures.
"""

from __future__ import annotations

import json
import resource
import sys

from armload.analysis.load.records import Objectives
from armload.core.progress import Silent
from armload.report.load.loaded import LoadView
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import LlamaServer
from armload.serving.load_runner import LoadRunner
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.workload import Listed

CLIENTS, TOKENS = 32, 4


def main() -> None:
    url, requests = sys.argv[1:]
    target = LoadTarget(url=url, api_key="", model="stub", dialect=LlamaServer())
    request = CompletionRequest(prompt="Once upon a time", max_tokens=TOKENS)
    objectives = Objectives(e2e_s=60.0)
    loading = LoadRunner(
        *(target, Listed([request], "stub"), Arrivals(), 1, Silent(), objectives),
    )
    kept = loading.run([LoadLevel(concurrency=CLIENTS)], StopCondition(requests=int(requests)))
    sent_bytes = _peak_bytes()
    (point,) = LoadView.of(kept).points
    found = {
        "ok": point.assessed.metrics.ok,
        "sent_bytes": sent_bytes,
        "figures_bytes": _peak_bytes(),
    }
    sys.stdout.write(json.dumps(found))


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
