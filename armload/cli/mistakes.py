"""What is wrong with a command line, and the line that was probably meant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from armload.cli.completion.names import names
from armload.cli.completion.table import CompletedOption, load_table
from armload.cli.verb import VERBS, verbs_in
from armload.core.errors import UsageError
from armload.core.files import is_there
from armload.core.near_names import close_matches, did_you_mean
from armload.core.options import LLAMA_CPP_SPELLINGS

_PROGRAM_OPTIONS = ("--help", "--version")
"""Those that need no verb."""

_KINDS: Mapping[str, str] = {
    "board": "a board",
    "model": "a model",
    "target": "a target",
    "hardware": "hardware in the catalogue",
    "file": "a file",
}
"""What a word may be that lacks its option; by what options take, the likeliest first."""
_FILES = {"--plan": (".yaml", ".yml"), "--data": (".json", ".jsonl")}


def mistake(said: str, verb: str = "", hint: str = "") -> UsageError:
    """Return an error that names the page of help to read."""
    return UsageError(said, f"{hint}See: armload {f'{verb} ' if verb else ''}--help")


def unknown_verb(words: Sequence[str]) -> UsageError:
    """Say what is wrong with a command line that does not begin with a verb."""
    wrong = words[0].partition("=")[0] if words[0].startswith("-") else words[0]
    if wrong.startswith("-"):
        hint = did_you_mean(wrong, _PROGRAM_OPTIONS)
        if not hint:
            verbs = load_table()["verbs"].values()
            of_verbs = {each["name"] for verb in verbs for each in verb["options"]}
            if wrong in of_verbs:
                verb = next((word for word in words if word in VERBS), "VERB")
                said = f"{wrong} must follow its verb: armload {verb} {wrong}"
                return mistake(f"{said}.", verb if verb in VERBS else "")
            hint = f"{did_you_mean(wrong, of_verbs)}An option follows its verb. "
        return mistake(f"There is no option {wrong!r}.", hint=hint)
    said = f"There is no verb {wrong!r}."
    if group := verbs_in(wrong):
        said = f"{wrong!r} is a group of verbs."
        if (joined := ".".join(words[:2])) in VERBS:
            return mistake(said, joined, f"Did you mean {joined!r}? ")
        return mistake(said, wrong, f"Choose one: {', '.join(group)}. ")
    ends = [name for name in VERBS if name.endswith(f".{wrong}")]
    meant = f"Did you mean {' or '.join(map(repr, ends))}? " if ends else did_you_mean(wrong, VERBS)
    return mistake(said, hint=meant)


def unknown_page(words: Sequence[str]) -> UsageError:
    """Say that no verb's page of help is meant by these words."""
    (first, *more) = words
    if first in VERBS and more:
        in_group = [name for name in VERBS if name.startswith(f"{first}.")]
        hint = did_you_mean(f"{first}.{more[0]}", in_group)
        return mistake(f"Unexpected argument {more[0]!r}.", first, hint)
    return unknown_verb(words if more else [first])


def unknown_option(wrong: str, verb: str, options: Collection[str]) -> UsageError:
    """Say that a verb with these options has no such option."""
    absent = VERBS[verb].options.absent if verb in VERBS else {}
    if wrong in absent:
        hint = f"{absent[wrong]} "
    elif wrong in LLAMA_CPP_SPELLINGS["context"] and "--slots" in options:
        hint = (
            "llama-server divides its --ctx-size among its slots; --context is the size of each "
            "slot. "
        )
    elif wrong == "--scheduler" and "--board" in options:
        hint = f"{verb} connects to boards itself: type it on the board's gateway. "
    elif wrong == "--engine":
        from armload.engines.registry import ENGINES

        why = next((each.unfit_for[verb] for each in ENGINES if verb in each.unfit_for), "")
        hint = f"{verb} runs llama.cpp{why}. To compare engines: bench --engine llama.cpp,dllama. "
    else:
        long = [each for each in options if each.startswith("--")]
        hint = did_you_mean(wrong, long) or _engine_option_meant(options)
    return mistake(f"There is no option {wrong!r}.", verb, hint)


def unexpected_word(
    wrong: str, verb: str, options: Collection[str], *, given: Collection[str], is_of_engine: bool
) -> UsageError:
    """Say what to do with a word that neither an option nor an argument of a verb takes.

    Args:
        options: of the verb.
        given: those of them that are on the line.
        is_of_engine: it may belong to an option of llama.cpp.
    """
    said = f"Unexpected argument {wrong!r}."
    if (joined := f"{verb}.{wrong}") in VERBS:
        return mistake(said, joined, f"Did you mean {joined!r}? ")
    if wrong in VERBS:
        said = f"{verb!r} and {wrong!r} are both verbs, and armload runs one at a time."
        return mistake(said, verb, "Run them in two commands. ")
    if is_of_engine:
        return mistake(said, verb, _engine_option_meant(options))
    table = load_table()
    near: dict[str, str] = {}
    of_verb = table["verbs"][verb]["options"] if verb in VERBS else []
    for kind in _KINDS:
        # A board of any kind: the error about it says more.
        of_kind = [each for each in of_verb if each["takes"].removeprefix("virtual ") == kind]
        for option in of_kind if kind == "file" else of_kind[:1]:
            known = [each.word for each in names(kind, wrong, table)]
            if value := _value_meant(wrong, kind, option["name"], known):
                return mistake(said, verb, _given_to(option, kind, wrong, value, given))
            if kind != "file":
                near |= {each: f"{option['name']} {each}" for each in known if each not in near}
    # A verb that only begins so is not meant: "b" may be a second board or run.
    if alike := close_matches(wrong, VERBS, 1):
        return mistake(said, verb, f"Did you mean {alike[0]!r}? ")
    found = close_matches(wrong, near, 1)
    return mistake(said, verb, f"Did you mean {near[found[0]]}? " if found else "")


def _engine_option_meant(options: Collection[str]) -> str:
    is_taken = "--engine-args" in options
    return 'Options of llama.cpp itself go into --engine-args "...". ' if is_taken else ""


def _value_meant(word: str, kind: str, option: str, known: Sequence[str]) -> str:
    if kind == "file":
        is_meant = word.endswith(_FILES.get(option, ()))
        return word if is_meant and is_there(Path(word)) and Path(word).is_file() else ""
    is_model = word.startswith(("hf:", "ms:", "like:")) or word.endswith(".gguf")
    if word in known or (kind == "model" and is_model):
        return word
    return next((each for each in known if each.startswith(f"{word}:")), "")


def _given_to(
    option: CompletedOption, kind: str, word: str, value: str, given: Collection[str]
) -> str:
    name = option["name"]
    if name in given and not option["several"]:
        return f"{name} takes only one value. "
    if name in given and option["several"] != "repeat":
        return f"To give {name} several values, separate them with commas: A,{word}. "
    return f"{word} is {_KINDS[kind]}: use {name} {value}. "
