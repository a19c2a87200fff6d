"""Whatever a damaged or hostile board leaves of a run, it is refused in words or can be shown."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.run import Run
from armload.core.errors import ArmloadError, DataError
from armload.deploy.claims import parse_claims
from armload.engines.answers import parse_answers, read_answers
from armload.engines.job import Job
from armload.report.figures.over_time import token_rows
from armload.report.pages import render
from armload.report.run_page import run_page
from armload.report.table import list_table, run_table
from armload.runs import store
from armload.runs.assemble import assemble, read_job
from tests.unit.runs import quick_run, storage_run
from tests.unit.test_report_layout import shown

EXTREMES = (0, 1, -1, 2**31, 2**63 - 1, 2**64, 10**400, 0.0, -0.5, 1e308, 1e-300)
OTHERS: tuple[object, ...] = (None, "x", [], {}, True, float("nan"), float("inf"))
FILES = ("trace.jsonl", "trace.jsonl", "every step", "job.json", "memory", "swapped", "exit")
_CASES = 25
NESTED = "[" * 10_000 + "]" * 10_000
HUGE = "9" * 5000


def write_raw(run: Run, folder: Path) -> None:
    """Write what a board has left of a run."""
    header = run.trace
    assert header is not None
    lines = [header.model_dump(exclude={"last_accepted_tokens", "weights"})]
    lines += [step.model_dump() for step in run.steps]
    job = {name: getattr(run, name) for name in Job.model_fields}
    folder.mkdir(exist_ok=True)
    (folder / "trace.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "job.json").write_text(Job(**job).model_dump_json())
    (folder / "stdout").write_text(run.text)
    (folder / "exit").write_text("0\nFilesystem 1K Used Free Use% On\n/dev/x 99 5 94 1% /\n")
    (folder / "memory").write_text("200000 131000 1000000\n")
    (folder / "swapped").write_text("5 6\n7 8\n")


def damage(folder: Path, chance: random.Random) -> None:
    """Change something in one of the files."""
    file = chance.choice(FILES)
    if file == "every step":
        path = folder / "trace.jsonl"
        header, *steps = path.read_text().splitlines()
        name = chance.choice([*json.loads(steps[0])])
        value = chance.choice((*EXTREMES, None))
        both = ("start_ns", "end_ns") if name in ("start_ns", "end_ns") else (name,)
        changed = (json.loads(step) | dict.fromkeys(both, value) for step in steps)
        path.write_text("".join(f"{line}\n" for line in (header, *map(json.dumps, changed))))
    elif file.startswith(("trace", "job")):
        lines = (folder / file).read_text().splitlines()
        for _ in range(chance.choice((1, 3))):
            number = chance.randrange(len(lines))
            lines[number] = json.dumps(_changed(json.loads(lines[number]), chance))
        (folder / file).write_text("".join(f"{line}\n" for line in lines))
    else:
        words = (
            str(chance.choice((*EXTREMES, HUGE, "x"))) for _ in range(chance.choice((1, 2, 3)))
        )
        (folder / file).write_text(f"{' '.join(words)}\n5 5\n")


def _changed(content: Any, chance: random.Random) -> Any:
    places = [*content] if isinstance(content, dict) else [*range(len(content))]
    place = chance.choice(places)
    inside = content[place]
    is_deep = isinstance(inside, dict | list) and inside and chance.random() < 0.8
    content[place] = _changed(inside, chance) if is_deep else chance.choice(EXTREMES + OTHERS)
    return content


@pytest.mark.parametrize("made", [quick_run, storage_run])
def test_a_run_of_damaged_files_is_refused_or_can_be_kept_and_shown(
    made: Callable[[], Run], tmp_path: Path
) -> None:
    computed = 0
    for seed in range(_CASES):
        folder = tmp_path / str(seed)
        write_raw(made(), folder)
        damage(folder, random.Random(seed))
        try:
            store.save(assemble(read_job(folder), folder), folder)
        except ArmloadError:
            continue
        computed += 1
        run = store.load(folder)
        shown(run_table(run), 100)
        shown(list_table([run]), 100)
        token_rows(run)
        render(run_page(run))
    assert 0 < computed < _CASES


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted_tokens": -1},
        {"accepted_tokens": 1 << 40},
        {"rss_bytes": 10**30},
        {"rss_bytes": -1},
        {"end_ns": 0},
        {"tokens": 0},
        {"celsius": float("nan")},
    ],
)
def test_a_step_that_no_engine_can_do_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_raw(quick_run(), tmp_path)
    path = tmp_path / "trace.jsonl"
    header, first, *steps = path.read_text().splitlines()
    path.write_text("\n".join((header, json.dumps(json.loads(first) | changes), *steps, "")))
    with pytest.raises(DataError, match=r"trace\.jsonl, line 2"):
        assemble(read_job(tmp_path), tmp_path)
    kept = json.loads(quick_run().model_dump_json())
    kept["steps"][0] |= changes
    (tmp_path / "run.json").write_text(json.dumps(kept))
    with pytest.raises(DataError, match=r"run\.json"):
        store.load(tmp_path)


@pytest.mark.parametrize("content", [NESTED, f'{{"a": {NESTED}}}', HUGE, "NaN", "1e999", "\udcff"])
def test_what_is_no_document_of_ours_is_refused_wherever_a_board_may_have_written_it(
    tmp_path: Path, content: str
) -> None:
    data = content.encode("utf-8", "surrogateescape")
    write_raw(quick_run(), tmp_path)
    for name in ("run.json", "job.json", "stdout"):
        (tmp_path / name).write_bytes(data + b"\n")
    (tmp_path / "trace.jsonl").write_bytes(b'{"x": ' + data + b"}\n")
    with pytest.raises(DataError):
        store.load(tmp_path)
    with pytest.raises(DataError):
        read_job(tmp_path)
    with pytest.raises(DataError):
        read_answers(tmp_path / "stdout")
    assert parse_answers([content]) == ()
    run = quick_run()
    job = Job(**{name: getattr(run, name) for name in Job.model_fields})
    with pytest.raises(DataError):
        assemble(job, tmp_path)
    (claim,) = parse_claims(f"boot 100\n#claim t.boot.160\n{content}\n{HUGE}\n\n")
    assert (claim.owner, claim.held_s, claim.left_s) == (None, None, 60)


def test_no_answer_ends_within_a_character(tmp_path: Path) -> None:
    answer = {
        "id": "1",
        "kind": "generate",
        "prompt_tokens": 1,
        "start_ns": 1,
        "tokens": [7, 8],
        "times_ns": [2, 3],
        "text_bytes": [1, 2],
        "text": "é",
        "think_tokens": 0,
        "stop": "end",
        "conclude_from": None,
    }
    (tmp_path / "stdout").write_text(f"{json.dumps(answer)}\n")
    with pytest.raises(DataError, match="line 1"):
        read_answers(tmp_path / "stdout")
