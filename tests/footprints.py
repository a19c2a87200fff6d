"""What llama.cpp says beforehand that it would allocate, beside what it does allocate."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from armload.build.environment import bare_environment
from armload.build.source import pinned_source
from armload.core.places import cache_folder
from armload.core.progress import Silent
from armload.engines.footprint import FOOTPRINT_VARIABLE, Footprint, read_footprint
from armload.models.whole_header import whole_header

PROGRAM = "test-llama-archs"
CONTEXTS = (2048, 65536)
SEQUENCES = (1, 4)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A model with a context and a number of sequences.

    Attributes:
        simulated: from its header alone.
        allocated: with its weights loaded.
    """

    model: str
    context: int
    sequences: int
    simulated: Footprint
    allocated: Footprint


def architectures(folder: Path) -> list[Path]:
    """Write a small model of each architecture with llama.cpp's own test; return them sorted."""
    program = _test_program()
    subprocess.run([program, "-o", folder], check=True, capture_output=True)
    return sorted(folder.glob("*.gguf"))


def _test_program() -> Path:
    source = pinned_source().provide(Silent())
    build = cache_folder() / "tests" / source.name
    program = build / "bin" / PROGRAM
    if not program.is_file():
        options = (
            *("LLAMA_BUILD_TESTS=ON", "LLAMA_BUILD_UI=OFF", "LLAMA_USE_PREBUILT_UI=OFF"),
            *("LLAMA_OPENSSL=OFF", "GGML_OPENMP=OFF", "CMAKE_BUILD_TYPE=Release"),
        )
        words = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build)]
        words += [f"-D{option}" for option in options]
        making = ["cmake", "--build", str(build), "--target", PROGRAM]
        own = {**bare_environment(), "PATH": os.environ["PATH"]}
        for command in (words, making):
            subprocess.run(command, check=True, capture_output=True, env=own)
    return program


def compared(completion: Path, server: Path, model: Path) -> Iterator[Compared]:
    """Compare for every context and number of sequences, with programs built for this machine."""
    for sequences in SEQUENCES:
        for context in CONTEXTS:
            words = ["-c", str(context), "-fit", "off", "--no-repack"]
            if sequences == 1:
                words = [str(completion), "-p", "x", "-n", "1", "-no-cnv", *words]
            else:
                local = ("--host", "127.0.0.1", "--port", "0")
                words = [str(server), *local, "-np", str(sequences), "--no-kv-unified", *words]
            yield Compared(
                model=model.stem,
                context=context,
                sequences=sequences,
                simulated=simulated(model, words),
                allocated=_answer([*words, "-m", str(model)], "loaded", b""),
            )


def simulated(model: Path, words: list[str], batch_tokens: int = 512) -> Footprint:
    """Ask a program with a model's header alone."""
    header = whole_header(model)
    question = f"{header.file_bytes},{batch_tokens}"
    return _answer([*words, "-m", "/nonexistent.gguf"], question, header.content)


def _answer(words: list[str], question: str, stdin: bytes) -> Footprint:
    environment = {**os.environ, FOOTPRINT_VARIABLE: question}
    done = subprocess.run(words, input=stdin, env=environment, capture_output=True, check=False)
    found = read_footprint(done.stdout.decode("utf-8", "replace"))
    assert isinstance(found, Footprint), done.stderr.decode("utf-8", "replace")[-2000:]
    return found
