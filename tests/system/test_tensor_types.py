"""The table of tensor types is that of the pinned llama.cpp."""

from __future__ import annotations

import re

import pytest

from armload.build.source import pinned_source
from armload.core.progress import Silent
from armload.models.file_types import TENSOR_TYPES
from armload.models.tensor_types import KNOWN_TYPES
from tests.tensor_types import types_of

pytestmark = pytest.mark.build


def test_the_table_is_what_the_compiler_makes_of_the_pinned_source() -> None:
    assert types_of(pinned_source().provide(Silent())) == dict(KNOWN_TYPES)


def test_every_file_type_of_the_pinned_llama_quantize_can_be_named() -> None:
    source = pinned_source().provide(Silent()) / "tools" / "quantize" / "quantize.cpp"
    offered = re.findall(
        r'\{ "(\w+)", *LLAMA_FTYPE_\w+, *"(?!alias|only copy)', source.read_text(encoding="utf-8")
    )
    assert set(offered) == set(TENSOR_TYPES)
