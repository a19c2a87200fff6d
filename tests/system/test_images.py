"""Models that see: llama.cpp's program and server with a projector of random weights."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import wave
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from PIL import Image

from armload.build.builder import build
from armload.build.programs import SEEING_SCORER
from armload.build.target import load_target
from armload.core.progress import Silent
from armload.core.workspace import data_names
from armload.engines.operations import LIST, OPERATIONS_VARIABLE, read_operations
from armload.engines.perception import ENCODER_VARIABLE, PERCEIVING_PROGRAM, usual_encoder_question
from armload.models.outline import OUTLINES, load_outline, outlined_projector
from armload.models.packaged import word_problems_model
from armload.models.synth import synthesise
from armload.models.whole_header import encoded
from armload.runs.here import answer_here
from tests.chat_models import with_chat_template
from tests.person import Person
from tests.projectors import (
    TEMPLATE,
    with_context,
    write_hearing_projector,
    write_projector,
    write_seeing,
)
from tests.system.serving import serving
from tests.system.streaming import WIDE

pytestmark = pytest.mark.build

BOARD = "here"
QUESTION = "What is two plus two?"


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("images") / "ann")
    folder = person.folder
    person.add_board(BOARD, f"extends: this-machine\nworkdir: {folder / 'board'}\n")
    write_seeing(folder, word_problems_model("word-problems:Q8_0"))
    write_projector(folder / "other.gguf", width=64)
    Image.effect_noise((300, 200), 90).convert("RGB").save(folder / "a.png")
    Image.effect_noise((512, 512), 90).convert("RGB").save(folder / "c.png")
    Image.effect_noise((64, 64), 90).convert("RGB").save(folder / "b.jpg")
    return person


def _bench(person: Person, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    plan = ("--prompt", QUESTION, "-n", "12", "--repeats", "1", "--threads", "1")
    model = ("--board", BOARD, "--model", "seeing-Q8_0.gguf")
    return person.types("bench", *model, *plan, *words, status=status)


def _run(person: Person, *words: str) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(_bench(person, *words, "--json").stdout)
    return run


def test_each_stage_of_an_image_has_steps_of_its_own(ann: Person) -> None:
    run = _run(ann, "--image", "a.png")
    assert run["exit"]["status"] == 0
    # A few tokens of a small model are known imprecisely, and other tests run beside it.
    names = {each["name"] for each in run["verdict"]["findings"]}
    assert names <= {"imprecise", "contended", "unsteady"}
    assert run["engine_name"] == "llama-mtmd-cli"
    assert [(each["width"], each["height"]) for each in run["images"]] == [(300, 200)]
    assert run["projector"]["kind"] == "lfm2"
    kinds = Counter(each["stage"] for each in run["steps"])
    assert kinds["encoder"] == 1
    assert kinds["preprocessing"] == 2  # the file is decoded, and the image resized and tokenized
    seen = [each for each in run["steps"] if each["media_tokens"]]
    assert [each["media_tokens"] for each in seen] == [each["prompt_tokens"] for each in seen]
    stages = {each["name"]: each for each in run["summary"]["stages"]}
    assert list(stages) == [
        *("loading", "preprocessing", "encoder", "media tokens", "prompt", "output")
    ]
    # 300 by 200 pixels, in patches of 16 that are merged two by two, are 10 by 7 tokens.
    assert stages["media tokens"]["tokens"] == 70
    assert stages["output"]["tokens"] == 12
    before = sum(each["seconds"] for name, each in stages.items() if name != "output")
    assert before == pytest.approx(run["summary"]["ttft_s"], abs=1e-6)
    assert all(stages[name]["rss_bytes"] > 0 for name in ("preprocessing", "encoder"))
    assert stages["encoder"]["cpu_s"] > 0


@pytest.mark.exhaustive(covers=["armload/engines/media.py", "toolchains/native"])
def test_a_smaller_image_and_a_limit_give_fewer_tokens(ann: Person) -> None:
    def tokens(*words: str) -> int:
        run = _run(ann, *words)
        return sum(each["media_tokens"] for each in run["steps"])

    assert tokens("--image", "b.jpg") < tokens("--image", "a.png")
    assert tokens("--image", "c.png") == 256
    assert 64 <= tokens("--image", "c.png", "--image-max-tokens", "128") < 256


def test_several_images_stand_in_one_prompt(ann: Person) -> None:
    run = _run(ann, "--image", "a.png,b.jpg,a.png")
    assert [each["name"] for each in run["images"]] == ["a.png", "b.jpg", "a.png"]
    stages = {each["name"]: each for each in run["summary"]["stages"]}
    # 300 by 200 pixels twice, and 64 by 64 pixels as the least number of tokens.
    assert stages["media tokens"]["tokens"] == 70 + 64 + 70
    swept = ann.types(
        *("bench", "--board", BOARD, "--model", "seeing-Q8_0.gguf", "--prompt", QUESTION),
        *("-n", "4", "--threads", "1", "--image", "a.png", "--image", "a.png,b.jpg", "--json"),
    )
    cells = json.loads(swept.stdout)["cells"]
    assert len(cells) == 2


def test_the_weights_of_a_model_that_sees_are_streamed_after_the_last_image(ann: Person) -> None:
    folder = ann.folder / "wide"
    folder.mkdir()
    wide = folder / "random.gguf"
    synthesise(WIDE, wide, quantisation="Q8_0", seed=1, progress=Silent())
    model = with_chat_template(wide, folder / "wide-Q8_0.gguf", TEMPLATE)
    projector = write_projector(folder / "mmproj-wide-f32.gguf", width=WIDE.width)
    wide.unlink()
    words = ("--model", str(model), "--image", "a.png,b.jpg", "--prompt", "x", "-n", "6")
    mapped = ann.benches(*words, "--weights", "mapped", board=BOARD)
    given = ("--weights", "streamed", "--resident", "8MB")
    run = ann.benches(*words, *given, board=BOARD)
    assert run["text"] == mapped["text"]
    weights = run["trace"]["weights"][-1]
    assert weights["weights"] == "streamed"
    assert abs(weights["locked_bytes"] - 8_000_000) < 1 << 20
    steps = run["steps"]
    first = next(n for n, each in enumerate(steps) if not each["stage"])
    # No weights of the model are read before the projector is released.
    assert {each["stage"] for each in steps[:first]} == {"preprocessing", "encoder"}
    assert all(not each["stage"] for each in steps[first:])
    assert all(not each["locked_bytes"] for each in steps[:first])
    assert sum(each["media_tokens"] for each in steps) == 70 + 64
    assert all(each["storage_wait_ns"] is not None for each in steps[first:])
    streamed_bytes = weights["weights_bytes"] - weights["locked_bytes"]
    read = median(each["read_bytes"] for each in steps[-5:-1])
    assert read == pytest.approx(streamed_bytes, rel=0.2)
    memory = run["prediction"]["memory"]
    assert run["prediction"]["verdict"] == "streams"
    assert memory["projector_bytes"] > projector.stat().st_size
    assert memory["window_bytes"] > 0


def _write_sound(path: Path, seconds: int) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(16_000)
        file.writeframes(b"\x80" * seconds * 16_000)
    return path


@pytest.fixture(scope="module")
def hearing(ann: Person) -> Path:
    """A model that hears half a minute at a time, with its projector beside it."""
    folder = ann.folder / "hearing"
    folder.mkdir()
    model, seeing = write_seeing(folder, word_problems_model("word-problems:Q8_0"))
    seeing.unlink()
    write_hearing_projector(folder / "mmproj.gguf", width=256)
    return with_context(model, 2048)


def test_a_sound_is_heard_in_half_minutes(ann: Person, hearing: Path) -> None:
    sound = _write_sound(ann.folder / "s.wav", 1)
    words = ("--model", str(hearing), "--audio", str(sound), "-n", "4")
    run = ann.benches(*words, "--prompt", QUESTION, board=BOARD)
    assert run["audio"]["seconds"] == 1.0
    stages = {each["name"]: each for each in run["summary"]["stages"]}
    assert stages["media tokens"]["tokens"] == 750
    assert stages["encoder"]["seconds"] > 0


def test_what_does_not_fit_is_refused_before_a_copy(ann: Person) -> None:
    board = ann.folder / "board" / "models"
    before = sorted(board.glob("*"))
    (ann.folder / "d.png").write_text("no picture\n")
    for words, said, status in (
        (("--image", "d.png"), "not an image", 3),
        (("--image", "a.png", "--mmproj", "other.gguf"), "for another model", 2),
        (("--image", "a.png", "--mmproj", "seeing-Q8_0.gguf"), "not a projector", 3),
        (("--audio", "a.png"), "not a sound", 3),
        (("--image", "."), "is a folder", 2),
    ):
        assert said in _bench(ann, *words, status=status).stderr
    assert sorted(board.glob("*")) == before


def test_a_projector_that_llama_cpp_does_not_take_is_refused_before_a_copy(ann: Person) -> None:
    board = ann.folder / "board" / "models"
    before = sorted(board.glob("*"))
    voxtral = write_hearing_projector(ann.folder / "voxtral.gguf", width=256, kind="voxtral")
    unknown = ann.folder / "unknown.gguf"
    content = voxtral.read_bytes().replace(b"voxtral", b"vortexx")
    unknown.write_bytes(content)
    _write_sound(ann.folder / "short.wav", 1)
    for projector, said in (
        (voxtral, "gives 188 tokens, and llama.cpp expects 187"),
        (unknown, "unknown projector type: vortexx"),
    ):
        for words in (
            ("bench", "--audio", "short.wav", "--prompt", QUESTION, "-n", "2"),
            ("serve", "--context", "512"),
        ):
            model = ("--board", BOARD, "--model", "seeing-Q8_0.gguf", "--mmproj", projector.name)
            refused = ann.types(*words, *model, status=3).stderr
            assert said in " ".join(refused.split())
            assert projector.name in refused
    assert sorted(board.glob("*")) == before


def test_the_projectors_of_the_catalogue_are_taken(tmp_path: Path) -> None:
    (program,) = build(load_target("host"), programs=[PERCEIVING_PROGRAM])
    words = ("-m", "x.gguf", "--mmproj", "x.gguf", "--offline")
    for name in data_names(OUTLINES):
        found = outlined_projector(load_outline(name))
        if found is None:
            continue
        header, path = encoded(found[1]), tmp_path / f"{name}.gguf"
        path.write_bytes(header.content)
        question = {ENCODER_VARIABLE: usual_encoder_question(path), OPERATIONS_VARIABLE: LIST}
        answer = answer_here(program, words, header, 0, question)
        assert answer is not None
        assert read_operations(answer) is not None, f"{name}: {answer[-2000:]}"


def test_a_conversation_about_an_image_starts_a_service_with_the_projector(ann: Person) -> None:
    words = ("--board", BOARD, "--image", "a.png", "--n-predict", "4")
    asked = ("--context", "512", "--threads", "1")
    answer = json.loads(ann.chats(QUESTION, *words, *asked, "--model", "seeing-Q8_0.gguf").stdout)
    assert answer["prompt_tokens"] > 70
    (ann.folder / "deaf").mkdir()
    text = ann.folder / "deaf" / "text.gguf"
    text.symlink_to(word_problems_model("word-problems:Q8_0"))
    refused = ann.chats(QUESTION, *words, "--model", str(text), status=2).stderr
    assert "no projector" in refused
    assert "Compiling" not in refused


def test_a_service_answers_about_an_image_and_fetches_none(ann: Person) -> None:
    words = ("--model", "seeing-Q8_0.gguf", "--mmproj", "auto", "--threads", "1", "--slots", "1")
    with serving(ann, *words, board=BOARD) as service:

        def asked(url: str) -> int:
            content = [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": QUESTION},
            ]
            message = {"role": "user", "content": content}
            answer = service.ask("v1/chat/completions", messages=[message], max_tokens=8)
            return answer.status_code

        picture = base64.b64encode((ann.folder / "a.png").read_bytes()).decode()
        assert asked(f"data:image/png;base64,{picture}") == 200
        assert asked(f"{service.about['url']}/health") >= 400
        assert asked("file:///etc/hostname") >= 400


def test_a_service_refuses_what_is_no_image_and_goes_on(ann: Person) -> None:
    jpeg = io.BytesIO()
    Image.effect_noise((300, 200), 90).convert("RGB").save(jpeg, "JPEG")
    large, webp = io.BytesIO(), io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(large, "PNG")
    Image.new("RGB", (64, 64)).save(webp, "WEBP")
    whole = jpeg.getvalue()
    refused = (whole[:30], b"", b"no image", webp.getvalue(), large.getvalue())
    words = ("--model", "seeing-Q8_0.gguf", "--mmproj", "auto", "--threads", "1", "--slots", "1")
    with serving(ann, *words, board=BOARD) as service:

        def asked(*images: bytes) -> int:
            urls = [f"data:image/png;base64,{base64.b64encode(each).decode()}" for each in images]
            content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
            message = {"role": "user", "content": content}
            answer = service.ask("v1/chat/completions", messages=[message], max_tokens=2)
            return answer.status_code

        assert [asked(each) for each in refused] == [400] * len(refused)
        assert asked(*[whole] * 200) == 400
        assert asked(whole) == 200


def test_a_service_hears_a_sound_and_refuses_one_of_an_hour(ann: Person, hearing: Path) -> None:
    short, long = (_write_sound(ann.folder / f"{each}.wav", each) for each in (1, 3600))
    words = ("--model", str(hearing), "--mmproj", "auto", "--context", "2048", "--slots", "1")
    with serving(ann, *words, "--threads", "1", board=BOARD) as service:

        def asked(sound: bytes) -> tuple[int, int]:
            data = base64.b64encode(sound).decode()
            content = [
                {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
                {"type": "text", "text": QUESTION},
            ]
            message = {"role": "user", "content": content}
            answer = service.ask("v1/chat/completions", messages=[message], max_tokens=2)
            return answer.status_code, answer.json().get("usage", {}).get("prompt_tokens", 0)

        assert asked(long.read_bytes()) == (400, 0)
        status, tokens = asked(short.read_bytes())
        assert status == 200
        assert tokens > 750
    logs = (each.read_text() for each in ann.runs.glob("*/stderr"))
    assert any("refused a sound of more than ten minutes" in each for each in logs)


def test_an_evaluation_shows_each_question_its_own_image(ann: Person) -> None:
    small = _run(ann, "--image", "b.jpg", "--stop-at-end")["text"]
    large = _run(ann, "--image", "a.png", "--stop-at-end")["text"]
    assert small.strip() != large.strip()
    lines = [
        {"image": image, "question": QUESTION, "answer": large}
        for image in ("a.png", "b.jpg", ["b.jpg", "a.png"])
    ]
    (ann.folder / "seen.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (ann.folder / "seen.yaml").write_text(
        "data: seen.jsonl\nimage: image\nfields: {question: question, answer: answer}\n"
        "expected: '{{ answer }}'\nprompts: {plain: {user: '{{ question }}'}}\nbudgets: [12]\n"
    )
    words = ("eval", "--board", BOARD, "--model", "seeing-Q8_0.gguf", "--task", "seen.yaml")
    found = json.loads(ann.types(*words, "--threads", "1", "--json").stdout)
    folder = ann.folder / "evaluations" / found["evaluation"]
    answers = [json.loads(line) for line in (folder / "answers-0.jsonl").read_text().splitlines()]
    texts = {each["id"]: each["text"] for each in answers}
    assert (texts["1"].strip(), texts["2"].strip()) == (large.strip(), small.strip())
    assert texts["3"] not in (texts["1"], texts["2"])
    (point,) = found["points"]
    assert (point["accuracy"]["correct"], point["accuracy"]["questions"]) == (1, 3)
    assert point["projector"]["file"] == "mmproj-seeing-f32.gguf"
    asked = json.loads((folder / "evaluation.json").read_text())
    assert asked["parts"][0]["projector"] == "mmproj-seeing-f32.gguf"
    questions = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    assert [len(each["images"]) for each in questions] == [1, 1, 2]
    assert "path" not in questions[0]["images"][0]
    steps = [
        json.loads(line)
        for run in ann.runs.glob("*")
        if found["evaluation"] in (run / "job.json").read_text()
        for line in (run / "trace.jsonl").read_text().splitlines()
    ]
    assert sum(each.get("stage") == "encoder" for each in steps) == 4
    assert sum(each.get("media_tokens") or 0 for each in steps) == 70 + 64 + 64 + 70


def test_choices_are_as_likely_after_an_image_as_by_its_logits(ann: Person) -> None:
    question, choices = f"{QUESTION}\nAnswer:", [" four", " a hundred and one"]
    lines = [{"image": image, "choices": choices, "answer": "A"} for image in ("a.png", "b.jpg")]
    (ann.folder / "chosen.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (ann.folder / "chosen.yaml").write_text(
        "data: chosen.jsonl\nkind: multiple-choice\nimage: image\nchoices: choices\n"
        f"expected: '{{{{ answer }}}}'\nfields: {{answer: answer}}\ndelimiter: ''\n"
        f"prompts: {{plain: {{user: {json.dumps(question)}}}}}\n"
    )
    words = ("eval", "--board", BOARD, "--model", "seeing-Q8_0.gguf", "--task", "chosen.yaml")
    found = json.loads(ann.types(*words, "--threads", "1", "--json").stdout)
    folder = ann.folder / "evaluations" / found["evaluation"]
    answers = [json.loads(line) for line in (folder / "answers-0.jsonl").read_text().splitlines()]
    by_id = {each["id"]: each["continuations"] for each in answers}
    assert by_id["1"] != by_id["2"]  # the image counts
    (scorer,) = build(load_target("host"), programs=[SEEING_SCORER])
    item = {"id": "1", "kind": "logits", "images": ["a.png"], "positions": "all"}
    for choice, scored in zip(choices, by_id["1"], strict=True):
        (ann.folder / "item.jsonl").write_text(json.dumps({**item, "prompt": question + choice}))
        rows = ann.folder / "rows.f32"
        rows.unlink(missing_ok=True)
        given = ("-m", ann.folder / "seeing-Q8_0.gguf", "--items", ann.folder / "item.jsonl")
        seen = ("--mmproj", ann.folder / "mmproj-seeing-f32.gguf", "--images", ann.folder)
        more = ("--logits", rows, "-t", "1", "-c", "1024")
        done = subprocess.run([scorer.path, *given, *seen, *more], check=True, capture_output=True)
        answer = json.loads(done.stdout)
        logits = np.fromfile(rows, "<f4").reshape(answer["rows"], answer["columns"]).astype("f8")
        likely = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        tokens = scored["tokens"]
        assert answer["tokens"][-len(tokens) :] == tokens
        ends = range(len(answer["tokens"]) - len(tokens) - 1, len(answer["tokens"]) - 1)
        expected = [likely[at, token] for at, token in zip(ends, tokens, strict=True)]
        assert scored["log_likelihoods"] == pytest.approx(expected, abs=0.05)


def test_the_shipped_drawings_are_answered_and_a_text_model_is_refused_them(ann: Person) -> None:
    words = ("eval", "--board", BOARD, "--task", "drawings", "--threads", "1", "--json")
    more = ("--model", "seeing-Q8_0.gguf", "--image-max-tokens", "64", "--budget", "2")
    found = json.loads(ann.types(*words, *more, "--parallel", "4").stdout)
    (point,) = found["points"]
    assert point["accuracy"]["questions"] == 10
    board = ann.folder / "board" / "models"
    before = sorted(board.glob("*"))
    (ann.folder / "text").mkdir()
    text = ann.folder / "text" / "text.gguf"
    text.symlink_to(word_problems_model("word-problems:Q8_0"))
    assert "no projector" in ann.types(*words, "--model", str(text), status=2).stderr
    (ann.folder / "one.jsonl").write_text(
        json.dumps({"image": "gone.png", "question": "?", "choices": ["a", "b"], "answer": "A"})
    )
    gone = ann.types(*words, *more, "--data", "one.jsonl", status=3).stderr
    assert "question 1" in gone
    assert "gone.png" in gone
    assert sorted(board.glob("*")) == before


def test_a_load_with_images_tells_the_first_token_by_their_size(ann: Person) -> None:
    folder = ann.folder / "pictures"
    folder.mkdir()
    Image.effect_noise((512, 512), 90).convert("RGB").save(folder / "large.png")
    Image.effect_noise((64, 64), 90).convert("RGB").save(folder / "small.png")
    done = ann.types(
        *("load", "--board", BOARD, "--model", "seeing-Q8_0.gguf", "--images", str(folder)),
        *("--concurrency", "1", "--requests", "6", "--warmup", "0", "--prompt-tokens", "8"),
        *("--n-predict", "2", "--threads", "1", "--slots", "1", "--json"),
    )
    small, large = json.loads(done.stdout)["images"]
    assert (small["width"], large["width"]) == (64, 512)
    assert small["requests"] == large["requests"] == 3
    # Of 64 and of 256 tokens, beside the same text.
    assert large["prompt_tokens"] - small["prompt_tokens"] == 256 - 64
