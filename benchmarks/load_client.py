"""How well the client of ``armload load`` keeps time, against a stub in another process.

    python benchmarks/load_client.py [--rate 200] [--requests 10000] [--tokens 8] [--gap 0.02]

The stub speaks llama-server's protocol. It waits a known time before each token, and writes into
the events when the request had arrived on its socket, and when it sent each event: on the same
monotonic clock as the client's. By how much it reads a request late is part of its latency, as of
any server's. Printed are lost requests, the client's send lag, by how much its latencies differ
from those of the stub, its CPU time per request, its peak memory and the machine's load.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import resource
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import chdir
from multiprocessing.connection import Connection

from armload.analysis.load.latency import lateness_s
from armload.analysis.load.records import RequestRecord
from armload.core.progress import Silent
from armload.serving.arrivals import Arrivals
from armload.serving.connections import TimedSocket, WireTimes
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import LlamaServer
from armload.serving.load_runner import LoadRunner
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.workload import Listed

_NEAR_S = 0.002
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def main() -> None:
    """Put the stub under load and print what the client made of it."""
    parser = argparse.ArgumentParser(description="Measure the client of armload load.")
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--gap", type=float, default=0.02)
    chosen = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stub = context.Process(target=serve, args=(theirs, chosen.tokens, chosen.gap), daemon=True)
    stub.start()
    try:
        port: int = ours.recv()
        began = resource.getrusage(resource.RUSAGE_SELF)
        records, peak_kib = load(port, chosen.rate, chosen.requests, chosen.tokens)
        ended = resource.getrusage(resource.RUSAGE_SELF)
    finally:
        stub.terminate()
        stub.join()
    cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    report(records, chosen.requests, cpu_s)
    print(f"{'peak resident memory of the client':38} {peak_kib / 1024:8.0f} MiB")
    print(f"{'load average at the end':38} {os.getloadavg()[0]:8.1f}")


def load(port: int, rate: float, requests: int, tokens: int) -> tuple[list[RequestRecord], int]:
    """Send the requests; return their records as they were kept, and the peak of this process."""
    target = LoadTarget(
        url=f"http://127.0.0.1:{port}", api_key="", model="stub", dialect=LlamaServer()
    )
    request = CompletionRequest(prompt="Once upon a time", max_tokens=tokens)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        loading = LoadRunner(target, Listed([request], "stub"), Arrivals(), 1, Silent())
        kept = loading.run([LoadLevel(rate=rate)], StopCondition(requests=requests))
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return kept.requests(0), peak_kib


def report(records: Sequence[RequestRecord], requests: int, cpu_s: float) -> None:
    """Print the figures."""
    ok = [record for record in records if record.outcome == "ok"]
    print(f"recorded {len(records)} of {requests}, successful {len(ok)}")
    lags = [record.sent_s - record.scheduled_s for record in ok if record.sent_s is not None]
    _show("send lag", lags)
    _show("of that, the client's own lateness", [lateness_s(record) or 0.0 for record in ok])
    first, whole = [], []
    for record in ok:
        had_s, *sent_s = (float(each) for each in record.text.split())
        if record.sent_s is not None:
            first.append(record.chunks[0][0] - record.sent_s - (sent_s[0] - had_s))
            whole.append(record.end_s - record.sent_s - (sent_s[-1] - had_s))
    _show("time to first token beyond the stub's", first)
    _show("end-to-end latency beyond the stub's", whole)
    print(f"{'CPU time of the client, per request':38} {1000 * cpu_s / len(records):8.2f} ms")


def _show(name: str, samples: Sequence[float]) -> None:
    ordered = sorted(samples)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    milliseconds = " ".join(f"{1000 * each:8.2f}" for each in (p50, p99, ordered[-1]))
    near = sum(abs(each) <= _NEAR_S for each in samples) / len(samples)
    print(f"{name:38} {milliseconds} ms (p50, p99, max); {near:.1%} within 2 ms")


def serve(port: Connection, tokens: int, gap_s: float) -> None:
    """Run the stub, and send the port that it listens on."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        listening = TimedSocket(WireTimes(), socket.AF_INET, socket.SOCK_STREAM)
        listening.settimeout(0)
        listening.bind(("127.0.0.1", 0))
        listening.listen(4096)
        port.send(listening.getsockname()[1])
        gc.freeze()  # a collection of all that is imported would come between a stamp and its event
        async with asyncio.TaskGroup() as group:
            while True:
                accepted, _ = await loop.sock_accept(listening)
                connection = TimedSocket(WireTimes(), fileno=accepted.detach())
                connection.settimeout(0)
                group.create_task(answer(loop, connection))

    async def answer(loop: asyncio.AbstractEventLoop, connection: TimedSocket) -> None:
        with connection:
            request = b""
            while not _is_whole(request):
                data = await loop.sock_recv(connection, 1 << 16)
                if not data:
                    return
                request += data
            if not request.startswith(b"POST "):
                await loop.sock_sendall(connection, _NOT_FOUND)
                return
            words = f"{connection.times.arrived_s:.6f}"
            await loop.sock_sendall(connection, _HEAD)
            for number in range(1, tokens + 1):
                await asyncio.sleep(gap_s)
                await loop.sock_sendall(connection, _chunk(words, number))
                words = ""
            await loop.sock_sendall(connection, _chunk("", tokens, is_last=True) + b"0\r\n\r\n")

    asyncio.run(run())


def _is_whole(request: bytes) -> bool:
    head, _, body = request.lower().partition(b"\r\n\r\n")
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    return b"\r\n\r\n" in request and len(body) >= int(length or 0)


def _chunk(words: str, number: int, *, is_last: bool = False) -> bytes:
    event = {
        "content": f"{words} {time.monotonic():.6f}",
        "stop": is_last,
        "stop_type": "limit" if is_last else "none",
        "tokens_predicted": number,
    }
    line = b"data: " + json.dumps(event).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


if __name__ == "__main__":
    main()
