"""What an answer that is no file says: of the hub, of its token, or of something on the way."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from armload.core.errors import ConnectError, UsageError

if TYPE_CHECKING:
    from requests import Response

_MOST_SHOWN = 200
_REFUSALS = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
    HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS,
}


class Token(NamedTuple):
    """What proves to a hub who asks.

    Attributes:
        text: of it; empty for none.
        origin: the variable or file that it is from.
    """

    text: str = ""
    origin: str = ""


class RefusedTokenError(UsageError):
    """A hub does not take a token, whatever was asked for.

    Args:
        token: that was sent.
    """

    def __init__(self, token: Token, name: str, renew: str) -> None:
        super().__init__(
            f"{name[0].upper()}{name[1:]} does not accept the token in {token.origin}; it may have "
            "expired.",
            f"Replace the token: {renew}.",
        )
        self.token = token


_refused: set[str] = set()
"""Tokens that a hub has refused during this command, and that are not sent again."""


def usable(token: Token) -> Token:
    """Return a token, or none where it was refused before."""
    return Token() if token.text in _refused else token


def set_aside(token: Token) -> None:
    """Send a token no more."""
    _refused.add(token.text)


def said(answer: Response, header: str) -> str:
    """Return what a header of an answer says, as one line that can be shown."""
    text = " ".join(str(answer.headers.get(header, "")).split())
    return "".join(each for each in text if each.isprintable())[:_MOST_SHOWN]


def from_elsewhere(answer: Response, name: str, repo: str) -> ConnectError | None:
    """Return the error for a refusal that is none of the hub's own; none for another answer.

    The hub says why it refuses. What filters the traffic on the way does not know its words.
    """
    if answer.status_code not in _REFUSALS:
        return None
    host = urlsplit(answer.url).hostname or "an unknown server"
    server = said(answer, "Server")
    reason = f" {answer.reason}" if answer.reason else ""
    return ConnectError(
        f"{host} answers HTTP {answer.status_code}{reason} for {repo}"
        f"{f' (server: {server})' if server else ''}, without the words that {name} gives as a "
        "reason: a proxy or firewall on the way, or the mirror, may have refused it.",
        "Ask who runs the network or mirror to permit that host, or download the file elsewhere "
        "and give its path.",
    )
