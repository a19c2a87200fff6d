"""Random command lines of every verb, given in a folder that nothing leads out of.

``python -m tests.fuzzing SEED [NUMBER]`` gives those of a seed, or one of them, and prints what
was wrong with each; ``bounds`` and ``names`` instead try each number and each name, and ``some``
tries some of all.
"""

from __future__ import annotations

import os
import random
import resource
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from armload.core.options import Declared, declared_options
from tests.forked import skip_unused_grammars
from tests.fuzz_words import HINTS, NEEDED, NUMERIC, PATHS, damage, twin_of, words_of
from tests.fuzz_world import World, wrong_with

CASES, SOME_CASES = 150, 40
BOUNDS, SOME_BOUNDS = ("99999999999999999999", "9" * 5000, "1e400", "-1"), ("-1",)
MOST_BYTES = 3 << 30
_MOST_SHOWN = 1500


def all_options() -> dict[str, list[Declared]]:
    """Return what each verb takes."""
    from armload.cli.verb import VERBS

    return {name: list(declared_options(verb.options)) for name, verb in VERBS.items()}


def numeric_options() -> set[tuple[str, str]]:
    """Return each verb's options whose value is a number."""
    from armload.cli.verb import VERBS

    return {
        (verb, each.name)
        for verb in VERBS
        for each in declared_options(VERBS[verb].options)
        if each.value in NUMERIC
    }


def give_at_random(world: World, seed: int, numbers: Sequence[int]) -> Iterator[str]:
    """Give command lines of a seed, and yield what was wrong with each that failed."""
    verbs = all_options()
    for number in numbers:
        chance = random.Random(f"{seed}-{number}")
        words = words_of(chance, verbs)
        world.renew()
        damaged = damage(chance, world.folder)
        if wrong := wrong_with(words, world.give(words)):
            line = ascii(shlex.join(["armload", *words]))[:_MOST_SHOWN]
            also = f", {damaged} damaged" if damaged else ""
            yield f"seed {seed}, number {number}{also}: {line}\n{wrong[-_MOST_SHOWN:]}"


def give_numbers_out_of_bounds(world: World, values: Sequence[str] = BOUNDS) -> Iterator[str]:
    """Give each option that is a number one that is none, and yield which were not refused."""
    world.renew()
    numeric = numeric_options()
    for verb, options in all_options().items():
        places = [HINTS[each.name][0] for each in options if each.option.is_argument]
        for option in options:
            name = option.name
            if (verb, name) not in numeric:
                continue
            for value in values:
                needed = NEEDED.get((verb, name)) or NEEDED.get((verb, "")) or ("--", *places)
                words = [verb, "--json", f"--{name}={value}", *needed]
                ended = world.give(words)
                said = ended.err.startswith(f"error: --{name}")
                if wrong := wrong_with(words, ended) or ("" if said else ended.err):
                    yield f"{ascii(words)[:90]}: {wrong[-_MOST_SHOWN:]}"


def give_names_that_are_no_utf_8(world: World, most: int | None = None) -> Iterator[str]:
    """Give each option such a value, and each argument such paths; yield what was wrong.

    Args:
        world: where.
        most: options of a verb, and paths for one argument.
    """
    for verb, options in all_options().items():
        positional = [each.name for each in options if each.option.is_argument]
        places = [HINTS[name][0] for name in positional]
        has_json = any(each.name == "json" for each in options)
        valued = [each for each in options if not each.is_switch and not each.option.is_argument]
        for option in valued[:most]:
            name = option.name
            words = [verb, f"--{name}={twin_of(Path(HINTS.get(name, PATHS)[0]))}"]
            words += ["--json"] if has_json else []
            words += ["--", *places] if places else []
            ended = world.give(words)
            said = f"error: --{name} " in ended.err and "not valid UTF-8" in ended.err
            wrong = wrong_with(words, ended) if has_json else ""
            if wrong := wrong or ("" if said else f"{ended.err or ended.out}"):
                yield f"{words!a}: {wrong[-_MOST_SHOWN:]}"
        for at, name in enumerate(positional):
            for hint in HINTS[name][:most]:
                world.renew()
                twin = str(twin_of(Path(hint)))
                words = [verb, "--json", *NEEDED.get((verb, ""), ("--",))]
                words = [*words[: words.index("--") + 1], *places[:at], twin, *places[at + 1 :]]
                if wrong := wrong_with(words, world.give(words)):
                    yield f"{words!a}: {wrong[-_MOST_SHOWN:]}"


def main(words: Sequence[str]) -> int:
    """Give command lines, print what was wrong, and return 1 if something was."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    skip_unused_grammars()
    found = 0
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name).resolve())
        wrongs: Iterator[str]
        if words == ["bounds"]:
            wrongs = give_numbers_out_of_bounds(world)
        elif words == ["names"]:
            wrongs = give_names_that_are_no_utf_8(world)
        elif words == ["some"]:
            wrongs = chain(
                give_at_random(world, 0, range(SOME_CASES)),
                give_numbers_out_of_bounds(world, SOME_BOUNDS),
                give_names_that_are_no_utf_8(world, most=1),
            )
        else:
            seed, *only = map(int, words)
            wrongs = give_at_random(world, seed, only or range(CASES))
        for wrong in wrongs:
            found = 1
            sys.stdout.write(f"{wrong}\n\n")
            sys.stdout.flush()
        os.chdir("/")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
