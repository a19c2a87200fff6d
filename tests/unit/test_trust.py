"""What a stranger's folder may decide: nothing, until its files are trusted.

Every key that decides gets a workspace of its own, which would leave a marker if it were obeyed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import armload
from armload.bench.options import Options
from armload.boards.adding import write_virtual
from armload.boards.board import load_board
from armload.boards.group import Group
from armload.build.target import load_target
from armload.cli.configuration import add_workspace_default, all_defaults
from armload.cli.execution import run_verb
from armload.cli.run_filter import RunFilter
from armload.cli.verb import VERBS
from armload.core import trust as trusting
from armload.core import yamlfile
from armload.core.deciding import classified, deciding, models_in
from armload.core.errors import DataError, UsageError
from armload.core.places import shipped_folders
from armload.core.trust import TrustedFile, UntrustedFileError, describing, trusted_files
from armload.core.workspace import foreign_workspace, workspace
from armload.report.input_schema import SCHEMAS
from tests.command_line import BIN, typed
from tests.hostile_folders import MARKER, Hostile, hostile_defaults, hostile_files
from tests.terminal import at_a_terminal

LAUNCHER = "target: host\nreach: {kind: local, launcher: [touch, marker]}\n"

ON_A_BOARD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bench", {"model": "random"}),
    ("deploy", {"model": "random"}),
    ("eval", {"model": "random", "task": "piqa"}),
    ("serve", {"model": "random"}),
    ("load", {"model": "random", "rate": "1"}),
    ("fit", {"model": "random"}),
    ("tune", {"model": "random"}),
    ("bisect", {"good": "a", "bad": "b", "source": "/nowhere", "model": "random"}),
    ("board.probe", {}),
    ("board.up", {}),
    ("board.clean", {"yes": True}),
    ("board.release", {"yes": True}),
    ("board.trust", {"yes": True}),
    ("pull", {}),
    ("watch", {"command": ["true"]}),
    ("service.list", {}),
    ("service.stop", {}),
)
VERBS_OF = {
    "boards": tuple((verb, words | {"board": "evil"}) for verb, words in ON_A_BOARD),
    "toolchains": (("build", {"target": "evil"}),),
    "toolchains/sources": (
        ("build", {"source": "evil"}),
        ("bench", {"model": "random", "source": "evil"}),
    ),
    "tasks": (("eval", {"task": "evil", "model": "random"}),),
    "": (
        ("bench", {"plan": "evil.yaml"}),
        ("serve", {"plan": "evil.yaml"}),
        ("tune", {"space": "evil.yaml", "model": "random"}),
    ),
}
FOR_GROUPS = {"bench", "deploy", "fit", "serve"}

FILES = list(hostile_files())


@pytest.fixture(autouse=True)
def _strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a folder that is not trusted, as a user who trusts nothing yet."""
    monkeypatch.delenv(trusting.VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "strange").mkdir()
    monkeypatch.chdir(tmp_path / "strange")
    yield
    assert not list(tmp_path.rglob(MARKER))


def refused(capsys: pytest.CaptureFixture[str], verb: str, words: dict[str, Any]) -> str:
    with pytest.raises(SystemExit) as ended:
        run_verb(VERBS[verb], words)
    said = capsys.readouterr().err
    assert ended.value.code == 15, said
    line = next(each for each in said.splitlines() if each.startswith("error: "))
    assert "not trusted" in line
    assert "armload trust " in said
    assert "Traceback" not in said
    return line


def models() -> Iterator[type[BaseModel]]:
    waiting: list[type[BaseModel]] = [*(each.value for each in SCHEMAS), Group, Options]
    seen = set(waiting)
    while waiting:
        yield (model := waiting.pop())
        for info in model.model_fields.values():
            waiting += set(models_in(info.annotation)) - seen
            seen.update(models_in(info.annotation))


def test_each_field_that_holds_text_says_whether_it_decides() -> None:
    assert [
        f"{model.__name__}.{name}"
        for model in models()
        for name, info in model.model_fields.items()
        if not classified(info)
    ] == []


def test_a_field_without_a_mark_decides() -> None:
    class Later(BaseModel):
        hook: str
        several: dict[str, tuple[str, ...]]
        number: int

    content = {"hook": "touch", "several": {"a": ["b"]}, "number": 1}
    assert not classified(Later.model_fields["hook"])
    assert deciding(Later, content) == {"hook": "touch", "several.a": ["b"]}


@pytest.mark.parametrize("kind", VERBS_OF, ids=lambda kind: kind or "plan")
def test_no_verb_obeys_a_strangers_file(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each key that decides, with each verb that would obey it."""
    tries = 0
    for file, (verb, words) in itertools.product(FILES, VERBS_OF[kind]):
        if file.kind == kind and _takes(file, verb):
            path = file.write(Path.cwd())
            assert str(path) in refused(capsys, verb, words)
            tries += 1
    assert tries >= 2


def _takes(file: Hostile, verb: str) -> bool:
    return file.key != "listen" or verb in FOR_GROUPS


def test_there_are_enough_hostile_workspaces() -> None:
    tries = sum(_takes(file, verb) for file in FILES for verb, _ in VERBS_OF[file.kind])
    assert len(FILES) >= 60
    assert tries >= 300


def test_no_verb_takes_a_default_that_decides(capsys: pytest.CaptureFixture[str]) -> None:
    tried = 0
    for verb, option, line in hostile_defaults():
        if VERBS[verb].has_defaults:
            Path("pyproject.toml").write_text(f"[tool.armload.{verb}]\n{line}\n")
            said = refused(capsys, verb, {})
            assert "pyproject.toml: not trusted" in said
            assert f"tool.armload.{verb}.{option}" in said
            tried += 1
    assert tried >= 100


def test_a_board_that_is_the_default_of_every_verb_is_refused() -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    Path("pyproject.toml").write_text('[tool.armload.all]\nboard = "evil"\n')
    done = typed(Path.cwd(), "bench", "-m", "random")
    assert done.returncode == 15
    assert 'tool.armload.all.board: "evil"' in done.stderr
    done = typed(Path.cwd(), "bench", "--board", "evil", "-m", "random", "--json")
    assert json.loads(done.stdout)["error"]["kind"] == "untrusted"


SPELLINGS = {
    "an alias": "x: &a [touch, marker]\n",
    "a merge": "target: host\nreach:\n  <<: {kind: local, launcher: [touch, marker]}\n",
    "an anchor": "target: &t host\nreach: &r {kind: local, launcher: &l [touch, marker]}\n",
    "flow and quotes": '{"target": "host", "reach": {"kind": "local", "launcher": ["touch"]}}\n',
    "an escape": '"\\x72each": {kind: local, "l\\u0061uncher": [touch, marker]}\ntarget: host\n',
    "a tag": "target: host\nreach: !!map {kind: !!str local, launcher: !!seq [touch, marker]}\n",
    "a part": "extends: this-machine\nreach: {launcher: [touch, marker]}\n",
    "the name of a shipped one": "extends: this-machine\nreach: {launcher: [touch, marker]}\n",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_hides_a_launcher(spelling: str) -> None:
    Path("boards").mkdir()
    name = "this-machine" if "shipped" in spelling else "evil"
    Path(f"boards/{name}.yaml").write_text(SPELLINGS[spelling])
    with pytest.raises((UntrustedFileError, DataError)):
        load_board(name)


def test_what_a_file_extends_is_asked_about_too() -> None:
    Path("boards").mkdir()
    Path("boards/base.yaml").write_text(LAUNCHER)
    Path("boards/middle.yaml").write_text("extends: base\ndescription: harmless\n")
    Path("boards/top.yaml").write_text("extends: middle\n")
    with pytest.raises(UntrustedFileError, match=r"base\.yaml"):
        load_board("top")
    Path("boards/out.yaml").write_text("extends: ../../outside\n")
    Path("../outside.yaml").write_text(LAUNCHER)
    with pytest.raises(DataError, match="there is no"):
        load_board("out")


@pytest.mark.parametrize("linked", ["file", "folder", "workspace"])
def test_a_link_to_trusted_files_is_not_trusted(linked: str, monkeypatch: Any) -> None:
    own = Path("../own-workspace").resolve()
    (own / "boards").mkdir(parents=True)
    (own / "boards" / "evil.yaml").write_text(LAUNCHER)
    assert typed(own, "trust", "--yes").returncode == 0
    if linked == "workspace":
        Path("inner").symlink_to(own)
        monkeypatch.chdir("inner")  # the very folder, whatever it is called
        assert load_board("evil").launcher == ("touch", "marker")
        return
    if linked == "folder":
        Path("boards").symlink_to(own / "boards")
    else:
        Path("boards").mkdir()
        Path("boards/evil.yaml").symlink_to(own / "boards" / "evil.yaml")
    with pytest.raises(UntrustedFileError):
        load_board("evil")


def test_trust_is_in_a_file_where_it_lies_and_in_its_deciding_keys() -> None:
    Path("boards").mkdir()
    board = Path("boards/evil.yaml")
    board.write_text(LAUNCHER)
    here = Path.cwd()
    assert typed(here, "trust", "--yes").returncode == 0
    assert load_board("evil").launcher == ("touch", "marker")
    board.write_text(f"description: another\n{LAUNCHER}labels: [lab]\n")
    assert load_board("evil").description == "another"
    for other in (LAUNCHER.replace("touch", "rm"), f"{LAUNCHER}workdir: /\n"):
        board.write_text(other)
        with pytest.raises(UntrustedFileError):
            load_board("evil")
    board.write_text(LAUNCHER)
    Path("boards/second.yaml").write_text(LAUNCHER)
    with pytest.raises(UntrustedFileError, match=r"second\.yaml"):
        load_board("second")
    load_board("evil")


@pytest.mark.parametrize("how", ["moved", "copied", "within"])
def test_a_folder_that_is_elsewhere_now_is_asked_about_again(how: str, monkeypatch: Any) -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    here = Path.cwd()
    assert typed(here, "trust", "--yes").returncode == 0
    to = here / "inner" if how == "within" else here.with_name("elsewhere")
    if how == "moved":
        here.rename(to)
    else:
        shutil.copytree(here / "boards", to / "boards")
    monkeypatch.chdir(to)
    with pytest.raises(UntrustedFileError):
        load_board("evil")


def test_a_workspace_is_asked_about_from_the_folders_within() -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    Path("a/b").mkdir(parents=True)
    done = typed(Path("a/b").resolve(), "board.probe", "--board", "evil")
    assert done.returncode == 15
    assert f"armload trust {Path.cwd()}\n" in done.stderr


def test_what_is_checked_is_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("boards").mkdir()
    board = Path("boards/evil.yaml")
    board.write_text(LAUNCHER.replace("touch", "nice"))
    assert typed(Path.cwd(), "trust", "--yes").returncode == 0
    check = trusting.require_trust

    def replaced_in_between(asked: TrustedFile) -> None:
        board.write_text(LAUNCHER)
        check(asked)

    monkeypatch.setattr(yamlfile, "require_trust", replaced_in_between)
    assert load_board("evil").launcher == ("nice", "marker")
    with pytest.raises(UntrustedFileError, match="touch"):
        load_board("evil")


def test_what_was_shown_is_what_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    with pytest.raises(UntrustedFileError) as refusal:
        load_board("evil")
    Path("boards/evil.yaml").write_text(LAUNCHER.replace("marker", "another"))
    trusting.trust(refusal.value.asked)
    with pytest.raises(UntrustedFileError, match="another"):
        load_board("evil")


def test_shipped_files_and_their_copies_need_no_trust() -> None:
    for kind in ("boards", "toolchains", "toolchains/sources"):
        folder = next(shipped_folders(kind))
        Path(kind).mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.yaml"):
            shutil.copy(path, kind)
    done = typed(Path.cwd(), "trust")
    assert done.returncode == 0
    assert "needs no trust" in done.stdout
    assert load_board("this-machine").reach.kind == "local"
    Path("boards/virtual.yaml").write_text("extends: virtual\nreach: {memory: 1 GiB}\n")
    load_board("virtual")
    Path("toolchains/rk3568.yaml").write_text(
        "extends: rk3568\ncpu: cortex-a72\ncflags: [-O3, -funroll-loops, -Wno-unused]\n"
    )
    assert load_target("rk3568").cflags[0] == "-O3"


@pytest.mark.parametrize("cpu", ["native -fplugin=x", "native;-include;x", "-wrapper", "@x"])
def test_a_cpu_is_no_way_to_further_flags(cpu: str) -> None:
    Path("toolchains").mkdir()
    Path("toolchains/evil.yaml").write_text(json.dumps({"cpu": cpu}))
    with pytest.raises(DataError, match="cpu"):
        load_target("evil")


def test_what_init_writes_is_trusted_and_what_it_meets_is_not() -> None:
    write_virtual("", "mine")
    assert add_workspace_default("board", "mine") is not None
    assert typed(Path.cwd(), "config").returncode == 0
    (trusted,) = trusted_files()
    assert trusted.keys == {"tool.armload.all.board": '"mine"'}
    Path("pyproject.toml").write_text('[tool.armload.bench]\nengine-args = "--rpc x"\n')
    assert add_workspace_default("board", "mine") is not None
    done = typed(Path.cwd(), "bench", "-m", "random")
    assert done.returncode == 15
    assert "engine-args" in done.stderr


def test_verbs_that_describe_neither_refuse_nor_ask() -> None:
    for file in FILES:
        file.write(Path.cwd(), f"{file.key.replace('.', '-')}-{file.kind.count('s')}")
    Path("pyproject.toml").write_text('[tool.armload.all]\nboard = "evil"\n')
    Path("boards/evil.yaml").write_text(LAUNCHER)
    for words in (
        ("board.list",),
        ("board.list", "--json"),
        ("config",),
        ("config", "bench"),
        ("completion", "bash"),
        ("build", "--list"),
        ("bench", "--help"),
        ("trust", "--list"),
        ("show",),
        ("__complete", "bash", "2", "armload", "bench", "--board", ""),
    ):
        done = typed(Path.cwd(), *words)
        assert "not trusted" not in done.stderr, words
        assert done.returncode == 0 or words == ("show",), (words, done.stderr)
    assert "evil" in typed(Path.cwd(), "board.list").stdout
    with describing():
        assert load_board("evil").launcher == ("touch", "marker")
    assert all_defaults()


def test_trust_is_shown_given_listed_and_taken_back() -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    Path("plan.yaml").write_text("engine_args: --log-file x\nthreads: 1\n")
    Path("broken.yaml").write_text("a: [\n")
    Path("toolchains").mkdir()
    Path("toolchains/broken.yaml").write_text("a: [\n")
    here = Path.cwd()
    done = typed(here, "trust")
    assert done.returncode == 2
    assert 'reach.launcher: ["touch", "marker"]' in done.stderr
    assert f"armload trust {here} --yes" in done.stderr
    assert not trusted_files()
    found = json.loads(typed(here, "trust", "--yes", "--json").stdout)
    assert [Path(each["path"]).name for each in found] == ["evil.yaml", "plan.yaml"]
    assert trusting.record_file().stat().st_mode & 0o077 == 0
    assert "evil.yaml" in typed(here, "trust", "--list").stdout
    assert "No longer trusted" in typed(here, "trust", "--remove").stdout
    assert not trusted_files()
    with pytest.raises(UntrustedFileError):
        load_board("evil")
    alone = typed(here, "trust", "plan.yaml", "--yes")
    assert alone.returncode == 0
    assert [each.path.name for each in trusted_files()] == ["plan.yaml"]
    Path("pyproject.toml").write_text("[tool.armload.trust]\nyes = true\n")
    assert typed(here, "trust").returncode == 2


def test_a_variable_trusts_folders_as_gits_safe_directory_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    here = Path.cwd()
    for named in (f"/nowhere:{here}", f"{here.parent}/*", "/*"):
        monkeypatch.setenv(trusting.VARIABLE, named)
        load_board("evil")
    for named in (str(here.parent), f"{here}/boards", "/nowhere/*", f"{here}x"):
        monkeypatch.setenv(trusting.VARIABLE, named)
        with pytest.raises(UntrustedFileError):
            load_board("evil")
    monkeypatch.setenv(trusting.VARIABLE, ".")
    with pytest.raises(UsageError, match="absolute"):
        load_board("evil")


def test_a_board_that_a_filter_names_needs_no_trust() -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    with pytest.raises(UntrustedFileError):
        load_board("evil")
    selection = RunFilter.typed({"board": "Evil"}).selection()
    assert selection is not None
    assert selection.holds("20261121T035800Z-evil-model-0001")
    assert not selection.holds("20261121T035800Z-good-model-0001")


def test_a_damaged_record_trusts_nothing() -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    trusting.record_file().parent.mkdir(parents=True)
    for text in ("", "[]", '{"files": [{"path": "x"}]}', "\0"):
        trusting.record_file().write_text(text)
        with pytest.raises(DataError, match="damaged"):
            load_board("evil")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("whose", [".", "boards", "boards/evil.yaml", "pyproject.toml"])
def test_a_workspace_above_that_belongs_to_another_user_does_not_count(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = Path.cwd()
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text("extends: virtual\n")
    Path("pyproject.toml").write_text("[tool.armload.bench]\nthreads = 3\n")
    Path("mine").mkdir()
    monkeypatch.chdir("mine")
    assert workspace() == above
    os.chown(above / whose, 12345, 12345)
    if whose == "boards/evil.yaml":
        return  # its folder is ours: nobody else puts files into it
    assert workspace() == above / "mine"
    assert foreign_workspace() == above
    said = typed(Path.cwd(), "board.list").stderr
    assert f"Ignoring the workspace {above}, which belongs to user 12345" in said
    assert typed(Path.cwd(), "trust", str(above), "--yes").returncode == 0
    assert workspace() == above


@dataclass
class Typist:
    folder: Path
    environment: dict[str, str]


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_person_at_a_terminal_is_shown_the_keys_and_asked(answer: str) -> None:
    Path("boards").mkdir()
    Path("boards/evil.yaml").write_text(LAUNCHER)
    # There is no such model, so that the command ends soon after an agreement.
    words = ("deploy", "--board", "evil", "--model", "no.gguf")
    with at_a_terminal(Typist(Path.cwd(), dict(os.environ)), *words) as terminal:
        terminal.waits_for("[y/n] (Enter: n):")
        assert 'reach.launcher: ["touch", "marker"]' in terminal.said
        assert str(Path.cwd() / "boards" / "evil.yaml") in terminal.said
        terminal.answers(answer.encode() + b"\n")
        status = terminal.ends()
    assert (status == 15) == (answer == "n")
    assert ("not trusted" in terminal.said) == (answer == "n")
    assert bool(trusted_files()) == (answer == "y")


def test_a_module_of_a_strangers_folder_is_not_imported() -> None:
    for name in ("json", "select", "math_verify", "armload", "numpy"):
        Path(f"{name}.py").write_text(f"open({str(Path.cwd() / MARKER)!r}, 'w')\n")
    words = (BIN / "python", "-P", "-m", "armload.evaluation.grading.math_verify_process")
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
    assert typed(Path.cwd(), "board.list").returncode == 0
    launched = [
        word
        for path in Path(armload.__file__).parent.rglob("*.py")
        for word in re.findall(r"\[sys\.executable, (.*?)[,\]]", path.read_text())
    ]
    assert launched.count('"-P"') >= 4
    only_printed = {'"-m"', "'-m'"}  # in remedies
    assert {*launched} <= {'"-P"', *only_printed}
