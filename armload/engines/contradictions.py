"""Options that llama.cpp would not run together, whatever the model and the board."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from armload.core.errors import UsageError
from armload.engines.plan import KV_BITS, FlashAttention, Numa, Plan


class Choices(Protocol):
    """What a plan chooses that can contradict itself."""

    @property
    def cpus(self) -> str | None:
        """The cores that it may run on; none for all."""

    @property
    def numa(self) -> Numa | None:
        """How threads are placed on several NUMA nodes."""

    @property
    def micro_batch_tokens(self) -> int | None:
        """Tokens that go through the model at a time."""

    @property
    def kv_types(self) -> tuple[str, str] | None:
        """Types of keys and of values in the cache."""

    @property
    def flash_attention(self) -> FlashAttention | None:
        """The fused attention kernel."""


class OptionConflict(NamedTuple):
    """Two options that exclude each other.

    Attributes:
        options: as they are typed, joined by "with".
        reason: why llama.cpp does not run them together.
        remedy: what to do.
    """

    options: str
    reason: str
    remedy: str


def contradictions(plan: Choices) -> Iterator[OptionConflict]:
    """Yield what excludes each other in a plan."""
    keys, values = plan.kv_types or ("f16", "f16")
    if plan.flash_attention == "off" and KV_BITS[values] < KV_BITS["f16"]:
        kv_type = values if keys == values else f"{keys}/{values}"
        yield OptionConflict(
            f"--kv-type {kv_type} with --flash-attention off",
            "a quantised V cache requires flash attention",
            f"Use --flash-attention on, or quantise the keys only: --kv-type {keys}/f16.",
        )
    # Defaults are fitted to a batch.
    chosen = getattr(plan, "model_fields_set", ())
    micro_batch = plan.micro_batch_tokens if "micro_batch_tokens" in chosen else None
    batch = getattr(plan, "batch_tokens", None)
    if batch is not None and micro_batch is not None and micro_batch > batch:
        yield OptionConflict(
            f"--micro-batch {micro_batch} with --batch {batch}",
            "the micro-batch is larger than the batch, of which it is a part",
            f"Use --micro-batch {batch} or less, or a larger --batch.",
        )
    yield from _of_devices(plan)
    depth = getattr(plan, "depth_tokens", 0)
    speculate = getattr(plan, "speculate", None)
    if depth and speculate:
        yield OptionConflict(
            f"--depth {depth} with --speculate {speculate}",
            "the program that speculates cannot restore a saved context",
            "Remove one of them.",
        )
    if depth and getattr(plan, "perceives", False):
        yield OptionConflict(
            f"--depth {depth} with --image or --audio",
            "llama-mtmd-cli, which takes images and sounds, cannot restore a saved context",
            "Remove --depth, or --image and --audio.",
        )
    if moves_threads(plan):
        yield OptionConflict(
            f"--numa {plan.numa} with --cpus {plan.cpus}",
            "with --numa, llama.cpp would move its threads off the chosen cores",
            "Remove one of them, or use --numa numactl.",
        )


def _of_devices(plan: Choices) -> Iterator[OptionConflict]:
    """Yield what cannot be combined with a choice of device, or with a GPU."""
    if not isinstance(plan, Plan) or plan.device is None:
        return
    device = f"--device {plan.device}"
    if plan.speculate is not None:
        yield OptionConflict(
            f"{device} with --speculate {plan.speculate}",
            "the device would not be that of the draft",
            "Remove one of them.",
        )
    if plan.perceives:
        yield OptionConflict(
            f"{device} with --image or --audio",
            "the device would not be that of the encoder",
            "Remove --device, or --image and --audio.",
        )
    if plan.on_gpu and (plan.weights == "streamed" or plan.resident_bytes is not None):
        yield OptionConflict(
            f"{device} with --weights streamed or --resident",
            "a GPU holds all weights in its own buffers",
            "Remove one of them.",
        )


def check_consistent(plan: Choices) -> None:
    """Refuse a plan that contradicts itself."""
    for each in contradictions(plan):
        raise UsageError(f"{each.options}: {each.reason}.", each.remedy)


def moves_threads(plan: Choices) -> bool:
    """Tell whether llama.cpp would move its threads away from the cores that they are kept to."""
    return plan.cpus is not None and plan.numa not in (None, "numactl")
