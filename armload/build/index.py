"""Which package index to ask, as pip would."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from armload.core.errors import BuildError

PIP_TIMEOUT_S = 30
_SECTIONS = (":env:", "download", "install", "global")
"""Where pip keeps ``index-url``; the first that has it counts."""


def package_index() -> str | None:
    """Return the index that pip is configured to use; none when it is not configured.

    ``PIP_INDEX_URL`` counts first. Then pip itself is asked, and where this Python has none,
    its configuration files are read.

    Raises:
        BuildError: a configuration file of pip is malformed.
    """
    chosen = os.environ.get("PIP_INDEX_URL", "").strip()
    if chosen:
        return chosen
    settings = _told_by_pip()
    if settings is None:
        settings = _read_from_files()
    for section in _SECTIONS:
        address = settings.get(f"{section}.index-url", "").strip()
        if address:
            return address
    return None


def without_login(text: str) -> str:
    """Return the text with user and password taken out of each address in it."""
    return re.sub(r"://[^/\s]*@", "://", text)


def _told_by_pip() -> Mapping[str, str] | None:
    """Return pip's settings as pip merges them; none where it does not answer."""
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "pip", "config", "list"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PIP_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if asked.returncode != 0:
        return None
    settings = {}
    for name, value in re.findall(r"^(\S+)=('.*'|\".*\")$", asked.stdout, re.MULTILINE):
        settings[name] = str(ast.literal_eval(value))
    return settings


def _read_from_files() -> Mapping[str, str]:
    parser = configparser.RawConfigParser()
    for path in _files():
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise BuildError(
                f"{path}: pip's configuration cannot be read: {type(error).__name__}.",
                "Correct the file, or name the package index in PIP_INDEX_URL.",
            ) from error
    return {
        f"{section}.index-url": parser.get(section, "index-url")
        for section in _SECTIONS
        if parser.has_option(section, "index-url")
    }


def _files() -> list[Path]:
    """Return pip's configuration files, the one that counts most last.

    Source: the page "Configuration" of pip's user guide.
    """
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    everyone = platformdirs.site_config_dir("pip", multipath=True).split(os.pathsep)
    own = [Path.home() / ".pip", platformdirs.user_config_path("pip")]
    if sys.platform == "darwin":
        own.insert(1, Path.home() / ".config" / "pip")
    is_own_left_out = named is not None and Path(named).exists()
    folders = [
        *(Path(folder) for folder in reversed(everyone)),
        Path("/etc"),
        *([] if is_own_left_out else own),
        Path(sys.prefix),
    ]
    return [*(folder / "pip.conf" for folder in folders), *([Path(named)] if named else [])]
