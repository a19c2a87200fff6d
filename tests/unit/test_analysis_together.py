"""Which of several models a service holds in memory at a time, and what a switch takes."""

from __future__ import annotations

import pytest

from armload.analysis.together import HeldModel, held_together

SIZES = (("a", 300, 1.5), ("b", 200, 0.5), ("c", 100, None))
MODELS = [HeldModel(name, size, load_s) for name, size, load_s in SIZES]


def test_a_single_model_needs_no_words() -> None:
    assert held_together(MODELS[:1], 100) == (1, "")


@pytest.mark.parametrize(
    ("free_bytes", "wanted", "loaded"),
    [
        *((600, None, 3), (599, None, 2), (500, None, 2), (499, None, 1), (-9, None, 1)),
        *((600, 2, 2), (499, 2, 2), (600, 9, 3), (600, 1, 1)),
    ],
)
def test_as_many_as_fit_whichever_they_are(
    free_bytes: int, wanted: int | None, loaded: int
) -> None:
    found = held_together(MODELS, free_bytes, wanted)
    assert found.most_loaded == loaded
    fits = free_bytes >= 600
    assert ("a, b and c fit into memory together (600 B of" in found.sentence) is fits
    assert ("do not fit" in found.sentence) is not fits
    assert ("A switch takes about" in found.sentence) is (loaded < 3)
    assert ("may run out of memory" in found.sentence) is (free_bytes == 499 and wanted == 2)
    assert "of -" not in found.sentence


def test_a_switch_takes_what_loading_each_takes_where_that_is_known() -> None:
    said = held_together(MODELS, 300).sentence
    assert "to a, " in said
    assert " to b, less while the file is in the page cache." in said
    assert " to c" not in said
    unknown = [each._replace(load_s=None) for each in MODELS]
    assert "How long a switch takes is unknown" in held_together(unknown, 300).sentence
