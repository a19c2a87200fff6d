"""Write anew what is generated: the table of options, completion, and the JSON schemas.

python docs/regenerate.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_COMMANDS = (
    ("armload.cli.generated", "docs/options.md"),
    ("armload.report.schema", "docs/schema"),
    ("armload.report.input_schema",),
)


def main() -> None:
    for module, *words in _COMMANDS:
        folder = Path(__file__).resolve().parent.parent
        subprocess.run([sys.executable, "-m", module, *words], cwd=folder, check=True)


if __name__ == "__main__":
    main()
