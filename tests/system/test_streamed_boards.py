"""Models larger than a virtual board's memory: streamed, and what may go wrong there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from armload.analysis.run import Run
from armload.analysis.streaming import streamed_weights
from armload.analysis.summary import generating
from armload.boards.virtual.machine import Qmp
from armload.boards.virtual.state import socket_path
from armload.core.progress import Silent
from armload.models.synth import synthesise
from armload.runs import store
from tests.chat_models import with_chat_template
from tests.person import Person
from tests.projectors import TEMPLATE, write_projector
from tests.split import in_two_parts
from tests.system.people import MODELS, RUNS, add_by_ssh, switched_on
from tests.system.streaming import COVERED, EXPERTS, LARGE

pytestmark = [pytest.mark.build, pytest.mark.machine]

MIXTURE = "experts.gguf"


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    slow = "{memory: 192 MiB, disk_read_bytes_per_s: 40 MB}"
    person.add_board("mine", f"extends: single-core\nreach: {slow}\n")
    synthesise(LARGE, person.folder / "large.gguf", quantisation="Q8_0", seed=1, progress=Silent())
    mixture = LARGE.model_copy(update={**EXPERTS, "layers": 6})
    synthesise(mixture, person.folder / MIXTURE, quantisation="Q8_0", seed=1, progress=Silent())
    yield person
    person.types("board.down", "--board", "mine", "--yes")


@pytest.mark.exhaustive(covers=COVERED)
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
    assert run.environment["ARMLOAD_WEIGHTS"] == "streamed"
    assert run.text == mapped.text
    weights = streamed_weights(run.trace)
    assert weights is not None
    assert weights.locked_bytes > 0.3 * weights_bytes
    assert weights.released_bytes == 0
    assert "streaming" not in {finding.name for finding in run.verdict.findings}
    prompt, *decode = run.steps
    assert (prompt.read_bytes or 0) < 1.1 * weights_bytes
    for step in decode:
        assert abs((step.read_bytes or 0) - weights.streamed_bytes) < 0.1 * weights_bytes
        assert step.major_faults < 50
        assert abs((step.locked_bytes or 0) - weights.locked_bytes) < 2 << 20


@pytest.mark.exhaustive(covers=COVERED)
def test_memory_that_others_take_meanwhile_is_given_up_before_a_kill(ann: Person) -> None:
    words = ("--model", "large.gguf", "-n", "12", "--repeats", "1", "--json")
    process = ann.start("bench", "--board", "mine", *words)
    count = f"cat {RUNS}/*/trace.jsonl 2>/dev/null | wc -l"
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


BLOCK_BYTES = 4096
"""Of the board's file system."""


def sectors_of(model: Path, disk: Path) -> list[int]:
    """Return where a disk's image holds the second half of a model: one sector in each MiB."""
    content = model.read_bytes()
    middle = len(content) // 2 // BLOCK_BYTES * BLOCK_BYTES
    wanted = {content[at : at + BLOCK_BYTES] for at in range(middle, len(content), 1 << 20)}
    wanted.discard(bytes(BLOCK_BYTES))  # which is anywhere
    found: list[int] = []
    end = 0
    with disk.open("rb") as file:
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # there is no more
                return found
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            found.extend(
                at // 512
                for at in range(start - start % BLOCK_BYTES, end, BLOCK_BYTES)
                if os.pread(file.fileno(), BLOCK_BYTES, at) in wanted
            )


@contextmanager
def bad_sectors(ann: Person, model: Path) -> Iterator[None]:
    """Let the storage of the board ``mine`` fail to read parts of a model."""
    shown = switched_on(ann)
    machine = Path(shown["key"]).parent
    sectors = sectors_of(model, machine / "disk.img")
    assert len(sectors) > 20
    errors = [{"event": "none", "iotype": "read", "errno": 5, "sector": at} for at in sectors]
    with Qmp(socket_path(machine, "qmp")) as control:
        (storage,) = control.execute("query-block")
        device = storage["qdev"].removesuffix("/virtio-backend")
        node = storage["inserted"]["node-name"]
        faulty = {"driver": "blkdebug", "node-name": "faulty", "image": node}
        control.execute("blockdev-add", {**faulty, "inject-error": errors})
        drive = {"path": device, "property": "drive"}
        control.execute("qom-set", {**drive, "value": "faulty"})
        try:
            yield
        finally:
            control.execute("qom-set", {**drive, "value": node})
            control.execute("blockdev-del", {"node-name": "faulty"})


def text_of_large(ann: Person) -> str:
    """Return what the large model writes, in a run that ends well."""
    run = Run.model_validate(ann.benches("--model", "large.gguf", "-n", "6"))
    assert run.exit.status == 0
    return run.text


def in_mid_run(
    ann: Person, *more: str, model: str = "large.gguf", tokens: int = 6
) -> subprocess.Popen[str]:
    """Start a run of a model, and return when its trace has a token."""
    length = ("-n", str(tokens), "--threads", "1", "--repeats", "1")
    words = ("--model", model, *length, "--json")
    process = ann.start("bench", "--board", "mine", *words, *more)
    running = "! [ -e exit ] && tail -n 1 trace.jsonl 2>/dev/null | grep -q step"
    ann.waits_on_board(
        f"(for run in {RUNS}/*; do cd $run && {running} && exit; done; false)", process
    )
    return process


@pytest.mark.exhaustive(covers=[*COVERED, "armload/deploy"])
@pytest.mark.parametrize(
    ("model", "weights", "tokens"),
    [("large.gguf", "mapped", 6), ("large.gguf", "streamed", 6), (MIXTURE, "streamed", 200)],
)
def test_storage_that_reports_errors_ends_the_run_with_what_the_kernel_says(
    ann: Person, model: str, weights: str, tokens: int
) -> None:
    process = in_mid_run(ann, "--weights", weights, model=model, tokens=tokens)
    with bad_sectors(ann, ann.folder / model):
        out, log = process.communicate(timeout=600)
    run = Run.model_validate(json.loads(out))
    assert run.exit.kind == "storage error", log
    assert "I/O error, dev vda, sector" in run.exit.meaning
    assert not run.verdict.valid
    assert run.steps
    if weights == "streamed":
        assert "armload: the model cannot be read" in (ann.runs / run.id / "stderr").read_text()


@pytest.mark.exhaustive(covers=[*COVERED, "armload/deploy"])
def test_a_model_that_is_truncated_on_the_board_ends_the_run_and_is_sent_again(ann: Person) -> None:
    whole = text_of_large(ann)
    process = in_mid_run(ann)
    ann.on_board(
        f"cd $(dirname {MODELS}/*/large.gguf) && head -c 20000000 large.gguf >part && "
        "cat part >large.gguf && rm part"
    )
    out, log = process.communicate(timeout=600)
    run = Run.model_validate(json.loads(out))
    assert run.exit.kind == "storage error", log
    assert "was truncated, or the storage reported an error" in run.exit.meaning
    assert not run.verdict.valid
    assert text_of_large(ann) == whole


@pytest.mark.exhaustive(covers=[*COVERED, "armload/deploy"])
def test_a_model_that_is_replaced_on_the_board_is_read_on_and_sent_again(ann: Person) -> None:
    whole = text_of_large(ann)
    process = in_mid_run(ann)
    ann.on_board(
        f"cd $(dirname {MODELS}/*/large.gguf) && head -c 20000000 /dev/zero >other && "
        "mv other large.gguf"
    )
    out, log = process.communicate(timeout=600)
    run = Run.model_validate(json.loads(out))
    assert (run.text, run.exit.status) == (whole, 0), log
    assert text_of_large(ann) == whole


@pytest.mark.exhaustive(covers=COVERED)
def test_who_may_not_lock_memory_keeps_weights_there_and_is_told_what_to_set(ann: Person) -> None:
    locked = Run.model_validate(ann.benches("--model", "large.gguf", "-n", "3"))
    ann.on_board(
        "mkdir -p /data/nobody/.ssh && cp /root/.ssh/authorized_keys /data/nobody/.ssh && "
        "chown -R 65534:65534 /data/nobody && { cat /etc/passwd && "
        "echo nobody:x:65534:65534::/data/nobody:/bin/sh; } >/tmp/passwd && "
        "mount --bind /tmp/passwd /etc/passwd"
    )
    add_by_ssh(ann, "modest", switched_on(ann) | {"user": "nobody"}, workdir="/data/nobody/armload")
    run = Run.model_validate(ann.benches("--model", "large.gguf", "-n", "3", board="modest"))
    weights = streamed_weights(run.trace)
    assert weights is not None
    assert weights.lock_refused
    assert weights.anonymous_bytes > 0.2 * weights.weights_bytes
    assert weights.locked_bytes <= 8 << 20  # the kernel's own limit
    assert run.text == locked.text
    assert any("memlock unlimited" in note for note in run.notes), run.notes


@pytest.fixture
def swap(ann: Person) -> Iterator[int]:
    size_bytes = 64 << 20
    ann.on_board(
        f"head -c {size_bytes} /dev/zero >/data/swap && chmod 600 /data/swap && "
        "mkswap /data/swap && swapon /data/swap && cat /proc/swaps"
    )
    yield size_bytes
    ann.on_board("swapoff /data/swap; rm /data/swap")


@pytest.mark.exhaustive(covers=COVERED)
def test_beside_swap_weights_are_locked_and_stay(ann: Person, swap: int) -> None:
    run = Run.model_validate(ann.benches("--model", "large.gguf", "-n", "6"))
    assert abs(run.before.swap_total_bytes - swap) < 1 << 20
    weights = streamed_weights(run.trace)
    assert weights is not None
    assert weights.locked_bytes > 0.3 * weights.weights_bytes
    assert (weights.anonymous_bytes, weights.cached_bytes) == (0, 0)
    for step in generating(run.steps):
        assert abs((step.read_bytes or 0) - weights.streamed_bytes) < 0.1 * weights.weights_bytes
        assert abs((step.locked_bytes or 0) - weights.locked_bytes) < 2 << 20


@pytest.mark.exhaustive(covers=[*COVERED, "armload/engines/speculation.py"])
def test_guesses_go_through_streamed_weights_in_one_pass(ann: Person) -> None:
    sentence = "one two three four five six seven eight. "
    words = ("--model", "large.gguf", "--prompt", sentence * 2 + "one two three", "-n", "6")
    done = ann.types(
        *("bench", "--board", "mine", "--threads", "1", "--json"),
        *(*words, "--speculate", "none,ngram"),
    )
    cells: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    plain, guessed = (store.load(ann.runs / cell["runs"][0]) for cell in cells)
    for run in (plain, guessed):
        weights = streamed_weights(run.trace)
        assert weights is not None
        assert weights.locked_bytes > 0.3 * weights.weights_bytes
        assert run.exit.status == 0
    found = cells[1]["speculation"]
    assert found["tokens_per_pass"] >= 1
    assert found["without"]["text"]["kind"] == "same"
    assert guessed.summary.speculation is not None
    assert guessed.summary.speculation.speculated_tokens > 0


@pytest.mark.exhaustive(covers=[*COVERED, "armload/models/model.py", "armload/deploy/payload.py"])
def test_a_model_in_parts_is_copied_and_streamed_from_all_of_them(ann: Person) -> None:
    parts = in_two_parts(ann.folder / "large.gguf", ann.folder)
    words = ("-n", "3", "--weights", "streamed")
    whole = Run.model_validate(ann.benches("--model", "large.gguf", *words))
    run = Run.model_validate(ann.benches("--model", parts.name, *words))
    assert run.text == whole.text
    of_whole, weights = (streamed_weights(each.trace) for each in (whole, run))
    assert of_whole is not None
    assert weights is not None
    assert abs(weights.weights_bytes - of_whole.weights_bytes) < 1 << 20
    for step in generating(run.steps):
        assert abs((step.read_bytes or 0) - weights.streamed_bytes) < 0.1 * weights.weights_bytes


@pytest.mark.exhaustive(covers=COVERED)
def test_a_mixture_of_experts_that_exceeds_memory_is_streamed_and_shows_its_hits(
    ann: Person,
) -> None:
    words = ("--model", MIXTURE, "-n", "6")
    mapped = Run.model_validate(ann.benches(*words, "--weights", "mapped"))
    run = Run.model_validate(ann.benches(*words))
    assert run.environment["ARMLOAD_WEIGHTS"] == "streamed"
    assert run.text == mapped.text
    assert run.model.experts == EXPERTS["experts"]
    weights, reads = streamed_weights(run.trace), run.summary.experts
    assert weights is not None
    assert reads is not None
    assert weights.released_bytes == 0
    assert weights.expert_slot_bytes > 0.2 * weights.expert_bytes
    assert reads.hit_rate > 0.15
    assert "streaming" not in {finding.name for finding in run.verdict.findings}
    assert run.prediction is not None
    assert run.prediction.hit_rate is not None
    assert run.prediction.hit_rate.kind == "assumed"


@pytest.fixture
def roomier(ann: Person) -> Iterator[str]:
    """A board on which llama.cpp can reserve 158 MiB of address space for an encoder's graph."""
    slow = "{memory: 224 MiB, disk_read_bytes_per_s: 40 MB}"
    ann.add_board("roomier", f"extends: single-core\nreach: {slow}\n")
    yield "roomier"
    ann.types("board.down", "--board", "roomier", "--yes")


@pytest.mark.exhaustive(covers=[*COVERED, "armload/engines/perception.py", "armload/runs/media.py"])
def test_a_model_larger_than_memory_sees_an_image_and_keeps_as_many_weights(
    ann: Person, roomier: str
) -> None:
    model = with_chat_template(ann.folder / "large.gguf", ann.folder / "seeing.gguf", TEMPLATE)
    projector = write_projector(
        ann.folder / "mmproj-seeing.gguf", width=LARGE.width, hidden=1 << 14
    )
    Image.effect_noise((128, 128), 90).convert("RGB").save(ann.folder / "a.png")
    words = ("--model", model.name, "--prompt", "x", "-n", "4")
    seen = (*words, "--image", "a.png")
    plain = Run.model_validate(ann.benches(*words, board=roomier))
    mapped = Run.model_validate(ann.benches(*seen, "--weights", "mapped", board=roomier))
    run = Run.model_validate(ann.benches(*seen, board=roomier))
    assert run.environment["ARMLOAD_WEIGHTS"] == "streamed"
    assert run.text == mapped.text
    weights, without = streamed_weights(run.trace), streamed_weights(plain.trace)
    assert weights is not None
    assert without is not None
    projector_bytes = projector.stat().st_size
    # The projector would not have fitted beside what is locked after it was released.
    assert run.before.memory_available_bytes < weights.locked_bytes + projector_bytes
    assert weights.locked_bytes > without.locked_bytes - 0.2 * projector_bytes
    assert weights.released_bytes == 0
    (encoder,) = (each for each in run.steps if each.stage == "encoder")
    assert encoder.rss_bytes > projector_bytes
    assert not encoder.locked_bytes
    assert "streaming" not in {finding.name for finding in run.verdict.findings}
    for step in generating(run.steps):
        assert abs((step.read_bytes or 0) - weights.streamed_bytes) < 0.1 * weights.weights_bytes
    assert run.prediction is not None
    assert run.prediction.verdict == "streams"
    too_large = write_projector(ann.folder / "huge.gguf", width=LARGE.width, hidden=1 << 16)
    refused = ann.types(*("bench", "--board", roomier, *seen, "--mmproj", too_large.name), status=7)
    assert "Name a smaller projector with --mmproj" in " ".join(refused.stderr.split())


@pytest.mark.exhaustive(
    covers=["armload/engines/footprint.py", "armload/runs/footprint.py", "toolchains/native"]
)
def test_a_context_of_engine_args_beyond_the_boards_memory_is_refused(ann: Person) -> None:
    words = ("bench", "--board", "mine", "-n", "2", "--engine-args", "-c 12288")
    refused = ann.types(*words, status=7).stderr
    assert "with a context of 12288 tokens" in refused
    assert re.search(r"Use --context \d+ or less", refused)
