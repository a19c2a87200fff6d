"""Streamed weights: what programs do with them, and where something is in their way."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from statistics import median

import pytest

from armload.analysis.streaming import streamed_weights
from armload.build.binary import Binary
from armload.core.progress import Silent
from armload.models.synth import synthesise
from tests.other_models import per_layer
from tests.split import in_two_parts
from tests.system.engines import LAST_WITH_DECODE, engine
from tests.system.lacking import with_meminfo, without_calls
from tests.system.scoring import generated, score
from tests.system.streaming import (
    AS_NOBODY,
    COVERED,
    MEMINFO,
    WIDE,
    a_folder_of_nobodys,
    starts,
    streamed,
    text_of,
    traced,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.build

similar = pytest.mark.exhaustive(covers=COVERED)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")

WORDS = ("-n", "4", "--no-repack")
INPUT_OUTPUT_ERROR = 74


def await_steps(trace: Path, count: int) -> None:
    wait_until(
        lambda: trace.exists() and trace.read_bytes().count(b'"step":') >= count, within_s=120
    )


@pytest.fixture(
    scope="module", params=["llama_process", pytest.param("llama_decode", marks=similar)]
)
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


@pytest.fixture(scope="module")
def expected(binary: Binary, wide: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the engine writes with mapped weights."""
    return text_of(starts(binary, wide, tmp_path_factory.mktemp("mapped") / "trace", {}, *WORDS))


def test_text_is_that_of_mapped_weights_and_the_resident_part_is_locked(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    words = ("-n", "6", "--no-repack")
    mapped, held = tmp_path / "mapped.jsonl", tmp_path / "held.jsonl"
    expected = text_of(starts(binary, wide, mapped, {}, *words))
    assert text_of(starts(binary, wide, held, streamed(), *words)) == expected
    header, steps = traced(mapped)
    assert header.weights == ()
    assert {step.storage_wait_ns for step in steps} == {None}
    header, steps = traced(held)
    weights = streamed_weights(header)
    assert weights is not None
    assert weights.requested_bytes == 8 << 20
    assert weights.reads == "both", "so few bytes decide nothing"
    assert abs(weights.locked_bytes - (8 << 20)) < 1 << 20
    # All but the token embedding, of which single rows are read.
    embedding_bytes = WIDE.vocabulary * WIDE.width * 34 // 32
    matrices_bytes = wide.stat().st_size - embedding_bytes
    assert abs(weights.weights_bytes - matrices_bytes) < 2 << 20
    assert all(step.storage_wait_ns is not None for step in steps)
    assert abs((steps[-1].locked_bytes or 0) - weights.locked_bytes) < 1 << 20


@pytest.mark.exhaustive(covers=["toolchains"])
def test_a_token_embedding_that_is_the_output_too_is_looked_up_while_it_is_streamed(
    binary: Binary, tmp_path: Path
) -> None:
    model, trace = tmp_path / "tied.gguf", tmp_path / "trace.jsonl"
    shape = WIDE.model_copy(update={"tied": True, "vocabulary": 16384, "layers": 2})
    synthesise(shape, model, quantisation="Q8_0", seed=1, progress=Silent())
    expected = text_of(starts(binary, model, tmp_path / "mapped", {}, *WORDS))
    assert text_of(starts(binary, model, trace, streamed(6 << 20), *WORDS)) == expected
    weights = streamed_weights(traced(trace)[0])
    assert weights is not None
    assert weights.streamed_bytes > 8 << 20


@pytest.mark.exhaustive(covers=[*COVERED, "tests/other_models.py"])
def test_a_table_for_each_layer_that_is_most_of_the_file_is_looked_up_in_it(
    binary: Binary, tmp_path: Path
) -> None:
    if binary.program == "llama-cli":
        pytest.skip("llama.cpp of 2025 does not know this architecture")
    model, trace = tmp_path / "tables.gguf", tmp_path / "trace.jsonl"
    per_layer(model)
    expected = text_of(starts(binary, model, tmp_path / "mapped", {}, *WORDS))
    assert text_of(starts(binary, model, trace, streamed(40 << 20), *WORDS)) == expected
    weights = streamed_weights(traced(trace)[0])
    assert weights is not None
    assert 2 * weights.weights_bytes < model.stat().st_size
    assert weights.streamed_bytes > 20 << 20


@as_root
@similar
def test_where_a_file_system_has_no_direct_io_weights_are_read_through_the_page_cache(
    binary: Binary, wide: Path, expected: str, tmp_path: Path
) -> None:
    trace, folder = tmp_path / "trace.jsonl", tmp_path / "ramfs"
    folder.mkdir()
    copied = 'mount -t ramfs ramfs "$0" && cp "$1" "$0" && shift && exec "$@"'
    launcher = ["unshare", "--mount", "sh", "-c", copied, str(folder), str(wide)]
    process = starts(binary, folder / wide.name, trace, streamed(), *WORDS, launcher=launcher)
    assert text_of(process) == expected
    weights = traced(trace)[0].weights[-1]
    assert (weights.weights, weights.reads) == ("streamed", "buffered")


@pytest.mark.exhaustive(covers=["toolchains"])
def test_a_long_run_compares_both_ways_and_says_what_it_found(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    """24 blocks of 8 MiB: some twenty passes over what is streamed of this model."""
    trace = tmp_path / "trace.jsonl"
    text_of(starts(binary, wide, trace, streamed(1 << 20), "-n", "30", "--no-repack"))
    first, *_, last = traced(trace)[0].weights
    assert (first.reads, first.reads_because) == ("both", "")
    assert last.reads in ("direct", "buffered")
    assert "the page cache was" in last.reads_because
    assert min(last.direct_bytes_per_s, last.buffered_bytes_per_s) > 0


READ_WITHIN = 1.02


@as_root
@pytest.mark.parametrize(
    ("readahead_kib", "ways", "options"),
    [
        (8192, "buffered", ""),
        # Which reads through the page cache all the same.
        pytest.param(8192, "direct", ",data=journal", marks=similar),
        pytest.param(128, "buffered", "", marks=similar),
        pytest.param(4096, "buffered", "", marks=similar),
        pytest.param(8192, "direct", "", marks=similar),
    ],
)
def test_no_more_is_read_than_is_needed_whatever_the_readahead(
    binary: Binary, wide: Path, tmp_path: Path, readahead_kib: int, ways: str, options: str
) -> None:
    trace, image, folder = tmp_path / "trace.jsonl", tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(wide.stat().st_size + (64 << 20))
    subprocess.run(["mke2fs", "-q", "-t", "ext4", image], check=True)
    prepared = (
        'mount -o "loop$4" "$1" "$2" && cp "$3" "$2" && '
        'dev=$(stat -c %Hd:%Ld "$2") && echo "$5" >"/sys/dev/block/$dev/queue/read_ahead_kb" && '
        'umount "$2" && mount -o "loop$4" "$1" "$2" && dev=$(stat -c %Hd:%Ld "$2") && '
        'echo "$5" >"/sys/dev/block/$dev/queue/read_ahead_kb" && '
        # As where memory is short, nothing that was read stays in the page cache.
        '{ while kill -0 $$; do dd if="$2/${3##*/}" iflag=nocache count=0; sleep 0.1; done '
        "</dev/null >/dev/null 2>&1 & } && "
        'shift 5 && exec "$@"'
    )
    words = [str(image), str(folder), str(wide), options, str(readahead_kib)]
    launcher = ["unshare", "--mount", "sh", "-c", prepared, "sh", *words]
    forced = streamed() | {"ARMLOAD_READS": ways}
    words = ["-n", "30", "--no-repack"]
    text_of(starts(binary, folder / wide.name, trace, forced, *words, launcher=launcher))
    header, steps = traced(trace)
    weights = header.weights[-1]
    assert (weights.weights, weights.reads) == ("streamed", ways)
    read = [step.read_bytes or 0 for step in steps[1:]]
    assert 0.5 * weights.streamed_bytes < median(read)
    # The reader is a pass ahead at most.
    assert sum(read) <= READ_WITHIN * weights.streamed_bytes * (len(read) + 1)


@pytest.mark.exhaustive(covers=["toolchains/native"])
@as_root
def test_a_longer_prompt_than_any_before_is_given_memory_of_the_resident_part(
    scorer: Path, wide: Path, tmp_path: Path
) -> None:
    items = [
        {"id": str(words), "kind": "generate", "prompt": " a" * words, "max_tokens": 2}
        for words in (4, 200)
    ]
    # Little more than half of the reserve: the first prompt takes less than the second needs.
    machine = with_meminfo(
        "MemTotal: 1048576 kB\nMemAvailable: 26300 kB\nSwapTotal: 0 kB\n", tmp_path
    )
    expected = score(scorer, tmp_path, items, "--no-repack", model=wide)
    found = score(
        *(scorer, tmp_path, items, "--no-repack", "--poll", "0"),
        model=wide,
        variables=streamed(),
        launcher=machine,
    )
    for name, answer in expected.items():
        assert generated(found[name]).tokens == generated(answer).tokens
    steps = traced(tmp_path / "trace.jsonl")[1]
    (long,) = (step for step in steps if step.tokens >= 200)
    assert (steps[0].locked_bytes or 0) - (long.locked_bytes or 0) > 4 << 20


@similar
def test_weights_that_all_stay_in_memory_are_read_once(
    binary: Binary, wide: Path, expected: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    assert text_of(starts(binary, wide, trace, streamed(1 << 30), *WORDS)) == expected
    weights = traced(trace)[0].weights[-1]
    assert weights.resident_bytes == weights.weights_bytes
    assert weights.locked_bytes + weights.anonymous_bytes == weights.weights_bytes


def test_repacked_weights_are_in_memory_already_and_the_trace_says_so(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    q4 = tmp_path / "q4.gguf"
    synthesise(WIDE, q4, quantisation="Q4_0", seed=1, progress=Silent())
    trace = tmp_path / "trace.jsonl"
    text_of(starts(binary, q4, trace, streamed(), "-n", "2"))
    (weights,) = traced(trace)[0].weights
    assert weights.weights == "mapped"
    assert "copied them into memory" in weights.reason


@as_root
@pytest.mark.parametrize(
    "has_swap", [pytest.param(False, id="no swap"), pytest.param(True, id="swap", marks=similar)]
)
def test_where_locking_is_refused_the_resident_part_is_kept_where_swap_cannot_take_it(
    binary: Binary, wide: Path, expected: str, tmp_path: Path, *, has_swap: bool
) -> None:
    swap = "SwapTotal: 524288 kB\n" if has_swap else "SwapTotal: 0 kB\n"
    machine = with_meminfo(MEMINFO + swap, tmp_path)
    folder = a_folder_of_nobodys(tmp_path)
    trace = folder / "trace.jsonl"
    # Where builds are kept may be closed to others, as root's home is.
    reachable = binary.model_copy(update={"path": shutil.copy(binary.path, folder)})
    process = starts(reachable, wide, trace, streamed(), *WORDS, launcher=[*machine, *AS_NOBODY])
    assert text_of(process) == expected
    weights = traced(trace)[0].weights[-1]
    assert weights.lock_refused
    assert weights.locked_bytes <= 65536
    kept, other = weights.anonymous_bytes, weights.cached_bytes
    if has_swap:
        kept, other = other, kept
    assert other == 0
    assert abs(kept + weights.locked_bytes - (8 << 20)) < 1 << 20


def test_a_model_that_is_truncated_meanwhile_ends_the_run_with_a_message(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    model, trace = tmp_path / "model.gguf", tmp_path / "trace.jsonl"
    model.write_bytes(wide.read_bytes())
    process = starts(binary, model, trace, streamed(), "-n", "250", "--no-repack")
    await_steps(trace, 2)
    os.truncate(model, model.stat().st_size // 2)
    _, log = process.communicate(timeout=120)
    assert process.returncode == INPUT_OUTPUT_ERROR
    assert "the model cannot be read" in log.splitlines()[-1]
    assert "truncated" in log


@similar
def test_a_model_that_is_replaced_meanwhile_is_read_on(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    model, trace = tmp_path / "model.gguf", tmp_path / "trace.jsonl"
    model.write_bytes(wide.read_bytes())
    words = ("-n", "12", "--no-repack")
    expected = text_of(starts(binary, wide, tmp_path / "mapped", {}, *words))
    process = starts(binary, model, trace, streamed(0), *words)
    await_steps(trace, 2)
    (tmp_path / "other").write_bytes(bytes(model.stat().st_size))
    (tmp_path / "other").replace(model)
    assert text_of(process) == expected


@pytest.mark.exhaustive(covers=["toolchains"])
def test_weights_are_streamed_from_all_parts_of_a_model(
    binary: Binary, wide: Path, tmp_path: Path
) -> None:
    whole, split = tmp_path / "whole.jsonl", tmp_path / "split.jsonl"
    parts = in_two_parts(wide, tmp_path)
    expected = text_of(starts(binary, parts, tmp_path / "mapped", {}, *WORDS))
    assert text_of(starts(binary, wide, whole, streamed(), *WORDS)) == expected
    assert text_of(starts(binary, parts, split, streamed(), *WORDS)) == expected
    of_whole, of_split = (streamed_weights(traced(trace)[0]) for trace in (whole, split))
    assert of_whole is not None
    assert of_split is not None
    # Where tensors share a page is another matter in each file.
    assert abs(of_split.weights_bytes - of_whole.weights_bytes) < 1 << 20
    assert abs(of_split.locked_bytes - (8 << 20)) < 1 << 20


@similar
def test_repacked_weights_in_parts_are_in_memory_already_and_the_trace_says_so(
    binary: Binary, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    q4 = tmp_path / "q4.gguf"
    synthesise(WIDE, q4, quantisation="Q4_0", seed=1, progress=Silent())
    text_of(starts(binary, in_two_parts(q4, tmp_path), trace, streamed(), "-n", "2"))
    assert "copied them into memory" in traced(trace)[0].weights[-1].reason


def test_a_kernel_that_cannot_lock_holds_the_resident_part_in_anonymous_memory(
    binary: Binary, wide: Path, expected: str, tmp_path: Path
) -> None:
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine has swap, which could take anonymous memory")
    trace = tmp_path / "trace.jsonl"
    launcher = without_calls("mlock", "mlock2")
    process = starts(binary, wide, trace, streamed(), *WORDS, launcher=launcher)
    assert text_of(process) == expected
    weights = traced(trace)[0].weights[-1]
    assert weights.lock_refused
    assert weights.locked_bytes == 0
    assert abs(weights.anonymous_bytes - (8 << 20)) < 1 << 20


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("memfd_create", "this kernel cannot share memory between mappings, or start a thread"),
        pytest.param(
            "MemAvailable",
            "this kernel does not report the available memory",
            marks=[as_root, similar],
        ),
    ],
)
def test_where_the_kernel_lacks_what_streaming_needs_the_weights_stay_mapped(
    binary: Binary, wide: Path, expected: str, tmp_path: Path, lacks: str, reason: str
) -> None:
    trace = tmp_path / "trace.jsonl"
    launcher = (
        with_meminfo("MemTotal: 524288 kB\n", tmp_path)
        if lacks == "MemAvailable"
        else without_calls(lacks)
    )
    process = starts(binary, wide, trace, streamed(), *WORDS, launcher=launcher)
    assert text_of(process) == expected
    (weights,) = traced(trace)[0].weights
    assert (weights.weights, weights.reason) == ("mapped", reason)
