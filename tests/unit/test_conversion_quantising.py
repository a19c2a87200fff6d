"""Quantised models in the cache, and what is refused before anything is built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armload.bench import fitting
from armload.boards.board import THIS_MACHINE
from armload.conversion.cached import (
    QUANTISED,
    Artifact,
    conversion_kinds,
    find_artifact,
    keep,
    lock_of,
    part_in,
    place_of,
)
from armload.conversion.quantising import quantise
from armload.conversion.room import largest_size_bytes, need_disk, need_memory
from armload.core.errors import BoardError, DiskError, UsageError
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.gguf import read_model, read_outline
from armload.models.shape import load_shape
from armload.models.synth import header_like, synthesise_like
from armload.runs.request import Request
from tests.unit.builds import held_elsewhere
from tests.unit.test_cli_json import printed
from tests.unit.test_engines_speculation import context


def made(place: Path, content: bytes = b"weights") -> Artifact:
    place.mkdir(parents=True)
    part_in(place).write_bytes(content)
    facts = {"base": "m-f16.gguf", "type": "Q2_K", "source": "s", "board": "b", "run": "r"}
    found = Artifact(
        file="m-Q2_K.gguf", sha256=sha256_of(part_in(place)), size_bytes=len(content), **facts
    )
    keep(place, found)
    return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("cache")
def test_what_is_finished_is_found_until_it_is_changed() -> None:
    place = place_of(QUANTISED, "base", "Q2_K")
    found = made(place)
    assert find_artifact(place, Silent()) == found
    assert not part_in(place).exists()
    (place / found.file).write_bytes(b"changed")
    assert find_artifact(place, Silent()) is None


@pytest.mark.usefixtures("cache")
def test_what_is_unfinished_is_not_found_but_can_be_freed() -> None:
    place = place_of(QUANTISED, "base", "Q2_K")
    place.mkdir(parents=True)
    part_in(place).write_bytes(b"half")
    assert find_artifact(place, Silent()) is None
    (item,) = conversion_kinds()[0].items
    assert (item.label, item.stays()) == (f"{place.name}, unfinished", "")


@pytest.mark.usefixtures("cache")
def test_clean_names_the_model_and_leaves_one_that_is_being_made() -> None:
    place = place_of(QUANTISED, "base", "Q2_K")
    made(place)
    (item,) = conversion_kinds()[0].items
    assert item.label == "m-Q2_K.gguf"
    with held_elsewhere(lock_of(place)):
        assert "another armload" in item.stays()
    assert item.stays() == ""


def test_each_part_of_what_it_is_made_of_decides_its_place(cache: Path) -> None:
    places = {place_of(QUANTISED, *parts) for parts in (("a", "b"), ("ab",), ("a", "b", ""))}
    assert len(places) == 3
    assert {place.parent for place in places} == {cache / QUANTISED}


def test_a_type_without_known_rules_is_given_room_enough(tmp_path: Path) -> None:
    header_like(load_shape("llama-3.2-1b"), tmp_path / "f16.gguf", file_type="F16")
    model, header = read_outline(tmp_path / "f16.gguf")
    exact = largest_size_bytes(model, header, "Q4_K_S")
    assert abs(exact - 775_647_360) < 6_000_000  # as published, which has more merges
    # IQ4_XS has 4.25 bits a weight, Q4_K_S 4.5.
    assert 0.9 * exact < largest_size_bytes(model, header, "IQ4_XS") < 1.5 * exact
    assert largest_size_bytes(model, header, "F32") == pytest.approx(2 * model.size_bytes, rel=0.01)


def test_too_little_space_or_memory_is_refused_with_figures(tmp_path: Path) -> None:
    with pytest.raises(
        DiskError, match=r"Not enough space for m\.gguf on this machine: .* free in"
    ):
        need_disk([tmp_path / "not" / "yet"], "m.gguf", 1 << 60)
    need_disk([tmp_path], "m.gguf", 1)
    with pytest.raises(
        BoardError, match="not enough memory for llama-quantize: it needs 1152921504"
    ):
        need_memory(context().found, "b", "llama-quantize", 1 << 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("person")
    shape = load_shape("stories260k")
    for name in ("F16", "Q8_0"):
        synthesise_like(shape, folder / f"{name}.gguf", file_type=name, seed=1, progress=Silent())
    (folder / "cut.gguf").write_bytes((folder / "F16.gguf").read_bytes()[:-1000])
    (folder / "short.txt").write_text("too short")
    (folder / "text.txt").write_text("word " * 2000)
    return folder


REFUSED = {
    "model.quantize F16.gguf": (2, "--type is missing", "Example: armload model.quantize"),
    "model.quantize F16.gguf --type Q4KM": (2, "no type 'Q4KM'. Did you mean 'Q4_K_M'?", ""),
    "model.quantize F16.gguf --type Q4_K,Q4_K_M": (2, "are the same type; list each type once", ""),
    "model.quantize F16.gguf --type IQ2_XS": (2, "an importance matrix", "--calibration FILE"),
    "model.quantize Q8_0.gguf --type Q2_K": (2, "quantised already (Q8_0)", "--allow-requantize"),
    "model.quantize cut.gguf --type Q2_K": (3, "the file is truncated", "again"),
    "model.quantize short.txt --type Q2_K": (3, "short.txt", "GGUF"),
    "model.quantize none.gguf --type Q2_K": (2, "There is no model 'none.gguf'", "GGUF file"),
    "model.quantize F16.gguf --type Q2_K --calibration short.txt": (2, "9 B of text", "longer"),
    "model.quantize F16.gguf --type Q2_K --calibration none": (2, "no calibration text", "text"),
    "model.quantize F16.gguf --type Q2_K --on nowhere": (2, "no board named", "Available"),
    "model.quantize F16.gguf --type Q2_K --board nowhere": (2, "no board named", "Available"),
    "model.quantize F16.gguf --type Q2_K --output none": (2, "does not exist", "Create it first"),
    "bench --model F16.gguf --type Q4KM": (2, "no type 'Q4KM'", ""),
    "bench --model F16.gguf --type Q4_K,Q4_K_M": (2, "Q4_K_M is listed twice", ""),
    "bench --model Q8_0.gguf --type Q2_K": (2, "is quantised already", "model.quantize"),
    "bench --model F16.gguf --type Q2_K --board nowhere": (2, "no board named", "Available"),
    "eval --type Q2_K": (2, "needs a model to quantise", "--model"),
    "eval --model F16.gguf --type IQ1_S": (2, "an importance matrix", "model.quantize"),
    "serve --model F16.gguf --type Q2_K,Q8_0": (2, "no type 'Q2_K,Q8_0'", ""),
    "load --url http://127.0.0.1:9 --type Q2_K --rate 1": (
        2,
        "--type cannot be combined with --url",
        "Remove it.",
    ),
    "fit --model F16.gguf --type Q4KM": (2, "no type 'Q4KM'", ""),
}


def test_what_cannot_be_is_refused_before_anything_is_built(folder: Path) -> None:
    results = printed(folder, *REFUSED)
    for (line, expected), (text, status) in zip(REFUSED.items(), results, strict=True):
        error = json.loads(text)["error"]
        assert (line, status) == (line, expected[0])
        assert expected[1] in error["message"], line
        assert expected[2] in error["remedy"], line
    assert not (folder / "cache" / "builds").exists()


@pytest.mark.usefixtures("cache")
def test_a_machine_that_is_not_linux_is_told_to_use_a_board(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = read_model(folder / "F16.gguf")
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(UsageError, match="cannot be quantised on this machine") as raised:
        quantise(Request(board=THIS_MACHINE), base, ["Q2_K"], Silent())
    assert "--on BOARD" in raised.value.remedy


def test_fit_predicts_types_without_making_them(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "boards").mkdir(exist_ok=True)
    (folder / "boards" / "away.yaml").write_text(
        "target: rk3568\nreach: {kind: ssh, host: 127.0.0.1, port: 1}\nworkdir: /tmp/x\n"
        "facts: {memory: 2 GiB, memory_bytes_per_s: 3 GB, storage_read_bytes_per_s: 165 MB}\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(fitting, "PATIENCE_S", 0.1)
    request = Request(board="away")
    found = fitting.fit(request, ["F16.gguf"], Plan(), Silent(), file_types=["Q8_0", "Q4_0"])
    assert [each.model for each in found.models] == ["F16.gguf Q8_0", "F16.gguf Q4_0"]
    assert found.models[0].size_bytes > found.models[1].size_bytes
    assert not (cache / "quantised").exists()
