"""How options are written: the same letter means the same in every verb."""

from __future__ import annotations

from collections.abc import Sequence

from invoke.parser.argument import Argument

BOARD_HELP = {"board": "a board: the name of a file in boards/, such as virtual or dayu200"}
JSON_HELP = {"json": "print one JSON document"}
SOURCE_HELP = {
    "source": "file in toolchains/sources/, llama.cpp folder, or git address (pinned release)",
    "ref": "branch, tag or commit, if the source is a git repository (its default branch)",
    "compiler": "zig, gnu (the distribution's cross gcc) or native (zig; native with --on)",
    "on": "compile on that board, such as an ARM server (this machine)",
}

_SHORT = {
    "board": "b",
    "model": "m",
    "prompt": "p",
    "n-predict": "n",
    "threads": "t",
    "context": "c",
    "output": "o",
    "json": "j",
}
"""As llama.cpp's own programs abbreviate them, where they have the option."""

_VALUES = {
    "api-key-file": "FILE",
    "arrivals": "HOW",
    "batch": "TOKENS",
    "budget": "TOKENS",
    "calibration": "FILE",
    "concurrency": "CLIENTS",
    "context": "TOKENS",
    "cool-to": "CELSIUS",
    "cpus": "CORES",
    "duration": "SECONDS",
    "engine-args": "ARGUMENTS",
    "export": "FORMAT",
    "for": "WHAT",
    "fail-if-slower": "PERCENT",
    "flash-attention": "ON|OFF|AUTO",
    "weights": "MAPPED|STREAMED|AUTO",
    "resident": "SIZE",
    "speculate": "HOW",
    "data": "FILE",
    "deadline": "SECONDS",
    "jobs": "N",
    "limit": "N",
    "max-time": "DURATION",
    "parallel": "N",
    "regrade": "EVALUATION",
    "tell-budget": "NO|YES|BOTH",
    "template": "MODEL|CHATML|NONE",
    "times": "RUNS",
    "kv-type": "TYPE",
    "last": "N",
    "like": "SHAPE",
    "micro-batch": "TOKENS",
    "kld-prompts": "FILE",
    "max-kld": "NATS",
    "max-memory": "SIZE",
    "max-trials": "N",
    "min-accuracy": "SHARE:TASK",
    "mnn-python": "FOLDER",
    "n-predict": "N",
    "nice": "N",
    "older-than": "DAYS",
    "on": "BOARD",
    "output": "PATH",
    "plan": "FILE",
    "prompt": "PROMPT",
    "prompt-tokens": "TOKENS",
    "programs": "NAMES",
    "put": "PATH",
    "quant": "TYPE",
    "reads": "FORMAT",
    "reference": "RUN",
    "rate": "PER-SECOND",
    "repeats": "N",
    "requests": "N",
    "precision": "PERCENT",
    "precision-time": "SECONDS",
    "front": "PROTOCOL",
    "prompt-cache": "SIZE",
    "run": "RUN",
    "seed": "N",
    "slo": "LIMITS",
    "slots": "N",
    "space": "FILE",
    "task-data": "FILE",
    "temperature": "T",
    "threads": "N",
    "time-limit": "SECONDS",
    "timeout": "SECONDS",
    "wait": "SECONDS",
    "warmup": "N",
    "warmups": "N",
    "what": "KINDS",
}

_GROUPS = {
    "Program": ("put", "reads", "name", "mnn-python", "python"),
    "Service": ("url", "api-key-file", "dialect"),
    "Load": (
        *("rate", "find-rate", "concurrency", "duration", "requests"),
        *("arrivals", "warmup", "timeout", "slo"),
    ),
    "Search": (
        *("for", "space", "max-kld", "kld-prompts", "min-accuracy", "task-data", "max-memory"),
    ),
    "Limits": ("max-time", "max-trials"),
    "Plan": (
        *("model", "type", "prompt", "prompt-tokens", "n-predict", "data", "temperature", "seed"),
        *("stop-at-end", "plan", "new"),
    ),
    "Task": (
        *("task", "budget", "tell-budget", "conclude", "template", "limit", "grader", "parallel"),
        "regrade",
    ),
    "Quantisation": ("calibration", "allow-requantize", "kld"),
    "Repeats": ("repeats", "warmups", "precision", "precision-time"),
    "Engine": (
        *("slots", "threads", "cpus", "context", "batch", "micro-batch", "kv-type"),
        *("flash-attention", "weights", "resident", "speculate", "prompt-cache"),
        "engine-args",
    ),
    "Board": ("board", "port", "front", "detach", "wait", "time-limit"),
    "Conditions": ("cold", "cool-to", "governor"),
    "Build": ("target", "programs", "source", "ref", "compiler", "on", "jobs", "nice"),
    "Output": ("reference", "fail-unless-close", "list", "export", "output", "json"),
}
_MOST_UNGROUPED = 9


def grouped(options: Sequence[Argument]) -> dict[str, list[Argument]]:
    """Return a verb's options as help lists them: under one heading, or many under several."""
    if len(options) <= _MOST_UNGROUPED:
        return {"Options": list(options)}
    by_name = {option.names[0]: option for option in options}
    groups = {
        heading: [by_name.pop(name) for name in names if name in by_name]
        for heading, names in _GROUPS.items()
    }
    return {heading: group for heading, group in groups.items() if group}


def abbreviated(argument: Argument) -> Argument:
    """Give an option its letter, and none but that: ``-h`` stays help's."""
    long = argument.names[0]
    argument.names = (long, _SHORT[long]) if long in _SHORT else (long,)
    return argument


def with_default(argument: Argument) -> Argument:
    """Let an option's help end with what is taken when it is left out, in brackets."""
    default = argument.default
    text = argument.help or ""
    has_default = text.endswith((f"({default})", f"({default!r})"))
    if isinstance(default, str) and default and not argument.positional and not has_default:
        argument.help = f"{text} ({default})"
    return argument


def shown(argument: Argument) -> str:
    """Return an option as help shows it: ``-b, --board BOARD``."""
    long = argument.names[0]
    short = f"-{argument.names[1]}, " if len(argument.names) > 1 else "    "
    value = f" {_VALUES.get(long, long.rpartition('-')[2].upper())}" if argument.takes_value else ""
    return f"{short}--{long}{value}"
