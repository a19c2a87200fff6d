"""Timing what a node of distributed-llama computes, on the board and by the node's own program.

The program gets the model's header alone, and computes with weights of zero, which takes as long.
Of a model that is large, it computes some of the layers.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field

from armload.analysis.distributed_forecast import node_work
from armload.boards.failures import SlowCommandError
from armload.build.binary import Binary
from armload.core.errors import ArmloadError, BoardError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.core.shell import call, join
from armload.core.values import Value
from armload.deploy.deployment import deploy
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.deploy.retry import with_retries
from armload.engines.completion import settings_of
from armload.engines.distributed import threads_of
from armload.engines.engine import RunContext, Settings
from armload.engines.plan import Plan
from armload.engines.prediction import Expected
from armload.models.distributed_llama import BATCH_TOKENS, DistributedModel
from armload.runs.cached_answers import cached_path, read_cached, write_cached
from armload.runs.emulator import emulator_watched
from armload.runs.prepare import as_wanted
from armload.runs.session import ReachedBoard, Session

NODE_DOUBT = 0.15
"""Of a token's time that follows from a timed node, on either side."""

_MOST_BYTES = 384 << 20
"""Of weights that are computed with: more than the caches of a CPU hold."""

_ALIKE = 1.3
_USUAL_CONTEXT = 1024
_TIMEOUT_S = 90.0
PADDING = bytes(8)
"""distributed-llama reads as many bytes more than the header has."""

_Times = Annotated[tuple[Annotated[int, Field(gt=0)], ...], Field(min_length=1, max_length=1000)]


class TimedNode(Value):
    """What one node took, each time.

    Attributes:
        first_ns, last_ns: of a token with an empty KV cache, and with a full one.
        prompt_ns: of the first batch of a prompt.
    """

    first_ns: _Times
    last_ns: _Times
    prompt_ns: _Times

    @property
    def is_steady(self) -> bool:
        """Whether half of the times are alike; else other programs may have disturbed them."""
        every = (sorted(self.first_ns), sorted(self.last_ns))
        return all(each[3 * len(each) // 4] <= _ALIKE * each[len(each) // 4] for each in every)


class NodePart(Value):
    """What a node of several computes.

    Attributes:
        model: all of it.
        nodes: that share it.
        plan: of the run; its cores are those of the first node.
        depth: tokens that the KV cache holds.
        is_first: it is the first node.
    """

    model: DistributedModel
    nodes: int
    plan: Plan
    depth: float
    is_first: bool

    @property
    def settings(self) -> Settings:
        if self.is_first:
            return settings_of(self.plan)
        return Settings(threads=self.plan.threads, prefers_fast=True)

    @property
    def context_tokens(self) -> int:
        """With which it is timed: at least the usual length, so that runs share their times."""
        context = _USUAL_CONTEXT
        while context < self.depth:
            context *= 2
        return min(context, self.model.context_length)

    @property
    def batch_tokens(self) -> int:
        return min(self.plan.micro_batch_tokens or BATCH_TOKENS, self.context_tokens)

    @cached_property
    def timed(self) -> DistributedModel:
        """The model, with as many of its layers as are timed."""
        bytes_of = {
            layers: self.model.model_copy(update={"layers": layers})
            .memory(self.nodes, self.context_tokens, self.batch_tokens)[-1]
            .weights_bytes
            for layers in range(1, self.model.layers + 1)
        }
        most = max((each for each in bytes_of if bytes_of[each] <= _MOST_BYTES), default=1)
        return self.model.model_copy(update={"layers": most})

    @property
    def times_timed(self) -> float:
        """How often as much the whole part computes as what is timed of it."""
        whole, timed = (
            node_work(each, self.nodes, self.depth).size_bytes for each in (self.model, self.timed)
        )
        return whole / timed

    def token_s(self, times: TimedNode) -> Expected:
        first, last = median(times.first_ns), median(times.last_ns)
        deep = first + max(0.0, last - first) * min(1.0, self.depth / self.context_tokens)
        return Expected.within(self.times_timed * deep / 1e9, NODE_DOUBT)


def timed_node(where: Session, binary: Binary, part: NodePart, progress: Progress) -> Expected:
    """Return a token's time of a node on a board, after timing it where steady times are not known.

    The caller has the board to itself.

    Args:
        binary: of ``DLLAMA``, built for the board's target.

    Raises:
        ConnectError: the board does not answer.
        ArmloadError: the program cannot be copied, or does not run there; says why.
    """
    known = read_cached(TimedNode, _kept(where, binary, part))
    if known is not None and known.is_steady:
        return part.token_s(known)
    host, board = where.connection.host, where.connection.board
    program = Payload.of_file(binary.path, sha256=binary.sha256, executable=True)
    deploy(host, board, (program,), progress)
    (item,) = program.items(Layout(workdir=board.workdir))
    ready = as_wanted(host, board, part.settings, found=where.found, reads=(), progress=progress)
    timed = part.timed
    words = [str(item.remote), "times", "--model", "/dev/stdin", "--nodes", str(part.nodes)]
    words += ["--context", str(part.context_tokens), "--batch", str(part.batch_tokens)]
    words += ["--threads", str(_threads(where, part)), "--rest", str(int(timed.has_rest))]
    command = f"{call('lift_time')}{join((*ready.context.launcher, *words))}"
    with progress.step(f"Timing a node of {part.model.name} on {board.name}"):
        seen = emulator_watched(board)
        done = with_retries(
            lambda: host.run(command, stdin=timed.header() + PADDING, timeout_s=_TIMEOUT_S)
        )
        emulation = seen()
    try:
        times = TimedNode.model_validate_json(done.stdout)
    except ValueError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise BoardError(said[-1] if said else f"it ended with status {done.status}") from None
    if emulation is None or not emulation.is_starved:
        write_cached(_kept(where, binary, part), times)
    return part.token_s(times)


def timed_or_none(
    where: Session, binary: Binary, part: NodePart, progress: Progress
) -> Expected | None:
    """Return what ``timed_node`` does; say why where nothing could be timed, and return none."""
    try:
        return timed_node(where, binary, part, progress)
    except ArmloadError as error:
        if isinstance(error, ConnectError | BusyError) and not isinstance(error, SlowCommandError):
            raise
        progress.say(f"{where.main_board.name}: its node was not timed: {error.message}")
        return None


def known_node(where: ReachedBoard, binary: Binary, part: NodePart) -> Expected | None:
    """Return what was timed before on a board; none where nothing was."""
    times = read_cached(TimedNode, _kept(where, binary, part))
    return None if times is None else part.token_s(times)


def _kept(where: ReachedBoard, binary: Binary, part: NodePart) -> Path:
    board, found = where.main_board, where.found
    identity = [
        board.model_dump(mode="json", include={"name", "reach", "target"}),
        *(found.cores, found.max_khz, found.cpu_features, found.conditions.memory_total_bytes),
        *(binary.sha256, part.nodes, part.context_tokens, part.batch_tokens),
        *(_threads(where, part), part.settings.cores_on(found), part.timed.has_rest),
    ]
    return cached_path("operations/node", identity, part.timed.header())


def _threads(where: ReachedBoard, part: NodePart) -> int:
    context = RunContext(
        layout=Layout(workdir=where.main_board.workdir),
        found=where.found,
        cores=part.settings.cores_on(where.found),
    )
    asked = part.plan.threads
    if not part.is_first:
        asked = where.found.conditions.threads_as_asked(asked)
    return threads_of(asked, context)
