"""Which model of a repository a type means."""

from __future__ import annotations

import pytest

from armload.models.hub_reference import NoSuchModelError, choose_model, repository_named
from armload.models.hub_sites import HubFile


def chosen(wanted: str, *paths: str) -> str:
    files = [HubFile(path=path, size_bytes=1, digest="") for path in paths]
    return choose_model(repository_named(f"hf:org/repo:{wanted}", "model"), files).path


@pytest.mark.parametrize(
    ("wanted", "other", "path"),
    [
        ("F16", "tiny-BF16.gguf", "tiny-F16.gguf"),
        ("f16", "BF16/tiny-BF16.gguf", "tiny.F16.gguf"),
        ("Q1_0", "tiny-TQ1_0.gguf", "tiny_Q1_0.gguf"),
        ("Q4_NL", "tiny-IQ4_NL.gguf", "tiny-UD-Q4_NL.gguf"),
    ],
)
def test_a_type_is_not_found_within_the_name_of_another(wanted: str, other: str, path: str) -> None:
    assert chosen(wanted, other, path) == path
    with pytest.raises(NoSuchModelError, match=f"no GGUF model of type {wanted}"):
        chosen(wanted, other)
