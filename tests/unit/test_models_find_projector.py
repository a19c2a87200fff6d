"""Which projector is found for a model, and what is refused before it is copied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from armload.bench.combination import combination
from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.engines.service_plan import ServingPlan
from armload.models.find_projector import AUTO, find_projector, find_projector_header
from armload.models.gguf import read_model, read_outline
from armload.models.packaged import word_problems_model
from armload.models.projector import Projector, read_projector
from armload.models.projector_choice import by_likelihood, check_takes
from armload.serving.starting import projector_for
from tests.chat_models import with_chat_template
from tests.projectors import TEMPLATE, write_projector, write_seeing
from tests.unit.projectors import written_projector

WORDS = "word-problems:Q8_0"


def _found(path: Path, named: str = AUTO) -> Projector:
    found = find_projector(named, str(path), path, read_outline(path)[1], Silent())
    assert found is not None
    return found


def test_a_projector_is_read_by_its_header(tmp_path: Path) -> None:
    path, mmproj = write_seeing(tmp_path, word_problems_model(WORDS))
    found = _found(path)
    assert (found.path, found.size_bytes) == (mmproj, mmproj.stat().st_size)
    (encoder,) = found.encoders
    assert (encoder.modality, found.kind, encoder.patch_size) == ("vision", "lfm2", 16)
    assert found.is_dynamic


def test_a_model_is_no_projector(tmp_path: Path) -> None:
    path, _ = write_seeing(tmp_path, word_problems_model(WORDS))
    with pytest.raises(DataError, match="not a projector"):
        _found(path, str(word_problems_model(WORDS)))


def test_a_projector_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path, mmproj = write_seeing(tmp_path, word_problems_model(WORDS))
    mmproj.write_bytes(mmproj.read_bytes()[:-1000])
    with pytest.raises(DataError, match="truncated"):
        _found(path)


def test_the_projector_beside_a_model_fits_it_and_another_one_does_not(tmp_path: Path) -> None:
    path, mmproj = write_seeing(tmp_path, word_problems_model(WORDS))
    write_projector(tmp_path / "mmproj-seeing-Q8_0.gguf", width=64)  # is likelier by its name
    found = _found(path)
    assert found.path == mmproj
    header = read_outline(path)[1]
    check_takes(found, path, header, ["vision"])
    with pytest.raises(UsageError, match=r"--audio: mmproj-seeing-f32\.gguf takes images only"):
        check_takes(found, path, header, ["audio"])
    other = write_projector(tmp_path / "other.gguf", width=64)
    with pytest.raises(UsageError, match="for another model: its embeddings have 64 values"):
        _found(path, str(other))
    mmproj.unlink()
    with pytest.raises(UsageError, match="for another model"):
        _found(path)


@pytest.mark.parametrize("verb", ["bench", "serve", "fit"])
@pytest.mark.parametrize("named", ["auto", "AUTO", "none", "None"])
def test_auto_and_none_mean_the_same_everywhere(tmp_path: Path, verb: str, named: str) -> None:
    path, mmproj = write_seeing(tmp_path, word_problems_model(WORDS))
    model, header = read_outline(path)
    if verb == "serve":
        served = projector_for(model, ServingPlan(mmproj=named), Silent(), str(path))
        found = served and served.path
    elif verb == "fit":
        told = find_projector_header(named, str(path), path, header, Silent())
        found = told and told[0].path
    else:
        told_projector = find_projector(named, str(path), path, header, Silent())
        found = told_projector and told_projector.path
    assert found == (mmproj if named.casefold() == "auto" else None)


def test_auto_needs_a_projector_and_an_image_needs_more_than_none(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(word_problems_model(WORDS).read_bytes())
    model, header = read_outline(path)
    assert find_projector_header("", str(path), path, header, Silent()) is None
    for refused in (
        lambda: find_projector_header(AUTO, str(path), path, header, Silent()),
        lambda: find_projector(AUTO, str(path), path, header, Silent()),
        lambda: projector_for(model, ServingPlan(mmproj=AUTO), Silent(), str(path)),
    ):
        with pytest.raises(UsageError, match="no projector"):
            refused()


def test_without_a_projector_nothing_is_seen_and_text_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    path, _ = write_seeing(tmp_path, word_problems_model(WORDS))
    picture = tmp_path / "p.png"
    _write_png(picture)
    with pytest.raises(UsageError, match="--mmproj none: a model sees and hears nothing"):
        combination(read_model(path), Plan(image=str(picture), mmproj="none"), Silent())
    told = combination(read_model(path), Plan(mmproj="none"), Silent())
    assert told.projector is None
    assert told.plan.mmproj is None


def test_fewer_tokens_than_a_projector_gives_are_refused_before_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    path, _ = write_seeing(tmp_path, word_problems_model(WORDS))
    picture = tmp_path / "p.png"
    _write_png(picture)
    plan = Plan(image=str(picture), image_max_tokens=63)
    with pytest.raises(UsageError, match="an image has at least 64 tokens") as refused:
        combination(read_model(path), plan, Silent(), reference=str(path))
    assert refused.value.remedy == "Use --image-max-tokens 64 or more."
    enough = plan.model_copy(update={"image_max_tokens": 64})
    assert combination(read_model(path), enough, Silent(), reference=str(path)).projector
    served = ServingPlan(mmproj=AUTO, image_max_tokens=8)
    with pytest.raises(UsageError, match="at least 64 tokens"):
        projector_for(read_model(path), served, Silent(), str(path))
    served = ServingPlan(mmproj="none", image_max_tokens=64)
    with pytest.raises(UsageError, match="no effect without a projector"):
        projector_for(read_model(path), served, Silent(), str(path))


def test_a_limit_is_refused_where_an_images_size_does_not_decide(tmp_path: Path) -> None:
    path = with_chat_template(word_problems_model(WORDS), tmp_path / "m.gguf", TEMPLATE)
    _, header = read_outline(path)
    gemma = written_projector(tmp_path / "mmproj-m.gguf", changes={"projector_type": "gemma3"})
    with pytest.raises(UsageError, match=r"--image-max-tokens 64: with mmproj-m\.gguf \(gemma3\)"):
        check_takes(read_projector(gemma), path, header, ["vision"], most_tokens=64)


def test_a_model_without_a_template_has_no_place_for_an_image(tmp_path: Path) -> None:
    path = word_problems_model(WORDS)
    _, header = read_outline(path)
    _, mmproj = write_seeing(tmp_path, path)
    projector = _found(tmp_path / "seeing-Q8_0.gguf", str(mmproj))
    bare = replace(
        header, metadata={k: v for k, v in header.metadata.items() if "template" not in k}
    )
    with pytest.raises(DataError, match="no chat template"):
        check_takes(projector, path, bare, ["vision"])


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
    assert (*by_likelihood(names, model), "")[0] == chosen


def _write_png(path: Path) -> None:
    Image.new("RGB", (64, 48), "navy").save(path)
