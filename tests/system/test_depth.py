"""``bench --depth`` fills a context once, and then measures what a longer prompt would give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.person import Person

pytestmark = pytest.mark.build

RUN_FAILED = 9

HERE = "target: host\nreach: {{kind: local}}\nworkdir: {workdir}\n"
WORDS = (
    *("bench", "--board", "here", "--model", "word-problems:Q8_0", "--prompt-tokens", "8"),
    *("-n", "12", "--json"),
)


def test_a_context_is_filled_once_and_every_run_restores_it(tmp_path: Path) -> None:
    person = Person(tmp_path / "ann")
    work = tmp_path / "board"
    person.add_board("here", HERE.format(workdir=work))
    said = person.types(*WORDS, "--depth", "100", "--threads", "1,2").stderr
    runs = [json.loads(path.read_text()) for path in person.runs.glob("*/run.json")]
    (filling,) = [run for run in runs if not run["plan"]["depth_tokens"]]
    deep = [run for run in runs if run["plan"]["depth_tokens"]]
    assert said.count("filling a context of 100 tokens") == 1
    assert "Not fetched" not in said
    assert filling["summary"]["prefill_tokens"] == 100
    assert [run["restored_tokens"] for run in deep] == [100, 100]
    assert [run["summary"]["prefill_tokens"] for run in deep] == [8, 8]
    assert [run["summary"]["decode_tokens"] for run in deep] == [11, 11]
    names = {each["name"] for run in deep for each in run["verdict"]["findings"]}
    assert not names & {"context depth", "token count", "failed"}
    # The words are those of one prompt, so the text is, too.
    whole = json.loads(
        person.types(*WORDS[:6], "108", "-n", "12", "--json", "--repeats", "1").stdout
    )
    assert {run["text"] for run in deep} == {whole["text"]}

    (saved,) = work.glob("contexts/*/context")
    saved.write_bytes(saved.read_bytes()[:-1000])
    single = (*WORDS, "--depth", "100", "--repeats", "1", "--new")
    damaged = json.loads(person.types(*single, status=RUN_FAILED).stdout)
    assert damaged["restored_tokens"] == 0
    assert not saved.exists()
    again = person.types(*single)
    assert "filling a context of 100 tokens" in again.stderr
    assert json.loads(again.stdout)["restored_tokens"] == 100
