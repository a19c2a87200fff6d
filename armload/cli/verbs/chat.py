"""``chat``: a conversation with a served model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from armload.bench.options import MODEL
from armload.cli.load_options import Positive
from armload.cli.options import A_BOARD, OneBoard, OnGateways, OutputOptions
from armload.cli.verb import verb
from armload.core.defaults import VIRTUAL
from armload.core.errors import UsageError
from armload.core.options import MOST, Option
from armload.core.workspace import runs_folder
from armload.engines.plan import (
    FLASH_ATTENTION,
    KV_TYPE,
    REQUEST_TIMEOUT_S,
    THREADS,
    Computation,
    FlashAttention,
    KvType,
    MediaPath,
    Temperature,
    Threads,
    TokenCount,
)
from armload.runs.request import EngineSource, Waiting

if TYPE_CHECKING:
    from armload.core.progress import Progress
    from armload.report.result import Result
    from armload.serving.chat import Chat
    from armload.serving.chat_partner import ChatPartner

_MOST_BYTES = 1 << 24


class StartedService(Computation):
    """How a service computes that is started for a conversation."""

    threads: Annotated[Threads | None, THREADS.of_one("as many as cores")] = None
    context_tokens: Annotated[
        TokenCount | None,
        Option(
            "tokens of KV cache, which the whole conversation has to fit",
            "TOKENS",
            "8192, or the model's",
            name="context",
        ),
    ] = None
    kv_type: Annotated[KvType | None, KV_TYPE.of_one("f16")] = None
    flash_attention: Annotated[FlashAttention | None, FLASH_ATTENTION.of_one("auto")] = None
    mmproj: Annotated[
        MediaPath | None,
        Option(
            "projector of a model that takes images, a file or hf:ORG/REPO/FILE.gguf; auto: the "
            "mmproj file beside the model, or in its repository; none: text alone",
            "FILE|AUTO|NONE",
            "auto with --image, else none",
            heading="Service",
            takes="file",
        ),
    ] = None


_ON_BOARD = (
    "board",
    "scheduler",
    "service",
    *EngineSource.model_fields,
    *Waiting.model_fields,
    *StartedService.model_fields,
)


class ChatOptions(OnGateways, Waiting, EngineSource, StartedService, OutputOptions):
    """With whom a person talks, and how the answers are."""

    board: Annotated[OneBoard, Option(A_BOARD, usual=VIRTUAL, heading="Board")] = ""
    model: Annotated[
        str,
        Option(MODEL, usual="that of the board's service, or else demo", heading="Service"),
    ] = ""
    service: Annotated[
        str,
        Option(
            "the board's installed service of this name",
            "NAME",
            "the one that runs there",
            heading="Service",
        ),
    ] = ""
    url: Annotated[
        str,
        Option(
            "talk to a running service at this address instead, such as http://127.0.0.1:8080",
            heading="Service",
        ),
    ] = ""
    api_key_file: Annotated[
        Path | None,
        Option("file that holds the service's API key", "FILE", heading="Service", needs="url"),
    ] = None
    system: Annotated[
        str,
        Option("system prompt: what the model is told first", "TEXT", heading="Task"),
    ] = ""
    image: Annotated[
        tuple[Path, ...],
        Option(
            "image to send with the first question",
            "FILE",
            several="repeat",
            takes="file",
            heading="Task",
        ),
    ] = ()
    n_predict: Annotated[
        Annotated[int, Field(ge=1, le=MOST)] | None,
        Option("most tokens of an answer", "N", "what the context holds", heading="Task"),
    ] = None
    temperature: Annotated[
        Temperature | None,
        Option("randomness of answers; 0 is greedy", "T", "the service's own", heading="Task"),
    ] = None
    timeout: Annotated[
        Positive,
        Option("seconds after which an answer is given up", "SECONDS", heading="Task"),
    ] = REQUEST_TIMEOUT_S


@verb(ChatOptions, keeps=True, results=(runs_folder,))
def chat(options: ChatOptions) -> Result | None:
    """Talk to a model on a board, in the terminal.

    Uses the service that runs on the board, or starts one for the conversation. When standard
    input is no terminal, its text is the question, which is answered once.
    Example: armload chat --board dayu200 --model m.gguf
    """
    from armload.cli import terminal
    from armload.cli.chat_session import ChatSession
    from armload.serving.chat import Chat, ChatSettings, lacks_chats
    from armload.serving.chat_images import require_images, sent_image
    from armload.serving.interrupts import Interrupts

    is_typed = sys.stdin.isatty()
    if is_typed and options.as_json:
        raise UsageError(
            "--json needs a question on standard input.",
            'Example: echo "Why is the sky blue?" | armload chat --json',
        )
    question = "" if is_typed else _read_question()
    images = tuple(sent_image(each.expanduser()).url for each in options.image)
    progress = terminal.progress()
    settings = ChatSettings(
        system=options.system,
        max_tokens=options.n_predict,
        temperature=options.temperature,
        timeout_s=options.timeout,
    )
    with _partner(options, progress) as partner:
        if images:
            require_images(partner)
        if lacks_chats(partner):
            progress.say(
                f"{partner.target.model} has no chat template: it continues texts, and does not "
                "answer questions."
            )
        interrupts = Interrupts()
        talk = Chat(partner, settings, interrupts)
        with interrupts.heeded():
            if not is_typed:
                return _answered(talk, question, images, as_json=options.as_json)
            progress.say(f"Talking to {partner.target.model} on {partner.place}.")
            session = ChatSession(talk, interrupts)
            session.images = images
            session.run()
    return None


@contextmanager
def _partner(options: ChatOptions, progress: Progress) -> Iterator[ChatPartner]:
    from armload.boards.board import is_group
    from armload.boards.naming import boards_called
    from armload.cli.load_plan import target_of
    from armload.fleet.reach import boards_reached
    from armload.runs.request import Request
    from armload.services.talking import partner_installed, service_to_talk_to
    from armload.serving.chat_partner import ChatPartner, partner_on_board
    from armload.serving.dialects.openai import OpenAiChat
    from armload.serving.planning import serving_plan

    if options.url:
        options.refuse(
            _ON_BOARD, "--url, which names a service that is already running", "Remove it."
        )
        target = target_of(options.url, options.api_key_file, OpenAiChat(), options.model)
        yield ChatPartner(target)
        return
    (board,) = boards_called([options.board or VIRTUAL])
    plan = serving_plan(options.part(StartedService))
    its_own = (*EngineSource.model_fields, *StartedService.model_fields)
    if options.service:
        why = "--service, which names a service that has been installed as it is"
        options.refuse(its_own, why, "Remove it.")
    if options.scheduler:
        why = "--scheduler: through gateways, chat talks to installed services and starts none"
        options.refuse(its_own, why, "Remove it, or type the command on the gateway.")
    name = options.service
    with boards_reached(options.scheduler, [board], progress) as reach:
        if not name and plan is None and not is_group(board):
            name = service_to_talk_to(reach.board(board, progress), options.model, progress)
        if not name and options.scheduler:
            raise UsageError(
                f"{board} has no installed service that runs"
                + (f" and serves {options.model}." if options.model else "."),
                "Through gateways, chat starts none. Install one, or type the command on the "
                f"gateway: armload service.install --board {board} --scheduler "
                f"{options.scheduler}",
            )
        if name:
            its_board = reach.board(board, progress)
            with partner_installed(its_board, name, options.model, progress) as partner:
                yield partner
            return
    request = options.part(Request).model_copy(update={"board": board})
    with partner_on_board(
        request, options.model, plan, progress, shows_images=bool(options.image)
    ) as partner:
        yield partner


def _read_question() -> str:
    """Read the question from standard input.

    Raises:
        UsageError: there is none, or it is longer than any model's context.
    """
    text = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise UsageError(
            f"The question on standard input is longer than {_MOST_BYTES >> 20} MiB.",
            "Shorten it.",
        )
    question = text.decode("utf-8", "replace").strip()
    if not question:
        raise UsageError(
            "There is no question on standard input.",
            'Example: echo "Why is the sky blue?" | armload chat',
        )
    return question


def _answered(talk: Chat, question: str, images: tuple[str, ...], *, as_json: bool) -> Result:
    from armload.cli import terminal
    from armload.cli.chat_output import AnswerOutput
    from armload.report.chat import ChatAnswer, figures_line
    from armload.report.result import as_result
    from armload.serving.chat_images import question_of

    output = AnswerOutput()
    hear = (lambda *_: None) if as_json else output.hear
    reply, error = talk.ask(question_of(question, images), hear)
    output.end()
    if reply.outcome == "cancelled":
        raise KeyboardInterrupt
    if not as_json and (figures := figures_line(reply)):
        terminal.say(f"[{figures}]")
    return as_result(ChatAnswer.of(talk, question, reply), error=error)
