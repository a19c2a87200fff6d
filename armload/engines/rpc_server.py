"""Boards that compute a part of a model for another one, and ggml's RPC server for that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.cpu_sets import cpu_numbers
from armload.core.ids import fingerprint_of
from armload.core.progress import Progress
from armload.deploy.compatibility import check_fit
from armload.deploy.launch import ServiceOptions
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.engines.engine import Engine, RunContext, Settings, WorkerPlan
from armload.engines.job import Job, ModelRecord, RunSpec
from armload.engines.model_program import binary_record
from armload.engines.output import Output
from armload.engines.plan import LONGEST_RUN_S

RPC_SERVER = "ggml-rpc-server"
"""The program; older releases call it ``rpc-server``."""


class GroupWorker(Engine):
    """A program that computes a part of a model for another board, until it is stopped.

    Args:
        binary: built for the board's target.
    """

    def __init__(self, plan: WorkerPlan, binary: Binary) -> None:
        self.plan = plan
        self.binary = binary

    @property
    def fingerprint(self) -> str:
        """A checksum over plan and program."""
        return fingerprint_of((self.plan.model_dump_json(), self.binary.sha256))

    @property
    def subject(self) -> RunSpec:
        """The plan and the program; it gets to know no model's name."""
        return RunSpec(
            arguments=self.plan.model_dump(mode="json"),
            binary=binary_record(self.binary),
            model=ModelRecord(name="", sha256="", size_bytes=None),
        )

    @property
    def payload(self) -> tuple[Payload, ...]:
        binary = self.binary
        return (Payload.of_file(binary.path, sha256=binary.sha256, executable=True),)

    @property
    def time_limit_s(self) -> float:
        """As long as a shell can count: it is stopped."""
        return LONGEST_RUN_S

    @property
    def settings(self) -> Settings:
        """On the fast cores of a board with two kinds."""
        return Settings(threads=self.plan.threads, prefers_fast=True)

    def service_options(self, layout: Layout) -> ServiceOptions:
        """End it when its heartbeat stops."""
        del layout
        return ServiceOptions(keeps_board=False, samples=True)

    def check(self, host: Host, board: Board, found: Probe, progress: Progress) -> None:
        """Refuse a board whose CPU lacks what the program uses."""
        del host, progress
        check_fit(board, self.binary, found)


class RpcServer(GroupWorker):
    """A server that keeps the tensors that it receives on the board's storage."""

    name = RPC_SERVER

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start it there."""
        program = self.payload[0].items(context.layout)[0].remote
        cores = len(cpu_numbers(context.cores)) if context.cores else context.found.cores
        cores = min(cores, context.most_threads or cores)
        words = [str(program), "-H", self.plan.address, "-p", str(self.plan.port)]
        words += ["-t", str(self.plan.threads or cores), "-c"]
        return (*context.launcher, *words)

    def environment(self, context: RunContext) -> Mapping[str, str]:
        """Keep its tensors where ``clean`` finds them."""
        return {"LLAMA_CACHE": str(context.layout.rpc_tensors.parent)}

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read nothing: it says nothing of what it computes."""
        del job, folder
        return Output()
