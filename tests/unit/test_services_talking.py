"""Which of a board's services a person talks to who names none."""

from __future__ import annotations

import pytest

from armload.boards.board import load_board
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.services import talking
from armload.services.listing import ListedService
from armload.services.talking import service_to_talk_to
from tests.golden.results import value

RUN, _, INSTALLED = sorted(
    value("listed-services", tuple[ListedService, ...]), key=lambda each: each.kind == "installed"
)
SECOND = INSTALLED.model_copy(update={"name": "poet", "models": "qwen, gemma"})
STOPPED = SECOND.model_copy(update={"condition": "stopped"})


@pytest.mark.parametrize(
    ("there", "model", "named"),
    [
        ((), "", ""),
        ((INSTALLED,), "", INSTALLED.name),
        ((INSTALLED,), f"{INSTALLED.models}.gguf", INSTALLED.name),
        ((INSTALLED,), "another", ""),
        ((INSTALLED, SECOND), "gemma", "poet"),
        ((INSTALLED, STOPPED), "", INSTALLED.name),
        ((RUN, INSTALLED), "", ""),
    ],
)
def test_one_that_answers_and_has_the_model(
    there: tuple[ListedService, ...], model: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talking, "services_of", lambda *_: there)
    assert service_to_talk_to(load_board("virtual"), model, Silent()) == named


def test_of_several_one_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talking, "services_of", lambda *_: (INSTALLED, SECOND))
    with pytest.raises(UsageError, match="--service"):
        service_to_talk_to(load_board("virtual"), "", Silent())
