"""Files over HTTP: whole, checked, and resumed where an earlier attempt ended, or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from armload.core.bounds import size_words, within
from armload.core.errors import ArmloadError, ConnectError, TransferError
from armload.core.files import sha256_of, sync_folder
from armload.core.progress import Progress, ProgressStep
from armload.core.values import Value, whole_number

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S = 10, 15
LONGEST_WAIT_S = 60.0
SLOWEST_BYTES_PER_S = 1000
"""What a server sends less of, over the time in which an answer must begin, has stalled."""
MOST_UNKNOWN_BYTES = 4 << 30
"""Of a file whose length nobody says."""
_BEGIN_WITHIN_S = 20.0
_BODY_WITHIN_S = 60.0
"""Of what is no file, such as a list of them."""
_PROGRESS_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.5
_BUSY = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_SHA256_DIGITS = 64

Refusal = Callable[["Response"], ArmloadError]
"""Makes the error of an answer that is none of a file."""


class Remote(Value):
    """A file on a server.

    Attributes:
        url: where it is.
        label: it, for people.
        size_bytes: that it must have; none where nobody said.
        digest: its SHA-256 (64 hexadecimal digits) or git's name of its content (40); else empty.
        login: headers that prove who asks; a server that this one redirects to gets none of them.
            Without any, the address or ``.netrc`` may have a login.
        certificates: file of those that are trusted instead of the usual ones.
        instead: what a person can do without this server, such as ``give a file``.
    """

    url: str
    label: str
    size_bytes: int | None = None
    digest: str = ""
    login: Mapping[str, str] = {}
    certificates: str = ""
    instead: str = "download the file elsewhere and give its path"

    @property
    def host(self) -> str:
        return self.url.partition("://")[2].partition("/")[0].rpartition("@")[2]


def download(wanted: Remote, path: Path, progress: Progress, refusal: Refusal) -> None:
    """Download a file to ``path``; what an earlier attempt left beside it is continued.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f"{path.name}.part")
    with progress.step(f"Downloading {wanted.label}", total=wanted.size_bytes, unit="B") as step:
        _complete(wanted, begun, progress, step, refusal)
    size_bytes = _bytes_of(begun)
    if wanted.size_bytes not in (None, size_bytes):
        begun.unlink()
        raise TransferError(
            f"{wanted.label}: {size_bytes} bytes arrived, but {wanted.size_bytes} were expected.",
            "They have been deleted. Repeat the command; if a mirror or proxy is in use, try "
            "without it.",
        )
    if wanted.digest and (actual := _digest(begun, wanted.digest)) != wanted.digest:
        begun.unlink()
        raise TransferError(
            f"{wanted.label}: the downloaded file has the checksum {actual}, but {wanted.digest} "
            "was expected.",
            "It was changed or damaged in transit and has been deleted. Repeat the command; if it "
            f"happens again, do not use {wanted.host}.",
        )
    begun.replace(path)
    sync_folder(path.parent)


@contextmanager
def opened(
    wanted: Remote, progress: Progress, refusal: Refusal, *, start: int = 0
) -> Iterator[Response]:
    """Ask for a file from a byte on, and yield the answer before its body is read.

    A server that is busy, or drops the connection, is asked a few times.
    """
    import requests

    with requests.Session() as session, _answered(session, wanted, progress, start) as answer:
        if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS or answer.status_code >= (
            HTTPStatus.INTERNAL_SERVER_ERROR
        ):
            wait_s = _retry_after_s(answer, 0)
            when = f"in {wait_s:.0f} s, as it asks" if wait_s else "later"
            what = (
                "refuses further requests for now"
                if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
                else "reports a server error"
            )
            raise ConnectError(
                f"{wanted.label}: {wanted.host} {what} (HTTP {answer.status_code}).",
                f"Repeat the command {when}; a download continues where it stopped.",
            )
        is_past_end = start and answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        if not (answer.ok or is_past_end):
            raise refusal(answer)
        is_page = not is_past_end and answer.headers.get("Content-Type", "").startswith("text/html")
        if is_page and not wanted.url.endswith((".html", ".htm")):
            raise ConnectError(
                f"{wanted.label}: {wanted.host} answered with a web page instead of the file.",
                "The cause may be a proxy, a login page or a wrong address. Check the network "
                "and the address of the server.",
            )
        yield answer


def _answered(session: Session, wanted: Remote, progress: Progress, start: int) -> Response:
    import requests

    def login(request: PreparedRequest) -> PreparedRequest:
        request.headers.update(wanted.login)
        return request

    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    for attempt in range(1, _ATTEMPTS + 1):
        pause_s = _FIRST_PAUSE_S * 2 ** (attempt - 1)
        try:
            # The timeouts start anew with each byte of the headers, and at each redirection.
            answer = within(
                _BEGIN_WITHIN_S,
                lambda: session.get(
                    wanted.url,
                    headers=headers,
                    auth=login if wanted.login else None,
                    verify=wanted.certificates or None,
                    stream=True,
                    timeout=(CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S),
                ),
            )
        except TimeoutError as error:
            raise _unreachable(wanted, error) from error
        except ValueError as error:  # also the base of what requests raises then
            raise ConnectError(
                f"{wanted.label}: the server's address is malformed: {wanted.host}.",
                "Correct the address of the server or mirror.",
            ) from error
        except requests.ConnectionError as error:
            if attempt == _ATTEMPTS or _is_final(error):
                raise _unreachable(wanted, error) from error
        except requests.RequestException as error:
            raise _unreachable(wanted, error) from error
        else:
            wait_s = _retry_after_s(answer, pause_s)
            if answer.status_code not in _BUSY or attempt == _ATTEMPTS or wait_s > LONGEST_WAIT_S:
                return answer
            answer.close()
            progress.say(f"{wanted.host} is busy: trying again in {wait_s:.0f} s")
            pause_s = wait_s
        time.sleep(pause_s)
    raise AssertionError(attempt)


def _is_final(error: Exception) -> bool:
    """Say whether no connection could be made at all: asking again is of no use."""
    from requests import ConnectTimeout
    from urllib3.exceptions import NewConnectionError

    return isinstance(error, ConnectTimeout) or isinstance(
        getattr(error.args[0] if error.args else None, "reason", None), NewConnectionError
    )


def _retry_after_s(answer: Response, default_s: float) -> float:
    said = answer.headers.get("Retry-After", "").strip()
    if (seconds := whole_number(said)) is not None:
        return float(seconds)
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
    return default_s


def _unreachable(wanted: Remote, error: BaseException) -> ConnectError:
    return ConnectError(
        f"Cannot reach {wanted.host} for {wanted.label}: {_reason(error)}.",
        f"Check the network and the address of the server, or {wanted.instead}.",
    )


def _reason(error: BaseException) -> str:
    """Return the innermost cause, without the libraries' own words around it."""
    while inner := getattr(error, "reason", None) or next(
        (each for each in error.args if isinstance(each, BaseException)), None
    ):
        if not isinstance(inner, BaseException):
            break
        error = inner
    text = re.sub(r"^(<.*?>|\w+\(.*?\)): ", "", str(error)) or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _complete(
    wanted: Remote, begun: Path, progress: Progress, step: ProgressStep, refusal: Refusal
) -> None:
    from requests import RequestException

    failures = furthest = 0
    while True:
        have = _bytes_of(begun)
        furthest = max(furthest, have)
        if wanted.size_bytes is not None and have == wanted.size_bytes:
            return
        if wanted.size_bytes is not None and have > wanted.size_bytes:
            begun.unlink()  # of another version of the file
            continue
        try:
            with opened(wanted, progress, refusal, start=have) as answer:
                if have and not _continues(answer, have):
                    if _digest(begun, wanted.digest) == wanted.digest:
                        return
                    begun.unlink()
                    continue
                _write(wanted, answer, begun, step)
            return
        except RequestException as error:
            failures = 1 if _bytes_of(begun) > furthest + _PROGRESS_BYTES else failures + 1
            if failures == _ATTEMPTS:
                raise ConnectError(
                    f"{wanted.label}: the connection to {wanted.host} dropped after "
                    f"{_bytes_of(begun)} bytes: {_reason(error)}.",
                    "Repeat the command: the download continues where it stopped.",
                ) from error
            progress.say(f"{wanted.host}: {_reason(error)}. Trying again.")
            time.sleep(_FIRST_PAUSE_S * 2 ** (failures - 1))


def _continues(answer: Response, have: int) -> bool:
    """Say whether an answer to a request for the rest can be used."""
    if answer.status_code == HTTPStatus.PARTIAL_CONTENT:
        return answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    return answer.status_code == HTTPStatus.OK


def _write(wanted: Remote, answer: Response, begun: Path, step: ProgressStep) -> None:
    have = _bytes_of(begun) if answer.status_code == HTTPStatus.PARTIAL_CONTENT else 0
    length = answer.headers.get("Content-Length", "")
    rest = whole_number(length)
    total = have + rest if rest is not None else None
    if None not in (total, wanted.size_bytes) and total != wanted.size_bytes:
        begun.unlink(missing_ok=True)
        raise TransferError(
            f"{wanted.label}: {wanted.host} sends a file of {total} bytes, but "
            f"{wanted.size_bytes} were expected.",
            "Repeat the command later; if a mirror or proxy is in use, try without it.",
        )
    with begun.open("ab" if have else "wb") as file:
        for chunk in arriving(answer):
            file.write(chunk)
            have += len(chunk)
            if have > (wanted.size_bytes or total or MOST_UNKNOWN_BYTES):
                break  # the check that follows says so
            step.update(have, total=wanted.size_bytes or total)
        file.flush()
        os.fsync(file.fileno())
    if wanted.size_bytes is None and total is None and have > MOST_UNKNOWN_BYTES:
        begun.unlink()
        raise TransferError(
            f"{wanted.label}: {wanted.host} sent more than {size_words(MOST_UNKNOWN_BYTES)} "
            "without saying how much it is.",
            f"The file has been deleted. Check the address of the server, or {wanted.instead}.",
        )


def arriving(answer: Response) -> Iterator[bytes]:
    """Yield the body of an answer as it comes.

    Raises:
        requests.RequestException: the connection drops or stalls.
    """
    from requests import ConnectionError as Dropped
    from urllib3.exceptions import HTTPError

    waited_s, got = 0.0, 0
    while True:
        began_s = time.monotonic()
        try:
            # As much as has come: to wait for more would hide that it hardly comes at all.
            chunk = answer.raw.read1(_PIECE_BYTES, decode_content=True)
        except (HTTPError, OSError) as error:
            raise Dropped(error) from error
        if not chunk:
            return
        waited_s, got = waited_s + time.monotonic() - began_s, got + len(chunk)
        yield chunk
        if waited_s > ANSWER_TIMEOUT_S:
            if got < waited_s * SLOWEST_BYTES_PER_S:
                raise Dropped(TimeoutError(f"only {got} bytes arrived in {waited_s:.0f} s"))
            waited_s, got = 0.0, 0


def whole_body(wanted: Remote, answer: Response, most_bytes: int) -> bytes:
    from requests import RequestException

    content = bytearray()
    deadline = time.monotonic() + _BODY_WITHIN_S
    try:
        for chunk in arriving(answer):
            content += chunk
            if time.monotonic() > deadline:
                raise _unreachable(
                    wanted, TimeoutError(f"the answer did not end within {_BODY_WITHIN_S:g} s")
                )
            if len(content) > most_bytes:
                raise ConnectError(
                    f"{wanted.label}: the answer of {wanted.host} is larger than "
                    f"{size_words(most_bytes)}.",
                    "Check the address of the server or mirror.",
                )
    except RequestException as error:
        raise _unreachable(wanted, error) from error
    return bytes(content)


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _digest(path: Path, like: str) -> str:
    """Return a file's checksum, of the kind that ``like`` is."""
    if len(like) == _SHA256_DIGITS:
        return sha256_of(path)
    blob = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: blob).hexdigest()
