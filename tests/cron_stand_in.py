"""A ``crontab`` and a ``cron`` of a test's own, by which this machine can have services."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CRONTAB = """#!/bin/sh
t={table}
case $1 in
-l) [ -e "$t" ] || {{ echo "no crontab for pi" >&2; exit 1; }}; cat "$t" ;;
-r) rm "$t" ;;
-) cat >"$t.new" && mv "$t.new" "$t" ;;
esac
"""


def put_crontab(folder: Path) -> tuple[Path, Path]:
    """Put a ``crontab`` into a folder of programs; return that and the table."""
    table, programs = folder / "table", folder / "bin"
    programs.mkdir(parents=True)
    program = programs / "crontab"
    program.write_text(_CRONTAB.format(table=f"'{table}'"))
    program.chmod(0o755)
    return programs, table


@contextmanager
def cron(folder: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """Run what looks like cron; yield the variables by which its table is found, and that.

    It starts nothing: what a board does at its boot is tested where one boots.
    """
    programs, table = put_crontab(folder)
    daemon = folder / "cron"
    shutil.copy("/bin/sleep", daemon)
    process = subprocess.Popen([str(daemon), "infinity"])
    try:
        yield {"PATH": f"{programs}:{os.environ['PATH']}"}, table
    finally:
        process.kill()
        process.wait()
