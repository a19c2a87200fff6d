"""Checkpoints that are quantised already: which of them the converters can read.

Told from ``config.json``, before the converters are installed and weights downloaded.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from armload.conversion.checkpoints.checkpoint import CONFIG, CheckpointOutline, read_object
from armload.conversion.checkpoints.forms import Form, gguf_module
from armload.core.errors import UsageError

_NAMES = {
    "aqlm": "AQLM",
    "awq": "AWQ",
    "bitnet": "BitNet",
    "bitsandbytes": "bitsandbytes",
    "eetq": "EETQ",
    "fbgemm_fp8": "FBGEMM FP8",
    "fp8": "FP8",
    "gptq": "GPTQ",
    "hqq": "HQQ",
    "modelopt": "ModelOpt",
    "mxfp4": "MXFP4",
    "quanto": "Quanto",
    "torchao": "torchao",
}
_OWN_FILES = {
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "hf_quant_config.json": "modelopt",
}
"""Files that programs for a method write instead of a part of ``config.json``."""

_COMPARED = frozenset({"fp8", "mxfp4"})
"""What the comparison unpacks. Others need packages or a graphics card that it does not have, or
are unknown to transformers, which then takes the codes for weights."""

_FAILING = frozenset({"bitnet"})
"""What llama.cpp's converter names, but stops at: it mixes tensors with values and without."""

_PACKED = "compressed-tensors"


def check_quantised(
    folder: Path, outline: CheckpointOutline, form: Form, source: Path, *, unchecked: bool
) -> None:
    """Refuse a quantised checkpoint that cannot be converted, or not be compared with its file.

    Args:
        source: llama.cpp's, whose converter is asked.
        unchecked: accept what cannot be compared.
    """
    place, method, settings = _quantisation(folder)
    if not method or (form == "mnn" and method == "mxfp4"):
        return
    kind = str(settings.get("format") or "an unknown format")[:40] if method == _PACKED else ""
    named = f"quantised {f'as {kind} of' if kind else 'with'} {_NAMES.get(method, method)}"
    instead = f"Convert the checkpoint that it was made from{_base_of(folder)}, in 16-bit floats"
    remedy = f"{instead}; then quantise the result: armload model.quantize --help"
    if form == "mnn":
        raise UsageError(
            f"{place}: this checkpoint is {named}, which the MNN exporter cannot read.", remedy
        )
    methods, formats = _read_by_converter(source, outline)
    if not methods:  # this source says it in another way
        return
    if method not in methods - _FAILING or (kind and kind not in formats):
        raise UsageError(
            f"{place}: this checkpoint is {named}, which llama.cpp's converter cannot read.", remedy
        )
    why = uncompared(folder)
    if why and not unchecked:
        raise UsageError(
            f"{place}: the converted file could not be checked: {why}.",
            f"{instead}, or repeat the command with --unchecked.",
        )


def uncompared(folder: Path) -> str:
    """Return why a checkpoint's quantised weights cannot be compared; nothing if they can."""
    _, method, _ = _quantisation(folder)
    if not method or method in _COMPARED:
        return ""
    return f"weights quantised with {_NAMES.get(method, method)} cannot be unpacked here"


def _quantisation(folder: Path) -> tuple[Path, str, Mapping[str, object]]:
    """Return the file that names the method, the method, and its settings."""
    path = folder / CONFIG
    config = read_object(path)
    inner = config.get("text_config")
    for each in (config, inner if isinstance(inner, dict) else {}):
        settings = each.get("quantization_config")
        if isinstance(settings, dict):
            method = settings.get("quant_method")
            if not method and (settings.get("load_in_4bit") or settings.get("load_in_8bit")):
                method = "bitsandbytes"
            if isinstance(method, str) and method:
                return path, method.lower()[:40], settings
    for name, method in _OWN_FILES.items():
        if (folder / name).is_file():
            return folder / name, method, read_object(folder / name)
    return path, "", {}


def _read_by_converter(source: Path, outline: CheckpointOutline) -> tuple[set[str], set[str]]:
    """Return the methods and formats that llama.cpp's converter names in its source.

    Those are the ones that it reads for every architecture, and what it names for this one.
    """
    conversion = source / "conversion"
    found = [_named(conversion / "base.py")]
    module = gguf_module(source, outline.architecture)
    if module:
        found.append(_named(conversion / f"{module}.py", everywhere=True))
    return set().union(*(each[0] for each in found)), set().union(*(each[1] for each in found))


def _named(path: Path, *, everywhere: bool = False) -> tuple[set[str], set[str]]:
    """Return the words that a module compares a method and a format with.

    Args:
        everywhere: all of its words count as both, as where a class handles a method by itself.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return set(), set()
    if everywhere:
        words = {
            word
            for node in ast.walk(tree)
            for word in (
                [node.value]
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                else [node.attr.removeprefix("_is_")]
                if isinstance(node, ast.Attribute)
                else []
            )
        }
        return words, words
    names: dict[str, set[str]] = {"quant_method": set(), "quant_format": set()}
    for function in ast.walk(tree):
        if not (isinstance(function, ast.FunctionDef) and function.name == "dequant_model"):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
                names.get(node.left.id, set()).update(
                    each.value
                    for each in node.comparators
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )
    return names["quant_method"], names["quant_format"]


def _base_of(folder: Path) -> str:
    """Return what its README calls the model that it was made from, in brackets."""
    try:
        head = (folder / "README.md").read_text(encoding="utf-8", errors="replace")[:20_000]
    except OSError:
        return ""
    lines = iter(head.splitlines())
    for line in lines:
        if line.startswith("base_model:"):
            name = line.partition(":")[2].strip() or next(lines, "").lstrip("- ").strip()
            name = name.strip("\"'[] ")
            is_name = name.count("/") == 1 and name.replace("/", "").isascii() and " " not in name
            return f" ({name})" if is_name and name.isprintable() else ""
    return ""
