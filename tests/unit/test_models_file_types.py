"""The file types of llama-quantize, as a person writes them."""

from __future__ import annotations

import pytest

from armload.cli.verbs.quantize import quantize
from armload.core.errors import UsageError
from armload.models.file_types import TENSOR_TYPES, check_importance, distinct_file_types


def test_types_are_read_in_any_case_and_by_their_short_names() -> None:
    assert distinct_file_types(["q8_0", "Q4_K", " q2_k"]) == ("Q8_0", "Q4_K_M", "Q2_K")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("Q4KM", "Did you mean 'Q4_K_M'"),
        ("IQ2XXS", "Did you mean 'IQ2_XXS'"),
        ("", r"no type ''\. To list all \d+: armload model.quantize --help"),
    ],
)
def test_an_unknown_type_is_refused_with_the_nearest(text: str, near: str) -> None:
    with pytest.raises(ValueError, match=near):
        distinct_file_types([text])


def test_help_of_quantize_lists_all_types() -> None:
    _, _, listed = (quantize.__doc__ or "").partition("The types are ")
    types = listed.partition(".\n")[0].replace(",", " ").split()
    assert types == list(TENSOR_TYPES)


def test_two_names_of_one_type_are_refused() -> None:
    with pytest.raises(ValueError, match="Q4_K and q4_k_m are the same type"):
        distinct_file_types(["Q4_K", "Q8_0", "q4_k_m"])


def test_a_type_that_needs_an_importance_matrix_is_refused_without_one() -> None:
    with pytest.raises(UsageError, match=r"IQ2_XXS,Q2_K_S: .*importance matrix") as raised:
        check_importance(["Q2_K", "IQ2_XXS", "Q2_K_S"], has_importance=False)
    assert "--calibration FILE" in raised.value.remedy
    check_importance(["IQ2_XXS"], has_importance=True)
    check_importance(["Q2_K", "IQ4_XS", "IQ3_M", "TQ1_0"], has_importance=False)
