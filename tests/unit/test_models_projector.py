from __future__ import annotations

from pathlib import Path

import pytest

from armload.bench.combination import combination
from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.find import projector_of
from armload.models.gguf import read_model
from armload.models.packaged import word_problems_model
from armload.models.projector import check_fits, choose_projector, projector_called
from tests.projectors import write_projector, write_seeing

WORDS = "word-problems:Q8_0"


def test_a_projector_is_read_by_its_header(tmp_path: Path) -> None:
    found = projector_called(write_projector(tmp_path / "p.gguf", width=64), Silent())
    assert (found.kind, found.modalities, found.width) == ("lfm2", ("image",), 64)
    assert (found.patch_size, found.is_dynamic) == (16, True)
    assert found.size_bytes == (tmp_path / "p.gguf").stat().st_size


def test_a_model_is_no_projector() -> None:
    with pytest.raises(UsageError, match="not a projector"):
        projector_called(word_problems_model(WORDS), Silent())


def test_a_projector_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = write_projector(tmp_path / "p.gguf", width=64)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError):
        projector_called(path, Silent())


def test_the_projector_beside_a_model_fits_it_and_another_one_does_not(tmp_path: Path) -> None:
    path, mmproj = write_seeing(tmp_path, word_problems_model(WORDS))
    model = read_model(path)
    found = projector_of(model, None, Silent())
    assert found.path == mmproj
    check_fits(found, model, "image")
    with pytest.raises(UsageError, match=r"--audio: mmproj-seeing-f32\.gguf takes images only"):
        check_fits(found, model, "audio")
    other = projector_called(write_projector(tmp_path / "other.gguf", width=64), Silent())
    with pytest.raises(UsageError, match="for another model: its embeddings have 64 values"):
        check_fits(other, model, "image")


@pytest.mark.parametrize(
    ("plan", "option"),
    [
        (Plan(mmproj="p.gguf"), "--mmproj p.gguf"),
        (Plan(image_max_tokens=64), "--image-max-tokens 64"),
    ],
)
def test_options_of_images_have_no_effect_without_one(plan: Plan, option: str) -> None:
    with pytest.raises(UsageError, match=f"{option}: it has no effect"):
        combination(read_model(word_problems_model(WORDS)), plan, Silent())


def test_a_model_of_texts_has_no_projector(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(word_problems_model(WORDS).read_bytes())
    with pytest.raises(UsageError, match="no projector"):
        projector_of(read_model(path), None, Silent())


@pytest.mark.parametrize(
    ("names", "model", "chosen"),
    [
        (["a.gguf"], "a.gguf", ""),
        (["mmproj-F32.gguf", "mmproj-F16.gguf"], "a-Q4_K_M.gguf", "mmproj-F16.gguf"),
        (["mmproj-a-f16.gguf", "mmproj-a-Q8_0.gguf"], "a-Q4_K_M.gguf", "mmproj-a-Q8_0.gguf"),
        (["mmproj-a-Q8_0.gguf", "mmproj-b-f16.gguf"], "b-Q4_0.gguf", "mmproj-b-f16.gguf"),
        (["x/b.mmproj-bf16.gguf"], "x/b.Q8_0.gguf", "x/b.mmproj-bf16.gguf"),
    ],
)
def test_of_several_projectors_the_smallest_of_the_models_name_is_taken(
    names: list[str], model: str, chosen: str
) -> None:
    assert choose_projector(names, model) == chosen
