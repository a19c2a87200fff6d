"""Requests of a load with images: those of a folder, one in each request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from armload.core.bounds import size_words
from armload.core.errors import DataError, UsageError
from armload.core.files import unreadable
from armload.core.progress import Progress
from armload.serving.chat_images import SentImage, question_of, sent_image
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.workload import Workload

MOST_IMAGES, MOST_BYTES = 64, 256 << 20
_MOST_ENTRIES = 10_000
_ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"))


class Pictured:
    """Requests each with an image before the prompt, in turn.

    Args:
        takes: whether the service takes images; none where it does not say.

    Raises:
        UsageError: it takes none.
    """

    def __init__(
        self, work: Workload, images: Sequence[SentImage], folder: Path, *, takes: bool | None
    ) -> None:
        if takes is False:
            raise UsageError(
                "--images: the service takes no images.",
                "Use a service of a model with vision, which was started with its projector.",
            )
        # llama-server, which alone says so, would not encode an image again that it saw last.
        self._more = {} if takes is None else {"cache_prompt": False}
        self._work = work
        self._images = tuple(images)
        self.described = f"{work.described}, with {len(images)} images of {folder} in turn"

    def request(self, number: int) -> CompletionRequest:
        request = self._work.request(number)
        image = self._images[number % len(self._images)]
        question = question_of(request.prompt, [image.url])
        sizes = {"image_width": image.width, "image_height": image.height}
        more = {**self._more, **request.extra_body}
        changed = {"prompt": "", "messages": (question,), "extra_body": more, **sizes}
        return request.model_copy(update=changed)


def read_images(folder: Path, progress: Progress) -> tuple[SentImage, ...]:
    """Read the images of a folder, by their names; files of other kinds are left out.

    Raises:
        UsageError: there is no such folder, no image in it, or there are too many.
        DataError: one is damaged, or they are too large together.
        DiskError: one cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            found = list(islice(entries, _MOST_ENTRIES + 1))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise UsageError(
            f"--images: there is no folder '{folder}'.", "Name a folder of PNG or JPEG files."
        ) from None
    except OSError as error:
        raise unreadable(folder, error) from error
    paths = sorted(
        Path(each.path)
        for each in found
        if Path(each.name).suffix.casefold() in _ENDINGS and not each.name.startswith(".")
    )
    if len(found) > _MOST_ENTRIES or len(paths) > MOST_IMAGES:
        count = f"{len(paths):,} images" if len(found) <= _MOST_ENTRIES else "too many files"
        raise UsageError(
            f"--images {folder}: the folder has {count}; the limit is {MOST_IMAGES} images.",
            "Name a folder with fewer: one image of each size is enough.",
        )
    if not paths:
        raise UsageError(
            f"--images {folder}: there is no image in it.",
            "Name a folder of PNG, JPEG, WebP, GIF or BMP files.",
        )
    images: list[SentImage] = []
    total = 0
    with progress.step("Reading images", total=len(paths), unit="images") as step:
        for path in paths:
            images.append(sent_image(path))
            total += len(images[-1].url)
            if total > MOST_BYTES:
                raise DataError(
                    f"--images {folder}: larger than {size_words(MOST_BYTES)} as they are sent.",
                    "Name a folder with fewer or smaller images.",
                )
            step.update(len(images))
    return tuple(images)
