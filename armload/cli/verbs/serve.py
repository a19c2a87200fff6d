"""``serve``, ``serve.list`` and ``serve.stop``: a model as a service on a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP, SOURCE_HELP
from armload.cli.group import Group
from armload.cli.serving_options import SERVING_HELP
from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_WAIT_S

if TYPE_CHECKING:
    from armload.serving.front.llm_serving import DataForm

_FRONT_PORT = 8835
_FRONTS: dict[str, DataForm] = {"llm-serving": "list", "llm-serving-object": "object"}


@task(
    klass=Verb,
    help={
        "board": "a board: the name of a file in boards/, such as virtual or dayu200 (virtual)",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, word-problems:TYPE, or demo (demo)",
        "type": "quantise the model to this file type first, such as Q4_K_M (as it is)",
        "plan": "a YAML file with such options as keys, as armload tune writes it; command-line "
        "options override the file",
        "port": f"local port that leads to the service (a free one; {_FRONT_PORT} with --front)",
        "front": "answer there in llm-serving's protocol instead: llm-serving, or "
        "llm-serving-object, whose events hold no list (none)",
        "detach": "keep serving after this command ends, until serve.stop",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        "new": "do not look for the same service left by an earlier command",
        **SERVING_HELP,
        **SOURCE_HELP,
        **JSON_HELP,
    },
)
def serve(
    c: Context,
    board: str = "",
    model: str = "",
    type: str = "",  # noqa: A002 - the name of the option
    plan: str = "",
    port: str = "",
    front: str = "",
    detach: bool = False,
    slots: str = "",
    context: str = "",
    threads: str = "",
    cpus: str = "",
    batch: str = "",
    micro_batch: str = "",
    kv_type: str = "",
    flash_attention: str = "",
    weights: str = "",
    resident: str = "",
    prompt_cache: str = "",
    temperature: str = "",
    wait: str = str(DEFAULT_WAIT_S),
    new: bool = False,
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    json: bool = False,
) -> None:
    """Serve a model on a board, and forward a local port to it.

    Prints an OpenAI-compatible URL and follows the server's log until Ctrl-C, which stops it.
    Example: armload serve --board dayu200 --model m.gguf --slots 2 --context 1024
    """
    del c
    from armload.cli.numbers import amount, whole_number
    from armload.cli.present_service import serve_and_present
    from armload.cli.serving_options import read_serving_file, serving_plan
    from armload.cli.typed_models import model_in
    from armload.core.errors import UsageError
    from armload.runs.session import Request

    file = read_serving_file(plan)
    chosen = serving_plan(
        {
            "slots": slots,
            "context": context,
            "threads": threads,
            "cpus": cpus,
            "batch": batch,
            "micro_batch": micro_batch,
            "kv_type": kv_type,
            "flash_attention": flash_attention,
            "weights": weights,
            "resident": resident,
            "prompt_cache": prompt_cache,
            "temperature": temperature,
        },
        file.fields,
    )
    request = Request(
        board=board or file.board or "virtual",
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
        new=new,
    )
    if front and front not in _FRONTS:
        raise UsageError(f"--front {front!a}: must be {' or '.join(_FRONTS)}.")
    if front and detach:
        raise UsageError(
            "--front and --detach exclude each other: the front is part of this command.",
            "Detach the service first, and start the front with another armload serve.",
        )
    if detach and port:
        raise UsageError(
            "--detach and --port exclude each other: the port is part of this command.",
            "Detach the service first, and forward the port with another armload serve.",
        )
    local_port = whole_number("port", port, most=65535) or (_FRONT_PORT if front else 0)
    serve_and_present(
        request,
        model_in(request, model or file.model or "demo", type or file.type),
        chosen,
        detach=detach,
        port=local_port,
        as_json=json,
        front=_FRONTS[front] if front else None,
    )


@task(
    klass=Verb,
    name="list",
    help={"board": "boards, as for serve; several are separated by commas (virtual)", **JSON_HELP},
)
def list_services(c: Context, board: str = "virtual", json: bool = False) -> None:
    """List the models that boards serve.

    Example: armload serve.list --board dayu200,kitchen
    """
    del c
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.parallel import at_once, board_names, end_if_failed
    from armload.core.progress import Labelled
    from armload.core.values import ValueList
    from armload.report.services import services_view
    from armload.serving.listing import RunningService, services

    progress = terminal.progress()
    names = board_names(board)
    boards = {name: load_board(name) for name in names}  # a misspelt name is reported first
    outcomes = at_once(names, lambda name: services(boards[name], Labelled(progress, name)))
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    found = [service for one in outcomes for service in one.result or ()]
    answered = [one.name for one in outcomes if one.error is None]
    if json:
        show_document(ValueList[RunningService](tuple(found)))
    else:
        terminal.show(services_view(found, answered))
    end_if_failed(outcomes)


@task(
    klass=Verb,
    help={
        "board": "a board, as for serve (virtual)",
        "run": "the service's id, or its beginning (the only one there)",
        "force": "also stop a service that another machine started",
        **JSON_HELP,
    },
)
def stop(
    c: Context,
    board: str = "virtual",
    run: str = "",
    force: bool = False,
    json: bool = False,
) -> None:
    """Stop the service on a board, and fetch what it left.

    Example: armload serve.stop --board dayu200
    """
    del c
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.report.layout import whole
    from armload.serving.listing import stop_service

    ended, folder = stop_service(load_board(board), terminal.progress(), run=run, force=force)
    if json:
        show_document(ended)
    else:
        terminal.show(f"{ended.board.name} no longer serves {ended.model.name}.")
        terminal.show(whole(f"kept in {folder}"))


group = Group(serve, list_services, stop)
