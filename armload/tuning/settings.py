"""A setting as options of a plan file, and in words."""

from __future__ import annotations

from collections.abc import Mapping

from armload.bench.options import Options
from armload.core.values import counted, format_bytes
from armload.engines.plan import MICRO_BATCH_TOKENS, NO_SPECULATION
from armload.tuning.space import Choice, Setting

NO_REPACKING = "--no-repack"

_BY_ITSELF: dict[str, Choice] = {
    "batch": 2048,
    "engine_args": "",
    "flash_attention": "auto",
    "kv_type": "f16",
    "micro_batch": MICRO_BATCH_TOKENS,
    "slots": 4,
    "speculate": NO_SPECULATION,
}
"""What happens where an option is left out."""

_KEEPS_TEXT = frozenset(("threads", "cpus", "resident"))
"""Options that must not change a single token. The others choose other kernels, of which one may
round a near tie to another token."""

_SCORED = ("kv_type", "flash_attention", "micro_batch")
"""Options that change the distributions of tokens, and that the scorer has, too."""


def options_of(setting: Setting) -> Options:
    """Return the options that make a setting."""
    given = {name: choice for name, choice in setting.choices.items() if choice is not None}
    return Options.model_validate(given)


def differing(setting: Setting, defaults: Setting) -> dict[str, Choice]:
    """Return the choices that are not those of the defaults."""
    return {
        name: choice
        for name, choice in setting.choices.items()
        if _meant(name, choice) != _meant(name, defaults.choices.get(name))
    }


def keeps_text(setting: Setting, defaults: Setting) -> bool:
    """Say whether the text must be that of the defaults, token by token."""
    return differing(setting, defaults).keys() <= _KEEPS_TEXT


def scored(setting: Setting, defaults: Setting) -> dict[str, Choice]:
    """Return the choices that change the distributions of tokens; empty where none does."""
    different = differing(setting, defaults)
    return {name: different[name] for name in _SCORED if name in different}


def words_of(setting: Setting, defaults: Setting, core_sets: Mapping[str, str]) -> str:
    """Say what is not as in the defaults: ``4 threads on the big cluster, KV cache q8_0``.

    Args:
        core_sets: what sets of cores are called.
    """
    different = differing(setting, defaults)
    parts = []
    threads, cores = different.pop("threads", None), different.pop("cpus", None)
    where = f"on {core_sets.get(str(cores), f'cores {cores}')}" if cores is not None else ""
    if threads is not None:
        parts.append(f"{counted(int(threads), 'thread')} {where}".strip())
    elif where:
        parts.append(where)
    parts += [_phrase(name, choice) for name, choice in different.items()]
    return ", ".join(parts) or "the defaults"


def _meant(name: str, choice: Choice) -> Choice:
    return None if choice == _BY_ITSELF.get(name, choice is None) else choice


def _phrase(name: str, choice: Choice) -> str:
    match name:
        case "engine_args":
            return "no repacking" if choice == NO_REPACKING else f"engine arguments {choice!r}"
        case "resident" if isinstance(choice, int):
            return f"{format_bytes(choice)} resident"
        case "speculate":
            return f"speculation {choice or NO_SPECULATION}"
        case "slots" if isinstance(choice, int):
            return counted(choice, "slot")
        case "context":
            return f"context {choice}"
        case "kv_type":
            return f"KV cache {choice}"
        case _:
            return f"{name.replace('_', '-')} {choice}"
