"""A conversation at a terminal: questions, and commands that begin with a slash."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from armload.cli import terminal
from armload.cli.chat_output import AnswerOutput
from armload.cli.error_output import show_error, system_error
from armload.core.errors import ArmloadError, UsageError
from armload.core.files import write_whole
from armload.core.near_names import did_you_mean, nearest_first
from armload.report.chat import figures_line, saved_text
from armload.report.layout import Details
from armload.serving.chat import Answered, Chat, ContextFullError
from armload.serving.chat_images import question_of, require_images, sent_image
from armload.serving.interrupts import Interrupts

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

MOST_CHARACTERS = 1 << 22
"""Of a question; many times what any context holds."""

_PROMPT = "> "


@dataclass(frozen=True, kw_only=True)
class _Command:
    """What a person can type instead of a question."""

    value: str = ""
    about: str
    run: Callable[[ChatSession, str], None]


class ChatSession:
    """A conversation until the person ends it.

    What was typed can be called back with the arrow keys, and is written nowhere.
    """

    def __init__(self, chat: Chat, interrupts: Interrupts) -> None:
        self.chat = chat
        self._interrupts = interrupts
        self.images: tuple[str, ...] = ()
        self.is_over = False

    def run(self) -> None:
        """Ask for questions and answer them, until Ctrl-D or ``/exit``."""
        lines = _line_editor(self._interrupts.forget)
        terminal.say("/help lists the commands. Ctrl-C ends an answer, Ctrl-D the conversation.")
        while not self.is_over:
            self._interrupts.forget()
            try:
                # Its own handler would swallow a Ctrl-C between Enter and the answer.
                self.take(lines.prompt(_PROMPT, handle_sigint=False))
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            except ArmloadError as error:
                show_error(error.message, error.remedy)

    def take(self, line: str) -> None:
        """Do what a line says: a command, or else a question; an empty one is none.

        Raises:
            ArmloadError: it cannot be done.
        """
        text = line.strip()
        if not text:
            return
        if len(text) > MOST_CHARACTERS:
            raise UsageError(
                f"The question has {len(text):,} characters; {MOST_CHARACTERS:,} are the most."
            )
        if line.startswith("/"):
            word, _, rest = text.partition(" ")
            if word not in _COMMANDS:
                hint = did_you_mean(word, _COMMANDS)
                raise UsageError(
                    f"There is no command {word}.",
                    f"{hint}/help lists them. To ask this, begin with a space.",
                )
            _COMMANDS[word].run(self, rest.strip())
            return
        images, self.images = self.images, ()
        self._answer(lambda output: self.chat.ask(question_of(text, images), output.hear))

    def _answer(self, ask: Callable[[AnswerOutput], Answered]) -> None:
        output = AnswerOutput()
        try:
            reply, error = ask(output)
        finally:
            output.end()
        if figures := figures_line(reply):
            terminal.say(f"[{figures}]")
        if reply.outcome == "cancelled":
            terminal.say("Stopped. To answer again: /regenerate")
        if reply.outcome == "ok" and reply.finish_reason == "length" and not reply.is_full:
            terminal.say("The answer ends at its limit (--n-predict).")
        if error is not None:
            also = "/regenerate asks again, and /save FILE keeps the conversation."
            if isinstance(error, ContextFullError):
                also = "/clear begins a new conversation."
            raise type(error)(error.message, f"{error.remedy} {also}".strip())

    def show_help(self, _: str) -> None:
        """List the commands."""
        rows = [(f"{name} {each.value}".rstrip(), each.about) for name, each in _COMMANDS.items()]
        terminal.say(Details([*rows, ("Esc Enter", "begin a new line of a question")]))

    def set_system(self, text: str) -> None:
        """Set or remove the system prompt."""
        self.chat.settings = self.chat.settings.model_copy(update={"system": text})
        terminal.say("System prompt set." if text else "System prompt removed.")

    def save(self, name: str) -> None:
        """Write the conversation to a file that is not there yet."""
        if not name:
            raise UsageError("/save needs a file.", "Example: /save talk.md, or talk.json")
        if not self.chat.messages:
            raise UsageError("There is nothing to save yet.", "Ask something first.")
        try:
            path = Path(name).expanduser()
            if path.exists():
                raise UsageError(f"{path} already exists.", "Choose another name.")
            model = self.chat.partner.target.model
            text = saved_text(self.chat.whole, model, as_json=path.suffix == ".json")
            write_whole(path, text.encode())
        except RuntimeError as error:  # ~nobody
            raise UsageError(f"{name}: {error}.", "Correct the path.") from error
        except OSError as error:
            raise system_error(error) from error
        terminal.say(f"Saved: {path}")

    def ask_again(self, _: str) -> None:
        """Answer the last question again."""
        if self.chat.asked is None:
            raise UsageError("There is no question yet.", "Ask something first.")
        self._answer(lambda output: self.chat.ask_again(output.hear))

    def choose_model(self, name: str) -> None:
        """Show the models of the service, or go on with another one."""
        partner = self.chat.partner
        models = partner.models or (partner.target.model,)
        if name and name not in models:
            raise UsageError(
                f"{partner.place} does not offer the model {name!r}.",
                f"{did_you_mean(name, models)}It offers: {nearest_first(name, models)}.",
            )
        if name:
            partner.use(name)
        size = partner.properties.context_tokens
        rows = [("model", partner.target.model), ("service", partner.target.url)]
        rows += [("board", partner.target.board)] if partner.target.board else []
        rows += [("context", f"{size:,} tokens")] if size else []
        others = [each for each in models if each != partner.target.model]
        rows += [("also offered", ", ".join(others))] if len(models) > 1 else []
        terminal.say(Details(rows))

    def attach_image(self, name: str) -> None:
        """Send an image with the next question."""
        if not name:
            raise UsageError("/image needs a file.", "Example: /image photo.jpg")
        require_images(self.chat.partner)
        self.images = (*self.images, sent_image(Path(name).expanduser()).url)
        terminal.say("The image goes with the next question.")

    def clear(self, _: str) -> None:
        """Begin a new conversation."""
        self.chat.clear()
        self.images = ()
        terminal.say("The conversation begins anew.")

    def end(self, _: str) -> None:
        """End the conversation."""
        self.is_over = True


_COMMANDS: Mapping[str, _Command] = {
    "/help": _Command(about="list the commands", run=ChatSession.show_help),
    "/system": _Command(
        value="TEXT",
        about="set the system prompt from the next question on; without TEXT, remove it",
        run=ChatSession.set_system,
    ),
    "/regenerate": _Command(
        about="answer the last question again, sampled instead of greedy", run=ChatSession.ask_again
    ),
    "/image": _Command(
        value="FILE", about="send an image with the next question", run=ChatSession.attach_image
    ),
    "/model": _Command(
        value="NAME",
        about="show the model and what else the service offers; with NAME, change to it",
        run=ChatSession.choose_model,
    ),
    "/save": _Command(
        value="FILE",
        about="save the conversation: Markdown, or JSON if FILE ends in .json",
        run=ChatSession.save,
    ),
    "/clear": _Command(about="begin a new conversation", run=ChatSession.clear),
    "/exit": _Command(about="end, as Ctrl-D does", run=ChatSession.end),
}


def _line_editor(entered: Callable[[], None]) -> PromptSession[str]:
    """Return what asks for a line.

    Args:
        entered: called as soon as a line is entered.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import create_output

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory(),
        completer=WordCompleter(list(_COMMANDS), sentence=True),
        complete_while_typing=False,
        key_bindings=keys,
        output=None if _is_dumb() else create_output(sys.stdout, always_prefer_tty=True),
    )
    accept = session.default_buffer.accept_handler

    def accepted(buffer: Buffer) -> bool:
        entered()
        return accept(buffer) if accept else False

    session.default_buffer.accept_handler = accepted
    return session


def _is_dumb() -> bool:
    from prompt_toolkit.utils import is_dumb_terminal

    return is_dumb_terminal()
