"""``armload load`` beside GuideLLM: the same requests to the same service, in alternation.

    python benchmarks/load_beside_guidellm.py --guidellm VENV/bin/guidellm [--repeats 4]

The service is a stub of an OpenAI server in another process: the first token of an answer comes
after 0.4 s, the others 0.1 s apart. Both clients send requests at a constant rate and count
latencies from the send time. Printed are the medians of their runs, with the lowest and the
highest, and the ratio of the two medians. GuideLLM (tried: 0.8.1) is installed in an environment of
its own; its tokenizer is made there, from words, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_FIRST_TOKEN_S = 0.4
_GAP_S = 0.1
_TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {"[UNK]": 0, **{f"word{n}": n for n in range(1, 1000)}}
made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


def main() -> None:
    """Run both clients in alternation, and print what they measured."""
    parser = argparse.ArgumentParser(description="Compare armload load with GuideLLM.")
    parser.add_argument("--guidellm", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2.0)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=24)
    chosen = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stub = context.Process(target=serve, args=(theirs,), daemon=True)
    stub.start()
    clients = {"armload": with_armload, "GuideLLM": with_guidellm}
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in clients}
    try:
        url = f"http://127.0.0.1:{ours.recv()}"
        with tempfile.TemporaryDirectory() as folder:
            make_tokenizer(chosen.guidellm, Path(folder))
            for _ in range(chosen.repeats):
                for name, run in clients.items():
                    found[name].append(run(chosen, url, Path(folder)))
                    print(f"{name}: {found[name][-1]}", file=sys.stderr)
    finally:
        stub.terminate()
        stub.join()
    show(found["armload"], found["GuideLLM"])


def make_tokenizer(guidellm: Path, folder: Path) -> None:
    """Save a tokenizer of words, with the libraries that GuideLLM brings."""
    subprocess.run([guidellm.parent / "python", "-c", _TOKENIZER, folder], check=True)


def with_armload(chosen: argparse.Namespace, url: str, folder: Path) -> Mapping[str, float]:
    """Return the figures of one load."""
    command = [sys.executable, "-m", "armload", "load", "--url", url, "--dialect", "openai-chat"]
    command += ["--arrivals", "constant", "--rate", f"{chosen.rate}", "--warmup", "0"]
    command += ["--requests", f"{chosen.requests}", "-n", f"{chosen.tokens}"]
    command += ["--prompt-tokens", "16", "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True)
    point: Any = json.loads(done.stdout)["points"][0]["metrics"]
    return {
        "requests": point["ok"],
        "median TTFT, ms": 1000 * _median_s(point["from_sent"]["ttft"]),
        "median time per token, ms": 1000 * _median_s(point["tpot"]),
        "output tokens/s": point["output_tokens_per_s"],
    }


def _median_s(distribution: Any) -> float:
    return float(distribution["percentiles"]["p50"]["value_s"])


def with_guidellm(chosen: argparse.Namespace, url: str, folder: Path) -> Mapping[str, float]:
    """Return the figures of one run of GuideLLM."""
    data = f"prompt_tokens=16,output_tokens={chosen.tokens}"
    command = [chosen.guidellm, "run", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={url},model=stub"]
    command += ["--profile", f"kind=constant,rate={chosen.rate}"]
    command += ["--constraint", f"kind=max_requests,count={chosen.requests}"]
    command += ["--tokenizer", f"kind=hf_auto,model={folder}"]
    command += ["--data", f"kind=synthetic_text,{data}"]
    command += ["--output", f"kind=json,path={folder / 'guidellm.json'}"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, cwd=folder, env=offline, stdout=subprocess.DEVNULL, check=True)
    metrics: Any = json.loads((folder / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
    return {
        "requests": metrics["request_totals"]["successful"],
        "median TTFT, ms": metrics["time_to_first_token_ms"]["successful"]["median"],
        "median time per token, ms": metrics["inter_token_latency_ms"]["successful"]["median"],
        "output tokens/s": metrics["output_tokens_per_second"]["successful"]["mean"],
    }


def show(armload: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> None:
    """Print the medians over the runs side by side."""
    print("| | armload | GuideLLM | ratio |\n|---|---|---|---|")
    for metric in armload[0]:
        sides = [[run[metric] for run in runs] for runs in (armload, other)]
        medians = [statistics.median(side) for side in sides]
        cells = [
            f"{median:.4g} ({min(side):.4g} to {max(side):.4g})"
            for median, side in zip(medians, sides, strict=True)
        ]
        print(f"| {metric} | {' | '.join(cells)} | {medians[0] / medians[1]:.3f} |")


def serve(port: Connection) -> None:
    """Answer as an OpenAI server does, at a known pace; send the port that it listens on."""

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        body = await reader.readexactly(int(length or 0))
        if head.startswith(b"post /v1/chat/completions "):
            asked = json.loads(body)
            tokens = asked.get("max_completion_tokens") or asked["max_tokens"]
            await stream(writer, tokens)
        elif b" /v1/models" in head or b" /health" in head:
            models = json.dumps({"object": "list", "data": [{"id": "stub", "object": "model"}]})
            writer.write(_head("200 OK", "application/json") + models.encode())
        else:
            writer.write(_head("404 Not Found", "text/plain"))
        await writer.drain()
        writer.close()

    async def stream(writer: asyncio.StreamWriter, tokens: int) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        writer.write(_head("200 OK", "text/event-stream"))
        for number in range(tokens):
            due_s = began_s + _FIRST_TOKEN_S + number * _GAP_S
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            is_last = number == tokens - 1
            delta = {"content": f"word{number} "}
            finish = "length" if is_last else None
            writer.write(_event(choices=[{"index": 0, "delta": delta, "finish_reason": finish}]))
            await writer.drain()
        usage = {"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens}
        writer.write(_event(choices=[], usage=usage) + b"data: [DONE]\n\n")

    asyncio.run(run())


def _head(status: str, kind: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode()


def _event(**fields: Any) -> bytes:
    event = {"id": "1", "object": "chat.completion.chunk", "model": "stub", **fields}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


if __name__ == "__main__":
    main()
