"""llama.cpp's command line: what a program offers, how it is called, and what it prints."""

from __future__ import annotations

import mmap
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

from armload.build.binary import Binary
from armload.build.source import engine_of
from armload.core.cpu_sets import cpu_numbers
from armload.core.errors import UsageError
from armload.engines.contradictions import Choices, check_consistent
from armload.engines.output import EngineTimes
from armload.engines.plan import CPU, GPU, MICRO_BATCH_TOKENS, FlashAttention, Plan
from armload.engines.repacking import repacks
from armload.models.metadata import FLOAT_BYTES
from armload.models.model import Model
from armload.models.token_count import count_tokens
from armload.models.token_pieces import fewest_tokens
from armload.models.tokens import prompt_of

MAX_PROMPT_BYTES = 100_000
KV_ROUNDING_TOKENS = 256
"""llama.cpp makes the KV cache of a sequence a multiple of this."""

LEAST_MICRO_BATCH_TOKENS = 16
_USUAL_BATCH_TOKENS = 2048
_RESERVED_AT_MOST = 0.75
"""Of a board's memory and swap: Linux refuses a buffer that exceeds both, even an empty one.

It counts zram as swap there: it is memory that is not, but no page of such a buffer is touched."""


class EngineSettings(Choices, Protocol):
    """How an engine computes, as a plan says it."""

    @property
    def threads(self) -> int | None:
        """Worker threads; none lets the engine choose."""


WHOLE_LAYERS_ONLY = frozenset(
    (
        *("grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1"),
        *("olmo2", "olmoe", "deepseek2", "deepseek32", "hy_v4", "dots3note", "glm-dsa", "bitnet"),
        *("t5", "nemotron_h", "nemotron_h_moe", "granitehybrid", "minimax-01", "minimax-m2"),
        *("minimax-m3", "mistral4", "kimi-linear", "bailingmoe3", "kimi-k3", "glm5-next"),
        *("qwen3tts", "qwen4exp"),
    )
)
"""Architectures whose layers the pinned source does not split (``llm_arch_supports_sm_tensor``)."""


def offers(program: Path, option: str) -> bool:
    """Tell whether a llama.cpp program knows an option.

    Options come and go between releases; each stands as a whole string in the program's
    read-only data, so this needs neither the source nor a run.
    """
    with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"\0" + option.encode() + b"\0") >= 0


def mentions(program: Path, words: str) -> bool:
    """Tell whether a llama.cpp program's help has some words, as of what an option takes."""
    with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(words.encode()) >= 0


def least_context_tokens(plan: Plan) -> int:
    """Return the tokens that a context holds at least; a text is one token or more."""
    return plan.depth_tokens + (plan.prompt_tokens or 1) + plan.n_predict


_LEAST_ROOM_TOKENS = 4
"""llama-completion takes no prompt that leaves less of the context."""


def needed_tokens(plan: Plan, model: Model) -> int:
    """Return the tokens that a context holds at least, those of a long text counted.

    Raises:
        UsageError: as for ``text_after_depth``.
        OSError: the model's file cannot be read.
    """
    least = least_context_tokens(plan)
    most = plan.depth_tokens + most_prompt_tokens(plan) + plan.n_predict
    room = min(model.context_length, plan.context_tokens or model.context_length)
    if plan.prompt_tokens is not None or most <= room or plan.depth_tokens > room:
        return least
    text = text_after_depth(plan, model) if plan.depth_tokens else plan.prompt
    counted = count_tokens(model.path, text)
    if counted is None:
        return least - 1 + fewest_tokens(model.path, plan.prompt)
    return counted + max(plan.n_predict, _LEAST_ROOM_TOKENS)


def likely_prompt_tokens(plan: Plan) -> int:
    """Return about how long a plan's prompt is."""
    # A word of a text is a token and a bit, and has some five bytes.
    return plan.prompt_tokens or max(1, len(plan.prompt.encode()) // 4)


def most_prompt_tokens(plan: Plan) -> int:
    """Return the tokens of the prompt at most: one per byte of a text, and one that begins it."""
    return plan.prompt_tokens or len(plan.prompt.encode()) + 1


def context_tokens(plan: Plan, model: Model, least: int | None = None) -> int:
    """Return the KV cache's length in tokens: as planned, else enough for prompt and output.

    Args:
        least: tokens that it holds at least; none to count a text as one.
    """
    counted, least = least, least or least_context_tokens(plan)
    if least > model.context_length:
        raise UsageError(
            f"{_contents(plan)} need at least {least} tokens, but {model.name} was trained for a "
            f"context of {model.context_length}.",
            _shorter(plan, counted, model.context_length),
        )
    if plan.context_tokens is not None and plan.context_tokens < least:
        raise UsageError(
            f"--context {plan.context_tokens} is too small: {_contents(plan).lower()} need at "
            f"least {least} tokens.",
            f"Use --context {least} or more. {_shorter(plan, counted, plan.context_tokens)}",
        )
    if plan.context_tokens is not None:
        if plan.context_tokens > model.context_length:
            raise UsageError(
                f"--context {plan.context_tokens} is too large: {model.name} was "
                f"trained for {model.context_length}.",
                f"Use --context {model.context_length} or less.",
            )
        return plan.context_tokens
    needed = plan.depth_tokens + most_prompt_tokens(plan) + plan.n_predict + 16
    rounded = -(-needed // KV_ROUNDING_TOKENS) * KV_ROUNDING_TOKENS
    return min(rounded, model.context_length)


def _shorter(plan: Plan, counted: int | None, room: int) -> str:
    """Say what makes a prompt and output of so many tokens fit; none were not counted."""
    left = room - (counted - plan.n_predict) if counted else 0
    shorter = f"a shorter prompt{', or a smaller --depth' * bool(plan.depth_tokens)}"
    if left >= _LEAST_ROOM_TOKENS:
        return f"Use -n {left} or less{'' if plan.n_predict >= room else f', or {shorter}'}."
    return f"Use {shorter}{'' if counted else ', or a shorter output'}."


def _contents(plan: Plan) -> str:
    return "Depth, prompt and output" if plan.depth_tokens else "Prompt and output"


def check_architecture(binary: Binary, model: Model) -> None:
    """Check that the llama.cpp of a program knows a model's architecture, as far as is recorded."""
    if binary.architectures and model.architecture not in binary.architectures:
        raise UsageError(
            f"{model.name} has the architecture {model.architecture!a}, which {engine_of(binary)} "
            "does not support.",
            "Build a newer llama.cpp: --source https://github.com/ggml-org/llama.cpp --ref master, "
            "or --source with a folder.",
        )


def check_options(program: Path, plan: EngineSettings) -> None:
    """Check that a llama.cpp program has what a plan asks for."""
    check_consistent(plan)
    if plan.flash_attention is not None:
        _flash_attention(program, plan.flash_attention)


def _check_prompt(prompt: str) -> None:
    size_bytes = len(prompt.encode())
    if size_bytes > MAX_PROMPT_BYTES:
        raise UsageError(
            f"The prompt is {size_bytes} bytes long; the limit is {MAX_PROMPT_BYTES}.",
            "Use a shorter prompt.",
        )


def whole_plan(plan: Plan, model: Model) -> Plan:
    """Return a plan with its prompt: of a length in tokens, or else the model's own."""
    if model.prompt and not {"prompt", "prompt_tokens"} & plan.model_fields_set:
        # Such a model writes nonsense after its answer.
        plan = plan.model_copy(update={"prompt": model.prompt, "stop_at_end": True})
    if plan.prompt_tokens is None:
        _check_prompt(plan.prompt)
    context_tokens(plan, model, needed_tokens(plan, model))
    if plan.prompt_tokens is not None:
        plan = plan.model_copy(update={"prompt": prompt_of(model.path, plan.prompt_tokens)})
        _check_prompt(plan.prompt)
    if plan.depth_tokens:
        size_bytes = len(text_after_depth(plan, model).encode())
        if size_bytes > MAX_PROMPT_BYTES:
            raise UsageError(
                f"--depth {plan.depth_tokens}: with the prompt, the text is {size_bytes} bytes "
                f"long; the limit is {MAX_PROMPT_BYTES}.",
                "Use a smaller depth or a shorter prompt.",
            )
    return plan


def text_after_depth(plan: Plan, model: Model) -> str:
    """Return the prompt with the words before it that fill the context to the plan's depth.

    Raises:
        UsageError: the model's vocabulary has no words to fill a context with.
    """
    if plan.prompt_tokens is not None:
        return prompt_of(model.path, plan.depth_tokens + plan.prompt_tokens)
    before = prompt_of(model.path, plan.depth_tokens)
    return before + ("" if plan.prompt[:1].isspace() else " ") + plan.prompt


def _micro_batch_words(
    plan: EngineSettings, model: Model, context: int, memory_bytes: int
) -> list[str]:
    """Return the option for a smaller micro-batch where a board cannot reserve the usual one.

    llama.cpp reserves buffers for a micro-batch in which every token has logits.

    Args:
        context: tokens of the KV cache.
        memory_bytes: all of the board's memory and swap.
    """
    if plan.micro_batch_tokens is not None:
        return []
    bytes_per_token = FLOAT_BYTES * model.vocabulary + model.activation_bytes_per_token
    usual = tokens = min(MICRO_BATCH_TOKENS, context)
    while tokens > LEAST_MICRO_BATCH_TOKENS and (
        tokens * bytes_per_token > _RESERVED_AT_MOST * memory_bytes
    ):
        tokens //= 2
    return [] if tokens == usual else ["-ub", str(tokens)]


REPACK, NO_REPACK = "--repack", "--no-repack"
REPACK_OPTIONS = (REPACK, NO_REPACK, "-nr")


def repacked(words: Sequence[str]) -> bool:
    """Tell whether a command line let the engine rearrange the weights: the last word counts."""
    repack_words = [word for word in words if word in REPACK_OPTIONS]
    return not repack_words or repack_words[-1] == REPACK


def command(
    plan: Plan,
    model: Model,
    program: Path,
    *,
    on_board: PurePosixPath,
    model_on_board: PurePosixPath,
    memory_bytes: int,
    memory_available_bytes: int,
    streamed: bool,
    saved_context: PurePosixPath | None = None,
    drafting: tuple[str, ...] = (),
    media: tuple[str, ...] = (),
    adapters: Sequence[str] = (),
    cores: str | None = None,
    most_threads: int | None = None,
) -> tuple[str, ...]:
    """Return the words that start the engine on the board.

    Args:
        program: the same program on this machine, asked for the options that it knows.
        on_board: the program's path on the board.
        model_on_board: the model's path on the board.
        memory_bytes: all of the board's memory and swap.
        memory_available_bytes: on the board, before the run.
        streamed: the weights exceed it, and are read from storage for every token.
        saved_context: on the board, of a plan with a depth.
        cores: that it is kept to; none for all.
        most_threads: that may compute at a time, where that is less than all cores.
        drafting: options of ``llama-speculative-simple``, where that is the program.
        media: options of ``llama-mtmd-cli``, where that is.
        adapters: options for the model's.

    Raises:
        UsageError: the plan does not suit the model.
    """
    context = context_tokens(plan, model)
    text = text_after_depth(plan, model) if saved_context is not None else plan.prompt
    words = [str(on_board), "-m", str(model_on_board), *adapters, "--no-escape", "-p", text]
    words += ["-c", str(context), "--temp", f"{plan.temperature:g}", "--seed", str(plan.seed)]
    if drafting:
        words += ["-n", str(plan.n_predict - 1), *drafting]  # it generates one more
        if plan.batch_tokens is None:
            words += ["-b", str(context)]  # it takes a prompt in one batch only
    elif media:
        words += ["-n", str(plan.n_predict), *media]
        if plan.batch_tokens is None:
            words += ["-b", str(min(context, _USUAL_BATCH_TOKENS))]  # it aborts with larger ones
    else:
        words += ["-n", str(plan.n_predict), "-no-cnv", "--no-display-prompt"]
    if saved_context is not None:
        words += ["--prompt-cache", str(saved_context), "--prompt-cache-ro"]
    if plan.batch_tokens is not None:
        words += ["-b", str(plan.batch_tokens)]
    words += settings_words(plan, program, cores, most_threads)
    words += device_words(plan)
    words += memory_words(
        *(plan, model, program, context),
        memory_bytes=memory_bytes,
        memory_available_bytes=memory_available_bytes,
        streamed=streamed,
    )
    if not plan.stop_at_end:
        words.append("--ignore-eos")
    words += if_offered(program, "--perf")
    if not drafting:
        if streamed:
            words.append("--no-warmup")  # it would read all weights once more
        words += if_offered(program, "--offline")
    words += if_offered(program, "-fit", "off")
    return (*words, *plan.extra)


def settings_words(
    plan: EngineSettings, program: Path, cores: str | None, most_threads: int | None = None
) -> list[str]:
    """Return the options that every program of llama.cpp takes for how it computes.

    Args:
        cores: that it is kept to, where the plan does not choose them; none for all.
        most_threads: that may compute at a time, where that is less than all cores.
    """
    words = []
    threads = thread_count(plan, cores, most_threads)
    if threads is not None:
        words += ["-t", str(threads)]
    if plan.numa is not None:
        words += ["--numa", plan.numa]
    if plan.micro_batch_tokens is not None:
        words += ["-ub", str(plan.micro_batch_tokens)]
    if plan.kv_types is not None:
        words += ["-ctk", plan.kv_types[0], "-ctv", plan.kv_types[1]]
    if plan.flash_attention is not None:
        words += _flash_attention(program, plan.flash_attention)
    return words


ALL_LAYERS = "999"


def device_words(plan: Plan) -> list[str]:
    """Return the options of a program built for GPUs that say which device computes."""
    if plan.device is None:
        return []
    return ["--device", "Vulkan0", "-ngl", ALL_LAYERS] if plan.on_gpu else ["--device", "none"]


def device_environment(plan: Plan) -> dict[str, str]:
    """Return the variables that say the same.

    llama.cpp leaves out software drivers unless a device is chosen by its number, and is then the
    first one.
    """
    if plan.device is None or plan.device in (CPU, GPU):
        return {}
    return {"GGML_VK_VISIBLE_DEVICES": plan.device.removeprefix("Vulkan")}


def memory_words(
    plan: EngineSettings,
    model: Model,
    program: Path,
    context: int,
    *,
    memory_bytes: int,
    memory_available_bytes: int,
    streamed: bool,
) -> list[str]:
    """Return the options of a program of llama.cpp that follow from a board's memory.

    Args:
        context: tokens of the KV cache.
        memory_bytes, memory_available_bytes, streamed: as for ``command``.
    """
    words = _micro_batch_words(plan, model, context, memory_bytes)
    if streamed or not repacks(model, memory_available_bytes, context):
        words += if_offered(program, NO_REPACK)
    if streamed:
        words += ["--poll", "0"]  # threads that wait for the storage would keep their cores busy
    return words


def thread_count(
    plan: EngineSettings, cores: str | None, most_threads: int | None = None
) -> int | None:
    """Return how many threads compute; none where the engine chooses.

    Args:
        cores, most_threads: as for ``settings_words``.
    """
    kept_to = plan.cpus or cores
    if plan.threads is not None:
        return plan.threads
    # The engine would count all cores of the board.
    of_cores = len(cpu_numbers(kept_to)) if kept_to is not None else None
    return min((each for each in (of_cores, most_threads) if each), default=None)


def if_offered(program: Path, option: str, *values: str) -> list[str]:
    """Return an option with its values, or nothing where the program does not know it."""
    return [option, *values] if offers(program, option) else []


def _flash_attention(program: Path, mode: FlashAttention) -> list[str]:
    if offers(program, "[on|off|auto]"):
        return ["-fa", mode]
    if mode == "auto":  # until August 2025 it was a flag
        raise UsageError(
            "--flash-attention auto: this release of llama.cpp supports only on and off.",
            "Use --flash-attention on or off.",
        )
    return ["-fa"] if mode == "on" else []


_END_OF_TEXT = b" [end of text]\n"


def generated_text(stdout: bytes) -> str:
    """Return the text that the model wrote, without what the program adds behind it.

    Bytes that are no UTF-8 become U+FFFD.
    """
    text = stdout.removesuffix(b"\n\n").removesuffix(_END_OF_TEXT)
    return text.decode("utf-8", "replace")


_RESTORED = re.compile(
    r"session file (?:matches|has low similarity to prompt \() ?([0-9]+) / [0-9]+ tokens"
)

REPLAYED = "replayed last token from session"
"""What newer releases print when they have computed the last token of a saved context again."""


def restored_tokens(stderr: str) -> int:
    """Return how many tokens of the text llama.cpp found in a saved context; 0 for none."""
    found = _RESTORED.search(stderr)
    return int(found.group(1)) if found else 0


_LOAD = re.compile(r"load time =\s+([0-9.]+) ms")
_PROMPT = re.compile(r"prompt eval time =\s+([0-9.]+) ms /\s+([0-9]+) tokens")
_EVAL = re.compile(r"(?<!prompt) eval time =\s+([0-9.]+) ms /\s+([0-9]+) runs")


def engine_times(stderr: str) -> EngineTimes | None:
    """Read the sums that llama.cpp prints with ``--perf``; none when it printed none."""
    load, prompt, decode = (pattern.search(stderr) for pattern in (_LOAD, _PROMPT, _EVAL))
    if load is None or prompt is None or decode is None:
        return None
    return EngineTimes(
        prompt_ms=float(prompt.group(1)),
        prompt_tokens=int(prompt.group(2)),
        eval_ms=float(decode.group(1)),
        eval_tokens=int(decode.group(2)),
        load_ms=float(load.group(1)),
    )
