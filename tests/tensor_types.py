"""The tensor types that the pinned llama.cpp has, as its compiler sees them.

    python -m tests.tensor_types

prints the table of ``armload/models/tensor_types.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from armload.build.helper import any_cpu_compiler
from armload.build.source import pinned_source
from armload.build.target import machine_architecture
from armload.core.progress import Silent
from armload.models.tensor_types import TensorType

_TRAITS = re.compile(
    r"\[GGML_TYPE_(?!COUNT)(\w+)\]\s*=\s*\{[^}]*?\.blck_size\s*=\s*([^,]+),"
    r"\s*\.type_size\s*=\s*([^,]+),"
)


def types_of(source: Path) -> dict[int, TensorType]:
    """Compile and run a program that prints number, name, and sizes of each type of a source."""
    traits = _TRAITS.findall((source / "ggml" / "src" / "ggml.c").read_text(encoding="utf-8"))
    lines = [
        f'printf("%d {name} %lld %lld\\n", GGML_TYPE_{name}, (long long)({block}), '
        f"(long long)({size}));"
        for name, block, size in traits
    ]
    code = "\n".join(
        [
            "#include <stdio.h>",
            '#include "ggml.h"',
            "#define GGML_COMMON_DECL_C",
            '#include "ggml-common.h"',
            "int main(void) {",
            *lines,
            "return 0; }",
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        file, program = Path(folder, "types.c"), Path(folder, "types")
        file.write_text(code, encoding="utf-8")
        compiler = [*any_cpu_compiler(machine_architecture()), "-std=gnu11", "-w"]
        includes = [f"-I{source / 'ggml' / part}" for part in ("include", "src")]
        command = [*compiler, *includes, "-o", str(program), str(file)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in printed.splitlines():
        number, name, elements, size_bytes = line.split()
        found[int(number)] = TensorType(name, int(elements), int(size_bytes))
    return dict(sorted(found.items()))


def main() -> None:
    """Print the table of the pinned source."""
    for number, each in types_of(pinned_source().provide(Silent())).items():
        sizes = f"{each.block_elements}, {each.block_bytes}"
        sys.stdout.write(f'    {number}: TensorType("{each.name}", {sizes}),\n')


if __name__ == "__main__":
    main()
