"""What Invoke's parser does not understand, in armload's words and with its exit status."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from invoke.exceptions import Exit, ParseError

from armload.cli.error_output import failed
from armload.cli.streams import promise_document
from armload.core.errors import UsageError
from armload.core.validation_messages import did_you_mean

_JSON = {"--json", "-j"}


def shown(error: ParseError, words: Sequence[str], verbs: Iterable[str]) -> Exit:
    """Show a mistake in a command line, and return what ends the program.

    Args:
        words: the command line.
        verbs: every one that there is.
    """
    verb = f"{error.context.name} " if error.context and error.context.name else ""
    promise_document(wanted=bool(_JSON.intersection(words)))
    said = _in_our_words(str(error), verb)
    return failed(UsageError(said, f"{_meant(error, verbs)}See: armload {verb}--help"))


def _in_our_words(complaint: str, verb: str) -> str:
    lacking = re.match(r"Flag <Argument: ([\w-]+).*> needed value and was not given one", complaint)
    if lacking:
        return f"--{lacking[1].replace('_', '-')} needs a value."
    unknown = re.match(r"No idea what '(-.*)' is!", complaint)
    if unknown:
        return f"There is no option {unknown[1]!r}."
    word = re.match(r"No idea what (.*) is!", complaint)
    if word:
        return f"Unexpected argument {word[1]}." if verb else f"There is no verb {word[1]}."
    return complaint


def _meant(error: ParseError, verbs: Iterable[str]) -> str:
    quoted = re.search(r"'(.+?)'", str(error))
    if quoted is None:
        return ""
    # An option of a verb is looked for among that verb's; a word among the verbs.
    is_option = quoted[1].startswith("-")
    names = (error.context.flags if error.context else ()) if is_option else verbs
    if quoted[1] == "--prompts" and error.context and error.context.name == "eval":
        return (
            "To choose among a task's prompts, use --prompt NAMES; for --task logits, give a file "
            "of prompts with --data FILE. "
        )
    if meant := did_you_mean(quoted[1], names):
        return meant
    for word in sys.argv:
        switch, equals, value = word.partition("=")
        if switch.startswith("--") and equals and value == quoted[1]:
            return f"{switch} takes no value. "
    takes_more = error.context is not None and "--engine-args" in error.context.flags
    return 'Options of llama.cpp itself go into --engine-args "...". ' if takes_more else ""
