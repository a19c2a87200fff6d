"""Pictures in a chat's question, as OpenAI's API takes them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload.core.bounds import size_words
from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, unreadable
from armload.serving.chat_partner import ChatPartner
from armload.serving.dialects.dialect import ChatMessage

_MOST_BYTES = 20 << 20
_KINDS: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF8": "gif",
    b"BM": "bmp",
}


def require_images(partner: ChatPartner) -> None:
    """Refuse pictures to a model that is known to take none.

    A server that says nothing of it refuses them itself.
    """
    if partner.properties.takes_images is False:
        raise UsageError(
            f"{partner.place}: {partner.target.model} takes no images.",
            "Use a service of a model with vision, which was started with its projector.",
        )


def image_url(path: Path) -> str:
    """Read a picture; return it as a URL that holds it.

    Raises:
        UsageError: there is no such file.
        DataError: it is no picture of a kind that servers take, or too large.
        DiskError: it cannot be read.
    """
    require_file(path, "image", "Correct the path.")
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    kind = next((kind for begin, kind in _KINDS.items() if content.startswith(begin)), "")
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        kind = "webp"
    if not kind:
        raise DataError(f"{path}: not an image.", "Use a PNG, JPEG, WebP, GIF or BMP file.")
    if len(content) > _MOST_BYTES:
        raise DataError(f"{path}: larger than {size_words(_MOST_BYTES)}.", "Use a smaller image.")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def question_of(text: str, images: Sequence[str]) -> ChatMessage:
    """Return a question with pictures, which are URLs."""
    if not images:
        return ChatMessage(role="user", content=text)
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return ChatMessage(role="user", content=(*parts, {"type": "text", "text": text}))
