"""Images in a chat's question, as OpenAI's API takes them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from armload.core.bounds import size_words
from armload.core.errors import DataError, UsageError
from armload.core.pictures import smaller, upright_picture
from armload.serving.chat_partner import ChatPartner
from armload.serving.dialects.dialect import ChatMessage

_MOST_BYTES = 20 << 20


def require_images(partner: ChatPartner) -> None:
    """Refuse images to a model that is known to take none.

    A server that says nothing of it refuses them itself.
    """
    if partner.properties.takes_images is False:
        raise UsageError(
            f"{partner.place}: {partner.target.model} takes no images.",
            "Use a service of a model with vision, which was started with its projector: --mmproj "
            "auto.",
        )


class SentImage(NamedTuple):
    """An image as a request holds it: upright, in a URL, and its size in pixels."""

    url: str
    width: int
    height: int


def sent_image(path: Path) -> SentImage:
    """Read an image once.

    Raises:
        UsageError: there is no such file.
        DataError: it is no image of a kind that servers take, is damaged, or too large.
        DiskError: it cannot be read.
    """
    content, _, width, height = upright_picture(path)
    if len(content) > _MOST_BYTES:
        raise DataError(f"{path}: larger than {size_words(_MOST_BYTES)}.", smaller(path))
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    data = base64.b64encode(content).decode("ascii")
    return SentImage(f"data:image/{kind};base64,{data}", width, height)


def question_of(text: str, images: Sequence[str]) -> ChatMessage:
    """Return a question with images, which are URLs."""
    if not images:
        return ChatMessage(role="user", content=text)
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return ChatMessage(role="user", content=(*parts, {"type": "text", "text": text}))
