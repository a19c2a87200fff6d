"""The process of the grader ``math_verify``: lines of JSON in, a finding per line out."""

from __future__ import annotations

import json
import logging
import sys

from armload.evaluation.grading.grade import GraderFinding


def _finding(text: str, expected: str) -> GraderFinding:
    from math_verify import parse, verify

    # No limits here: the process that asks ends this one.
    gold = parse(rf"\boxed{{{expected}}}", parsing_timeout=None)
    answer = parse(text, parsing_timeout=None)
    correct = bool(answer) and verify(gold, answer, timeout_seconds=None)
    return GraderFinding(correct=correct, extracted=str(answer[-1]) if answer else None)


def main() -> None:
    """Answer until the input ends."""
    logging.disable()  # a warning that there is no limit, for each answer
    for line in sys.stdin:
        text, expected = json.loads(line)
        sys.stdout.write(_finding(text, expected).model_dump_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
