"""Which package index to ask, and which certificates to trust, as pip would."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping

PIP_TIMEOUT_S = 30
_SECTIONS = (":env:", "download", "install", "global")
"""Where pip keeps its settings; the first that has one counts."""


def package_index() -> str | None:
    """Return the index that pip is configured to use; none when it is not configured."""
    return _setting("index-url")


def trusted_certificates() -> str | None:
    """Return the file of certificates that pip is configured to trust; none if it is not."""
    return _setting("cert")


def _setting(name: str) -> str | None:
    # The variable counts first. Then pip itself is asked, where this Python has it.
    chosen = os.environ.get(f"PIP_{name.upper().replace('-', '_')}", "").strip()
    if chosen:
        return chosen
    settings = _pip_settings()
    values = (settings.get(f"{section}.{name}", "").strip() for section in _SECTIONS)
    return next(filter(None, values), None)


def without_login(text: str) -> str:
    """Return the text with user and password taken out of each address in it."""
    return re.sub(r"://[^/\s]*@", "://", text)


def _pip_settings() -> Mapping[str, str]:
    """Return pip's settings as pip merges them; none of them where it does not answer."""
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "pip", "config", "list"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PIP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}
    return {
        name: str(ast.literal_eval(value))
        for name, value in re.findall(r"^(\S+)=('.*'|\".*\")$", asked.stdout, re.MULTILINE)
    }
