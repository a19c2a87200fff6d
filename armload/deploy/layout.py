"""Where things lie in a board's work folder."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.core.values import Value

PROGRAM_FOLDER = "files"
"""Of a run: the program works in it, so that nothing which it writes is taken for a file of ours.
On this machine it has the same name."""

JOB_FILE = "job.json"
"""In a run's folder on this machine: what ran, from the last line of the run's script."""

TRACE_FILE, FORMER_TRACE_FILE = "trace.jsonl", "trace.jsonl.1"
STDOUT_FILE, STDERR_FILE = "stdout", "stderr"

RUN_FILES = (
    *("after", "beat", "birth", "boot_id", "cache", "clock", "clocks", "collected", "exit"),
    *("finished", "full", "governors", "limit", "mark", "memory", "oom", "pid", "port"),
    *("processes", "restored", "run.log", "run.sh", "samples", STDERR_FILE, "stderr.1"),
    *(STDOUT_FILE, "stopped", "swapped", "throttling", TRACE_FILE, FORMER_TRACE_FILE),
    *("transitions", "unattended", "unleased", "uses", "watched", "wrapper", "zones"),
)
"""What the scripts and programs of ours leave in a run's folder; all of it is fetched."""

CONTEXT_FILE = "context"
"""Of a run that fills a context: it is moved to the saved ones."""

SCRATCH_FILES = ("exit.part", "space", CONTEXT_FILE)
"""What is gone at the end of a run; an interrupted one keeps them, for nobody to fetch."""

OWN_FOLDER = ".armload"
"""Beside deployed files: what armload notes about them, and the parts of those on their way."""

_DIGITS = 12
_PROGRAMS, _MODELS = "bin", "models"


class Layout(Value):
    """The paths under one work folder.

    Attributes:
        workdir: armload's folder on the board.
    """

    workdir: PurePosixPath

    @property
    def runs(self) -> PurePosixPath:
        return self.workdir / "runs"

    @property
    def services(self) -> PurePosixPath:
        """Of installed services, a folder each."""
        return self.workdir / "services"

    @property
    def lease(self) -> PurePosixPath:
        return self.workdir / "lease"

    @property
    def api_key(self) -> PurePosixPath:
        return self.workdir / "api-key"

    @property
    def node_key(self) -> PurePosixPath:
        """What the nodes of a run know one another by."""
        return self.workdir / "node-key"

    @property
    def rpc_tensors(self) -> PurePosixPath:
        """Where ggml's RPC server keeps tensors; it gives the folder its last name itself."""
        return self.workdir / _MODELS / "rpc"

    def program(self, sha256: str, name: str) -> PurePosixPath:
        return self.workdir / _PROGRAMS / sha256[:_DIGITS] / name

    def model(self, sha256: str, name: str) -> PurePosixPath:
        return self.workdir / _MODELS / sha256[:_DIGITS] / name

    @property
    def contexts(self) -> PurePosixPath:
        """Of filled contexts that runs restore, a folder each."""
        return self.workdir / "contexts"

    def saved_context(self, sha256: str, key: str) -> PurePosixPath:
        """Return where a filled context of a model is kept."""
        return self.contexts / f"{sha256[:_DIGITS]}-{key}" / CONTEXT_FILE

    def plain(self, file: PurePosixPath) -> PurePosixPath:
        """Return the name without a checksum of a program or a model's file."""
        return file.parent.parent / file.name

    def run(self, run_id: str) -> PurePosixPath:
        return self.runs / run_id


def from_program_folder(name: str) -> str:
    """Return what a program calls a file in its run's folder."""
    return str(PurePosixPath("..", name))
