"""Which types llama-quantize would give to the tensors of a model, as it says itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from armload.models.file_types import TENSOR_TYPES
from armload.models.gguf import read_outline
from armload.models.metadata import Metadata
from armload.models.quant_mix import types_of

PREDICTED_TYPES = tuple(each for each in TENSOR_TYPES if each != "IQ3_XXS")
"""All but one, to which a dry run gives other types than the real one, which needs a matrix."""

_LINE = re.compile(
    r"^\[ *\d+/ *\d+\] (?P<name>\S+) +- \[.*type = +(?P<before>\w+), size = .*?"
    r"(?:\((?P<after>\w+)\))?$",
    re.MULTILINE,
)


def said_by_llama_quantize(program: Path, model: Path, file_type: str) -> dict[str, str]:
    """Return the type of every tensor after quantisation; the file may lack its weights."""
    words = [str(program), "--dry-run", "--allow-requantize", str(model), file_type]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-1500:]
    # A warning about an unusual shape is written into the middle of a tensor's line.
    found = {each["name"]: each["after"] or each["before"] for each in _LINE.finditer(output)}
    return {name: type_name.upper() for name, type_name in found.items()}


def known_here(model: Path, file_type: str) -> dict[str, str]:
    """Return the same by the rules that armload knows."""
    _, header = read_outline(model)
    types = {tensor.name: tensor.type_name.upper() for tensor in header.tensors}
    changed = types_of(Metadata(model, header), header, file_type)
    return types | {name: type_name.upper() for name, type_name in changed.items()}
