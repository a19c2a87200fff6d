"""Programs of the engine, looked up in its CMake files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from armload.build.programs import (
    Project,
    by_names,
    programs_chosen,
    programs_offered,
    renamed,
)
from armload.core.errors import UsageError
from tests.unit.samples import binary
from tests.unit.sources import llama_cpp

COMPLETION = """
# llama-completion-impl: add_executable(not-this main.cpp)
set(TARGET llama-completion-impl)
add_library(${TARGET} completion.cpp)
set(TARGET llama-completion)
add_executable(${TARGET} main.cpp)
"""
CLI = "set(TARGET llama-cli)\nadd_executable (${TARGET}   main.cpp)\n"


def _executables(folder: Path, cmake: str, settings: str = "", options: str = "") -> list[str]:
    llama_cpp(folder, {"tool": cmake}, options)
    (folder / "settings.cmake").write_text(settings)
    return Project(folder, settings=folder / "settings.cmake").executables("tools")


def chosen(folder: Path, wanted: Sequence[str]) -> list[str]:
    return programs_chosen("a source", programs_offered(folder), wanted)


def test_programs_are_looked_up_in_the_source(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path, {"completion": COMPLETION, "cli": CLI})
    assert programs_offered(folder) == ["armload-score", "llama-cli", "llama-completion"]
    assert chosen(folder, ()) == ["llama-completion"]
    assert chosen(folder, ["llama-cli"]) == ["llama-cli"]


def test_a_source_whose_encoder_can_be_traced_scores_images_too(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path, {"completion": COMPLETION})
    mtmd = folder / "tools" / "mtmd"
    mtmd.mkdir()
    (mtmd / "mtmd.h").write_text(
        "int32_t mtmd_batch_encode(mtmd_batch * batch);\nint32_t mtmd_tokenize_from_parts();\n"
    )
    assert "armload-score-media" not in programs_offered(folder)
    (mtmd / "mtmd-helper.h").write_text(
        "wrapper init(const char * fname, bool placeholder, opt o);"
    )
    assert "armload-score-media" in programs_offered(folder)


def test_an_older_source_is_measured_with_llama_cli(tmp_path: Path) -> None:
    assert chosen(llama_cpp(tmp_path, {"main": CLI}), ()) == ["llama-cli"]


def test_a_folder_that_the_project_leaves_out_offers_nothing(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path, {"main": CLI})
    (folder / "tools" / "old").mkdir()
    (folder / "tools" / "old" / "CMakeLists.txt").write_text("add_executable(old old.cpp)")
    assert programs_offered(folder) == ["armload-score", "llama-cli"]


@pytest.mark.parametrize(
    ("condition", "offered"),
    [
        ("SET_ON", "x"),
        ("set_on", "y"),
        ("SET_OFF", "y"),
        ("ON_BY_DEFAULT", "x"),
        ("OFF_BY_DEFAULT", "y"),
        ("STANDALONE", "y"),
        ("NEVER_HEARD_OF", "y"),
        ("NOT NEVER_HEARD_OF AND SET_ON", "x"),
        ("SET_OFF OR SET_ON", "x"),
        ("SET_ON OR SET_ON AND SET_OFF", "x"),
        ("(SET_ON)", "y"),
        ('CMAKE_SYSTEM_NAME STREQUAL "iOS"', "y"),
        ("DEFINED SET_ON", "y"),
        ("NOT DEFINED SET_ON", "y"),
        ("", "y"),
        ("NOT", "y"),
    ],
)
def test_a_program_is_offered_where_its_condition_holds(
    condition: str, offered: str, tmp_path: Path
) -> None:
    cmake = f"if ({condition})\nadd_executable(x x.cpp)\nelse()\nadd_executable(y y.cpp)\nendif()"
    found = _executables(
        tmp_path,
        cmake,
        settings='set(SET_ON ON CACHE BOOL "" FORCE)\nset(SET_OFF OFF CACHE BOOL "" FORCE)',
        options='option(SET_OFF "x" ON)\noption(ON_BY_DEFAULT "one (two) # three" ON)\n'
        'option(OFF_BY_DEFAULT "x" OFF)\noption(STANDALONE "x" ${LLAMA_STANDALONE})',
    )
    assert found == [offered]


def test_only_one_branch_counts_and_none_inside_one_that_does_not(tmp_path: Path) -> None:
    cmake = """
    if (NO)
      if (NO)
      else()
        add_executable(a a.cpp)
      endif()
    elseif (ON)
      add_executable(b b.cpp)
    elseif (ON)
      add_executable(c c.cpp)
    else()
      add_executable(d d.cpp)
    endif()
    """
    assert _executables(tmp_path, cmake) == ["b"]


@pytest.mark.parametrize(
    ("has", "asked"),
    [
        ("llama-cli", "llama-completion"),
        ("rpc-server", "ggml-rpc-server"),
        ("ggml-rpc-server", "rpc-server"),
    ],
)
def test_a_program_is_taken_under_the_name_that_the_source_has_for_it(
    has: str, asked: str, tmp_path: Path
) -> None:
    folder = llama_cpp(tmp_path, {"tool": f"add_executable({has} main.cpp)"})
    assert chosen(folder, [asked]) == [has]
    assert chosen(folder, [asked, has]) == [has]
    assert renamed([asked], [has]) == [f"This llama.cpp has no {asked}; its {has} replaces it."]
    assert renamed([has], [has]) == []


def test_programs_are_found_by_the_names_that_they_were_asked_for_by() -> None:
    built = [binary(Path("/b", name)) for name in ("armload-score", "llama-cli", "rpc-server")]
    wanted = ("ggml-rpc-server", "llama-completion", "armload-score")
    found = by_names(wanted, built)
    assert {name: each.program for name, each in found.items()} == {
        "ggml-rpc-server": "rpc-server",
        "llama-completion": "llama-cli",
        "armload-score": "armload-score",
    }


def test_a_chat_is_not_taken_for_the_program_that_continues_a_prompt(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path, {"completion": COMPLETION, "cli": CLI})
    assert chosen(folder, ["llama-completion"]) == ["llama-completion"]
    assert renamed(["llama-completion"], ["llama-cli", "llama-completion"]) == []


def test_of_the_examples_the_one_that_speculates_is_offered(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path, {"completion": COMPLETION})
    for name in ("speculative-simple", "lookup"):
        (folder / "examples" / name).mkdir(parents=True)
        cmake = f"set(TARGET llama-{name})\nadd_executable(${{TARGET}} main.cpp)\n"
        (folder / "examples" / name / "CMakeLists.txt").write_text(cmake)
    assert programs_offered(folder) == [
        "armload-score",
        "llama-completion",
        "llama-speculative-simple",
    ]


def test_an_unknown_program_is_refused_with_the_nearest_first(tmp_path: Path) -> None:
    folder = llama_cpp(tmp_path, {"a": "add_executable(aaa a.cpp)", "main": CLI})
    with pytest.raises(UsageError, match="llama-clo") as caught:
        chosen(folder, ["llama-clo"])
    assert caught.value.remedy == "It has: llama-cli, aaa, armload-score."


def test_a_source_without_a_program_for_measuring_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no program that continues a prompt"):
        chosen(llama_cpp(tmp_path, {}), ())
