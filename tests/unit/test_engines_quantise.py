"""llama-quantize and llama-imatrix: their command lines, and what is read of their output."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.deploy.follow import ProgressUpdate
from armload.engines.importance import Importance, ImportancePlan
from armload.engines.model_program import InPlace
from armload.engines.quantise import Quantising, QuantisingPlan, fallbacks_in
from armload.engines.registry import engine_called
from tests.unit.samples import binary, model
from tests.unit.test_engines_speculation import context, option

PROGRAM = b"\x7fELF\0llama\0--max-buffer-size\0--no-ppl\0-fit\0"
LOG = """\
llama_model_loader: - type  f32:   48 tensors
warning: blk.0.attn_k.weight                  - ncols     64 not divisible by 256 \
(required for type    q4_K) -> falling back to    q5_0
warning: blk.0.ffn_down.weight                - ncols    172 not divisible by 256 \
(required for type    q6_K) (WARNING: must use F16 due to unusual shape) -> falling back to     f16
[   1/  48] output_norm.weight                   - [   64,     1,     1,     1], type =    f32, \
size =    0.000 MiB
[   2/  48] blk.0.attn_k.weight                  - [   64,    32,     1,     1], type =    f32, \
converting to q5_0 .. """


def quantising(folder: Path, in_place: InPlace | None = None, /, **plan: object) -> Quantising:
    for name, content in (("llama-quantize", PROGRAM), ("m.gguf", b"weights"), ("i.gguf", b"i")):
        (folder / name).write_bytes(content)
    return Quantising(
        QuantisingPlan.model_validate({"type": "Q4_K_M", **plan}),
        binary(folder / "llama-quantize"),
        model(folder / "m.gguf"),
        tensors=48,
        importance=folder / "i.gguf" if plan.get("importance_sha256") else None,
        in_place=in_place,
    )


@pytest.mark.parametrize(
    ("name", "engine"), [("llama-quantize", Quantising), ("llama-imatrix", Importance)]
)
def test_they_are_in_the_list_of_engines(name: str, engine: type) -> None:
    assert engine_called(name) is engine


def test_the_model_is_copied_to_a_board_and_becomes_a_file_of_the_run(tmp_path: Path) -> None:
    one = quantising(tmp_path)
    remote = {each.name: str(each.items(context().layout)[0].remote) for each in one.payload}
    words = one.command(context())
    assert words[-3:] == (remote["m.gguf"], "../model.part", "Q4_K_M")
    assert one.result == "model.part"
    assert one.program(context()) == remote["llama-quantize"]
    assert "--allow-requantize" not in words
    assert int(option(words, "--max-buffer-size")) >= 256


def test_on_this_machine_nothing_large_is_copied(tmp_path: Path) -> None:
    base, result = PurePosixPath("/models/m.gguf"), PurePosixPath("/cache/part")
    one = quantising(tmp_path, InPlace(base=base, result=result))
    assert [each.name for each in one.payload] == ["llama-quantize"]
    assert one.command(context())[-3:] == ("/models/m.gguf", "/cache/part", "Q4_K_M")
    assert one.result is None


def test_an_importance_matrix_is_named_as_on_every_board(tmp_path: Path) -> None:
    sha256 = "ab" * 32
    words = quantising(tmp_path, importance_sha256=sha256, allow_requantize=True).command(context())
    assert option(words, "--imatrix") == f"../../../models/{sha256[:12]}/i.gguf"
    assert "--allow-requantize" in words


def test_another_type_or_matrix_is_another_run(tmp_path: Path) -> None:
    prints = [
        quantising(tmp_path, **plan).fingerprint
        for plan in ({}, {"type": "Q2_K"}, {"importance_sha256": "ab" * 32})
    ]
    assert len(set(prints)) == 3
    assert quantising(tmp_path).fingerprint == prints[0]


def test_progress_is_the_tensor_that_is_written(tmp_path: Path) -> None:
    one = quantising(tmp_path)
    now = ProgressUpdate(steps=0, lines=4, text=LOG)
    assert (one.progress(now), one.total, one.note(now)) == (1, 48, "blk.0.attn_k.weight")
    before = ProgressUpdate(steps=0, lines=0, text="llama_model_loader: ...")
    assert (one.progress(before), one.note(before)) == (0, "")


def test_tensors_that_fell_back_are_read() -> None:
    found = [(each.tensor, each.columns, each.wanted, each.type) for each in fallbacks_in(LOG)]
    assert found == [
        ("blk.0.attn_k.weight", 64, "Q4_K", "Q5_0"),
        ("blk.0.ffn_down.weight", 172, "Q6_K", "F16"),
    ]


def test_a_text_goes_through_the_model_in_chunks(tmp_path: Path) -> None:
    for name, content in (("llama-imatrix", PROGRAM), ("m.gguf", b"weights"), ("t.txt", b"text")):
        (tmp_path / name).write_bytes(content)
    sha256 = "cd" * 32
    plan = ImportancePlan(text_sha256=sha256, chunk_tokens=256)
    program = binary(tmp_path / "llama-imatrix")
    one = Importance(plan, program, model(tmp_path / "m.gguf"), tmp_path / "t.txt")
    words = one.command(context())
    assert option(words, "-f") == f"../../../models/{sha256[:12]}/t.txt"
    assert words[words.index("-o") :][2:8] == ("-c", "256", "-b", "256", "-ub", "256")
    assert one.note(
        ProgressUpdate(steps=0, lines=1, text="compute: computing over 12 chunks, n_ctx=256")
    )
    larger = ImportancePlan(text_sha256=sha256, chunk_tokens=512)
    again = Importance(larger, program, model(tmp_path / "m.gguf"), tmp_path / "t.txt")
    assert again.memory.own_bytes > one.memory.own_bytes
