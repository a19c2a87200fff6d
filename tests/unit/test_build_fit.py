"""On which targets a program runs."""

from __future__ import annotations

from pathlib import Path

from armload.build.binary import FeatureUse
from armload.build.fit import fits
from armload.build.inspection import Inspection
from armload.build.target import Target

OLD = Target(name="old", cpu="generic")
NEW = Target(name="new", cpu="x", features=("asimddp", "i8mm"), must_use=("asimddp",))


def program(*features: str, **changes: object) -> Inspection:
    made = Inspection(
        path=Path("program"),
        sha256="0" * 64,
        size_bytes=1,
        architecture="aarch64",
        is_static=True,
        interpreter=None,
        needed=(),
        is_stripped=True,
        features=tuple(
            FeatureUse(feature=feature, count=2, address=64, mnemonic="m") for feature in features
        ),
    )
    return made.model_copy(update=changes)


def verdicts(inspection: Inspection) -> list[tuple[str, str]]:
    return [(fit.verdict, fit.reason) for fit in fits(inspection, [OLD, NEW])]


def test_a_program_runs_where_the_cpu_has_all_that_it_uses() -> None:
    assert verdicts(program("asimddp")) == [("no", "the CPU lacks asimddp"), ("runs", "")]
    assert verdicts(program("asimddp", "bf16"))[1] == ("no", "the CPU lacks bf16")
    assert verdicts(program("i8mm", "sve", "mte"))[0] == ("no", "the CPU lacks i8mm, sve, mte")


def test_what_only_symbols_could_tell_of_a_stripped_program_is_left_open() -> None:
    (verdict, reason) = verdicts(program("asimddp", "sve", "mte"))[1]
    assert (verdict, "symbols would show that" in reason) == ("perhaps", True)
    told = program("asimddp", "sve", "mte", is_stripped=False)
    assert verdicts(told)[1] == ("no", "the CPU lacks sve, mte")


def test_a_program_that_leaves_the_cpus_best_unused_is_slow() -> None:
    assert verdicts(program()) == [("runs", ""), ("slow", "it does not use asimddp")]


def test_a_program_with_symbols_runs_all_the_same() -> None:
    assert verdicts(program("asimddp", is_stripped=False))[1] == ("runs", "")


def test_a_dynamic_program_runs_where_its_loader_is_unless_the_cpu_is_wrong() -> None:
    dynamic = program(
        "asimddp", is_static=False, interpreter="/lib/ld.so", needed=("libc.so.6", "libm.so.6")
    )
    assert verdicts(dynamic) == [
        ("no", "the CPU lacks asimddp"),
        ("perhaps", "on boards that have /lib/ld.so, libc.so.6, libm.so.6"),
    ]


def test_a_program_for_another_architecture_runs_nowhere() -> None:
    for verdict, reason in verdicts(program(architecture="RISC-V")):
        assert verdict == "no"
        assert "RISC-V" in reason
