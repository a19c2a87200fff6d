"""Files from the package index that pip would ask, with the certificates that it trusts."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armload.core.bounds import TooMuchError, run_bounded, size_words, within
from armload.core.download import Remote, download
from armload.core.errors import ConnectError
from armload.core.progress import Progress
from armload.core.values import Value

if TYPE_CHECKING:
    from requests import Response

PIP_TIMEOUT_S = 30
ANSWER_TIMEOUT_S = 15
_PAGE_WITHIN_S = 20.0
_MOST_PAGE_BYTES = 32 << 20
_MOST_SETTINGS_BYTES = 1 << 20
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
        return f"{self.project} {self.version}"

    @property
    def kind_name(self) -> str:
        return "source archive" if self.kind == "sdist" else "wheel"


def fetch(wanted: IndexFile, path: Path, progress: Progress, *, instead: str) -> None:
    """Download a file to ``path``, whole and with the right checksum, or not at all.

    What an interrupted download left beside ``path`` is continued.

    Args:
        instead: what to do without the index, such as ``give a file``.

    Raises:
        ConnectError: the index does not have it or does not answer.
        TransferError: the checksum is wrong.
        OSError: it cannot be written.
    """
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedRepoVersionError
    from requests import RequestException
    from requests.exceptions import InvalidURL

    index, certificates = package_index(), trusted_certificates()
    try:
        with PyPISimple(index) if index else PyPISimple() as client:
            client.s.verify = certificates or True
            client.s.hooks["response"].append(_bounded)
            page = within(
                _PAGE_WITHIN_S,
                lambda: client.get_project_page(wanted.project, timeout=ANSWER_TIMEOUT_S),
            )
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
        file = Remote(
            url=found[0].url,
            label=wanted.label,
            digest=wanted.sha256,
            certificates=certificates or "",
            instead=instead,
        )

        def refused(answer: Response) -> ConnectError:
            return ConnectError(
                f"Cannot fetch {wanted.label}: {without_login(answer.url)} answered with "
                f"HTTP {answer.status_code}.",
                "Check pip's index-url, then repeat the command.",
            )

        download(file, path, progress, refused)
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
    except (RequestException, UnsupportedRepoVersionError, TimeoutError, ValueError) as error:
        raise ConnectError(
            f"Cannot fetch {wanted.label} from the package index: {without_login(str(error))}.",
            "Check the network and pip's index-url and cert, then repeat the command; or "
            f"{instead}.",
        ) from error


class _BoundedBody:
    """The body of an answer, of which no more than a page of the index is read."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def stream(self, amount: int, **options: Any) -> Iterator[bytes]:
        """Yield it; raises ``ValueError`` where there is more."""
        left = _MOST_PAGE_BYTES
        for chunk in self._body.stream(amount, **options):
            left -= len(chunk)
            if left < 0:
                raise ValueError(f"its page is larger than {size_words(_MOST_PAGE_BYTES)}")
            yield chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


def _bounded(answer: Response, **_options: object) -> None:
    answer.raw = _BoundedBody(answer.raw)


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
        asked = run_bounded(
            [sys.executable, "-P", "-m", "pip", "config", "list"],
            most_bytes=_MOST_SETTINGS_BYTES,
            limit_s=PIP_TIMEOUT_S,
        )
    except (TimeoutError, TooMuchError):
        return {}
    lines = asked.stdout.decode("utf-8", "replace")
    return {
        name: str(ast.literal_eval(value))
        for name, value in re.findall(r"^(\S+)=('.*'|\".*\")$", lines, re.MULTILINE)
    }
