"""armload-score with a real model, on this machine: answers are right, complete, and survive."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from armload.analysis.summary import generating, prompting
from armload.build.binary import Binary
from armload.core.progress import Silent
from armload.engines.answers import (
    Answer,
    GeneratedAnswer,
    LikelihoodAnswer,
    TokenizedAnswer,
    read_answers,
)
from armload.engines.scorer import Scoring, ScoringPlan, look_at_items
from armload.models.gguf import read_model
from armload.runs.pipeline import execute
from armload.runs.request import Request
from armload.runs.session import session
from tests.outside_data import shared
from tests.person import BOARDS
from tests.system.engines import emulator
from tests.system.scoring import (
    CONTEXT,
    PROMPT,
    Item,
    command,
    generated,
    refused,
    score,
    steps,
    story,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.build

exhaustive = pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])

# With values of 16 bits, other positions in the cache change a log-likelihood by up to 0.02.
PRECISE_CACHE = ("-ctk", "f32", "-ctv", "f32")


def test_a_greedy_answer_is_the_text_of_llama_cpps_own_program(
    scorer_and_completion: tuple[Binary, Binary], stories: Path, tmp_path: Path
) -> None:
    scorer, completion = scorer_and_completion
    answer = generated(score(scorer.path, tmp_path, [story(max_tokens=150)])["story"])
    words = [
        *emulator(),
        str(completion.path),
        "-m",
        str(stories),
        "-p",
        PROMPT,
        "-n",
        "150",
        "--temp",
        "0",
    ]
    done = subprocess.run(
        [*words, "-no-cnv", "--no-display-prompt", "-t", "1", "-c", str(CONTEXT)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.rstrip("\n") == answer.text.rstrip("\n")
    assert shared("stories260K.expected.txt").read_text().startswith(answer.text)
    assert (answer.prompt_tokens, len(answer.tokens), answer.stop) == (5, 150, "budget")
    assert [answer.start_ns, *answer.times_ns] == sorted([answer.start_ns, *answer.times_ns])
    assert [step.prompt_tokens for step in prompting(steps(tmp_path))] == [5]
    assert [step.generated_tokens for step in generating(steps(tmp_path))] == [1] * 149


@exhaustive
def test_a_long_answer_that_is_cut_is_a_shorter_run(scorer: Path, tmp_path: Path) -> None:
    longer = generated(score(scorer, tmp_path, [story(max_tokens=60)])["story"])
    for budget in (1, 25, 59):
        shorter = generated(score(scorer, tmp_path, [story(max_tokens=budget)])["story"])
        assert longer.tokens[:budget] == shorter.tokens
        assert longer.text_after(budget) == shorter.text


@pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])
def test_four_items_at_a_time_are_all_answered_once(scorer: Path, tmp_path: Path) -> None:
    stories = [story(f"g{n}", prompt="Lily " * n + PROMPT, max_tokens=5 + n) for n in range(14)]
    choices: list[Item] = [
        {
            "id": f"l{n}",
            "kind": "likelihood",
            "context": "Once " * (n + 1),
            "continuations": [" upon a time", " more", " Lily", " the end", " is", " a"],
        }
        for n in range(6)
    ]
    items = [each for pair in zip(stories, choices, strict=False) for each in pair] + stories[6:]
    one_by_one = score(scorer, tmp_path, items, *PRECISE_CACHE)
    together = score(scorer, tmp_path, items, *PRECISE_CACHE, "--parallel", "4")
    for name, answer in together.items():
        alone = one_by_one[name]
        if isinstance(answer, LikelihoodAnswer):
            assert isinstance(alone, LikelihoodAnswer)
            for left, right in zip(answer.continuations, alone.continuations, strict=True):
                assert left.log_likelihoods == pytest.approx(right.log_likelihoods, abs=0.005)
        else:
            assert len(generated(answer).tokens) == len(generated(alone).tokens)
    again = score(scorer, tmp_path, items, *PRECISE_CACHE, "--parallel", "4")
    assert {name: texts(each) for name, each in again.items()} == {
        name: texts(each) for name, each in together.items()
    }


def texts(answer: Answer) -> object:
    return answer.text if isinstance(answer, GeneratedAnswer) else answer.model_dump(exclude=TIMES)


TIMES = {"start_ns", "end_ns"}


@exhaustive
def test_a_pass_takes_a_token_of_every_item(scorer: Path, tmp_path: Path) -> None:
    score(scorer, tmp_path, [story(str(n), max_tokens=20) for n in range(8)], "--parallel", "4")
    found = steps(tmp_path)
    # The last token of each answer is not decoded.
    assert [step.generated_tokens for step in generating(found)] == [4] * 38
    assert sum(step.prompt_tokens for step in found) == 8 * 5
    assert {step.sequences for step in found} == {4}


@exhaustive
def test_a_prompt_that_exceeds_a_pass_holds_nobody_up(scorer: Path, tmp_path: Path) -> None:
    items = [story("short"), story("long", prompt="Lily saw a cat. " * 12, max_tokens=5)]
    answers = score(scorer, tmp_path, items, "--parallel", "2", "-ub", "16")
    assert generated(answers["long"]).prompt_tokens > 64
    assert (
        generated(answers["short"]).text
        == generated(score(scorer, tmp_path, items[:1])["short"]).text
    )
    mixed = [step for step in steps(tmp_path) if step.tokens > 1]
    assert mixed
    assert max(step.tokens for step in mixed) <= 16


@exhaustive
def test_who_writes_gets_a_token_of_every_pass(scorer: Path, tmp_path: Path) -> None:
    choices = [f"Lily saw a {thing}. " * 12 for thing in ("cat", "dog")]
    items: list[Item] = [
        {"id": "l", "kind": "likelihood", "context": PROMPT, "continuations": [" a", *choices]},
        story(max_tokens=12),
    ]
    score(scorer, tmp_path, items, "--parallel", "2", "-ub", "16")
    found = steps(tmp_path)
    # The likelihood's 160 tokens follow the prompts, and would fill ten passes.
    assert [step.generated_tokens for step in found[1:12]] == [1] * 11
    assert [step.tokens for step in found[1:9]] == [16] * 8


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (story(prompt="Lily " * 300), r"it has \d{3} tokens, but the context has only 256"),
        (story(prompt=None, messages=[{"role": "user", "content": "Hi"}]), "no chat template"),
        (story(max_tokens=0), "max_tokens: must be a whole number from 1"),
        (story(max_token=3), "max_token: no such key"),
        (story(template="alpaca"), "template: must be model, chatml or none"),
        (story(conclude="So"), "give both or none"),
        (story(kind="sing"), "kind: must be generate"),
        ({"id": "x", "kind": "logits", "prompt": "a", "positions": [9]}, "positions: must be"),
        ({"id": "x", "kind": "likelihood", "context": "a", "continuations": [""]}, "no token"),
        ({"id": "x", "kind": "likelihood", "context": "a", "continuations": ["a " * 300]}, "only"),
        ({"id": "x", "kind": "likelihood", "context": [1], "continuations": []}, "there is none"),
        (
            {"id": "x", "kind": "likelihood", "context": [1], "continuations": [" a"]},
            "each must be",
        ),
        ({"id": "x", "kind": "likelihood", "context": [1], "continuations": [[]]}, "each must be"),
        ({"id": "x", "kind": "likelihood", "context": [512], "continuations": [[1]]}, "one is 512"),
        ({"id": "x", "kind": "likelihood", "context": [1], "continuations": [[-1]]}, "one is -1"),
        ({"id": "x", "kind": "likelihood", "context": [1.5], "continuations": [[1]]}, "one is 1.5"),
    ],
)
def test_what_cannot_be_answered_is_said_and_stops_no_other(
    scorer: Path, tmp_path: Path, item: Item, why: str
) -> None:
    answers = score(scorer, tmp_path, [item, story("good", max_tokens=3)])
    assert re.search(why, refused(answers[str(item["id"])]))
    assert len(generated(answers["good"]).tokens) == 3


@exhaustive
def test_tokens_are_scored_as_their_text_is(scorer: Path, tmp_path: Path) -> None:
    context, choices = PROMPT, [", there was a cat", " Lily went home"]
    asked = [context, *(context + choice for choice in choices)]
    items: list[Item] = [
        {"id": "text", "kind": "likelihood", "context": context, "continuations": choices},
        {"id": "start", "kind": "likelihood", "context": "", "continuations": [context]},
        *({"id": str(n), "kind": "tokenize", "text": text} for n, text in enumerate(asked)),
    ]
    found = score(scorer, tmp_path, items)
    begin, *both = [tokens(found[str(n)]) for n in range(len(asked))]
    given: list[Item] = [
        {
            "id": "text",
            "kind": "likelihood",
            "context": begin,
            "continuations": [each[len(begin) :] for each in both],
        },
        {"id": "start", "kind": "likelihood", "context": [], "continuations": [begin[1:]]},
    ]
    again = score(scorer, tmp_path, given)
    assert {name: texts(answer) for name, answer in again.items()} == {
        name: texts(found[name]) for name in again
    }


@exhaustive
def test_the_last_items_wait_for_each_others_sequences(scorer: Path, tmp_path: Path) -> None:
    # Of -np 2 the continuations have eight sequences, and no third item begins.
    choices = [f" {name} went to the park" for name in ("Lily", "Tom", "Max", "Mia")]
    items: list[Item] = [
        {"id": name, "kind": "likelihood", "context": PROMPT, "continuations": choices * 2}
        for name in ("one", "two")
    ]
    one, two = score(scorer, tmp_path, items, *PRECISE_CACHE, "--parallel", "2").values()
    assert isinstance(one, LikelihoodAnswer)
    assert isinstance(two, LikelihoodAnswer)
    assert len(one.continuations) == 8
    expected = [each.log_likelihood for each in one.continuations]
    assert [each.log_likelihood for each in two.continuations] == pytest.approx(expected, abs=0.005)


def tokens(answer: Answer) -> list[int]:
    assert isinstance(answer, TokenizedAnswer)
    return list(answer.tokens)


def test_a_line_that_is_no_item_is_named_and_fails_the_run(scorer: Path, tmp_path: Path) -> None:
    words = command(scorer, tmp_path, [story(max_tokens=3)])
    with (tmp_path / "items.jsonl").open("a") as items:
        items.write("not JSON\n")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "items.jsonl, line 2: not a JSON object" in done.stderr
    assert json.loads(done.stdout)["id"] == "story"


def nested(levels: int, *, begin: str = "[", end: str = "]") -> str:
    return begin * levels + (begin + end) + end * levels


@pytest.mark.parametrize(
    "value",
    [
        nested(100_000),
        nested(100_000, begin='{"a":', end="}").replace('{"a":}', "0"),
        nested(99),
    ],
    ids=["lists", "objects", "one level too deep"],
)
def test_an_item_that_is_nested_too_deep_is_refused_and_the_others_are_answered(
    scorer: Path, tmp_path: Path, value: str
) -> None:
    words = command(scorer, tmp_path, [story("before", max_tokens=3)])
    with (tmp_path / "items.jsonl").open("a") as items:
        deep = json.dumps(story("deep", prompt="VALUE", max_tokens=3))
        items.write(deep.replace('"VALUE"', value) + "\n")
        items.write(json.dumps(story("after", max_tokens=3)) + "\n")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = {each["id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert answers["deep"]["error"] == "nested deeper than 100 levels"
    assert answers["before"]["tokens"] == answers["after"]["tokens"]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        (".", "Is a directory"),
        ("missing.jsonl", "No such file or directory"),
        ("/proc/self/mem", "I/O error"),
        ("/dev/zero", "longer than 16777216 bytes"),
    ],
)
def test_items_that_cannot_be_read_fail_the_run(
    scorer: Path, tmp_path: Path, items: str, reason: str
) -> None:
    words = command(scorer, tmp_path, [])
    words[words.index("items.jsonl")] = items
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"armload-score: {items}" in done.stderr
    assert reason in done.stderr.splitlines()[-1]


@exhaustive
def test_a_text_stops_at_a_word_and_its_length_is_that_of_the_text(
    scorer: Path, tmp_path: Path
) -> None:
    answer = generated(score(scorer, tmp_path, [story(stop=["Lily", "park"])])["story"])
    assert (answer.text, answer.stop) == (", there was a little girl named ", "stop")
    assert answer.text_bytes[-1] == len(answer.text)


def test_a_budget_that_is_used_up_is_concluded(scorer: Path, tmp_path: Path) -> None:
    item = story(max_tokens=10, conclude=" The end: she", conclude_tokens=5)
    answer = generated(score(scorer, tmp_path, [item])["story"])
    assert answer.conclude_from == 10
    before = answer.text_after(10)
    assert answer.text.startswith(before + " The end: she")
    assert answer.text_after(len(answer.tokens) - 5) == before + " The end: she"
    plain = generated(score(scorer, tmp_path, [story(max_tokens=10)])["story"])
    assert plain.text == before


@exhaustive
def test_sampling_repeats_with_its_seed(scorer: Path, tmp_path: Path) -> None:
    items = [
        story(name, temperature=1.5, top_k=50, top_p=0.95, seed=seed)
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    ]
    answers = {name: generated(each).text for name, each in score(scorer, tmp_path, items).items()}
    assert answers["one"] == answers["same"]
    assert answers["one"] != answers["other"]


@pytest.mark.exhaustive(covers=["armload/engines", "toolchains"])
def test_a_killed_scorer_leaves_whole_lines_and_the_rest_can_follow(
    scorer: Path, tmp_path: Path
) -> None:
    items = [story(f"g{n}", max_tokens=60) for n in range(8)]
    output = tmp_path / "stdout"
    with output.open("wb") as file:
        words = command(scorer, tmp_path, items, "--parallel", "4")
        running = subprocess.Popen(words, cwd=tmp_path, stdout=file, stderr=subprocess.DEVNULL)
    wait_until(lambda: output.read_bytes().count(b"\n") >= 4, running, within_s=300)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert output.read_bytes().endswith(b"\n")
    done = {answer.id for answer in read_answers(output)}
    assert 4 <= len(done) < len(items)
    left = [item for item in items if item["id"] not in done]
    assert done.isdisjoint(score(scorer, tmp_path, left, "--parallel", "4"))


@exhaustive
def test_streamed_weights_give_the_same_answers(scorer: Path, tmp_path: Path) -> None:
    items = [story(str(n), max_tokens=10) for n in range(3)]
    held = score(scorer, tmp_path, items, "--no-repack")
    variables = {"ARMLOAD_WEIGHTS": "streamed", "ARMLOAD_RESIDENT": "0"}
    streamed = score(scorer, tmp_path, items, "--no-repack", "--poll", "0", variables=variables)
    assert '"weights":"streamed"' in (tmp_path / "trace.jsonl").read_text()
    for name in held:
        assert generated(held[name]).text == generated(streamed[name]).text


@pytest.mark.exhaustive(covers=["armload/engines", "armload/runs", "toolchains"])
def test_a_board_scores_items_like_any_other_run(
    scorer_and_completion: tuple[Binary, Binary],
    stories: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    shutil.copy(BOARDS / "qemu-user.yaml", tmp_path / "boards")
    (tmp_path / "boards" / "here.yaml").write_text(
        f"extends: qemu-user\nworkdir: {tmp_path}/board\n"
    )
    items = tmp_path / "items.jsonl"
    items.write_text("".join(f"{json.dumps(story(str(n)))}\n" for n in range(6)))
    sha256, count = look_at_items(items)
    plan = ScoringPlan(
        items_sha256=sha256, items_count=count, context_tokens=CONTEXT, parallel=2, threads=1
    )
    engine = Scoring(plan, scorer_and_completion[0], read_model(stories, Silent()), items)
    with session(Request(board="here", wait_s=0), (), Silent()) as where:
        run, folder = execute(where, engine, Silent(), new=False)
    assert run.exit.status == 0
    assert not {"degenerate text", "output missing", "imprecise", "no trace"} & {
        finding.name for finding in run.verdict.findings
    }
    assert run.result == {
        "answers": 6,
        "errors": 0,
        "prompt_tokens": 30,
        "generated_tokens": 360,
        "scored_tokens": 0,
    }
    assert len(read_answers(folder / "stdout")) == 6
