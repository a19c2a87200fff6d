"""distributed-llama with armload's main: the logits of llama.cpp, on any number of nodes."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from armload.conversion.distributed import converted_files
from armload.core.progress import Silent
from armload.engines.distributed import ConvertedFiles
from armload.engines.trace import Step, Trace, read_trace
from armload.models.gguf import read_model
from armload.models.synth import synthesise, synthesise_like
from armload.runs.node_times import PADDING, TimedNode
from tests.distributed import SHAPE, engine_for, programs_for, written_prompt
from tests.networks import Network, network_of_its_own

pytestmark = pytest.mark.build

TEXT = "The people went out to see the river and the trees near the old house. " * 3
KEY = "0" * 40
NEW_TOKENS = 12


@pytest.mark.exhaustive(covers=["toolchains", "armload/build"])
@pytest.mark.parametrize("target", ["rpi4", "graviton3"])
def test_it_is_built_for_cpus_without_dot_products_and_with_more_than_it_has_kernels_for(
    target: str,
) -> None:
    engine = engine_for(target)
    used = {use.feature for use in engine.features if not use.guarded}
    assert ("asimddp" in used) == (target == "graviton3")


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What a test runs.

    Attributes:
        program, scorer: built for this machine.
        gguf, model: the same one in two formats.
        prompt: its tokens.
        folder: for files.
    """

    program: Path
    scorer: Path
    gguf: Path
    model: ConvertedFiles
    prompt: Path
    folder: Path

    @property
    def tokens(self) -> list[int]:
        found: list[int] = json.loads(self.prompt.read_text())["tokens"]
        return found


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    folder = tmp_path_factory.mktemp("distributed")
    program, scorer = programs_for("host")
    gguf = folder / "model.gguf"
    synthesise(SHAPE, gguf, quantisation="Q4_0", seed=1, progress=Silent())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARMLOAD_CACHE", str(folder / "cache"))
        model = converted_files(read_model(gguf), Silent())
    (folder / "key").write_text(KEY + "\n")
    return Ready(
        program=program.path,
        scorer=scorer.path,
        gguf=gguf,
        model=model,
        prompt=written_prompt(scorer.path, model.vocabulary.local, TEXT, folder),
        folder=folder,
    )


@dataclass(frozen=True, kw_only=True)
class Worker:
    process: subprocess.Popen[bytes]
    port: int
    trace: Path
    host: str = "127.0.0.1"


@contextmanager
def _workers(
    ready: Ready,
    count: int,
    *,
    key: str = KEY,
    trace: Path | None = None,
    network: Network | None = None,
) -> Iterator[list[Worker]]:
    """Have workers within the block: at the other end of a network, or here."""
    host, inside = (network.there, network.inside) if network else ("127.0.0.1", ())
    (ready.folder / "their-key").write_text(key + "\n")
    found = []
    try:
        for number in range(count):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            written = trace or ready.folder / f"worker-{number}.jsonl"
            if trace is None:
                written.unlink(missing_ok=True)
            words = [*inside, str(ready.program), "worker", "--host", host, "--port", str(port)]
            words += ["--key", str(ready.folder / "their-key"), "--poll", "0"]
            process = subprocess.Popen(
                words, env={**os.environ, "ARMLOAD_TRACE": str(written)}, stderr=subprocess.PIPE
            )
            found.append(Worker(process=process, port=port, trace=written, host=host))
        for each in found:
            _until_listening(each)
        yield found
    finally:
        for each in found:
            each.process.kill()
            each.process.communicate()


def _sockets(pid: int) -> str:
    return Path(f"/proc/{pid}/net/tcp").read_text()


def _until_listening(worker: Worker) -> None:
    for _ in range(200):
        if f":{worker.port:04X} 00000000:0000 0A" in _sockets(worker.process.pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on {worker.port}")


def _words(ready: Ready, workers: Sequence[Worker], *more: str) -> list[str]:
    addresses = [f"{each.host}:{each.port}" for each in workers]
    peers = ";".join(",".join(addresses[number:]) for number in range(1, len(addresses)))
    words = [str(ready.program), "root", "--model", str(ready.model.weights.local)]
    words += ["--prompt", str(ready.prompt), "--pieces", str(ready.model.pieces.local)]
    words += ["-n", str(NEW_TOKENS), "--context", "256", "--poll", "0", *more]
    if addresses:
        words += ["--workers", ",".join(addresses), "--key", str(ready.folder / "key")]
    return [*words, "--peers", peers] if peers else words


@dataclass(frozen=True, kw_only=True)
class Ended:
    status: int
    text: str
    log: str
    header: Trace | None
    steps: Sequence[Step]


def _run(ready: Ready, workers: Sequence[Worker] = (), *more: str) -> Ended:
    trace = ready.folder / "trace.jsonl"
    done = subprocess.run(
        _words(ready, workers, *more),
        env={**os.environ, "ARMLOAD_TRACE": str(trace)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    header, steps = read_trace(trace)
    text, log = done.stdout.decode(), done.stderr.decode("utf-8", "replace")
    return Ended(status=done.returncode, text=text, log=log, header=header, steps=steps)


def _log_shares(path: Path, rows: int) -> np.ndarray:
    logits = np.fromfile(path, dtype="<f4").reshape(rows, -1).astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    shares: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return shares


def _divergence(expected: np.ndarray, found: np.ndarray) -> float:
    return float((np.exp(expected) * (expected - found)).sum(axis=-1).mean())


@pytest.fixture(scope="module")
def expected(ready: Ready) -> np.ndarray:
    """llama.cpp's shares of the same weights."""
    return _expected(ready, ready.gguf, ready.folder)


def _expected(ready: Ready, gguf: Path, folder: Path) -> np.ndarray:
    items, logits = folder / "logits.jsonl", folder / "llama.f32"
    item = {"id": "0", "kind": "logits", "prompt": TEXT, "positions": "all"}
    items.write_text(json.dumps(item) + "\n")
    words = [str(ready.scorer), "-m", str(gguf), "--items", str(items)]
    words += ["--logits", str(logits), "-c", "256"]
    done = subprocess.run(words, capture_output=True, check=True)
    assert json.loads(done.stdout)["tokens"] == ready.tokens
    return _log_shares(logits, len(ready.tokens))


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_the_logits_are_those_of_llama_cpp_on_any_number_of_nodes(
    nodes: int, ready: Ready, expected: np.ndarray
) -> None:
    logits = ready.folder / f"dllama-{nodes}.f32"
    with _workers(ready, nodes - 1) as workers:
        ended = _run(ready, workers, "--logits", str(logits))
    assert ended.status == 0, ended.log
    found = _log_shares(logits, len(ready.tokens))
    same = (expected.argmax(axis=-1) == found.argmax(axis=-1)).mean()
    assert _divergence(expected, found) < 0.02
    assert same > 0.85


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_sum_of_two_output_matrices_is_that_of_the_file(
    nodes: int, ready: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    gguf = tmp_path / "mixed.gguf"
    synthesise_like(SHAPE, gguf, file_type="Q4_0", seed=1, progress=Silent())
    model = converted_files(read_model(gguf), Silent())
    assert model.facts.has_rest
    logits = tmp_path / "dllama.f32"
    with _workers(ready, nodes - 1) as workers:
        ended = _run(ready, workers, "--model", str(model.weights.local), "--logits", str(logits))
    assert ended.status == 0, ended.log
    expected, found = _expected(ready, gguf, tmp_path), _log_shares(logits, len(ready.tokens))
    assert _divergence(expected, found) < 0.02


def test_steps_say_what_was_computed_and_what_was_exchanged_on_every_node(ready: Ready) -> None:
    with _workers(ready, 1) as (worker,):
        ended = _run(ready, [worker])
        header, theirs = read_trace(worker.trace)
    count = len(ready.tokens)
    assert ended.header is not None
    assert header is not None
    assert ended.header.engine_commit == header.engine_commit == "8d624a7b1f9a"
    assert sum(step.prompt_tokens for step in ended.steps) == count
    assert sum(step.generated_tokens for step in ended.steps) == NEW_TOKENS - 1
    assert len(theirs) == len(ended.steps)
    for ours, other in zip(ended.steps, theirs, strict=True):
        assert ours.tokens == other.tokens
        assert ours.sync_ns is not None
        assert 0 < ours.sync_ns < ours.end_ns - ours.start_ns
        # With what is said before each step, and not of the same batch, a few bytes.
        assert ours.received_bytes == other.sent_bytes
        assert ours.sent_bytes == other.received_bytes
    assert len(ended.text.split()) == NEW_TOKENS


def test_one_node_has_nothing_to_synchronise(ready: Ready) -> None:
    assert {step.sync_ns for step in _run(ready).steps} == {None}


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("rest", ["0", "1"])
def test_a_node_is_timed_by_the_beginning_of_a_models_file_alone(
    nodes: int, rest: str, ready: Ready
) -> None:
    words = ["times", "--model", "/dev/stdin", "--nodes", str(nodes), "--context", "128"]
    done = subprocess.run(
        [str(ready.program), *words, "--rest", rest, "--batch", "16"],
        input=ready.model.facts.header() + PADDING,
        capture_output=True,
        timeout=60,
        check=True,
    )
    times = TimedNode.model_validate_json(done.stdout)
    assert len(times.first_ns) >= 3
    assert len(times.last_ns) >= 3
    assert min(times.prompt_ns) > min(times.first_ns)


def test_strangers_are_hung_up_on_and_the_run_goes_on(ready: Ready) -> None:
    with _workers(ready, 1) as (worker,):
        with socket.create_connection(("127.0.0.1", worker.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(400))
            stranger.settimeout(20)
            with suppress(ConnectionError):
                assert stranger.recv(1) == b""
        ended = _run(ready, [worker])
    assert ended.status == 0, ended.log


def test_a_stranger_that_says_little_at_a_time_keeps_nobody_waiting(ready: Ready) -> None:
    with _workers(ready, 1) as (worker,):
        with socket.create_connection(("127.0.0.1", worker.port)) as stranger:
            stranger.settimeout(0.5)
            sent = 0
            with suppress(ConnectionError):
                while sent < 100:  # of a greeting of more bytes
                    stranger.sendall(b"a")
                    sent += 1
                    with suppress(TimeoutError):
                        assert stranger.recv(1) == b""
                        break
            assert sent < 100
        ended = _run(ready, [worker])
    assert ended.status == 0, ended.log


def test_a_worker_with_another_key_takes_no_part(ready: Ready) -> None:
    with _workers(ready, 1, key="1" * 40) as (worker,):
        ended = _run(ready, [worker])
    assert (ended.status, ended.text) == (1, "")
    assert f"node 1 at 127.0.0.1:{worker.port} does not know the key of this run" in ended.log


COMMIT = b"8d624a7b1f9a"
GREETING_BYTES = 124
ANSWER = struct.Struct("<32s48s32s32s")
"""Program, commit, challenge and proof."""


@pytest.mark.parametrize(
    ("commit", "said"),
    [
        (COMMIT, "does not know the key"),
        (b"0" * 12, "runs another program, or another build of this one"),
    ],
)
def test_who_answers_at_a_nodes_address_learns_no_key_and_takes_no_part(
    commit: bytes, said: str, ready: Ready
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        words = [*_words(ready, ()), "--workers", address, "--key", str(ready.folder / "key")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            client, _ = stranger.accept()
            with client:
                client.settimeout(20)
                greeting = client.recv(GREETING_BYTES, socket.MSG_WAITALL)
                client.sendall(ANSWER.pack(greeting[:32], commit, greeting[-32:], bytes(32)))
                further = client.recv(1)
            text, log = process.communicate(timeout=20)
    assert KEY.encode() not in greeting
    assert further == b""
    assert (process.returncode, text) == (1, b"")
    assert f"node 1 at {address} {said}" in log.decode()


@pytest.mark.parametrize("commit", [COMMIT, b"0" * 12])
def test_who_sends_a_nodes_own_proof_back_to_it_takes_no_part(commit: bytes, ready: Ready) -> None:
    hello = struct.pack("<32s48s3I32s", b"armload-dllama 2", commit, 0, 1, 2, bytes(32))
    with _workers(ready, 1) as (worker,):
        with socket.create_connection(("127.0.0.1", worker.port), timeout=20) as stranger:
            stranger.sendall(hello)
            answer = stranger.recv(ANSWER.size, socket.MSG_WAITALL)
            program, theirs, _, proof = ANSWER.unpack(answer)
            assert program.rstrip(b"\0") == b"armload-dllama 2"
            assert theirs.rstrip(b"\0") == COMMIT
            with suppress(ConnectionError):
                stranger.sendall(proof)
                assert stranger.recv(1) == b""
        ended = _run(ready, [worker])
    assert ended.status == 0, ended.log


def test_a_worker_whose_disk_is_full_computes_without_a_trace(ready: Ready) -> None:
    with _workers(ready, 1, trace=Path("/dev/full")) as (worker,):
        ended = _run(ready, [worker])
    assert ended.status == 0, ended.log
    assert len(ended.text.split()) == NEW_TOKENS


@pytest.mark.exhaustive(covers=["toolchains/dllama"])
def test_a_connection_that_is_cut_for_20_s_is_waited_for(ready: Ready) -> None:
    with network_of_its_own() as network, _workers(ready, 1, network=network) as (worker,):
        process = subprocess.Popen(
            [*_words(ready, [worker]), "-n", "150"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        first = process.stdout.read(1)
        network.cut(for_s=20)
        assert process.poll() is None  # it waits
        rest, log = process.communicate(timeout=120)
    assert process.returncode == 0, log
    assert len((first + rest).split()) > 140  # of 150 tokens, most of which are a word


def test_a_node_that_is_killed_ends_the_root_with_a_word(ready: Ready) -> None:
    with _workers(ready, 1) as (worker,):
        process = subprocess.Popen(
            [*_words(ready, [worker]), "-n", "150"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.read(1)  # it generates
        worker.process.kill()
        _, log = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"another node has gone" in log


def test_a_worker_whose_root_has_gone_waits_without_work(ready: Ready) -> None:
    with _workers(ready, 1) as (worker,):
        process = subprocess.Popen(
            [*_words(ready, [worker]), "-n", "150"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.kill()
        process.communicate()
        assert worker.process.stderr is not None
        assert b"another node has gone" in worker.process.stderr.readline()
        assert worker.process.poll() is None


def test_a_prompt_or_tokens_of_another_model_are_refused(ready: Ready, tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text('{"tokens":[1,2048]}\n')
    ended = _run(ready, (), "--prompt", str(tmp_path / "prompt"))
    assert (ended.status, ended.text) == (2, "")
    assert "not of this model" in ended.log
    (tmp_path / "pieces").write_bytes(bytes(4))
    assert _run(ready, (), "--pieces", str(tmp_path / "pieces")).status == 2
