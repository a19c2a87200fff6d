"""A llama-server without armload around it, and what it answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from armload.boards.virtual.process import free_port
from tests.outside_data import shared
from tests.waiting import wait_until


class Server:
    """A llama-server that runs, and what it said of the requests that it answered."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.address = address
        self.process = process
        self.timings: list[dict[str, Any]] = []

    def ask(self, path: str, **request: Any) -> Any:
        answer = requests.post(f"{self.address}/{path}", json=request, timeout=600)
        answer.raise_for_status()
        return answer.json()

    def complete(self, prompt: str | list[int], count: int) -> None:
        answer = self.ask(
            "completion", prompt=prompt, n_predict=count, ignore_eos=True, temperature=0
        )
        self.timings.append(answer["timings"])

    def complete_all(self, prompts: Sequence[str], counts: Sequence[int]) -> None:
        with ThreadPoolExecutor(len(prompts)) as pool:
            list(pool.map(self.complete, prompts, counts))

    def sum(self, name: str) -> int:
        return sum(int(each.get(name, 0)) for each in self.timings)


@contextmanager
def serving(
    program: Path,
    folder: Path,
    *options: str,
    model: Path | None = None,
    variables: Mapping[str, str] = {},
    launcher: Sequence[str] = (),
) -> Iterator[Server]:
    """Serve a model until the block ends; ``trace.jsonl`` and ``log`` are in the folder."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    model = model or shared("stories260K.gguf")
    words = [*launcher, str(program), "-m", str(model), "--port", str(port), "-t", "1"]
    trace = {"ARMLOAD_TRACE": str(folder / "trace.jsonl")}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*words, *options], env={**os.environ, **trace, **variables}, stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_until(lambda: _is_ready(address), process, within_s=300)
            yield Server(address, process)
        finally:
            process.terminate()
            process.wait(60)


def _is_ready(address: str) -> bool:
    try:
        return requests.get(f"{address}/health", timeout=5).status_code == 200
    except requests.ConnectionError:
        return False
