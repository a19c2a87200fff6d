"""What a verb that runs llama.cpp alone says of ``--engine``."""

from __future__ import annotations

import pytest

from armload.cli.mistakes import unknown_option


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        ("serve", "takes one request at a time"),
        ("load", "takes one request at a time"),
        ("eval", "only its scorer answers a file of questions"),
        ("tune", "whose options it searches"),
    ],
)
def test_verbs_that_have_no_other_engine_say_why_and_what_to_use(verb: str, why: str) -> None:
    error = unknown_option("--engine", verb, ["--board", "--model"])
    message = f"{error.message} {error.remedy}"
    assert why in message
    assert "bench --engine llama.cpp,dllama" in message
