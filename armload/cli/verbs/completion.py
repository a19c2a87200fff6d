"""``completion``: what a shell needs to complete verbs, options and their values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from armload.report.completion import CompletionScript
    from armload.report.result import Result


class CompletionOptions(OutputOptions):
    """A shell, and whether its files are changed."""

    shell: Annotated[Literal["bash", "zsh", "fish"], Option("bash, zsh or fish", is_argument=True)]
    install: Annotated[
        bool, Option("write the script to your home folder, and load it when the shell starts")
    ] = False


@verb(CompletionOptions)
def completion(options: CompletionOptions) -> Result:
    """Print the script that completes armload's commands in a shell.

    Verbs, options and their values are completed: boards, targets, hardware, models, runs, files.
    Example: armload completion bash --install
    """
    from armload.cli.completion.table import TABLE
    from armload.report.completion import CompletionScript, script_lines
    from armload.report.result import as_result

    text = TABLE.with_name(f"armload.{options.shell}").read_text(encoding="utf-8")
    script = CompletionScript(shell=options.shell, script=text)
    if options.install:
        script = _installed(script)
    return as_result(script, *script_lines(script))


def _installed(script: CompletionScript) -> CompletionScript:
    """Write a script to where the shell finds it, or where a line of its start file loads it."""
    import os

    from armload.core.files import is_there, write_whole
    from armload.core.shell import quote

    home = Path.home()
    if script.shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        path = config / "fish" / "completions" / "armload.fish"
        write_whole(path, script.script.encode())
        return script.model_copy(update={"path": path})
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    path = data / "armload" / f"completion.{script.shell}"
    write_whole(path, script.script.encode())
    folder = os.environ.get("ZDOTDIR") if script.shell == "zsh" else None
    start_file = Path(folder or home) / f".{script.shell}rc"
    line = f"[ -r {quote(path)} ] && . {quote(path)}  # armload's completion"
    before = ""
    if is_there(start_file):
        before = start_file.read_text(encoding="utf-8", errors="replace")
    if line not in before.splitlines():
        gap = "\n" if before and not before.endswith("\n") else ""
        # Appended in place: the file may be a link into a folder of somebody's settings.
        with start_file.open("a", encoding="utf-8") as file:
            file.write(f"{gap}{line}\n")
    return script.model_copy(update={"path": path, "start_file": start_file, "start_line": line})
