"""armload-score for tests: run under qemu-user with a real model."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload.engines.answers import (
    Answer,
    FailedAnswer,
    GeneratedAnswer,
    read_answers,
)
from armload.engines.trace import Step
from tests.outside_data import shared
from tests.system.engines import emulator, read_trace

PROMPT = "Once upon a time"
CONTEXT = 256
Item = Mapping[str, object]


def command(
    scorer: Path, folder: Path, items: Sequence[Item], *extra: str, model: Path | None = None
) -> list[str]:
    (folder / "items.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))
    model = model or shared("stories260K.gguf")
    words = [*emulator(), str(scorer), "-m", str(model), "-t", "1", "-c", str(CONTEXT)]
    return [*words, "--items", "items.jsonl", "--logits", "logits.f32", *extra]


def score(
    scorer: Path,
    folder: Path,
    items: Sequence[Item],
    *extra: str,
    model: Path | None = None,
    variables: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> dict[str, Answer]:
    environment = {**os.environ, "ARMLOAD_TRACE": str(folder / "trace.jsonl"), **(variables or {})}
    (folder / "trace.jsonl").unlink(missing_ok=True)
    with (folder / "stdout").open("wb") as output:
        done = subprocess.run(
            [*launcher, *command(scorer, folder, items, *extra, model=model)],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answers = read_answers(folder / "stdout")
    assert sorted(each.id for each in answers) == sorted(str(item["id"]) for item in items)
    return {each.id: each for each in answers}


def story(name: str = "story", **more: object) -> Item:
    return {"id": name, "kind": "generate", "prompt": PROMPT, "max_tokens": 60, **more}


def generated(answer: Answer) -> GeneratedAnswer:
    assert isinstance(answer, GeneratedAnswer), answer
    return answer


def refused(answer: Answer) -> str:
    assert isinstance(answer, FailedAnswer), answer
    return answer.error


def steps(folder: Path) -> list[Step]:
    return read_trace(folder / "trace.jsonl")[1]
