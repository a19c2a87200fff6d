"""What decides a build, and target files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from armload.build.backend import BuildRequest
from armload.build.features import Symbols
from armload.build.record import Inputs
from armload.build.target import Target, load_target
from armload.core.errors import DataError, UsageError
from armload.core.places import data_path
from armload.core.workspace import data_names

INPUTS = Inputs(
    source="sha256:1",
    source_label="llama-cpp-python 1",
    target=Target(name="rk3568", cpu="cortex-a55", features=("asimddp",)),
    compiler="zig 1 aarch64-linux-musl",
    compiler_label="zig 1",
    compiler_flags=("-mcpu=cortex_a55",),
    files={"native/armload_trace.c": "1"},
)


@pytest.mark.parametrize(
    "change",
    [
        {"source": "sha256:2"},
        {"target": Target(name="rk3568", cpu="cortex-a55", features=())},
        {"compiler": "zig 2"},
        {"compiler_flags": ("-mcpu=cortex_a76",)},
        {"files": {"native/armload_trace.c": "2"}},
        {"target": INPUTS.target.model_copy(update={"ldflags": ("-pie",)})},
    ],
)
def test_everything_that_goes_in_changes_the_build_id(change: dict[str, object]) -> None:
    assert INPUTS.model_copy(update=change).build_id != INPUTS.build_id


@pytest.mark.parametrize(
    "change",
    [
        {"source_label": "the same by another name"},
        {"target": INPUTS.target.model_copy(update={"description": "in other words"})},
    ],
)
def test_words_for_people_do_not_change_the_build_id(change: dict[str, object]) -> None:
    assert INPUTS.model_copy(update=change).build_id == INPUTS.build_id


def test_equal_inputs_have_equal_ids_of_twelve_digits() -> None:
    again = Inputs.model_validate_json(INPUTS.model_dump_json())
    assert again.build_id == INPUTS.build_id
    assert len(INPUTS.build_id) == 12


def test_other_programs_of_the_same_build_are_other_work_for_a_build_host() -> None:
    def work_id(*programs: str) -> str:
        return BuildRequest(
            build_id=INPUTS.build_id,
            target=INPUTS.target,
            cpu_flags=(),
            source=Path("llama.cpp"),
            engine_commit="1",
            programs=programs,
            folder=Path("build"),
            lock=0,
        ).work_id

    ids = {work_id("a"), work_id("b"), work_id("a", "b"), work_id("ab"), INPUTS.build_id}
    assert len(ids) == 5
    assert work_id("a", "b") == work_id("a", "b")


def test_every_shipped_target_is_well_formed_and_may_use_what_it_must_use() -> None:
    names = data_names("toolchains")
    assert "rk3568" in names
    for name in names:
        target = load_target(name)
        assert target.description
        assert set(target.must_use) <= set(target.features)


def test_an_unknown_target_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(UsageError) as caught:
        load_target("rk3569")
    assert "rk3568" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu: x\nfeatures: [a\n", "is never closed"),
        ("cpu: x\nmustuse: [a]\n", "line 2: there is no key 'mustuse'"),
        ("description: no cpu\n", "cpu"),
        ("cpu: x\nfeatures: asimddp\n", "line 2: features"),
        ("cpu: x\nmust_use: [asimdpp]\n", "'asimdpp' is not the name of a CPU feature"),
    ],
)
def test_a_malformed_target_file_is_answered_with_file_and_place(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toolchains").mkdir()
    (tmp_path / "toolchains" / "mine.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"mine\.yaml") as caught:
        load_target("mine")
    assert said in caught.value.message


def test_a_target_may_name_every_feature_that_our_program_for_boards_prints() -> None:
    code = data_path("toolchains", "board", "cpu_features.c").read_text()
    printed = set(re.findall(r'"([a-z0-9]+)"', code))
    assert len(printed) > 60
    Target(name="all", cpu="x", features=tuple(sorted(printed)))


def test_an_address_belongs_to_the_function_that_begins_before_it() -> None:
    symbols = Symbols([(64, "second"), (16, "first")], frozenset())
    found = symbols.names_at(np.array([8, 16, 63, 64, 900], dtype=np.uint64))
    assert found == [None, "first", "first", "second", "second"]
