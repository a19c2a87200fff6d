"""``model.quantize``: a model in smaller types, made by llama.cpp's own llama-quantize."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP
from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_WAIT_S


@task(
    klass=Verb,
    help={
        "base": "a model in F16, BF16 or F32, as for --model of bench",
        "type": "file types of llama-quantize, such as Q4_K_M; list",
        "calibration": "text file from which llama-imatrix first computes what weights matter "
        "(none)",
        "allow-requantize": "accept a model that is quantised already, and the loss of quality",
        "on": "quantise on that board and fetch the result (this machine)",
        "output": "folder to copy the results to (they stay in the cache)",
        "board": "also predict the time per token on this board (none)",
        "kld": "compute the KL divergence from the base on this machine (if the base is not "
        "quantised and smaller than 1 GB)",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        "source": "file in toolchains/sources/, llama.cpp folder, or git address (pinned release)",
        "ref": "branch, tag or commit, if the source is a git repository (its default branch)",
        **JSON_HELP,
    },
)
def quantize(
    c: Context,
    base: str,
    type: str = "",  # noqa: A002 - the name of the option
    calibration: str = "",
    allow_requantize: bool = False,
    on: str = "",
    output: str = "",
    board: str = "",
    kld: bool = False,
    wait: str = str(DEFAULT_WAIT_S),
    source: str = "",
    ref: str = "",
    json: bool = False,
) -> None:
    """Quantise a model, and show size, speed and loss of each type.

    What was made before is found in the cache. Verbs that run models do the same on demand:
    --model BASE --type TYPE.
    Example: armload model.quantize llama-3.2-1b-f16.gguf --type Q4_K_M,Q2_K
    """
    del c
    from armload.boards.board import THIS_MACHINE, load_board
    from armload.cli.numbers import amount
    from armload.cli.present_quantised import quantise_and_present
    from armload.core.errors import UsageError
    from armload.models.file_types import read_file_types
    from armload.runs.session import Request

    if not type:
        raise UsageError("--type is missing: which file type?", "Example: --type Q4_K_M,Q2_K")
    file_types = read_file_types(type)
    request = Request(board=on or THIS_MACHINE, source=source, ref=ref, wait_s=amount("wait", wait))
    for name in (request.board, board):
        if name:
            load_board(name)  # a wrong name is reported before minutes pass
    folder = _folder(output) if output else None
    quantise_and_present(
        request,
        base,
        file_types,
        calibration=Path(calibration).expanduser() if calibration else None,
        allow_requantize=allow_requantize,
        output=folder,
        board=board,
        kld=kld,
        as_json=json,
    )


def _folder(text: str) -> Path:
    from armload.core.errors import UsageError

    path = Path(text).expanduser()
    if not path.is_dir():
        raise UsageError(
            f"--output {path}: there is no such folder.", "Make it first, or correct the name."
        )
    return path
