"""What holds for every script that runs on a board."""

from __future__ import annotations

import re

from armload.core.workspace import data_folders


def test_no_script_ends_where_a_file_cannot_be_opened() -> None:
    """POSIX: a shell ends when it cannot redirect for a special built-in command, such as ":"."""
    scripts = [path for folder in data_folders("deploy") for path in folder.rglob("*.sh.j2")]
    assert scripts
    for path in scripts:
        assert not re.search(r"(?m)(?:^|[;&|{(\s]):\s+\d*[<>]", path.read_text()), path.name
