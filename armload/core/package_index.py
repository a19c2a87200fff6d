"""Files from the package index that pip would ask, with the certificates that it trusts."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from armload.core.errors import ConnectError, DataError
from armload.core.files import sha256_of, sync_folder
from armload.core.progress import Progress
from armload.core.values import Value

if TYPE_CHECKING:
    from requests import Session

PIP_TIMEOUT_S = 30
ANSWER_TIMEOUT_S = 30
_CHUNK_BYTES = 1 << 18
_SECTIONS = (":env:", "download", "install", "global")
"""Where pip keeps its settings; the first that has one counts."""


class IndexFile(Value):
    """A file of a project in the package index.

    Attributes:
        project: its name in the package index.
        version: of the project.
        kind: ``sdist`` is a source archive.
        sha256: of the file, 64 hexadecimal digits.
    """

    project: str
    version: str
    kind: Literal["sdist", "wheel"]
    sha256: str

    @property
    def label(self) -> str:
        """Name and version for people."""
        return f"{self.project} {self.version}"

    @property
    def kind_name(self) -> str:
        """The kind for people."""
        return "source archive" if self.kind == "sdist" else "wheel"


def fetch(wanted: IndexFile, path: Path, progress: Progress, *, instead: str) -> None:
    """Download a file to ``path``, whole and with the right checksum, or not at all.

    What an interrupted download left beside ``path`` is continued.

    Args:
        instead: what to do without the index, such as ``give a file``.

    Raises:
        ConnectError: the index does not have it or does not answer.
        DataError: the checksum is wrong.
        OSError: it cannot be written.
    """
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedRepoVersionError
    from requests import RequestException
    from requests.exceptions import InvalidURL

    index = package_index()
    try:
        with PyPISimple(index) if index else PyPISimple() as client:
            client.s.verify = trusted_certificates() or True
            page = client.get_project_page(wanted.project, timeout=ANSWER_TIMEOUT_S)
            found = [
                package
                for package in page.packages
                if package.version == wanted.version and package.package_type == wanted.kind
            ]
            if not found:
                raise ConnectError(
                    f"The package index at {without_login(client.endpoint)} has no "
                    f"{wanted.kind_name} of {wanted.label}.",
                    f"Check pip's index-url, or {instead}.",
                )
            _download(client.s, found[0].url, wanted, path, progress)
    except NoSuchProjectError as error:
        raise ConnectError(
            f"The package index has no project {wanted.project!r}.",
            f"Check pip's index-url, or {instead}.",
        ) from error
    except InvalidURL as error:  # whose words may quote half a password
        raise ConnectError(
            "The package index's address is malformed.",
            "Check pip's index-url; in a user name or password, write %2F for / and %40 for @.",
        ) from error
    except (RequestException, UnsupportedRepoVersionError, ValueError) as error:
        raise ConnectError(
            f"Cannot fetch {wanted.label} from the package index: {without_login(str(error))}.",
            "Check the network and pip's index-url and cert, then repeat the command.",
        ) from error


def _download(
    session: Session, url: str, wanted: IndexFile, path: Path, progress: Progress
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f"{path.name}.{wanted.sha256[:12]}.part")
    have = begun.stat().st_size if begun.is_file() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with session.get(url, headers=headers, stream=True, timeout=ANSWER_TIMEOUT_S) as answer:
        if answer.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            answer.raise_for_status()
            have = have if answer.status_code == HTTPStatus.PARTIAL_CONTENT else 0
            length = answer.headers.get("Content-Length", "")
            total = have + int(length) if length.isdecimal() else None
            with (
                begun.open("ab" if have else "wb") as file,
                progress.step(f"Fetching {wanted.label}", total=total, unit="B") as step,
            ):
                for chunk in answer.iter_content(_CHUNK_BYTES):
                    file.write(chunk)
                    have += len(chunk)
                    step.update(have)
                os.fsync(file.fileno())
    actual = sha256_of(begun)
    if actual != wanted.sha256:
        begun.unlink()
        raise DataError(
            f"The {wanted.kind_name} of {wanted.label} has the SHA-256 {actual}, and "
            f"{wanted.sha256} was expected.",
            "It was changed or damaged in transit and has been deleted. Try again; if it happens "
            "again, do not use that index.",
        )
    begun.replace(path)
    sync_folder(path.parent)


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
