"""llama.cpp's ``llama-mtmd-cli``: a model sees or hears, and answers a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.core.files import content
from armload.core.ids import fingerprint_of
from armload.core.pictures import Picture
from armload.core.sounds import Sound
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDOUT_FILE
from armload.deploy.payload import Payload
from armload.engines.completion import Completion
from armload.engines.engine import Forecastable, MemoryNeed, RunContext, Simulation
from armload.engines.job import Job, MediaRecord, ProjectorRecord, RunSpec
from armload.engines.llama_cpp import (
    KV_ROUNDING_TOKENS,
    most_prompt_tokens,
    offers,
    thread_count,
)
from armload.engines.media import MediaNeed, media_need, need_of_media
from armload.engines.output import Output
from armload.engines.plan import FlashAttention, Plan
from armload.models.header import read_header
from armload.models.image_tokens import USUAL_SIZE, EncoderPass
from armload.models.model import Model
from armload.models.projector import Projector, projector_of_header

PERCEIVING_PROGRAM = "llama-mtmd-cli"

IMAGE_TOKENS = 4096
"""Of one image at most, as most projectors limit it."""

_SOUND_S, _SOUND_TOKENS = 30, 750
"""Whisper's encoders take half a minute at a time, however short a sound is, and give up to that
many tokens for it."""

_TEMPLATE_TOKENS = 256
_IMAGE_MAX_TOKENS = "--image-max-tokens"
TEMPLATES = ("--jinja",)
"""Without it, llama.cpp's own programs know only the templates of a few families."""

_TRACED = "--mtmd-batch-max-tokens"
"""An option that came with the function by which the encoder's steps are traced."""


def projector_payload(projector: Projector) -> Payload:
    return Payload.of_file(projector.path, sha256=projector.sha256, executable=False)


def projector_record(projector: Projector) -> ProjectorRecord:
    """Return what is kept of a projector."""
    return ProjectorRecord(
        kind=projector.kind,
        sha256=projector.sha256,
        size_bytes=projector.size_bytes,
        limits_tokens=projector.is_dynamic,
    )


def check_traces_media(binary: Binary) -> None:
    """Check that a program is new enough for images and sounds.

    Raises:
        UsageError: it is not.
    """
    if not offers(binary.path, _TRACED):
        raise UsageError(
            f"{binary.program} of this llama.cpp is too old: armload cannot trace how it "
            "encodes images and sounds.",
            "Omit --source, or use llama.cpp of October 2026.",
        )


def media_words(projector: Payload, most_tokens: int | None, context: RunContext) -> list[str]:
    """Return the options for a projector.

    Args:
        most_tokens: of one image; none for its own limit.
    """
    words = ["--mmproj", str(projector.items(context.layout)[0].remote)]
    if most_tokens is not None:
        words += [_IMAGE_MAX_TOKENS, str(most_tokens)]
    return words


ENCODER_VARIABLE = "ARMLOAD_ENCODER"
_FLASH_ATTENTION = {None: -1, "auto": -1, "off": 0, "on": 1}


def encoder_simulation(program: Payload, projector: Path, context: RunContext) -> Simulation:
    """Return how llama-mtmd-cli is asked what an encoder computes, by the projector's header."""
    on_board = program.items(context.layout)[0].remote
    words = (str(on_board), "-m", str(projector.name), "--mmproj", str(projector.name))
    return Simulation(
        program=program,
        command=(*context.launcher, *words, "-fit", "off", "--offline"),
        model=projector,
        batch_tokens=0,
    )


def encoder_question(media: MediaNeed, plan: Plan, context: RunContext) -> str:
    """Return what that program is told in ``ENCODER_VARIABLE``."""
    threads = thread_count(plan, context.cores, context.most_threads) or 0
    return _asked_of_encoder(threads, plan.flash_attention, media.parts)


def usual_encoder_question(projector: Path) -> str:
    """Return the same for an image or a sound of usual size, whatever the run.

    Of a kind of which it is not known how llama.cpp cuts an image, no graph is asked for.
    """
    header = read_header(projector)
    media = media_need(projector_of_header(projector, header), header, USUAL_SIZE)
    return _asked_of_encoder(0, None, media.parts if media else ())


def _asked_of_encoder(
    threads: int, flash_attention: FlashAttention | None, parts: Sequence[EncoderPass]
) -> str:
    sizes = (f"{each.width}x{each.height}" for each in parts)
    return " ".join((str(threads), str(_FLASH_ATTENTION[flash_attention]), *sizes))


def with_room(plan: Plan, model: Model, seconds: float = 0.0) -> Plan:
    """Return a plan whose context has room for what the model sees and hears.

    Args:
        seconds: of sound.
    """
    if plan.context_tokens is not None:
        return plan
    seen = len(plan.images) * (plan.image_max_tokens or IMAGE_TOKENS)
    needed = most_prompt_tokens(plan) + plan.n_predict + _TEMPLATE_TOKENS + seen
    needed += math.ceil(seconds / _SOUND_S) * _SOUND_TOKENS
    rounded = -(-needed // KV_ROUNDING_TOKENS) * KV_ROUNDING_TOKENS
    return plan.model_copy(update={"context_tokens": min(rounded, model.context_length)})


class Perception(Completion):
    """A plan in which the model is given an image, a sound, or both, before the prompt.

    Args:
        projector: by which it sees and hears.
        media: what it is given.

    Raises:
        UsageError: the program is too old for that, or as for ``Completion``.
    """

    name: ClassVar[str] = PERCEIVING_PROGRAM

    def __init__(
        self,
        plan: Plan,
        binary: Binary,
        model: Model,
        projector: Projector,
        media: Sequence[Picture | Sound],
    ) -> None:
        super().__init__(plan, binary, model)
        check_traces_media(binary)
        self.projector = projector
        self.media = tuple(media)

    @property
    def fingerprint(self) -> str:
        """A checksum over plan, program, model, projector, and what the model is given."""
        sums = (self.projector.sha256, *(each.sha256 for each in self.media))
        return fingerprint_of((super().fingerprint, *sums))

    @property
    def subject(self) -> RunSpec:
        """The plan, and what is known of program, model, projector, and image or sound."""
        given = [(each, MediaRecord(**each.model_dump(exclude={"path"}))) for each in self.media]
        images = tuple(record for each, record in given if isinstance(each, Picture))
        audio = next((record for each, record in given if isinstance(each, Sound)), None)
        projector = projector_record(self.projector)
        update = {"projector": projector, "images": images, "audio": audio}
        return super().subject.model_copy(update=update)

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The program, the model, its projector, and what it is given, each once."""
        files = (projector_payload(self.projector), *self._given)
        return tuple(dict.fromkeys((*super().payload, *files)))

    @property
    def _given(self) -> tuple[Payload, ...]:
        return tuple(
            Payload.of_file(each.path, sha256=each.sha256, executable=False) for each in self.media
        )

    @property
    def forecastable(self) -> Forecastable:
        """The plan with what the model sees and hears, where it is known how that is cut."""
        path = self.projector.path
        limit = self.plan.image_max_tokens
        need = need_of_media(self.projector, read_header(path), self.media, limit)
        return Forecastable(
            model=self.model,
            plan=self.continuation,
            is_kept=need is not None,
            media=need,
            projector=path,
        )

    @property
    def projector_file(self) -> Path:
        return self.projector.path

    @property
    def spreadable(self) -> None:
        """Nothing: the encoder runs on one board."""
        return

    @property
    def memory(self) -> MemoryNeed:
        """The same with the projector, which is released before the model computes."""
        size = self.projector.size_bytes
        return super().memory.model_copy(update={"projector_bytes": size})

    def simulation(self, context: RunContext) -> Simulation | None:
        """Return how the program is asked, before the image is on the board.

        It wants a projector's name, and answers before it looks for the file.
        """
        asked = super().simulation(context)
        return asked and asked.without("--image")

    def progress(self, now: ProgressUpdate) -> int:
        """Return the number of tokens: there is text before, between and behind what is given."""
        return max(0, now.steps - now.media_steps - len(self.media))

    def phase(self, now: ProgressUpdate) -> str:
        """Return what comes before the first token."""
        return "generating" if now.text.strip() else "loading, encoding, and processing the prompt"

    def command(self, context: RunContext) -> tuple[str, ...]:
        """Return the words that start llama-mtmd-cli there."""
        projector = projector_payload(self.projector)
        words = [*TEMPLATES, *media_words(projector, self.plan.image_max_tokens, context)]
        words += [
            "--image",
            ",".join(str(each.items(context.layout)[0].remote) for each in self._given),
        ]
        return self._words(context, media=tuple(words), more_bytes=self.projector.size_bytes)

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read what it left; its text stands between line breaks."""
        output = Completion.read(job, folder)
        written = content(folder / STDOUT_FILE).decode("utf-8", "replace")
        text = written.removeprefix("\n").removesuffix("\n\n").removesuffix("\n")
        return output.model_copy(update={"text": text, "times": None})
