"""TAB in real shells, on a terminal, after ``armload completion SHELL --install``."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.command_line import BIN
from tests.waiting import wait_until

SHOW = "\x18d"  # Ctrl-X d
CLEAR = "\x15"  # Ctrl-U

START_LINES = {
    "bash": r"""
bind -x '"\C-xd": printf "%s" "$READLINE_LINE" > "$SHOWN.new"; mv "$SHOWN.new" "$SHOWN"'
""",
    "zsh": r"""
show() { print -rn -- "$BUFFER" > "$SHOWN.new"; mv "$SHOWN.new" "$SHOWN" }
zle -N show
bindkey '^Xd' show
bindkey '^U' kill-whole-line
""",
    "fish": r"""
set -g fish_greeting
bind \cxd 'commandline > $SHOWN.new; mv $SHOWN.new $SHOWN'
bind \cu 'commandline ""'
""",
}
START_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}
COMMANDS = {
    "bash": ["bash", "--noprofile", "-i"],
    "zsh": ["zsh", "-d", "-i"],
    "fish": ["fish", "-i"],
}


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._ours, theirs = os.openpty()
        self._shown = folder / "shown"
        self.output = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *words],
            cwd=folder / "workspace",
            env=environment | {"SHOWN": str(self._shown), "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the shell has ended
            while part := os.read(self._ours, 4096):
                self.output += part

    def line_after(self, keys: str) -> str:
        """Press keys and return the line that is then typed; clear it."""
        self._shown.unlink(missing_ok=True)
        os.write(self._ours, (keys + SHOW).encode())
        wait_until(self._shown.exists)
        os.write(self._ours, CLEAR.encode())
        return self._shown.read_text().removesuffix("\n")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self._ours)


@contextmanager
def opened(shell: str, folder: Path, *, is_installed: bool = True) -> Iterator[Terminal]:
    """Open a shell whose home folder holds what ``--install`` put there, or what zsh looks for."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    workspace = folder / "workspace"
    (workspace / "boards").mkdir(parents=True)
    (workspace / "boards" / "kitchen.yaml").write_text("reach: {kind: local}\n")
    (workspace / "runs" / "20261126T080000Z-kitchen-tiny-ab12").mkdir(parents=True)
    (workspace / "my model.gguf").touch()
    (workspace / "z$c'd.gguf").touch()
    kept = folder / "hub" / "models--org--Tiny-GGUF" / "snapshots" / "0123"
    kept.mkdir(parents=True)
    (kept / "tiny-Q4_0.gguf").touch()
    home = folder / "home"
    (home / ".config" / "fish").mkdir(parents=True)
    (home / "at-home.gguf").touch()
    environment = {
        **{key: value for key, value in os.environ.items() if key not in {"ZDOTDIR", "ENV"}},
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "HF_HUB_CACHE": str(folder / "hub"),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }
    words = ["armload", "completion", shell, *(["--install"] if is_installed else [])]
    said = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE).stdout
    with (home / START_FILES[shell]).open("a") as file:
        if not is_installed:
            (home / "_armload").write_bytes(said)
            file.write("fpath=($HOME $fpath)\nautoload -Uz compinit && compinit\n")
        file.write(START_LINES[shell])
    terminal = Terminal(COMMANDS[shell], folder, environment)
    try:
        wait_until(lambda: bool(terminal.output), terminal.process)
        yield terminal
    finally:
        terminal.close()


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def terminal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terminal]:
    with opened(request.param, tmp_path_factory.mktemp(request.param)) as shell:
        yield shell


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("armload ben\t", "armload bench "),
        ("armload bench --flash\t", "armload bench --flash-attention "),
        ("armload bench --board ki\t", "armload bench --board kitchen "),
        ("armload bench --board=ki\t", "armload bench --board=kitchen "),
        ("armload bench -b ki\t--js\t", "armload bench -b kitchen --json "),
        ("armload build --target yit\t", "armload build --target yitian710 "),
        ("armload fit --hardware all,rock-5b-8\t", "armload fit --hardware all,rock-5b-8gb "),
        ("armload bench --flash-attention on,au\t", "armload bench --flash-attention on,auto "),
        ("armload bench -m hf:o\t", "armload bench -m hf:org/Tiny-GGUF/tiny-Q4_0.gguf "),
        ("armload bench -m like:stor\tQ4_0\t", "armload bench -m like:stories260k:Q4_0 "),
        ("armload bench -m my\t", "armload bench -m my\\ model.gguf "),
        ("armload bench -m ./my\\ m\t", "armload bench -m ./my\\ model.gguf "),
        ("armload bench -m ~/at\t", "armload bench -m ~/at-home.gguf "),
        ("armload show 2026\t", "armload show 20261126T080000Z-kitchen-tiny-ab12 "),
        ("cd /; armload compl\tz\t", "cd /; armload completion zsh "),
        ("armload nothing --b\t", "armload nothing --b"),
    ],
)
def test_tab_completes(keys: str, line: str, terminal: Terminal) -> None:
    assert terminal.line_after(keys) == line


def test_an_open_quote_is_closed(terminal: Terminal) -> None:
    assert terminal.line_after('armload bench -m "my\t').rstrip() == (
        'armload bench -m "my model.gguf"'
    )


def test_what_a_shell_would_expand_is_quoted(terminal: Terminal) -> None:
    completed = terminal.line_after("armload bench -m z\t")
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {completed}"], capture_output=True, text=True, check=True
    )
    assert words.stdout.splitlines() == ["armload", "bench", "-m", "z$c'd.gguf"]


def test_zsh_finds_the_script_among_its_functions(tmp_path: Path) -> None:
    with opened("zsh", tmp_path, is_installed=False) as terminal:
        for _ in range(2):
            assert terminal.line_after("armload ben\t") == "armload bench "
