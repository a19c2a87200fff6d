"""armload-score: what a model's chat template says of its thoughts."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.build.archive import Archive
from armload.core.progress import Silent
from armload.core.yamlfile import load_named
from tests.chat_models import with_chat_template
from tests.system.scoring import generated, score, story

pytestmark = pytest.mark.build

exhaustive = pytest.mark.exhaustive(covers=["toolchains"])

FAMILIES = {
    "openai-gpt-oss-120b": (
        "<|channel|>analysis<|message|>",
        "<|end|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]", "\n[/THINK]\n\n"),
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>", "\n</seed:think>\n\n"),
    "Cohere2MoE": (
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|END_THINKING|><|START_TEXT|>",
    ),
    "upstage-Solar-Open-100B": ("<|think|>", "<|end|>", "<|end|><|begin|>assistant<|content|>"),
    "google-gemma-4-31B-it": ("<|channel>thought", "<channel|>", "\n<channel|>\n\n"),
    "Qwen-Qwen3-0.6B": ("<think>", "</think>", "\n</think>\n\n"),
}
"""Of templates in llama.cpp's source: what begins and ends a thought, and what closes it."""

UNKNOWN_TO_LLAMA_CPP = {
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "◁think▷": "◁/think▷",
    "Here is my thought process:": "Here is my response:",
}


@exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_a_thought_is_closed_as_the_chat_template_does(
    family: str, scorer: Path, stories: Path, tmp_path: Path
) -> None:
    begin, end, closing = FAMILIES[family]
    source = load_named("toolchains/sources", "llama-cpp", Archive).provide(Silent())
    template = source / "models" / "templates" / f"{family}.jinja"
    closes(begin, end, closing, template.read_text(), (scorer, stories, tmp_path))


@exhaustive
@pytest.mark.parametrize("begin", UNKNOWN_TO_LLAMA_CPP)
def test_families_are_known_where_llama_cpp_finds_no_tags(
    begin: str, scorer: Path, stories: Path, tmp_path: Path
) -> None:
    end = UNKNOWN_TO_LLAMA_CPP[begin]
    template = f"{{# {begin} {end} #}}{{% for message in messages %}}{{{{ message.content }}}}\n"
    closes(begin, end, f"\n{end}\n\n", template + "{% endfor %}", (scorer, stories, tmp_path))


def closes(
    begin: str, end: str, closing: str, template: str, place: tuple[Path, Path, Path]
) -> None:
    """Check that a thought which the prompt opens is closed before the conclusion."""
    scorer, stories, folder = place
    opened = f"{template}{{{{ {begin!r} }}}}"
    model = with_chat_template(stories, folder / "chat.gguf", opened)
    item = story(template="model", max_tokens=1, conclude=" The end.", conclude_tokens=1)
    answer = generated(
        score(scorer, folder, [{**item, "date": "2026-01-31"}], "-c", "8192", model=model)["story"]
    )
    assert (answer.thought_tags.begin, answer.thought_tags.end) == (begin, end)
    assert answer.thinks_from_start
    assert f"{closing} The end." in answer.text
    assert answer.thought_tags.answer_in(answer.text).startswith(" The end") or not (
        answer.thought_tags.answer
    )
