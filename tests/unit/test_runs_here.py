"""What llama.cpp would refuse is told apart from what this machine cannot do."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.build.binary import Binary
from armload.build.target import machine_architecture
from armload.deploy.payload import Payload
from armload.engines.engine import Simulation
from armload.engines.footprint import EngineRefusal, read_refusal
from armload.models.header import read_header
from armload.models.packaged import word_problems_model
from armload.models.whole_header import whole_header
from armload.runs.here import answer_here, words_of
from tests.split import in_two_parts

HEADER = "0.01.100.000 E gguf_init_from_reader: "
LOADING = "0.01.139.863 E llama_model_load: error loading model: "


@pytest.mark.parametrize(
    ("output", "kind", "reason"),
    [
        (f"{LOADING}unknown model architecture: 'gptoss'", "file", "unknown model architecture"),
        (f"{LOADING}error loading model vocabulary: cannot find x", "file", "cannot find x"),
        (f"{LOADING}missing tensor 'blk.0.attn_q.weight'", "file", "missing tensor"),
        (
            f"{HEADER}tensor 'a' has offset 3\n{HEADER}failed to read\n{LOADING}/proc/self/fd",
            "file",
            "tensor 'a' has offset 3",
        ),
        ("/x/llama-model.cpp:1: GGML_ASSERT(n_expert > 0) failed", "file", "n_expert > 0"),
        (
            "clip_init: failed to load model '/proc/self/fd/3': load_hparams: unknown type: x",
            "file",
            "unknown type: x",
        ),
        (
            "armload: the encoder's graph gives 188 tokens, and llama.cpp expects 187",
            "file",
            "the encoder's graph gives 188",
        ),
        (
            "E llama_init_from_model: K cache type q8_0 with block size 32 does not divide 48",
            "options",
            "does not divide",
        ),
        ("E llama_init_from_model: quantized V cache requires flash_attn", "options", "requires"),
    ],
)
def test_the_engines_reason_is_found(output: str, kind: str, reason: str) -> None:
    found = read_refusal(output)
    assert isinstance(found, EngineRefusal)
    assert found.kind == kind
    assert reason in found.reason


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Killed",
        f"{LOADING}failed to open /proc/self/fd/3",
        f"{LOADING}unable to allocate CPU buffer",
        "clip_init: failed to load model '/proc/self/fd/3': failed to open /proc/self/fd/3",
        "E llama_init_from_model: failed to initialize the context: failed to allocate compute pp",
        "qemu: uncaught target signal 4 (Illegal instruction) - core dumped",
    ],
)
def test_what_lies_with_the_machine_is_no_refusal(output: str) -> None:
    assert read_refusal(output) is None


def test_a_reason_is_one_short_line_that_can_be_shown() -> None:
    found = read_refusal(f"{LOADING}bad \x1b[31m{'x' * 5000}\x07")
    assert isinstance(found, EngineRefusal)
    assert len(found.reason) <= 300
    assert found.reason.isprintable()


def test_the_words_behind_the_program_are_taken() -> None:
    asked = Simulation(
        program=Payload.of_file(Path(__file__), sha256="0" * 64, executable=True),
        command=("nice", "-n", "1", "/work/bin/llama-completion", "-m", "x"),
        model=Path("x"),
        batch_tokens=1,
    )
    assert words_of(asked, ("nice", "-n", "1")) == ("-m", "x")
    assert PurePosixPath(asked.command[3]).name == "llama-completion"


def test_a_header_goes_to_the_engine_as_it_is_in_the_file(tmp_path: Path) -> None:
    path = word_problems_model("word-problems:Q8_0")
    header, whole = read_header(path), whole_header(path)
    assert whole.content == path.read_bytes()[: header.weights_at]
    assert whole.file_bytes == path.stat().st_size
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole.content)
    assert whole_header(cut) == whole, "the weights need not be there"
    assert whole_header(in_two_parts(path, tmp_path)).file_bytes > 2_000_000


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("head -c 4; echo of a header >&2", "GGUF\nof a header\n"),
        ("yes", None),
        ("cat /dev/zero >&2", None),
        ("cat >/dev/null; exec cat /dev/zero", None),
    ],
)
def test_an_answer_is_read_within_a_bound(tmp_path: Path, script: str, answer: str | None) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    binary = Binary(
        program="program",
        path=program,
        sha256="0" * 64,
        size_bytes=1,
        target="host",
        architecture=machine_architecture(),
        compiler="",
        source="",
        engine_commit="",
        build_id="",
        features=(),
    )
    header = whole_header(word_problems_model("word-problems:Q8_0"))
    assert answer_here(binary, ["-m", "x"], header, 1) == answer
