"""distributed-llama beside llama.cpp on this machine: how close, how fast, how it scales.

    python benchmarks/distributed_llama.py accuracy MODEL.gguf [--text FILE] [--prompt TEXT]
        [--feed-forward WIDTH] [--type Q4_0]
    python benchmarks/distributed_llama.py speed [--size 308M|1B] [--rounds 3] [--delays 0.2]
        [--rate 118MB]
    python benchmarks/distributed_llama.py groups [--size 56M|308M|1B] [--boards virtual]
        [--listen ADDRESS]
    python benchmarks/distributed_llama.py core [--target rk3568] [--cpu cortex-a76]
    python benchmarks/distributed_llama.py conversion

``accuracy`` compares logits and greedy text on each number of nodes that can share the model. A
feed-forward width that nodes do not divide is made a larger one with weights of zero, which changes
no result; ``--type`` quantises the matrices of 32-bit floats, the output matrix to Q8_0.
``speed`` runs a model of random weights on 1 and 2 nodes of one thread, each on its own core,
and behind ``slow_link.c``, in turn. ``groups`` runs the command ``bench`` on groups of two boards
with a thread each, beside what ``fit`` has forecast: this machine twice, whose nodes reach each
other by way of the command, and at ADDRESS without it; or two emulated boards. Then it runs on
one of them, by each engine. ``core`` counts the CPU time of a token on one core that qemu-aarch64
emulates. ``conversion`` compares the rate of converting with that of copying.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import quantize
from groups import Way, delayed, milliseconds, write_board
from numpy.typing import NDArray
from streamed_weights import sized
from typed import armload as run_armload

from armload.analysis.summary import generating
from armload.build.builder import build
from armload.build.programs import DLLAMA, SCORER
from armload.build.source import pinned_source
from armload.build.target import load_target
from armload.conversion.distributed import converted_files
from armload.core.progress import Silent
from armload.engines.completion import PROGRAM
from armload.engines.distributed import ConvertedFiles
from armload.engines.trace import Step, read_trace
from armload.models.gguf import read_model
from armload.models.shape import SentencePieces, Shape
from armload.models.synth import synthesise, synthesise_like

TEXT = (
    "The river was the colour of slate, and the boats that went down it in the morning carried "
    "coal and timber and sometimes passengers, who stood at the rail and looked at the fields. "
    "Nobody spoke of the war. In the town there was a market on Thursdays, where farmers sold what "
    "they had grown, and the mayor, who was old and fond of birds, walked between the stalls and "
    "asked everybody how the harvest had been. He knew the answers. It had rained too little in "
    "May and too much in July, and the barley was short."
)
PROMPT = "The river was the colour of slate, and the boats that went down it"
GREEDY_TOKENS = 64
CONTEXT = 512
_CANDIDATES = 64
_MESSAGE_BYTES, _ROUND_TRIPS = 1088, 1000

SHAPE = Shape(
    layers=16, width=1024, feed_forward=4096, heads=16, kv_heads=4, vocabulary=32000,
    context_length=CONTEXT, tokenizer=SentencePieces(add_end=False),
)  # fmt: skip
"""Of 308 million weights, of which 276 are computed with."""

LARGER = SHAPE.model_copy(
    update={"width": 2048, "feed_forward": 8192, "heads": 32, "kv_heads": 8, "vocabulary": 128256}
)
"""As Llama 3.2 1B."""

EMULATED = SHAPE.model_copy(update={"layers": 6, "width": 512, "feed_forward": 2048, "heads": 8})
SIZES = {"56M": EMULATED, "308M": SHAPE, "1B": LARGER}


class Setup(NamedTuple):
    """Programs, a model in both formats, and a folder for files.

    ``before`` are the words before each program.
    """

    engine: Path
    llama: Mapping[str, Path]
    gguf: Path
    model: ConvertedFiles
    folder: Path
    before: tuple[str, ...] = ()

    def prompt(self, text: str) -> Path:
        """Tokenize a text; return the file of the answer."""
        item = {"id": "0", "kind": "tokenize", "text": text}
        path = self.folder / "prompt"
        path.write_text(json.dumps(self.scored(item, "--vocab-only"), separators=(",", ":")))
        return path

    def scored(self, item: Mapping[str, object], *words: str | Path) -> dict[str, Any]:
        (self.folder / "items").write_text(json.dumps(item) + "\n")
        command: list[str | Path] = [
            *self.before,
            self.llama[SCORER],
            "-m",
            self.gguf,
            "-c",
            str(CONTEXT),
        ]
        command += ["--items", self.folder / "items", *words]
        answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        if "error" in answer:
            raise SystemExit(answer["error"])
        return dict(answer)


def made(gguf: Path, folder: Path, target: str = "host", before: tuple[str, ...] = ()) -> Setup:
    chosen = load_target(target)
    (engine,) = build(chosen, programs=(DLLAMA,), source=pinned_source("distributed-llama"))
    theirs = build(chosen, programs=(SCORER, PROGRAM))
    os.environ["ARMLOAD_CACHE"] = str(folder / "cache")
    return Setup(
        engine=engine.path,
        llama={each.program: each.path for each in theirs},
        gguf=gguf,
        model=converted_files(read_model(gguf), Silent()),
        folder=folder,
        before=before,
    )


class Ended(NamedTuple):
    """What the root wrote: its text, and its steps of generating."""

    text: str
    steps: Sequence[Step]


def nodes_run(
    setup: Setup,
    words: Sequence[str | Path],
    *,
    nodes: int,
    threads: int = 1,
    cores: Sequence[int] = (),
    way: Way | None = None,
    poll: int = 1,
) -> Ended:
    """Run the root with so many nodes of this machine.

    Args:
        cores: that each node has; all without.
        way: between them, by proxies.
        poll: as ``--poll``.
    """
    with contextlib.ExitStack() as stack:
        key = setup.folder / "key"
        key.write_text("0" * 40 + "\n")
        general = ("--key", str(key), "--threads", str(threads), "--poll", str(poll))
        ports = []
        for node in range(1, nodes):
            with socket.create_server(("127.0.0.1", 0)) as free:
                ports.append(free.getsockname()[1])
            place = ("--host", "127.0.0.1", "--port", str(ports[-1]))
            command: list[str | Path] = [
                *_on(cores, node),
                *setup.before,
                setup.engine,
                "worker",
                *place,
                *general,
            ]
            worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        given = list(ports)
        if way is not None:
            for port in ports:
                _wait_for(port)
            given = [stack.enter_context(delayed(port, way)) for port in ports]
        addresses = [f"127.0.0.1:{port}" for port in given]
        command = [*_on(cores, 0), *setup.before, setup.engine, "root", *general, *words]
        command += ["--model", setup.model.weights.local, "--context", str(CONTEXT)]
        if addresses:
            command += ["--workers", ",".join(addresses)]
        if len(addresses) > 1:
            lists = (",".join(addresses[after:]) for after in range(1, len(addresses)))
            command += ["--peers", ";".join(lists)]
        return _traced(setup, command)


def added_s(way: Way) -> float:
    """Return what a link adds to a round trip of a usual message: delay, and its own work."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            for _ in range(2):
                client, _address = server.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with client:
                    while data := client.recv(_MESSAGE_BYTES):
                        client.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        port = server.getsockname()[1]
        direct_s = _round_trip_s(port)
        with delayed(port, way) as slow:
            return _round_trip_s(slow) - direct_s


def _round_trip_s(port: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times_s = []
        for _ in range(_ROUND_TRIPS):
            start = time.monotonic()
            client.sendall(bytes(_MESSAGE_BYTES))
            client.recv(_MESSAGE_BYTES, socket.MSG_WAITALL)
            times_s.append(time.monotonic() - start)
    return median(times_s)


def _on(cores: Sequence[int], node: int) -> tuple[str, ...]:
    return ("taskset", "-c", str(cores[node % len(cores)])) if cores else ()


def _wait_for(port: int) -> None:
    while f":{port:04X} 00000000:0000 0A" not in Path("/proc/net/tcp").read_text():
        time.sleep(0.05)


def _traced(setup: Setup, command: Sequence[str | Path]) -> Ended:
    trace = setup.folder / "trace"
    trace.unlink(missing_ok=True)
    done = subprocess.run(
        command,
        env=os.environ | {"ARMLOAD_TRACE": str(trace)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr.decode(errors="replace"))
    return Ended(done.stdout.decode(errors="replace"), generating(read_trace(trace)[1]))


def llama_run(setup: Setup, tokens: int, cores: Sequence[int]) -> Ended:
    words: list[str | Path] = [
        "-m",
        setup.gguf,
        "-p",
        PROMPT,
        "-n",
        str(tokens),
        "-t",
        str(len(cores)),
        "--temp",
        "0",
    ]
    words += ["-no-cnv", "--ignore-eos", "-c", str(CONTEXT)]
    place = ("taskset", "-c", ",".join(map(str, cores)))
    return _traced(setup, [*place, *setup.before, setup.llama[PROGRAM], *words])


def widened(source: Path, made: Path, feed_forward: int, type_name: str) -> None:
    """Write a model of 32-bit floats with a wider feed-forward, whose new weights are zero.

    Args:
        type_name: of the matrices; that of the output matrix is ``Q8_0`` then.
    """
    reader = GGUFReader(source)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    writer = GGUFWriter(made, str(fields["general.architecture"]))
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = feed_forward if key.endswith(".feed_forward_length") else fields[key]
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        values = np.array(tensor.data, dtype=np.float32)
        missing = feed_forward - values.shape[-1 if "ffn_down" in tensor.name else 0]
        if "ffn_down" in tensor.name:
            values = np.pad(values, ((0, 0), (0, missing)))
        elif "ffn_gate" in tensor.name or "ffn_up" in tensor.name:
            values = np.pad(values, ((0, missing), (0, 0)))
        kind = GGMLQuantizationType.F32
        if values.ndim > 1 and tensor.name != "token_embd.weight" and type_name != "F32":
            kind = GGMLQuantizationType["Q8_0" if tensor.name == "output.weight" else type_name]
            writer.add_tensor(tensor.name, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def accuracy(gguf: Path, text: str, begin: str, folder: Path) -> None:
    """Print how far logits are from llama.cpp's, and where texts part, by number of nodes.

    Args:
        begin: what is continued greedily.
    """
    setup = made(gguf, folder)
    facts = setup.model.facts
    numbered = folder / "numbered"
    words = [b"%d " % number for number in range(facts.vocabulary)]
    pieces = b"".join(struct.pack("<I", len(each)) + each for each in words)
    numbered.write_bytes(struct.pack("<I", len(words)) + pieces)
    theirs, ours = folder / "llama.f32", folder / "distributed.f32"
    item = {"id": "0", "kind": "logits", "prompt": text, "positions": "all"}
    tokens = setup.scored(item, "--logits", theirs)["tokens"]
    expected = _rows(theirs, len(tokens))
    print(f"{gguf.name}, {len(tokens)} tokens, output matrix in {facts.output_type}")
    print("| nodes | KL divergence (most) | top token equal | perplexity | text parts at | gap |")
    print("|---|---|---|---|---|---|")
    print(f"| llama.cpp | | | {_perplexity(expected, tokens):.2f} | | |")
    for nodes in (1, 2, 4):
        if why := facts.obstacle(nodes):
            print(f"| {nodes}: {why} | | | | | |")
            continue
        prompt = setup.prompt(text)
        nodes_run(setup, ["--prompt", prompt, "--logits", ours], nodes=nodes, poll=0)
        found = _rows(ours, len(tokens))
        one, other = _log_shares(expected), _log_shares(found)
        divergence = (np.exp(one) * (one - other)).sum(axis=-1)
        same = (one.argmax(axis=-1) == other.argmax(axis=-1)).mean()
        parted = _parted(setup, begin, numbered, nodes)
        print(
            f"| {nodes} | {divergence.mean():.4f} ({divergence.max():.3f}) | {same:.1%} "
            f"| {_perplexity(found, tokens):.2f} | {parted} |"
        )


def _parted(setup: Setup, begin: str, numbered: Path, nodes: int) -> str:
    """Return at which token llama.cpp would have gone on otherwise, and by which gap of logits."""
    prompt = setup.prompt(begin)
    before = json.loads(prompt.read_text())["tokens"]
    words: list[str | Path] = ["--prompt", prompt, "--pieces", numbered, "-n", str(GREEDY_TOKENS)]
    greedy = [int(each) for each in nodes_run(setup, words, nodes=nodes, poll=0).text.split()]
    # llama.cpp says of each token whether it is its own choice.
    (own,) = _likelihoods(setup, before, [greedy])
    if all(own["greedy"]):
        return f"never in {len(greedy)} | "
    at = own["greedy"].index(False)
    context = before + greedy[:at]
    prompt.write_text(json.dumps({"tokens": context}, separators=(",", ":")))
    rows = setup.folder / "context.f32"
    nodes_run(setup, ["--prompt", prompt, "--logits", rows], nodes=1)
    likely = np.argsort(_rows(rows, len(context))[-1])[-_CANDIDATES:].tolist()
    told = _likelihoods(setup, context, [[token] for token in likely])
    (chosen,) = [each for each in told if each["greedy"][0]]
    gap = chosen["log_likelihoods"][0] - own["log_likelihoods"][at]
    return f"{at + 1} | {gap:.3f}"


def _likelihoods(
    setup: Setup, context: list[int], continuations: list[list[int]]
) -> list[dict[str, list[Any]]]:
    item = {"id": "0", "kind": "likelihood", "context": context, "continuations": continuations}
    return list(setup.scored(item)["continuations"])


def _rows(path: Path, rows: int) -> NDArray[np.float64]:
    return np.fromfile(path, dtype="<f4").reshape(rows, -1).astype(np.float64)


def _log_shares(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    moved = logits - logits.max(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True))
    return shares


def _perplexity(logits: NDArray[np.float64], tokens: Sequence[int]) -> float:
    shares = _log_shares(logits)
    return float(np.exp(-shares[np.arange(len(tokens) - 1), list(tokens[1:])].mean()))


class Case(NamedTuple):
    """One way to run the model; ``nodes`` is 0 with llama.cpp."""

    name: str
    nodes: int
    cores: Sequence[int]
    way: Way | None = None
    poll: int = 1


def speed(shape: Shape, tokens: int, rounds: int, ways: Sequence[Way], folder: Path) -> None:
    """Print tokens/s of each case: of its rounds the fastest, as other work can only slow it."""
    gguf = folder / "model.gguf"
    synthesise(shape, gguf, quantisation="Q4_0", seed=1, progress=Silent())
    setup = made(gguf, folder)
    first, second = sorted(os.sched_getaffinity(0))[:2]
    links = [(way, f"a link of {1000 * way.delay_s:g} ms") for way in ways]
    cases = [
        Case("llama.cpp, 1 thread", 0, [first]),
        Case("llama.cpp, 2 threads", 0, [first, second]),
        Case("1 node, 1 thread", 1, [first]),
        Case("1 node, 2 threads", 1, [first, second]),
        Case("2 nodes, 1 thread each", 2, [first, second]),
        *(Case(f"2 nodes, {link}", 2, [first, second], way) for way, link in links),
        *(
            Case(f"2 nodes, {link}, --poll 0", 2, [first, second], way, 0)
            for way, link in links[:1]
        ),
    ]
    for way, link in links:
        print(f"{link} adds {1000 * added_s(way):.2f} ms to a round trip of {_MESSAGE_BYTES} bytes")
    words: list[str | Path] = ["--prompt", setup.prompt(PROMPT), "-n", str(tokens)]
    found: dict[str, list[tuple[float, float]]] = {case.name: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            found[case.name].append(_token_s(setup, case, words, tokens))
    base = min(token_s for token_s, _ in found["1 node, 1 thread"])
    print("| | ms per token | rounds | of which synchronising | tokens/s | times 1 node |")
    print("|---|---|---|---|---|---|")
    for name, times in found.items():
        token_s, sync_s = min(times)
        each_ms = ", ".join(f"{1000 * each[0]:.1f}" for each in times)
        print(
            f"| {name} | {1000 * token_s:.1f} | {each_ms} | {1000 * sync_s:.1f} "
            f"| {1 / token_s:.1f} | {base / token_s:.2f} |"
        )


def _token_s(
    setup: Setup, case: Case, words: Sequence[str | Path], tokens: int
) -> tuple[float, float]:
    if not case.nodes:
        steps = llama_run(setup, tokens, case.cores).steps
    elif case.nodes == 1:
        command: list[str | Path] = [
            "taskset",
            "-c",
            ",".join(map(str, case.cores)),
            setup.engine,
            "root",
            *words,
        ]
        command += ["--threads", str(len(case.cores)), "--context", str(CONTEXT)]
        steps = _traced(setup, [*command, "--model", setup.model.weights.local]).steps
    else:
        steps = nodes_run(
            *(setup, words),
            nodes=case.nodes,
            cores=case.cores,
            way=case.way,
            poll=case.poll,
        ).steps
    return (
        median(step.duration_s for step in steps),
        median((step.sync_ns or 0) / 1e9 for step in steps),
    )


BOARDS = {
    "this-machine": "extends: this-machine\nworkdir: {folder}/{name}\n",
    "virtual": "extends: virtual\nreach:\n  cores: 1\n",
}


def groups(shape: Shape, tokens: int, boards: str, listen: str, folder: Path) -> None:
    """Print the time of a token that is forecast for groups, and that they take."""
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    model = folder / "model.gguf"
    synthesise(shape, model, quantisation="Q4_0", seed=1, progress=Silent())
    (folder / "boards").mkdir()
    for name in ("one", "two"):
        write_board(folder, name, BOARDS[boards].format(folder=folder, name=name))
    write_board(folder, "forwarded", "members: [one, two]\n")
    names = ["forwarded"]
    if listen:
        write_board(folder, "direct", f"members: [one, two]\nlisten: {listen}\n")
        names.append("direct")
    run_armload(folder, "trust", str(folder), "--yes")
    words = ("--model", str(model), "-t", "1", "--context", str(CONTEXT), "--json")
    length = ("-n", str(tokens), "--repeats", "1", "--new")

    def run_of(board: str, engine: str) -> Any:
        bench = ("bench", "--board", board, "--engine", engine)
        return json.loads(run_armload(folder, *bench, *words, *length))

    print("| group | round trip | ms per token: forecast | measured | synchronising | error |")
    print("|---|---|---|---|---|---|")
    for name in names:
        run_armload(folder, "fit", "--board", name, *words)
        run = run_of(name, "dllama")
        measured_s = run["summary"]["token_s"]["p50"]
        steps = [step for step in run["steps"] if step["generated_tokens"]]
        sync_ms = median(step["sync_ns"] for step in steps) / 1e6
        (link,) = run["spread"]["links"]
        expected = run["prediction"]["token_s"]
        print(
            f"| {name} | {1000 * link['round_trip_s']:.2f} ms | {milliseconds(expected)} "
            f"| {1000 * measured_s:.1f} | {sync_ms:.1f} "
            f"| {expected['value'] / measured_s - 1:+.0%} |",
            flush=True,
        )
    for engine in ("dllama", "llama.cpp"):
        alone_s = run_of("one", engine)["summary"]["token_s"]["p50"]
        print(f"| one board, {engine} | | | {1000 * alone_s:.1f} | | |", flush=True)
    if boards == "virtual":
        for name in ("one", "two"):
            run_armload(folder, "board.down", "--board", name)


def core(target: str, cpu: str, folder: Path) -> None:
    """Print the CPU time of a token on an emulated core with either program."""
    gguf = folder / "model.gguf"
    synthesise(EMULATED, gguf, quantisation="Q4_0", seed=1, progress=Silent())
    setup = made(gguf, folder, target, ("qemu-aarch64", "-cpu", cpu))
    words: list[str | Path] = ["--prompt", setup.prompt(PROMPT), "-n", "16"]
    cores = sorted(os.sched_getaffinity(0))[:1]
    found: dict[str, list[float]] = {"llama.cpp": [], "distributed-llama": []}
    for _ in range(3):
        found["llama.cpp"].append(_cpu_s(llama_run(setup, 16, cores)))
        found["distributed-llama"].append(_cpu_s(nodes_run(setup, words, nodes=1, cores=cores)))
    for name, times in found.items():
        print(f"{name}, {cpu}: {1000 * median(times):.0f} ms of CPU time per token")
    one, other = (median(times) for times in found.values())
    print(f"distributed-llama takes {other / one:.2f} times as long")


def _cpu_s(ended: Ended) -> float:
    return median(step.cpu_ns / 1e9 for step in ended.steps if step.cpu_ns is not None)


def conversion(folder: Path) -> None:
    """Print how fast a model is converted, and how fast its bytes are copied and summed."""
    gguf = folder / "model.gguf"
    for file_type in ("Q4_0", "Q4_0, output in Q6_K"):
        if file_type == "Q4_0":
            synthesise(SHAPE, gguf, quantisation="Q4_0", seed=1, progress=Silent())
        else:
            synthesise_like(SHAPE, gguf, file_type="Q4_0", seed=1, progress=Silent())
        os.environ["ARMLOAD_CACHE"] = str(folder / "cache")
        shutil.rmtree(folder / "cache", ignore_errors=True)
        model = read_model(gguf)
        start = time.monotonic()
        converted = converted_files(model, Silent())
        took_s = time.monotonic() - start
        size = converted.facts.file_bytes
        start = time.monotonic()
        shutil.copyfile(converted.weights.local, folder / "copy")
        with (folder / "copy").open("rb+") as file:
            os.fsync(file.fileno())
        copied_s = time.monotonic() - start
        start = time.monotonic()
        hashlib.sha256((folder / "copy").read_bytes())
        summed_s = time.monotonic() - start
        (folder / "copy").unlink()
        print(
            f"{file_type}: {size / 1e6:.0f} MB in {took_s:.2f} s, {size / took_s / 1e9:.2f} GB/s "
            f"({gguf.stat().st_size / took_s / 1e9:.2f} GB/s of the GGUF file); "
            f"copied to disk {size / copied_s / 1e9:.2f} GB/s; SHA-256 {size / summed_s / 1e9:.2f}"
        )


def main() -> None:
    """Run what was chosen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("accuracy")
    one.add_argument("model", type=Path)
    one.add_argument("--text", type=Path)
    one.add_argument("--prompt", default=PROMPT)
    one.add_argument("--feed-forward", type=int)
    one.add_argument("--type", default="F32")
    one = verbs.add_parser("speed")
    one.add_argument("--size", choices=SIZES, default="308M")
    one.add_argument("--tokens", type=int, default=48)
    one.add_argument("--rounds", type=int, default=3)
    one.add_argument("--delays", default="0.2", help="milliseconds, with commas between")
    one.add_argument("--rate", default="118MB")
    one = verbs.add_parser("groups")
    one.add_argument("--size", choices=SIZES, default="308M")
    one.add_argument("--tokens", type=int, default=48)
    one.add_argument("--boards", choices=BOARDS, default="this-machine")
    one.add_argument("--listen", default="", help="a private address that this machine has")
    one = verbs.add_parser("core")
    one.add_argument("--target", default="rk3568")
    one.add_argument("--cpu", default="cortex-a76")
    verbs.add_parser("conversion")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.verb == "accuracy":
            text = given.text.read_text(encoding="utf-8") if given.text else TEXT
            gguf = given.model
            if given.feed_forward is not None:
                gguf = folder / f"{given.model.stem}-{given.type}.gguf"
                widened(given.model, gguf, given.feed_forward, given.type)
            accuracy(gguf, text, given.prompt, folder)
        elif given.verb == "speed":
            rate = sized(given.rate)
            ways = [
                Way(delay_s=float(each) / 1000, bytes_per_s=rate)
                for each in given.delays.split(",")
            ]
            speed(SIZES[given.size], given.tokens, given.rounds, ways, folder)
        elif given.verb == "groups":
            groups(SIZES[given.size], given.tokens, given.boards, given.listen, folder)
        elif given.verb == "core":
            core(given.target, given.cpu, folder)
        else:
            conversion(folder)


if __name__ == "__main__":
    main()
