"""A document of somebody else is read with doubt: what cannot be true is refused, with a reason."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.run import Run
from armload.core.errors import ArmloadError, DataError, DiskError, NewerFormatError
from armload.core.values import as_json
from armload.report.exchange.document import (
    LARGEST_BYTES,
    MOST_STEPS,
    Results,
    read_results,
    results_of,
)
from armload.report.exchange.excerpt import EVERYTHING, excerpt_of
from tests.unit.pages import HOSTILE
from tests.unit.published import free_texts, planted, talkative_run
from tests.unit.runs import quick_run, storage_run
from tests.unit.sweeps import made_run

Content = dict[str, Any]


def content_of(run: Run) -> Content:
    content: Content = json.loads(as_json(results_of([excerpt_of(run, EVERYTHING)])))
    return content


def written(folder: Path, content: object) -> Path:
    path = folder / "results.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("run", [quick_run(), made_run(), made_run(throttled=True)])
def test_what_was_written_is_read_again(run: Run, tmp_path: Path) -> None:
    published = excerpt_of(run)
    assert read_results(written(tmp_path, as_json(results_of([published])))) == (published,)


def in_microseconds(run: Content) -> None:
    for step in run["steps"]:
        for key in ("start_ns", "end_ns"):
            step[key] //= 1000
    run["trace"]["start_ns"] //= 1000


def all_in_microseconds(run: Content) -> None:
    in_microseconds(run)
    run["board"]["memory_bytes_per_s"] = 10_000_000_000
    for step in run["steps"]:
        step["cpu_ns"] //= 1000


def changed(*path: str | int, to: object) -> Callable[[Content], None]:
    def change(run: Content) -> None:
        holder: Any = run
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (in_microseconds, "must be in nanoseconds"),
        (all_in_microseconds, "must be in nanoseconds"),
        (changed("before", "celsius", to=45_000), "degrees Celsius"),
        (changed("steps", 3, "celsius", to=318.0), "degrees Celsius"),
        (changed("steps", 3, "cpu_khz", to=[1_992_000_000]), "in kHz"),
        (changed("steps", 3, "cpu_khz", to=[1992]), "in kHz"),
        (changed("before", "memory_total_bytes", to=2_013_672), "in bytes"),
        (changed("before", "memory_total_bytes", to="2 GB"), "must be a whole number"),
        (changed("steps", 3, "end_ns", to=1.5), "must be a whole number"),
        (changed("model", "size_bytes", to=-1), "which is not plausible"),
        (changed("board", "cores", to=0), "board.cores"),
        (changed("board", "memory_bytes_per_s", to=-5), "bytes per second"),
        (changed("steps", 3, "tokens", to=2 << 20), "tokens"),
        (changed("steps", 3, "end_ns", to=1), "end_ns is before start_ns"),
        (changed("steps", 0, "start_ns", to=0), "chronological order"),
        (changed("model", "sha256", to="unknown"), "64 hexadecimal digits"),
        (changed("started_utc", to="yesterday"), "started_utc"),
        (changed("engine_name", to="another"), "no token times to export"),
        (changed("surprise", to=1), "there is no such key"),
        (changed("plan", "extra", to="--no-repack"), "must be a list"),
    ],
)
def test_what_cannot_be_true_is_refused(
    change: Callable[[Content], None], said: str, tmp_path: Path
) -> None:
    content = content_of(quick_run())
    change(content["runs"][0])
    with pytest.raises(DataError, match=r"results\.json") as refused:
        read_results(written(tmp_path, content))
    assert said in refused.value.message
    assert refused.value.remedy


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400])
def test_what_is_no_number_is_refused(number: str, tmp_path: Path) -> None:
    text = json.dumps(content_of(quick_run())).replace(
        '"load_1min": 0.14', f'"load_1min": {number}'
    )
    assert number in text
    with pytest.raises(DataError, match=r"not a number|64 bits"):
        read_results(written(tmp_path, text))


def test_a_million_tokens_are_refused_before_they_are_read(tmp_path: Path) -> None:
    content = content_of(quick_run())
    (run,) = content["runs"]
    run["steps"] = [0] * 1_000_000
    with pytest.raises(DataError, match=f"1,000,000 steps; {MOST_STEPS:,} is the limit"):
        read_results(written(tmp_path, content))
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(DataError, match="larger than 64 MiB"):
        read_results(path)


def test_too_much_for_a_document_is_not_written_as_one() -> None:
    run = excerpt_of(quick_run())
    long = run.model_copy(update={"steps": run.steps * (MOST_STEPS // len(run.steps) + 1)})
    with pytest.raises(DataError, match="too many for one document"):
        results_of([long])


def test_html_in_every_text_is_dropped_or_refused(tmp_path: Path) -> None:
    excerpt = excerpt_of(talkative_run(), EVERYTHING)
    # A governor of a device that there is not is refused with the whole run.
    places = [path for path in free_texts(excerpt) if path != ("plan", "governor")]
    run = planted(excerpt, lambda text: f"{text}{HOSTILE}", places)
    content = json.loads(as_json(Results(runs=(run,))))
    with pytest.raises(DataError, match="started_utc"):
        read_results(written(tmp_path, content))
    content["runs"][0]["started_utc"] = "2026-11-21T02:15:00+00:00"
    with pytest.raises(DataError, match="sha256"):
        read_results(written(tmp_path, content))
    content["runs"][0]["model"]["sha256"] = "a" * 64
    (read,) = read_results(written(tmp_path, content))
    assert read.text.endswith(HOSTILE)  # what a model writes is a text, and is escaped
    assert read.plan is not None
    assert HOSTILE in read.plan.prompt
    plan = read.plan.model_copy(update={"prompt": ""})
    assert "<" not in as_json(read.model_copy(update={"text": "", "plan": plan}))


@pytest.mark.parametrize("where", ["document", "run"])
def test_a_future_version_is_told_and_not_read(where: str, tmp_path: Path) -> None:
    content = content_of(quick_run())
    holder = content if where == "document" else content["runs"][0]
    holder["format"] = 99
    holder["unheard of"] = True
    with pytest.raises(NewerFormatError, match="format 99 is newer"):
        read_results(written(tmp_path, content))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Lorem ipsum",
        "[1, 2]",
        "{}",
        '{"kind": "armload results", "format": 1}',
        '{"kind": "armload results", "format": 1, "runs": []}',
        '{"kind": "armload results", "format": 1, "runs": {"steps": 5}}',
        '{"kind": "armload results", "format": 1, "runs": [{"steps": {}}, 7]}',
        '{"kind": "armload results", "format": "1", "runs": [null]}',
        quick_run().model_dump_json(),
        "[" * 100_000,
        "\x89PNG\r\n\x1a\n\0\0",
    ],
)
def test_what_is_no_document_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"results\.json"):
        read_results(written(tmp_path, text))


def test_what_is_no_text_and_what_is_not_there_are_told(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\0" * 100)
    with pytest.raises(DataError, match=r"binary\.json"):
        read_results(tmp_path / "binary.json")
    with pytest.raises(DiskError, match=r"missing\.json"):
        read_results(tmp_path / "missing.json")


def test_a_document_cut_anywhere_is_refused(tmp_path: Path) -> None:
    text = as_json(results_of([excerpt_of(quick_run())]))
    for end in range(0, len(text) - 2, len(text) // 40):
        with pytest.raises(DataError, match="not a JSON document"):
            read_results(written(tmp_path, text[:end]))


def test_figures_and_verdict_are_computed_again(tmp_path: Path) -> None:
    content = content_of(quick_run(tokens=4))
    (run,) = content["runs"]
    run["summary"]["decode_tps"] = 1e6
    run["limit"]["sentence"] = "Nothing limits it."
    run["verdict"] = {"valid": True, "reasons": [], "findings": []}
    (read,) = read_results(written(tmp_path, content))
    assert read.summary == quick_run(tokens=4).summary
    assert read.limit.sentence != "Nothing limits it."
    assert [each.name for each in read.verdict.findings] == ["imprecise"]


def test_a_finding_that_only_the_raw_files_show_is_kept(tmp_path: Path) -> None:
    content = content_of(talkative_run())
    (read,) = read_results(written(tmp_path, content))
    assert {"lease lost", "storage full", "degenerate text"} <= {
        each.name for each in read.verdict.findings
    }


def numbers(content: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(content, dict | list):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in list(pairs):
            if isinstance(value, int | float | None):
                yield content, key
            else:
                yield from numbers(value)


@pytest.mark.parametrize("seed", range(60))
def test_no_number_ends_in_a_traceback(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    content = content_of(chance.choice([quick_run(tokens=12), talkative_run(), storage_run()]))
    places = list(numbers(content["runs"]))
    for holder, key in chance.sample(places, chance.randint(1, 6)):
        holder[key] = chance.choice([0, 1, -1, 2, 0.5, 1e-300, 1e300, 2**62, None, True, 10**6])
    try:
        read = read_results(written(tmp_path, content))
    except ArmloadError:
        return
    assert len(read) == 1
