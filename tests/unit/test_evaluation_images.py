"""Questions with images: read from the data's folder, and given to a model that sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from armload.cli.evaluation_options import EvalOptions, check_combination
from armload.core.errors import DataError, UsageError
from armload.core.pictures import read_picture
from armload.core.progress import Silent
from armload.engines.scorer import SeenImages
from armload.evaluation.data import load_questions
from armload.evaluation.items import context_tokens, items_of
from armload.evaluation.preparing import EvaluationRequest, prepare
from armload.evaluation.question import Question
from armload.evaluation.record import Part
from armload.evaluation.task import Task, load_task
from armload.models.packaged import word_problems_model
from armload.models.projector import read_whole_projector
from armload.tuning.request import check_questions
from armload.tuning.wanted import LeastAccuracy
from tests.drawings import FOLDER, drawn, questions
from tests.projectors import write_projector, write_seeing


def task_of(data: Path, **more: object) -> Task:
    settings = {
        "data": str(data),
        "image": "image",
        "fields": {"question": "question", "answer": "answer"},
        "expected": "{{ answer }}",
        "prompts": {"plain": {"user": "{{ question }}"}},
    }
    return Task.model_validate({**settings, **more})


def data_of(folder: Path, *images: object) -> Path:
    lines = [json.dumps({"question": "What?", "answer": "x", "image": each}) for each in images]
    path = folder / "q.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_the_shipped_drawings_are_those_that_are_drawn_with_their_questions() -> None:
    shown = list(drawn())
    assert len(shown) == 10
    for drawing, picture in shown:
        with Image.open(FOLDER / f"{drawing.name}.png") as shipped:
            assert shipped.convert("RGB").tobytes() == picture.tobytes(), drawing.name
    assert (FOLDER / "questions.jsonl").read_text() == questions()
    found = load_questions(load_task("drawings"))
    assert [each.expected for each in found] == [drawing.answer for drawing, _ in shown]
    assert len({each.images[0].sha256 for each in found}) == 10


def test_a_task_of_ones_own_can_extend_the_drawings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "short.yaml").write_text("extends: drawings\nbudgets: [4]\n")
    monkeypatch.chdir(tmp_path)
    task = load_task("short")
    assert task.budgets == (4,)
    assert len(load_questions(task)) == 10


def test_questions_have_the_images_that_their_rows_name(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name, size in (("a.png", (8, 6)), ("below/b.jpg", (9, 7))):
        Image.new("RGB", size, (1, 2, 3)).save(tmp_path / name)
    one, two = load_questions(task_of(data_of(tmp_path, "a.png", ["below/b.jpg", "a.png"])))
    assert [(each.file, each.width) for each in two.images] == [("below/b.jpg", 9), ("a.png", 8)]
    assert two.images[1].sha256 == one.images[0].sha256
    kept = Question.model_validate_json(two.model_dump_json())
    assert kept.images[0].path is None
    assert kept.images[0].sha256 == two.images[0].sha256


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("gone.png", "There is no image"),
        ("text.png", "not an image"),
        ("half.png", "damaged or incomplete"),
        ("../a.png", "names no file in the data's folder"),
        ("/etc/hostname", "names no file in the data's folder"),
        (7, "names no file in the data's folder"),
        ([], "has 0 images"),
        (["a.png"] * 17, "has 17 images"),
        (None, "there is no field 'image'"),
    ],
)
def test_an_image_that_cannot_be_shown_is_named_with_its_question(
    tmp_path: Path, named: object, said: str
) -> None:
    Image.effect_noise((64, 64), 90).convert("RGB").save(tmp_path / "a.png")
    (tmp_path / "text.png").write_text("no picture\n")
    (tmp_path / "half.png").write_bytes((tmp_path / "a.png").read_bytes()[:900])
    with pytest.raises(DataError) as caught:
        load_questions(task_of(data_of(tmp_path, "a.png", named)))
    assert said in caught.value.message
    assert "line 2" in caught.value.message


def test_choices_that_are_compared_by_likelihood_stand_after_an_image_too(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    line = {"question": "What?", "answer": "A", "choices": ["x", "y"], "image": "a.png"}
    data = tmp_path / "q.jsonl"
    data.write_text(json.dumps(line))
    task = task_of(data, kind="multiple-choice", choices="choices")
    asked = load_questions(task)
    part = Part(model="m", model_sha256="0", model_reference="m", prompt="plain")
    (item,) = items_of(task, part, asked)
    assert item["images"] == [asked[0].images[0].sha256]
    assert item["continuations"] == [" x", " y"]


def test_items_name_their_images_and_have_room_for_them(tmp_path: Path) -> None:
    _, path = write_seeing(tmp_path, word_problems_model("word-problems:Q8_0"))
    asked = EvaluationRequest(
        boards=("here",), models=(str(tmp_path / "seeing-Q8_0.gguf"),), task="drawings"
    )
    prepared = prepare(asked, Silent(), new=True)
    (seen,) = prepared.seen.values()
    assert seen.projector.path == path
    assert prepared.programs == ("armload-score-media",)
    part = prepared.evaluated.evaluation.parts[0]
    assert (part.projector, part.projector_sha256) == (path.name, seen.projector.sha256)
    items = items_of(prepared.task, part, prepared.evaluated.questions)
    named = [[each.images[0].sha256] for each in prepared.evaluated.questions]
    assert [each["images"] for each in items] == named
    # 256 by 256 pixels, in patches of 16 that are merged two by two, are 64 tokens, between two.
    assert seen.tokens(named[0][0]) == 64 + 2
    assert context_tokens(items, seen) - context_tokens(items) >= 64
    files = seen.payload.files
    assert {str(each.name) for each in files} == {f"images/{each}" for each in seen.images}


def test_a_limit_on_an_images_tokens_counts(tmp_path: Path) -> None:
    projector = read_whole_projector(write_projector(tmp_path / "p.gguf", width=64), Silent())
    Image.new("RGB", (512, 512)).save(tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    tokens = [
        SeenImages(projector=projector, images={picture.sha256: picture}, most_tokens=most).tokens(
            picture.sha256
        )
        for most in (None, 128)
    ]
    assert tokens == [256 + 2, 128 + 2]


def test_a_text_model_is_refused_before_anything_is_reached(tmp_path: Path) -> None:
    model = tmp_path / "text.gguf"
    model.symlink_to(word_problems_model("word-problems:Q8_0"))
    asked = EvaluationRequest(boards=("here",), models=(str(model),), task="drawings")
    with pytest.raises(UsageError, match="no projector"):
        prepare(asked, Silent(), new=True)
    off = asked.model_copy(update={"mmproj": "none"})
    with pytest.raises(UsageError, match="task drawings shows images"):
        prepare(off, Silent(), new=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"task": "piqa", "mmproj": "p.gguf"}, "shows no images"),
        ({"task": "logits", "image_max_tokens": "64"}, "shows no images"),
    ],
)
def test_options_that_would_do_nothing_are_refused(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_combination(EvalOptions.typed(words))


def test_a_search_takes_no_task_with_images() -> None:
    wanted = LeastAccuracy(share=0.5, task="drawings", questions=10)
    with pytest.raises(UsageError, match="task drawings shows images"):
        check_questions(wanted)
