"""Programs that the shipped sources really have."""

from __future__ import annotations

import pytest

from armload.build.programs import programs_chosen, programs_offered
from armload.build.source import choose
from armload.core.progress import Silent

pytestmark = pytest.mark.build
ASKED = (
    "llama-completion",
    "llama-cli",
    "llama-bench",
    "llama-server",
    "llama-quantize",
    "llama-perplexity",
    "rpc-server",
)


@pytest.mark.parametrize(
    ("source", "other_names"),
    [
        ("llama-cpp", {"rpc-server": "ggml-rpc-server"}),
        ("llama-cpp-2025-08", {"llama-completion": "llama-cli"}),
    ],
)
def test_every_program_that_is_promised_is_found(source: str, other_names: dict[str, str]) -> None:
    folder = choose(source, ref="", progress=Silent()).provide(Silent())
    expected = sorted({other_names.get(program, program) for program in ASKED})
    offered = programs_offered(folder)
    assert programs_chosen(source, offered, ASKED) == expected
    assert set(expected) <= set(offered)
    for elsewhere in ("ggml-metal-tuning", "test-rpc-multi-server", "llama-ui"):
        assert elsewhere not in offered
