"""A chat template that transformers cannot parse is refused before anything is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from armload.conversion.checkpoints.soundness import check_templates
from armload.core.errors import DataError

MISTAKES = {
    "an open block": "{% for message in messages %}{{ message.content }}",
    "an open expression": "{{ messages[0].content ",
    "an end without a beginning": "{{ bos_token }}{% endif %}",
    "no such tag": "{% wile true %}{% endwile %}",
    "no such filter": "{{ messages | reversed_twice }}",
    "no such test": "{{ messages is lengthy }}",
    "bad nesting": "{% for m in messages %}{% if m %}{% endfor %}{% endif %}",
    "an open text": "{{ 'assistant }}",
    "two operators": "{{ 1 + * 2 }}",
    "nested too deep": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "blocks nested too deep": "{% if 1 %}" * 200 + "{% endif %}" * 200,
    "too long": "x" * (1 << 21),
    "an open generation": "{% generation %}x",
}
RIGHT = (
    "",
    "{% for m in messages %}{% generation %}{{ m.content | trim }}{% endgeneration %}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'x' %}{% break %}{% endif %}{% endfor %}",
    "{{ tools | tojson(indent=4, ensure_ascii=False) }}{{ raise_exception('no') }}",
    "{%- macro f(x) -%}{{ strftime_now('%d') ~ x }}{%- endmacro -%}{{ f(bos_token) }}",
    "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ messages[::-1] | selectattr('role') }}",
)


def in_a_file(folder: Path, text: str) -> None:
    (folder / "chat_template.jinja").write_text(text)


def in_the_settings(folder: Path, text: str) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": text}))


def in_a_list(folder: Path, text: str) -> None:
    templates = [{"name": "default", "template": "x"}, {"name": "tool_use", "template": text}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))


def in_a_file_of_its_own(folder: Path, text: str) -> None:
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": text}))


def in_a_folder(folder: Path, text: str) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text(text)


PLACES: tuple[Callable[[Path, str], None], ...] = (
    in_a_file,
    in_the_settings,
    in_a_list,
    in_a_file_of_its_own,
    in_a_folder,
)


@pytest.mark.parametrize("place", PLACES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_template_that_does_not_parse_is_named(
    tmp_path: Path, name: str, place: Callable[[Path, str], None]
) -> None:
    place(tmp_path, MISTAKES[name])
    with pytest.raises(DataError) as caught:
        check_templates(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "the chat template " in caught.value.message
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("place", PLACES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("text", RIGHT)
def test_what_transformers_parses_is_accepted(
    tmp_path: Path, text: str, place: Callable[[Path, str], None]
) -> None:
    place(tmp_path, text)
    check_templates(tmp_path)


@pytest.mark.parametrize("stated", [5, {"a": 1}, [7], [{"name": "x"}, 8], True])
def test_a_template_that_is_no_text_is_refused(tmp_path: Path, stated: object) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": stated}))
    with pytest.raises(DataError):
        check_templates(tmp_path)
