"""Whether a checkpoint's chat templates parse, as transformers parses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from armload.conversion.checkpoints.checkpoint import read_object
from armload.core.errors import DataError
from armload.core.files import unreadable

_MOST_BYTES = 1 << 20
_SETTINGS = ("tokenizer_config.json", "chat_template.json")
_FOLDER = "additional_chat_templates"


def check_templates(folder: Path) -> None:
    """Refuse a chat template that does not parse."""
    for where, text in _templates(folder):
        if len(text) > _MOST_BYTES:
            raise DataError(
                f"{where}: the chat template is longer than {_MOST_BYTES >> 20} MiB.",
                "Use the template of the model's publisher.",
            )
        if mistake := _mistake(text):
            raise DataError(
                f"{where}: the chat template does not parse: {mistake}.",
                "Use the template of the model's publisher. Without any, the file is for plain "
                "continuations only: remove the template from the checkpoint.",
            )


def _templates(folder: Path) -> Iterator[tuple[str, str]]:
    for path in (folder / "chat_template.jinja", *sorted((folder / _FOLDER).glob("*.jinja"))):
        if path.is_file():
            yield str(path), _text(path)
    for name in _SETTINGS:
        path = folder / name
        stated = read_object(path).get("chat_template") if path.is_file() else None
        for each in stated if isinstance(stated, list) else [stated]:
            text = each.get("template") if isinstance(each, dict) else each
            if isinstance(text, str):
                named = f", {each.get('name')!r}" if isinstance(each, dict) else ""
                yield f"{path}{named}", text
            elif each is not None:
                yield str(path), "{{"  # neither a text nor a list of them


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES + 1).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Download it again.") from error
    except OSError as error:
        raise unreadable(path, error) from error


def _mistake(template: str) -> str:
    from jinja2 import TemplateSyntaxError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """What marks an assistant's words for training, which transformers adds to Jinja."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = str  # transformers' own has further arguments
    try:
        environment.compile(template)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except (SyntaxError, RecursionError, MemoryError, ValueError, OverflowError) as error:
        return f"it is nested too deep, or Python cannot compile it ({type(error).__name__})"
    return ""
