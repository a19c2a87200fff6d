"""Projectors: what they are, what of them is refused, and what images become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.models.gguf import read_model_summary
from armload.models.image_tokens import ImageSize, audio_tokens, image_tokens
from armload.models.projector import (
    Encoder,
    Modality,
    Projector,
    is_projector_file,
    read_projector,
)
from armload.models.projector_choice import check_belongs
from armload.models.synth import synthesise_like
from tests.command_line import run
from tests.unit.projectors import AUDIO, Keys, written_projector
from tests.unit.shapes import with_few_words


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_a_projector_says_what_its_encoder_is(tmp_path: Path) -> None:
    found = read_projector(written_projector(tmp_path / "mmproj-tiny.gguf"))
    (encoder,) = found.encoders
    assert (encoder.modality, encoder.kind, encoder.layers, encoder.factor) == (
        ("vision", "idefics3", 2, 2)
    )
    assert (encoder.image_size, encoder.patch_size, encoder.longest_edge) == (64, 16, 256)
    assert found.embedding_width == 48
    assert found.weights_bytes == 2 * 32 * 32 * 2 + 48 * 128 * 4
    assert found.weights_bytes <= found.size_bytes == found.path.stat().st_size
    assert len(found.sha256) == 64
    assert not found.missing_bytes


def test_an_audio_projector_is_told_from_one_for_pictures(tmp_path: Path) -> None:
    found = read_projector(written_projector(tmp_path / "mmproj-a.gguf", AUDIO))
    assert found.encoder("vision") is None
    encoder = found.encoder("audio")
    assert encoder is not None
    assert (encoder.mel_bins, encoder.factor) == (80, 8)


def test_a_truncated_projector_is_shown_and_then_refused(tmp_path: Path) -> None:
    path = written_projector(tmp_path / "mmproj-tiny.gguf")
    path.write_bytes(path.read_bytes()[:-1000])
    outcome = run("armload", "model.inspect", path.name, cwd=tmp_path)
    assert outcome.returncode
    assert "missing" in outcome.stdout
    assert "truncated" in outcome.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"has_vision_encoder": False}, "neither a vision nor an audio encoder"),
        ({"projector_type": None}, "lacks the metadata key 'clip.vision.projector_type'"),
        ({"projector_type": "a b\n"}, "no kind of projector"),
        ({"vision.block_count": 3}, "has tensors of 2 layers"),
        ({"vision.block_count": 1}, "has tensors of 2 layers"),
        ({"vision.block_count": 1 << 31}, "instead of a number from 0 to"),
        ({"vision.embedding_length": 0}, "instead of a number from 1"),
        ({"vision.embedding_length": "wide"}, "is str instead of a number"),
        ({"vision.attention.head_count": 5}, "5 heads do not divide"),
        ({"vision.attention.head_count": 0}, "0 heads do not divide"),
        ({"vision.image_size": None}, "lacks the metadata key 'clip.vision.image_size'"),
        ({"vision.image_size": 100_000}, "instead of a number from 0 to 46,000"),
        ({"vision.patch_size": 0}, "instead of a number from 1"),
        ({"vision.patch_size": 40}, "less than the 80 pixels of a token"),
        ({"vision.projector.scale_factor": 1000}, "instead of a number from 0 to 64"),
        ({"projector_type": "gemma3x"}, None),
        ({"projector_type": "gemma3"}, None),
        ({"projector_type": "pixtral"}, "lacks the tensor 'mm.2.weight'"),
    ],
)
def test_nonsense_in_a_projector_is_refused(
    tmp_path: Path, changes: Keys, said: str | None
) -> None:
    path = written_projector(tmp_path / "mmproj-tiny.gguf", changes=changes)
    if said is None:
        assert read_projector(path).embedding_width == 48
        return
    with pytest.raises(DataError) as refused:
        read_projector(path)
    assert said in refused.value.message
    assert refused.value.remedy


def test_a_model_is_no_projector(tmp_path: Path) -> None:
    path = _model(tmp_path / "m.gguf")
    assert not is_projector_file(path)
    with pytest.raises(DataError, match="not a projector: its architecture is 'llama'"):
        read_projector(path)


def test_a_model_says_whether_the_projectors_beside_it_are_its_own(tmp_path: Path) -> None:
    path = _model(tmp_path / "m.gguf")
    written_projector(tmp_path / "mmproj-other.gguf")
    own = written_projector(
        tmp_path / "m-mmproj-F16.gguf",
        changes={"projector_type": "unknown", "vision.projection_dim": 64},
    )
    (tmp_path / "mmproj-damaged.gguf").write_bytes(b"GGUF")
    found = read_model_summary(path)
    assert {each.file: each.belongs for each in found.projectors} == {
        "m-mmproj-F16.gguf": True,
        "mmproj-other.gguf": False,
    }
    check_belongs(read_projector(own), path.name, found.input_width)
    with pytest.raises(UsageError, match=r"have 48 values, those of m have 64"):
        check_belongs(read_projector(tmp_path / "mmproj-other.gguf"), "m", found.input_width)


def test_inspect_shows_a_projector_and_its_document(tmp_path: Path) -> None:
    path = written_projector(tmp_path / "mmproj-tiny.gguf")
    shown = run("armload", "model.inspect", path.name, cwd=tmp_path)
    assert not shown.returncode
    assert "idefics3" in shown.stdout
    document = json.loads(run("armload", "model.inspect", path.name, "--json", cwd=tmp_path).stdout)
    assert document["encoders"][0]["kind"] == "idefics3"


def _model(path: Path) -> Path:
    sizes = {"layers": 1, "width": 64, "feed_forward": 64, "heads": 2, "kv_heads": 1}
    shape = with_few_words("llama-3.1-8b").model_copy(update=sizes)
    synthesise_like(shape, path, file_type="F16", seed=1, progress=Silent())
    return path


def _projector(kind: str, **sizes: int) -> Projector:
    modality: Modality = "audio" if sizes.pop("is_audio", 0) else "vision"
    encoder = Encoder(
        modality=modality,
        kind=kind,
        layers=1,
        width=64,
        feed_forward=64,
        heads=1,
        weights_bytes=1,
        parameters=1,
        **sizes,
    )
    return Projector(
        path=Path("mmproj.gguf"),
        sha256="",
        size_bytes=1,
        missing_bytes=0,
        title="",
        quantisation="F16",
        embedding_width=64,
        encoders=(encoder,),
        types=(),
    )


SMOLVLM2 = _projector("idefics3", image_size=512, patch_size=16, factor=4, longest_edge=2048)
GEMMA3 = _projector("gemma3", image_size=896, patch_size=14, factor=4)
QWEN = _projector("qwen2.5vl_merger", image_size=560, patch_size=14, factor=2)
LFM2 = _projector("lfm2", image_size=256, patch_size=16, factor=2)


@pytest.mark.parametrize(
    ("projector", "size", "passes", "tokens"),
    [
        (GEMMA3, (640, 480), 1, 256 + 2),
        (GEMMA3, (4000, 10), 1, 256 + 2),
        # 4 x 3 tiles and the whole image, of 64 tokens each, with their marks
        (SMOLVLM2, (1024, 768), 13, 13 * 64 + 4 + 2 * 12 + 2),
        (SMOLVLM2, (512, 512), 17, 17 * 64 + 4 + 2 * 16 + 3),
        (SMOLVLM2, (768, 1024), 13, 13 * 64 + 4 + 2 * 12 + 3),
        (QWEN, (560, 560), 1, 400 + 2),
        (QWEN, (10_000, 10_000), 1, 64 * 64 + 2),
        (QWEN, (28, 28), 1, 3 * 3 + 2),
        (LFM2, (256, 256), 1, 64 + 2),
        (LFM2, (512, 512), 1, 256 + 2),
    ],
)
def test_a_picture_is_cut_as_llama_cpp_cuts_it(
    projector: Projector, size: tuple[int, int], passes: int, tokens: int
) -> None:
    found = image_tokens(projector, ImageSize(*size))
    assert found is not None
    assert sum(each.count for each in found.passes) == passes
    assert found.tokens == tokens


def test_a_kind_without_known_rules_says_nothing_of_its_tokens() -> None:
    assert (
        image_tokens(_projector("cogvlm", image_size=490, patch_size=14), ImageSize(1, 1)) is None
    )
    assert audio_tokens(GEMMA3, 10) is None


@pytest.mark.parametrize(
    ("kind", "factor", "seconds", "tokens"),
    [("ultravox", 8, 10, 187), ("qwen2a", 1, 10, 750 + 2), ("voxtral", 4, 10, 187 + 1)],
)
def test_a_sound_is_encoded_in_pieces_of_half_a_minute(
    kind: str, factor: int, seconds: float, tokens: int
) -> None:
    projector = _projector(kind, is_audio=1, factor=factor, mel_bins=128)
    found = audio_tokens(projector, seconds)
    assert found is not None
    assert found.tokens == tokens
    longer = audio_tokens(projector, seconds + 30)
    assert longer is not None
    assert longer.passes[0].count == 2
