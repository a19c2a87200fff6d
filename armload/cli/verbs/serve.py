"""``serve``: a model as a service on a board, for the time of a command or until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from armload.cli.options import (
    A_BOARD,
    STARTED,
    OneBoard,
    OneModel,
    OutputOptions,
    models_in,
    one_board,
)
from armload.cli.verb import verb
from armload.core.defaults import VIRTUAL
from armload.core.errors import UsageError
from armload.core.options import Alternatives, Exclusive, Option
from armload.core.workspace import runs_folder
from armload.engines.service_plan import ServingPlan
from armload.runs.request import EngineSource, Request, Resuming, Waiting

if TYPE_CHECKING:
    from armload.report.result import Result
    from armload.serving.front.llm_serving import DataForm


_FRONT_PORT = 8835
_FRONTS: dict[str, DataForm] = {"llm-serving": "list", "llm-serving-object": "object"}


class ServeOptions(ServingPlan, OneModel, Resuming, Waiting, EngineSource, OutputOptions):
    """A model, how it is served, and where the service is reached."""

    alternatives: ClassVar[Alternatives] = (
        Exclusive(
            (("detach",), ("front", "port")),
            "Detach the service first, then add the other with another armload serve.",
            "a front and a local port exist only while this command runs",
        ),
    )

    board: Annotated[
        OneBoard, Option(A_BOARD, usual=STARTED, heading="Board", harmless="in a plan")
    ] = ""
    plan: Annotated[
        Path | None,
        Option(
            "a YAML file whose keys are these options, such as the one that armload tune writes; "
            "command-line options override the file",
            "FILE",
            heading="Plan",
        ),
    ] = None
    port: Annotated[
        Annotated[int, Field(ge=0, le=65535)] | None,
        Option(
            "local port to forward to the service",
            "PORT",
            f"a free one; {_FRONT_PORT} with --front",
            heading="Board",
        ),
    ] = None
    front: Annotated[
        Literal["llm-serving", "llm-serving-object"] | None,
        Option(
            "speak llm-serving's protocol on that port: llm-serving, or llm-serving-object, which "
            "sends an object instead of a list of one",
            "PROTOCOL",
            heading="Board",
        ),
    ] = None
    detach: Annotated[
        bool, Option("keep serving after this command ends, until service.stop", heading="Board")
    ] = False
    new: Annotated[
        bool,
        Option(
            "start a new service even if an identical one is already running", harmless="anywhere"
        ),
    ] = False


@verb(ServeOptions, keeps=True, results=(runs_folder,))
def serve(options: ServeOptions) -> Generator[Result, None, None]:
    """Serve a model on a board, and forward a local port to it.

    Prints an OpenAI-compatible URL and the server's log until Ctrl-C, which stops the service.
    Example: armload serve --board dayu200 --model m.gguf --slots 2 --context 1024
    """
    from armload.cli import terminal
    from armload.report.result import as_result
    from armload.report.services import ServedModel, served_view
    from armload.serving.following import follow, reached, warn_of_chats
    from armload.serving.planning import serving_plan

    file = read_serving_file(options.plan)
    request = options.part(Request).model_copy(
        update={"board": options.board or file.board or VIRTUAL}
    )
    plan = serving_plan(options.part(ServingPlan), file.fields)
    is_named = "model" in options.model_fields_set
    name = options.model if is_named else file.model or options.model
    one_type = options.type or file.type
    (model,) = models_in(request, [name], [one_type] if one_type else [])
    progress = terminal.progress()
    with reached(
        *(request, model, plan, progress),
        detach=options.detach,
        port=options.port or (_FRONT_PORT if options.front else 0),
        front=_FRONTS[options.front] if options.front else None,
    ) as (service, front_url):
        described = ServedModel.of(service, is_forwarded=not options.detach, front_url=front_url)
        yield as_result(described, served_view(described, model))
        warn_of_chats(service, progress)
        if not options.detach:
            follow(service, progress, lambda text: print(text, end="", file=sys.stderr, flush=True))
    if service.kept is not None:
        terminal.say(
            f"Stopped. Its run is kept in {service.kept}: armload show {service.kept.name}"
        )


@dataclass(frozen=True, kw_only=True)
class ServingFile:
    """What a plan file says of a service.

    Attributes:
        board, model, type: their names; empty where it says none.
        fields: of a ``ServingPlan``, that it sets.
    """

    board: str = ""
    model: str = ""
    type: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


def read_serving_file(path: Path | None) -> ServingFile:
    """Read a plan file, if there is one, and say which of its options a service does not have.

    Raises:
        UsageError: there is none, or it lists several values of an option.
        DataError: it is malformed.
    """
    from armload.bench.options import read_options
    from armload.cli import terminal
    from armload.serving.planning import serving_fields, without_effect

    if path is None:
        return ServingFile()
    options = read_options(path)
    if len(options.model) > 1:
        raise UsageError(f"{path}: model lists {', '.join(options.model)}.", "Name one model.")
    if len(options.type) > 1:
        raise UsageError(f"{path}: type lists {', '.join(options.type)}.", "Name one type.")
    if unused := without_effect(options):
        terminal.progress().say(
            f"{path}: ignored, because they do not apply to a service: {', '.join(unused)}."
        )
    return ServingFile(
        board=one_board(",".join(options.board)),
        model="".join(options.model),
        type="".join(options.type),
        fields=serving_fields(options, str(path)),
    )
