"""A command line that names things on this machine names them on the board."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest

from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload, read_payload
from armload.engines.watched.command import Command, for_board

LAYOUT = Layout(workdir=PurePosixPath("/data/armload"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    here = tmp_path / "here"
    (here / "models" / "qwen" / "visual").mkdir(parents=True)
    (here / "models" / "qwen" / "config.json").write_text("{}")
    (here / "models" / "qwen" / "visual" / "w.bin").write_text("weights")
    (here / "prompt.txt").write_text("hello")
    (here / "llm_demo").write_text("program")
    (here / "llm_demo").chmod(0o755)
    monkeypatch.chdir(here)
    return here


def things(*names: str) -> list[Payload]:
    return [read_payload(Path(name), Silent()) for name in names]


def commanded(words: Sequence[str], *names: str) -> Command:
    return for_board(words, things(*names), LAYOUT)


def place(name: str) -> PurePosixPath:
    (thing,) = things(name)
    return thing.folder(LAYOUT) / thing.name


def test_things_are_named_by_their_names_or_by_their_paths(folder: Path) -> None:
    put = ("llm_demo", "models/qwen", "prompt.txt")
    model = place("models/qwen")
    for words in (
        ("llm_demo", "qwen/config.json", "prompt.txt"),
        ("./llm_demo", "models/qwen/config.json", "./prompt.txt"),
        (str(folder / "llm_demo"), str(folder / "models/qwen/config.json"), "../here/prompt.txt"),
    ):
        found = commanded(words, *put)
        assert found.words == (
            str(place("llm_demo")),
            str(model / "config.json"),
            str(place("prompt.txt")),
        )
        assert found.program is not None
        assert found.program.executable


def test_a_folder_a_folder_in_it_and_an_option_s_value_are_named_too(folder: Path) -> None:
    model = place("models/qwen")
    found = commanded(
        ("sh", "qwen", "qwen/visual/", "--dir=qwen/visual", "--model=qwen/none", "-n", "qwen2"),
        "models/qwen",
    )
    assert found.program is None
    assert found.words == (
        "sh",
        str(model),
        f"{model}/visual/",
        f"--dir={model}/visual",
        "--model=qwen/none",
        "-n",
        "qwen2",
    )


def test_words_that_name_nothing_stay_as_they_are(folder: Path) -> None:
    odd = ("-", "--", "", "a b", "$(id)", "../..", ".", "/", "é", "qwen=1")
    assert commanded(("/usr/bin/env", *odd), "models/qwen").words == ("/usr/bin/env", *odd)


def test_a_program_that_cannot_be_there_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="is not among the files of --put"):
        commanded(("./other", "x"), "models/qwen")
    with pytest.raises(UsageError, match="is a folder"):
        commanded(("qwen/visual",), "models/qwen")


def test_two_things_of_one_name_are_refused(folder: Path) -> None:
    (folder / "models" / "prompt.txt").write_text("another")
    with pytest.raises(UsageError, match=r"Two --put paths have the same name, 'prompt\.txt'"):
        commanded(("sh",), "prompt.txt", "models/prompt.txt")


def test_folders_of_libraries_are_found_for_the_loader(folder: Path) -> None:
    (folder / "models" / "qwen" / "visual" / "libMNN.so.3").write_text("library")
    (folder / "libllm.so").write_text("library")
    found = commanded(("llm_demo",), "llm_demo", "libllm.so", "models/qwen")
    assert found.library_folders == (
        place("libllm.so").parent,
        place("models/qwen") / "visual",
    )
    assert commanded(("llm_demo",), "llm_demo").library_folders == ()


def test_a_thing_is_addressed_by_names_contents_and_rights(folder: Path) -> None:
    (before,) = things("models/qwen")
    assert things("models/qwen/") == [before]
    assert [str(part.name) for part in before.files] == ["qwen/config.json", "qwen/visual/w.bin"]
    assert before.size_bytes == 9
    config = folder / "models" / "qwen" / "config.json"
    config.chmod(0o755)
    assert things("models/qwen")[0].sha256 != before.sha256
    config.chmod(0o644)
    assert things("models/qwen")[0].sha256 == before.sha256
    config.write_text("[]")
    assert things("models/qwen")[0].sha256 != before.sha256
    config.rename(config.with_name("other.json"))
    (folder / "models" / "qwen" / "other.json").write_text("{}")
    assert things("models/qwen")[0].sha256 != before.sha256


def test_a_program_lies_among_programs_and_all_else_among_models(folder: Path) -> None:
    assert place("llm_demo").parent.parent == LAYOUT.workdir / "bin"
    assert place("prompt.txt").parent.parent == LAYOUT.workdir / "models"
    assert place("models/qwen").parent.parent == LAYOUT.workdir / "models"


def test_links_are_followed_and_never_for_ever(folder: Path) -> None:
    model = folder / "models" / "qwen"
    (model / "above").symlink_to(model)
    (model / "link.txt").symlink_to(folder / "prompt.txt")
    os.mkfifo(model / "pipe")
    (thing,) = things("models/qwen")
    names = [str(part.name) for part in thing.files]
    assert names == ["qwen/config.json", "qwen/link.txt", "qwen/visual/w.bin"]


def test_what_cannot_be_put_there_is_named(folder: Path) -> None:
    with pytest.raises(UsageError, match="none: no such file or folder"):
        things("none")
    (folder / "hollow" / "inner").mkdir(parents=True)
    with pytest.raises(UsageError, match="this folder contains no files"):
        things("hollow")
    Path(os.fsdecode(os.fsencode(folder) + b"/hollow/\xff")).write_text("x")
    with pytest.raises(UsageError, match="not valid UTF-8"):
        things("hollow")
