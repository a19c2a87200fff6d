"""What images and sounds ask of a board, beside what llama.cpp's own graphs compute."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from armload.bench.fitting import BoardsFit, fit_hardware
from armload.bench.outlined import Media
from armload.core.errors import UsageError
from armload.core.pictures import Picture
from armload.core.progress import Silent
from armload.deploy.payload import Payload
from armload.engines.media import MediaNeed, media_need, need_of_media
from armload.engines.perception import encoder_question, encoder_simulation
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.models.find import header_of
from armload.models.find_projector import NONE
from armload.models.image_tokens import ImageSize, read_size
from armload.models.outline import load_outline, outlined_projector
from armload.models.packaged import word_problems_model
from armload.runs.request import Request
from tests.command_line import typed
from tests.unit.projectors import written_projector
from tests.unit.test_engines_speculation import context


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    # Whether a build lies in this machine's cache must not decide.
    monkeypatch.setattr("armload.runs.predicting.footprint_here", lambda *_: None)


def _need(name: str, size: str) -> MediaNeed:
    found = outlined_projector(load_outline(name))
    assert found is not None
    need = media_need(*found, read_size(size))
    assert need is not None
    return need


GRAPHS = [
    # Multiplications of matrices and of attention in one pass, and bytes of its graph.
    ("smolvlm2-500m", "640x480", 13, 88332042240, 19327352832, 22020096),
    ("gemma-3-4b", "640x480", 1, 1687274127360, 1043677052928, 127139840),
    ("qwen2.5-vl-3b", "640x480", 1, 1001968967680, 200384184320, 106592864),
    ("qwen2.5-vl-3b", "1024x768", 1, 2560017899520, 1308099870720, 296447264),
    ("qwen3-vl-4b", "1024x768", 1, 1016296636416, 463856467968, 122732544),
    ("lfm2-vl-450m", "640x480", 1, 82013847552, 16148201472, 20127744),
    ("lfm2-vl-1.6b", "640x480", 1, 388779835392, 54500179968, 29053440),
    ("ultravox-v0.5-8b", "1x1", 1, 961977778176, 184320000000, 53760000),
]
"""As counted in the graphs of llama.cpp b11312 (docs/figures.md)."""


@pytest.mark.parametrize(("name", "size", "passes", "products", "attention", "graph"), GRAPHS)
def test_the_encoder_computes_what_llama_cpps_graph_does(
    name: str, size: str, passes: int, products: int, attention: int, graph: int
) -> None:
    need = _need(name, size)
    assert need.passes == passes
    assert sum(need.products.values()) / passes == pytest.approx(products, rel=0.01)
    assert need.attention == attention * passes
    assert need.buffer_bytes > graph


MEASURED = [
    ("smolvlm2-500m", "640x480", 289935360),
    ("lfm2-vl-450m", "640x480", 231239680),
    ("lfm2-vl-1.6b", "640x480", 904900608),
    ("qwen3-vl-4b", "640x480", 909320192),
    ("qwen2.5-vl-3b", "224x224", 1385426944),
    ("ultravox-v0.5-8b", "1x1", 1459789824),
]
"""Peak memory of a program that loads a projector and encodes an image (docs/figures.md)."""
OWN_BYTES = 8_000_000
"""Of that program."""


@pytest.mark.parametrize(("name", "size", "measured"), MEASURED)
def test_the_memory_of_a_projector_is_as_measured(name: str, size: str, measured: int) -> None:
    need = _need(name, size)
    assert need.weights_bytes + need.buffer_bytes + OWN_BYTES == pytest.approx(measured, rel=0.03)


def _fits(*models: str, hardware: str = "raspberry-pi-5-8gb", media: Media) -> BoardsFit:
    request, plan = Request(board="this-machine"), Plan(prompt_tokens=128)
    return fit_hardware(request, [hardware], models, plan, Silent(), media=media)


def _predicted(media: Media, hardware: str = "raspberry-pi-5-8gb") -> Prediction:
    found = _fits("smolvlm2-500m:Q8_0", hardware=hardware, media=media)
    return found.boards[0].models[0].prediction


def test_a_picture_costs_memory_tokens_and_time_before_the_first_token() -> None:
    text, seen = _predicted(Media(projector=NONE)), _predicted(Media())
    assert text.media is None
    assert seen.media is not None
    need = seen.media.need
    assert seen.prompt_tokens == text.prompt_tokens + need.tokens == 128 + 862
    assert seen.memory is not None
    assert text.memory is not None
    assert seen.memory.projector_bytes == need.weights_bytes + need.buffer_bytes
    assert seen.memory.kv_bytes > text.memory.kv_bytes
    # It is released before the model computes.
    kept = seen.memory.model_copy(update={"projector_bytes": 0})
    assert seen.memory.wanted_bytes == kept.wanted_bytes
    assert seen.memory.least_bytes == kept.least_bytes + seen.memory.projector_bytes
    assert seen.media.encoder_s is not None
    assert seen.ttft_s is not None
    assert text.ttft_s is not None
    assert seen.ttft_s.value > text.ttft_s.value + seen.media.encoder_s.value


def test_a_smaller_picture_takes_fewer_tokens_and_less_time() -> None:
    large, small = (
        _fits("qwen2.5-vl-3b:Q4_0", media=Media(size=ImageSize(*size)))
        for size in ((1024, 768), (224, 224))
    )
    times = [each.boards[0].models[0].prediction for each in (large, small)]
    assert all(each.media and each.media.encoder_s and each.ttft_s for each in times)
    assert times[0].prompt_tokens > 5 * times[1].prompt_tokens


def test_what_streams_and_what_stays_is_said() -> None:
    found = _fits("qwen2.5-vl-7b:Q8_0", hardware="raspberry-pi-5-8gb", media=Media())
    (model,) = found.boards[0].models
    assert model.prediction.verdict == "streams"
    said = r"The projector with its buffers \(1\.\d GB\) is released before the model computes"
    assert re.search(said, model.sentence)


def test_weights_that_the_encoder_displaces_are_read_again() -> None:
    memory = _predicted(Media()).memory
    assert memory is not None
    assert memory.evicted_bytes == 0
    tight = memory.reserve_bytes + memory.wanted_bytes
    assert memory.model_copy(update={"available_bytes": tight}).evicted_bytes == min(
        memory.projector_bytes, memory.weights_bytes
    )
    half = tight + memory.projector_bytes // 2
    left = memory.projector_bytes - memory.projector_bytes // 2
    assert memory.model_copy(update={"available_bytes": half}).evicted_bytes == left


def test_an_encoder_is_asked_for_the_parts_of_the_image(tmp_path: Path) -> None:
    need = _need("lfm2-vl-450m", "1024x768")
    where = context()
    plan = Plan(prompt="x", n_predict=1, threads=3, flash_attention="off")
    sizes = [f"{each.width}x{each.height}" for each in need.parts]
    assert encoder_question(need, plan, where).split() == ["3", "0", *sizes]
    assert len(sizes) == 2
    (tmp_path / "llama-mtmd-cli").write_bytes(b"program")
    program = Payload.of_file(tmp_path / "llama-mtmd-cli", sha256="0" * 64, executable=True)
    asked = encoder_simulation(program, tmp_path / "mmproj.gguf", where)
    assert asked.command[1:5] == ("-m", "mmproj.gguf", "--mmproj", "mmproj.gguf")


def test_the_projector_beside_a_model_is_counted_and_another_is_not(tmp_path: Path) -> None:
    path = header_of("smolvlm2-500m:Q8_0", Silent())
    model = path.rename(tmp_path / "m.gguf")
    written_projector(tmp_path / "mmproj-other.gguf")
    found = _fits(str(model), media=Media()).boards[0].models[0]
    assert found.prediction.media is None
    changes = {"vision.projection_dim": 960}
    written_projector(tmp_path / "a-mmproj.gguf", changes={**changes, "projector_type": "gemma4v"})
    with pytest.raises(UsageError, match=r"mmproj-other\.gguf: this projector is for another"):
        _fits(str(model), media=Media(projector="mmproj-other.gguf"))


@pytest.mark.parametrize("text", ["", "1024", "0x5", "46001x1", "-1x4", "1024x768x3", "x"])
def test_nonsense_is_no_size_of_a_picture(text: str) -> None:
    with pytest.raises(UsageError, match="not the size of an image"):
        read_size(text)


def test_one_projector_is_not_of_two_models(tmp_path: Path) -> None:
    words = ("--mmproj", "p.gguf", "--model", "a,b")
    said = typed(tmp_path, "fit", "--board", "this-machine", *words)
    assert said.returncode
    assert "--mmproj names the projector of one model" in said.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "word-problems:Q8_0"), "--image-size 64x64: no image is given to word-"),
        (("--model", "smolvlm2-500m:Q8_0", "--mmproj", "none"), "no effect with --mmproj none"),
        (("--model", "ultravox-v0.5-8b:Q4_0"), "no projector for images was found"),
    ],
)
def test_the_size_of_an_image_is_refused_where_none_is_seen(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    told = typed(
        tmp_path, "fit", "--hardware", "raspberry-pi-5-8gb", "--image-size", "64x64", *words
    )
    assert told.returncode
    assert said in " ".join(told.stderr.split())


def test_an_image_for_a_model_of_text_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    Image.new("RGB", (64, 48)).save(tmp_path / "p.png")
    model = tmp_path / "m.gguf"
    model.write_bytes(word_problems_model("word-problems:Q8_0").read_bytes())
    words = ("--model", "m.gguf", "--image", "p.png")
    told = typed(tmp_path, "bench", "--board", "this-machine", *words)
    assert told.returncode
    assert "no projector, without which a model sees and hears nothing" in told.stderr


def test_images_of_one_prompt_are_prepared_together_and_encoded_in_turn() -> None:
    found = outlined_projector(load_outline("lfm2-vl-450m"))
    assert found is not None

    def needs(*sizes: str) -> MediaNeed:
        pictures = [
            Picture(
                name="a", path=Path("a"), sha256="0", size_bytes=1, width=size[0], height=size[1]
            )
            for size in map(read_size, sizes)
        ]
        need = need_of_media(*found, pictures)
        assert need is not None
        return need

    one, other, both = needs("640x480"), needs("256x256"), needs("640x480", "256x256", "640x480")
    assert (both.tokens, both.passes) == (2 * one.tokens + other.tokens, 3)
    assert [(each.count, each.width) for each in both.parts] == [(2, 576), (1, 256)]
    assert both.graph_bytes == one.graph_bytes
    prepared = [each.buffer_bytes - each.graph_bytes for each in (one, other, both)]
    assert prepared[2] == 2 * prepared[0] + prepared[1]
    assert both.attention == 2 * one.attention + other.attention
    assert both.weights_bytes == one.weights_bytes
    limited = need_of_media(
        *found,
        [Picture(name="a", path=Path("a"), sha256="0", size_bytes=1, width=512, height=512)],
        128,
    )
    assert limited is not None
    assert 64 <= limited.tokens - 2 <= 128
