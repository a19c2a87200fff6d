"""Weights that exceed a board's memory: part of them stays there, and the rest is streamed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from armload.analysis.run import Run
from armload.analysis.streaming import streamed_weights
from armload.analysis.summary import generating
from armload.build.binary import Binary
from armload.core.progress import Silent
from armload.engines.trace import Step, Trace, read_trace
from armload.models.shape import Shape
from armload.models.synth import synthesise
from tests.person import Person
from tests.system.engines import LAST_WITH_DECODE, command, engine

pytestmark = pytest.mark.build

COVERED = ["armload/analysis/streaming.py", "armload/engines/weights.py", "toolchains"]
older = pytest.mark.exhaustive(covers=COVERED)

STREAMED = {"ARMLOAD_WEIGHTS": "streamed", "ARMLOAD_RESIDENT": str(8 << 20)}
INPUT_OUTPUT_ERROR = 74
NOBODY = 65534

WIDE = Shape(
    layers=6,
    width=512,
    feed_forward=2048,
    heads=8,
    kv_heads=8,
    vocabulary=2048,
    context_length=512,
)
LARGE = Shape(
    layers=16,
    width=768,
    feed_forward=3072,
    heads=12,
    kv_heads=12,
    vocabulary=2048,
    context_length=256,
)
"""Of 164 MB in Q8_0, on a board with 192 MiB of memory."""


@pytest.fixture(scope="module", params=["llama_process", pytest.param("llama_decode", marks=older)])
def binary(request: pytest.FixtureRequest) -> Binary:
    return engine(None if request.param == "llama_process" else LAST_WITH_DECODE)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "wide.gguf"
    synthesise(WIDE, path, quantisation="Q8_0", seed=1, progress=Silent())
    path.chmod(0o644)
    for folder in (path.parent, path.parent.parent):
        folder.chmod(0o755)
    return path


def starts(
    binary: Binary,
    model: Path,
    trace: Path,
    variables: Mapping[str, str],
    *more: str,
    launcher: Sequence[str] = (),
) -> subprocess.Popen[str]:
    words = command(binary, model, "one two three", ["-c", "256", "--ignore-eos", *more])
    return subprocess.Popen(
        [*launcher, *words],
        env={**os.environ, **variables, "ARMLOAD_TRACE": str(trace)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def text_of(process: subprocess.Popen[str]) -> str:
    out, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    return out


def traced(trace: Path) -> tuple[Trace, tuple[Step, ...]]:
    header, steps = read_trace(trace)
    assert header is not None
    return header, steps


def test_text_is_that_of_mapped_weights_and_the_resident_part_is_locked(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    words = ("-n", "6", "--no-repack")
    mapped, streamed = tmp_path / "mapped.jsonl", tmp_path / "streamed.jsonl"
    expected = text_of(starts(binary, wide, mapped, {}, *words))
    assert text_of(starts(binary, wide, streamed, STREAMED, *words)) == expected
    header, steps = traced(mapped)
    assert header.weights == ()
    assert {step.storage_wait_ns for step in steps} == {None}
    header, steps = traced(streamed)
    weights = streamed_weights(header)
    assert weights is not None
    assert weights.requested_bytes == 8 << 20
    assert abs(weights.locked_bytes - (8 << 20)) < 1 << 20
    # All but the token embedding, of which single rows are read.
    embedding_bytes = WIDE.vocabulary * WIDE.width * 34 // 32
    matrices_bytes = wide.stat().st_size - embedding_bytes
    assert abs(weights.weights_bytes - matrices_bytes) < 2 << 20
    assert all(step.storage_wait_ns is not None for step in steps)
    assert abs((steps[-1].locked_bytes or 0) - weights.locked_bytes) < 1 << 20


def test_repacked_weights_are_in_memory_already_and_the_trace_says_so(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    q4 = tmp_path / "q4.gguf"
    synthesise(WIDE, q4, quantisation="Q4_0", seed=1, progress=Silent())
    trace = tmp_path / "trace.jsonl"
    text_of(starts(binary, q4, trace, STREAMED, "-n", "2"))
    (weights,) = traced(trace)[0].weights
    assert weights.weights == "mapped"
    assert "copied them into memory" in weights.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without privileges")
def test_where_locking_is_refused_the_resident_part_is_kept_in_anonymous_memory(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "nobodys"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    trace = folder / "trace.jsonl"
    # pytest closes its folders to others, and makes one more of them for each worker.
    for parent in folder.parents:
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)

    expected = text_of(starts(binary, wide, tmp_path / "mapped", {}, "-n", "4", "--no-repack"))
    program = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    limit = ["prlimit", "--memlock=65536"]
    words = ("-n", "4", "--no-repack")
    process = starts(binary, wide, trace, STREAMED, *words, launcher=[*limit, *program])
    assert text_of(process) == expected
    weights = traced(trace)[0].weights[-1]
    assert weights.lock_refused
    assert weights.locked_bytes <= 65536
    has_swap = len(Path("/proc/swaps").read_text().splitlines()) > 1
    kept = weights.cached_bytes if has_swap else weights.anonymous_bytes
    assert abs(kept + weights.locked_bytes - (8 << 20)) < 1 << 20


def test_a_model_that_is_truncated_meanwhile_ends_the_run_with_a_message(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    model, trace = tmp_path / "model.gguf", tmp_path / "trace.jsonl"
    model.write_bytes(wide.read_bytes())
    process = starts(binary, model, trace, STREAMED, "-n", "250", "--no-repack")
    until_s = time.monotonic() + 120
    while not (trace.exists() and len(trace.read_bytes().splitlines()) > 3):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    os.truncate(model, model.stat().st_size // 2)
    _, log = process.communicate(timeout=120)
    assert process.returncode == INPUT_OUTPUT_ERROR
    assert "the model cannot be read" in log.splitlines()[-1]
    assert "truncated" in log


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    slow = "{memory: 192 MiB, disk_read_bytes_per_s: 20 MB}"
    person.add_board("mine", f"extends: virtual-dayu200\nreach: {slow}\n")
    synthesise(LARGE, person.folder / "large.gguf", quantisation="Q8_0", seed=1, progress=Silent())
    yield person
    person.types("board.down", "--board", "mine")


@pytest.mark.machine
def test_a_model_larger_than_memory_is_streamed_by_itself_and_says_the_same(ann: Person) -> None:
    words = ("--model", "large.gguf", "-n", "3")
    mapped = Run.model_validate(ann.benches(*words, "--weights", "mapped"))
    weights_bytes = mapped.model.bytes_per_token or 0
    assert mapped.before.memory_available_bytes < weights_bytes
    assert all((step.read_bytes or 0) > 0.9 * weights_bytes for step in generating(mapped.steps))
    assert all(step.major_faults > 0 for step in generating(mapped.steps))
    assert mapped.limit.cause == "storage"
    assert "larger than the" in mapped.limit.sentence

    run = Run.model_validate(ann.benches(*words))
    assert run.environment == {"ARMLOAD_WEIGHTS": "streamed"}
    assert run.text == mapped.text
    weights = streamed_weights(run.trace)
    assert weights is not None
    assert weights.locked_bytes > 0.3 * weights_bytes
    assert "streaming" not in {finding.name for finding in run.verdict.findings or ()}
    prompt, *decode = run.steps
    assert (prompt.read_bytes or 0) < 1.1 * weights_bytes
    for step in decode:
        assert abs((step.read_bytes or 0) - weights.streamed_bytes) < 0.1 * weights_bytes
        assert step.major_faults < 50
        assert abs((step.locked_bytes or 0) - weights.locked_bytes) < 2 << 20


@pytest.mark.exhaustive(covers=COVERED)
@pytest.mark.machine
def test_memory_that_others_take_meanwhile_is_given_up_before_a_kill(ann: Person) -> None:
    words = ("--model", "large.gguf", "-n", "12", "--repeats", "1", "--json")
    process = ann.start("bench", "--board", "mine", *words)
    count = "cat /data/local/tmp/armload/runs/*/trace.jsonl 2>/dev/null | wc -l"
    ann.waits_on_board(f'[ "$({count})" -ge 4 ]', process)
    # That folder of the board is in memory.
    ann.on_board("head -c 52428800 /dev/zero >/tmp/taken")
    out, log = process.communicate(timeout=600)
    ann.on_board("rm /tmp/taken")
    assert process.returncode == 0, log
    run = Run.model_validate(json.loads(out))
    weights = streamed_weights(run.trace)
    assert weights is not None
    assert weights.released_bytes > 0
    assert run.exit.status == 0
    assert any("Memory ran short" in note for note in run.notes)
    assert len(generating(run.steps)) == 11
