"""Files of people: YAML, results of others, and headers of models."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from armload.boards.board import Board
from armload.core.yamlfile import load_file
from armload.models.gguf import read_outline
from armload.models.packaged import word_problems_model
from armload.report.exchange.document import read_results
from tests.hostile.tries import Try, kept, mutated


def files(rng: random.Random, root: Path) -> Iterator[Try]:
    header = word_problems_model("word-problems:Q8_0").read_bytes()[:60_000]
    board = "target: rk3568\nreach: {kind: ssh, host: x}\nworkdir: /data/x\n"
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    while True:
        yamls = (
            *(f"a0: &a0 [x]\n{levels}\nlabels: *a11\n{board}", "labels: &a [*a]\n" + board),
            *("labels: " + "[" * 20_000, "{" * 20_000, "x: 1\n" * 200_000, "- " * 30_000),
            *("labels: !!python/object/apply:os.system [x]", "\0", "a: &b\nb: *c", "? [a]: b"),
            *("memory: " + "9" * 5000, "memory: 1e999", "labels: 2026-99-99", "<<: " + "[" * 999),
            mutated(board.encode(), rng).decode("latin-1"),
        )
        for text in yamls:
            yield Try(
                f"YAML {text[:30]!r}",
                partial(board_in, root, text.encode()),
                "any",
            )
        documents = (
            *(b"[" * 1_000_000, b"[" + b"[]," * 6_000_000 + b"[]]", b'{"kind": "armload results"'),
            *(b"1" + b"0" * 5000, b'{"a":' * 100_000, b" " * (65 << 20), b"\xff\xfe", b"NaN"),
            b'{"kind": "armload results", "format": 1, "runs": [' + b"{}," * 2000 + b"{}]}",
            mutated(b'{"kind": "armload results", "format": 1, "runs": [{"format": 2}]}', rng),
        )
        for content in documents:
            yield Try(
                f"results {content[:30]!r}",
                partial(results_in, root, content),
                "refused",
            )
        for _ in range(12):
            spoilt = mutated(header, rng)
            yield Try(f"GGUF {spoilt[:24]!r}", partial(header_in, root, spoilt), "any")
        count = struct.pack("<4sIQQ", b"GGUF", 3, rng.getrandbits(63), rng.getrandbits(63))
        for tail in (b"", b"\0" * 1000, b"\xff" * 1000):
            yield Try("GGUF of many", partial(header_in, root, count + tail), "refused")
        yield Try("no end", partial(read_results, Path("/dev/zero")), "refused")
        yield Try("YAML without end", partial(load_file, Path("/dev/zero"), Board), "refused")


def board_in(root: Path, content: bytes) -> object:
    return load_file(kept(root, content), Board)


def results_in(root: Path, content: bytes) -> object:
    return read_results(kept(root, content))


def header_in(root: Path, content: bytes) -> object:
    return read_outline(kept(root, content))
