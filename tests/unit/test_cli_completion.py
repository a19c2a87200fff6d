"""What shells offer on TAB: from the declarations, from what is there now, quickly and silently."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from armload.boards.hardware import all_hardware
from armload.cli.completion.answer import candidates, split
from armload.cli.completion.table import TABLE, load_table
from armload.cli.generated import CACHE_KINDS, table_text
from armload.cli.verb import VERBS
from armload.cli.verbs.clean import _kinds
from armload.core.options import declared_options
from armload.core.workspace import data_names
from tests.command_line import BIN, BOUND_BY_PERMISSIONS

FREE = {
    *(
        "ADDRESS",
        "ARGUMENTS",
        "CELSIUS",
        "CLIENTS",
        "CORES",
        "DATE",
        "DAYS",
        "DURATION",
        "FACTOR",
        "FAILURES",
    ),
    *("GOVERNOR", "HOST", "JSON", "LIMITS", "N", "NATS", "PER-SECOND", "PERCENT", "PORT", "PROMPT"),
    *("PYTHON", "REF", "SECONDS", "SHARE", "SHARE:TASK", "SIZE", "STAGE", "T", "TEXT", "TOKENS"),
    *("TURNS", "URL", "USER"),
}
"""Words for values that nothing can be offered for."""
FREE_OPTIONS = {
    *(
        "fit --image-size",
        "board.add NAME",
        "eval --prompt",
        "init --name",
        "shell COMMAND",
        "eval --name",
        "watch --name",
    ),
    *("service.keys --add", "service.keys --revoke", "chat --service", "load --service"),
    *(f"{verb} --name" for verb in VERBS if verb.startswith("service.")),
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a board, a model, a run, and models of hubs in the cache."""
    folder = tmp_path / "workspace"
    (folder / "boards").mkdir(parents=True)
    (folder / "boards" / "kitchen.yaml").write_text("reach: {kind: local}\n")
    (folder / "boards" / "tight.yaml").write_text("extends: virtual\nreach: {cores: 1}\n")
    (folder / "boards" / "half.yaml").write_text("reach: {kind\n")
    for name in ("20261126T080000Z-kitchen-tiny-ab12", "20261125T080000Z-kitchen-tiny-cd34"):
        (folder / "runs" / name).mkdir(parents=True)
    (folder / "loads" / "20261126T090000Z-load-kitchen-1a2b").mkdir(parents=True)
    (folder / "my model.gguf").touch()
    (folder / "notes.txt").touch()
    (folder / "plan.yaml").touch()
    (folder / "bench.json").touch()
    (folder / "kept-run").mkdir()
    (folder / "kept-run" / "run.json").touch()
    (folder / ".hidden.gguf").touch()
    (folder / "models").mkdir()
    (folder / "models" / "b.gguf").touch()
    hub = tmp_path / "hub"
    kept = hub / "models--org--Tiny-GGUF" / "snapshots" / "0123"
    (kept / "Q8").mkdir(parents=True)
    (kept / "tiny-Q4_0.gguf").touch()
    for number in (1, 2):
        (kept / "Q8" / f"tiny-Q8_0-0000{number}-of-00002.gguf").touch()
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)
    return folder


def offered(line: str) -> list[str]:
    return [each.word for each in candidates(split(line), load_table())]


def test_the_table_is_that_of_the_declarations() -> None:
    assert TABLE.read_text() == table_text(), "make it anew: python docs/regenerate.py"


def test_something_is_offered_for_every_value_that_is_not_free_text() -> None:
    verbs = load_table()["verbs"]
    assert list(verbs) == list(VERBS)
    for verb, entry in verbs.items():
        words = {each.shown: each.value for each in declared_options(VERBS[verb].options)}
        for each in (*entry["arguments"], *entry["options"]):
            has_values = bool(each["takes"] or each["choices"])
            is_free = words[each["name"]] in FREE or f"{verb} {each['name']}" in FREE_OPTIONS
            assert has_values != is_free, f"{verb} {each['name']}"


def test_options_are_offered_where_a_program_can_only_follow_dashes(workspace: Path) -> None:
    assert {"--task", "--model"} <= {*offered("armload eval ")}
    assert "notes.txt" not in offered("armload eval ")
    assert "notes.txt" in offered("armload eval -- ")


def test_kinds_of_the_cache_are_those_of_clean(workspace: Path) -> None:
    assert set(CACHE_KINDS) == {each.name for each in _kinds()}


def test_programs_are_those_that_help_names() -> None:
    (programs,) = (
        each for each in load_table()["verbs"]["build"]["options"] if each["name"] == "--programs"
    )
    assert sorted(programs["choices"]) == sorted(programs["about"].partition(";")[0].split(", "))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("armload board.tr", ["board.trust"]),
        ("armload help bench ", []),
        ("armload lat", []),
        ("armload help lat", []),
        ("armload bench --precision 5% --prec", ["--precision-time"]),
        ("armload bench --board ki", ["kitchen"]),
        ("armload bench -b ki", ["kitchen"]),
        ("armload bench --board=ki", ["--board=kitchen"]),
        ("armload build --target yit", ["yitian710"]),
        ("armload build --programs llama-cli,llama-b", ["llama-cli,llama-bench"]),
        ("armload deploy --board kitchen,ki", []),
        ("armload fit --hardware al", ["all"]),
        ("armload fit --hardware rock-5b-1", ["rock-5b-16gb"]),
        ("armload bench --flash-attention o", ["on", "off"]),
        ("armload bench --flash-attention on,o", ["on,off"]),
        ("armload tune --for tt", ["ttft"]),
        ("armload bench -m my", ["my model.gguf"]),
        ("armload bench -m mo", ["models/"]),
        ("armload bench -m models/", ["models/b.gguf"]),
        ("armload bench -m .hid", [".hidden.gguf"]),
        ("armload bench -m n", []),
        ("armload eval n", []),
        ("armload eval -- no", ["notes.txt"]),
        ("armload bench -m smollm2,my", ["smollm2,my model.gguf"]),
        (
            "armload bench -m hf:",
            [
                "hf:org/Tiny-GGUF/Q8/tiny-Q8_0-00001-of-00002.gguf",
                "hf:org/Tiny-GGUF/tiny-Q4_0.gguf",
            ],
        ),
        ("armload bench -m hf:org/Tiny-GGUF/t", ["hf:org/Tiny-GGUF/tiny-Q4_0.gguf"]),
        ("armload bench -m like:stories", ["like:stories260k:"]),
        ("armload bench -m like:stories260k:Q4_K", None),
        ("armload bench -m like:stories260k:IQ", []),
        ("armload bench -m like:lfm2", []),
        ("armload bench --speculate draft:my", ["draft:my model.gguf"]),
        ("armload bench --plan no", ["notes.txt"]),
        (
            "armload show 2026",
            [
                "20261126T080000Z-kitchen-tiny-ab12",
                "20261125T080000Z-kitchen-tiny-cd34",
                "20261126T090000Z-load-kitchen-1a2b",
            ],
        ),
        ("armload bench --reference latest", ["latest"]),
        ("armload show latest-l", ["latest-load"]),
        ("armload compare latest-", ["latest-load"]),
        ("armload tradeoff lat", []),
        ("armload board.down --board ki", []),
        ("armload board.down --board vi", ["virtual", "virtual-dayu200"]),
        ("armload board.up --board ti", ["tight"]),
        ("armload compare latest be", ["bench.json"]),
        ("armload compare latest kit", ["kitchen:"]),
        ("armload compare kitchen:", ["kitchen:tiny"]),
        ("armload compare virtual:", []),
        ("armload report latest kitchen:t", ["kitchen:tiny"]),
        ("armload compare latest notes", []),
        ("armload compare latest bo", []),
        ("armload show pl", []),
        ("armload show be", []),
        ("armload show bo", []),
        ("armload show ru", ["runs/"]),
        ("armload show ke", ["kept-run/"]),
        ("armload show kept-run/", ["kept-run/run.json"]),
        ("armload show ./bo", ["./boards/"]),
        ("armload show ./pl", []),
        ("armload report bo", ["boards/"]),
        ("armload compare a b c", []),
        ("armload watch --put notes.txt -- no", ["notes.txt"]),
        ("armload watch -- --pu", []),
        ("armload completion z", ["zsh"]),
        ("armload nothing ", []),
        ("armload bench --nothing=", []),
    ],
)
def test_what_can_follow(line: str, words: list[str] | None, workspace: Path) -> None:
    if words is None:
        assert offered(line)
    else:
        assert [word for word in offered(line) if not word.startswith("-") or "-" in line] == words


def test_nothing_typed_yet_offers_all(workspace: Path) -> None:
    assert offered("armload ") == [*VERBS, "help"]
    assert offered("armload help ") == [*VERBS, "all"]
    assert {"kitchen", "half", "virtual"} <= set(offered("armload bench --board "))
    hardware = offered("armload fit --hardware ")
    assert set(hardware) == {
        "all",
        *data_names("hardware"),
        *(each.name for each in all_hardware()),
    }
    assert "--model" in offered("armload bench ")
    assert "--install" not in offered("armload completion ")
    shown = offered("armload show ")
    assert shown[:2] == ["latest", "latest-load"]
    assert {each for each in shown if "." in each or "/" in each} == {
        *("kept-run/", "loads/", "runs/"),
    }


def test_a_line_is_split_as_shells_do() -> None:
    assert split("a 'b c' d\\ e ").words == ("a", "b c", "d e")
    assert split('a "b \\" $c').current == 'b " $c'
    assert split("cd x && A=1 armload be") == (("armload",), "be", "", 0)
    assert split("armload bench --board=vi", "=:") == (("armload", "bench"), "--board=vi", "", 8)
    assert split("armload bench -m 'a:b", "=:") == (("armload", "bench", "-m"), "a:b", "'", 0)
    assert split("armload bench -m x:'a:b", "=:").kept == 2


def asked(
    folder: Path, *words: str | bytes, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [BIN / "armload", "__complete", *words],
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def test_names_that_are_not_utf_8_are_offered(workspace: Path) -> None:
    (workspace / os.fsdecode(b"\xff.gguf")).touch()
    done = asked(workspace, "bash", "armload bench -m ")
    assert b"\xff.gguf \n" in done.stdout


def test_what_may_not_be_entered_hides_nothing_else(workspace: Path) -> None:
    (workspace / "locked").mkdir()
    (workspace / "locked").chmod(0)
    (workspace / "into").symlink_to("locked/further")
    (workspace / "circle").symlink_to("circle")
    done = subprocess.run(
        [*BOUND_BY_PERMISSIONS, BIN / "armload", "__complete", "bash", "armload show "],
        cwd=workspace,
        capture_output=True,
        check=False,
    )
    words = done.stdout.decode().split()
    assert {"latest", "kept-run/", "runs/"} <= set(words)
    assert "locked/" not in words


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("bash",),
        ("tcsh", "armload "),
        ("bash", ""),
        ("bash", "arml"),
        ("bash", "armload bench -m '"),
        ("bash", "armload bench -m ~nobody/"),
        ("bash", "armload bench -m nowhere/"),
        ("fish", b"armload bench -m \xff"),
        ("zsh", "armload show x", "=", "="),
    ],
)
def test_a_line_that_makes_no_sense_is_answered_with_nothing(
    words: tuple[str | bytes, ...], tmp_path: Path
) -> None:
    done = asked(tmp_path, *words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Error" not in done.stdout


@pytest.mark.parametrize("line", ["armload show ", "armload bench --board ", "armload bench -m "])
def test_a_broken_workspace_is_silent(line: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("boards", "toolchains", "runs", "loads"):
        (broken / name).write_text("no folder")
    cache = tmp_path / "file"
    cache.touch()
    environment = {"ARMLOAD_CACHE": str(cache), "HF_HUB_CACHE": str(cache)}
    done = asked(broken, "bash", line, **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout
    gone = tmp_path / "gone"
    gone.mkdir()
    # By Python: in an environment whose path has a blank, pip's script starts a shell, which
    # itself complains of its folder.
    script = f'cd {gone}; rmdir {gone}; exec "$0" "$1" __complete bash "{line}"'
    words = ["sh", "-c", script, str(BIN / "python3"), str(BIN / "armload")]
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


COUNTED = """
import sys
opened, kinds = [], ("open", "os.listdir", "os.scandir")
sys.addaudithook(lambda event, _: opened.append(event) if event in kinds else None)
sys.argv = ["armload", "__complete", "bash", sys.argv[1]]
from armload.cli.main import main
main()
print(len(opened), file=sys.stderr)
"""
MOST_OPENED = 200
"""Files and folders, those of Python's modules among them: 168 is the most of those below."""


def opened(line: str, folder: Path) -> int:
    words = [str(BIN / "python3"), "-c", COUNTED, line]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return int(done.stderr)


@pytest.mark.parametrize("line", ["armload be", "armload bench -m ", "armload show 2026"])
def test_an_answer_opens_few_files_and_none_of_a_thousand_runs(line: str, workspace: Path) -> None:
    opened(line, workspace)  # keeps Python's byte code
    few = opened(line, workspace)
    for number in range(1000):
        (workspace / "runs" / f"20260101T{number:06}Z-kitchen-tiny-{number:04}").mkdir()
    assert opened(line, workspace) == few < MOST_OPENED


def test_an_answer_imports_neither_pydantic_nor_invoke(workspace: Path) -> None:
    code = (
        "import sys; sys.argv = ['armload', '__complete', 'bash', 'armload bench -m '];"
        "from armload.cli.main import main; main();"
        "print({'pydantic', 'invoke', 'rich', 'requests'} & set(sys.modules))"
    )
    done = subprocess.run(
        [BIN / "python", "-c", code], capture_output=True, text=True, check=True, cwd=workspace
    )
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_start_file_gets_its_line_once_and_stays_a_link(shell: str, tmp_path: Path) -> None:
    home, settings = tmp_path / "home", tmp_path / "settings"
    home.mkdir()
    settings.write_text("alias a=b")
    (home / f".{shell}rc").symlink_to(settings)
    environment = {key: value for key, value in os.environ.items() if key != "ZDOTDIR"}
    environment |= {"HOME": str(home), "XDG_DATA_HOME": str(tmp_path / "with space")}
    for _ in range(2):
        subprocess.run(
            [BIN / "armload", "completion", shell, "--install"],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    first, line = settings.read_text().splitlines()
    assert first == "alias a=b"
    script = tmp_path / "with space" / "armload" / f"completion.{shell}"
    assert line.startswith(f"[ -r '{script}' ] && . '{script}'")
    assert (home / f".{shell}rc").is_symlink()
    if shutil.which(shell):
        subprocess.run([shell, "-n", script], check=True)
