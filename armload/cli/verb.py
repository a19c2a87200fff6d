"""Verbs: what each declares, and all of them by what a person does with them.

The module of each is imported when the verb is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from armload.core.options import OptionGroup
    from armload.report.result import Result

    Results = Result | Generator[Result, None, None] | None

Options = TypeVar("Options", bound="OptionGroup")


class Verb:
    """A command whose options are a model, and whose errors reach a person as a sentence.

    Args:
        body: does what the verb is for, and returns the result; one that shows something before it
            is done yields results. Its docstring is the verb's help.
        options: the model.
        name: as it is typed, where the body is called otherwise.
        keeps: when it is interrupted, what it did so far is kept.
        results: return the folders of the workspace that it keeps results in.
        asks: whether it asks at a terminal for trust in a file that decides what runs.
        has_defaults: a person's defaults apply.
        takes_back: when it is interrupted, it takes back what it has begun on a board; also when
            it is told to end.
    """

    def __init__(
        self,
        body: Callable[[Any], Results],
        options: type[OptionGroup],
        name: str = "",
        *,
        keeps: bool = False,
        results: Sequence[Callable[[], Path]] = (),
        asks: bool = True,
        has_defaults: bool = True,
        takes_back: bool = False,
    ) -> None:
        self.body: Callable[[Any], Any] = body
        self.__doc__ = body.__doc__
        self.name = name or body.__name__
        self.options = options
        self.keeps = keeps
        self.results = results
        self.asks = asks
        self.has_defaults = has_defaults
        self.takes_back = takes_back

    @property
    def about(self) -> str:
        """The first line of its help."""
        return (self.__doc__ or "").partition("\n")[0]

    def usage(self) -> list[str]:
        """Return its positional arguments as help shows them: ``FILE``, ``[RUN...]``."""
        from armload.core.options import declared_options

        arguments = [each for each in declared_options(self.options) if each.option.is_argument]
        words = [each.shown + ("..." if each.is_list else "") for each in arguments]
        return [
            word if each.info.is_required() else f"[{word}]"
            for each, word in zip(arguments, words, strict=True)
        ]


def verb(
    options: type[Options],
    name: str = "",
    *,
    keeps: bool = False,
    results: Sequence[Callable[[], Path]] = (),
    asks: bool = True,
    has_defaults: bool = True,
    takes_back: bool = False,
) -> Callable[[Callable[[Options], Results]], Verb]:
    """Make a verb of the function below, which takes these options."""
    return lambda body: Verb(
        body,
        options,
        name,
        keeps=keeps,
        results=results,
        asks=asks,
        has_defaults=has_defaults,
        takes_back=takes_back,
    )


VERB_GROUPS: Mapping[str, Mapping[str, str]] = {
    "Get started": {"demo": "bench:demo", "init": "init:init"},
    "Boards": {
        "board.list": "board:list_boards",
        "board.hardware": "board:hardware",
        "board.add": "board:add",
        "board.probe": "board:probe",
        "board.trust": "board:trust",
        "board.up": "board:up",
        "board.down": "board:down",
        "board.release": "board:release",
        "board.clean": "board:clean",
    },
    "Build and deploy": {
        "build": "build:build",
        "inspect": "build:inspect",
        "deploy": "deploy:deploy",
        "shell": "shell:shell",
    },
    "Models": {
        "fit": "fit:fit",
        "model.inspect": "model:inspect",
        "model.synth": "model:synth",
        "model.quantize": "quantize:quantize",
        "model.convert": "model:convert",
    },
    "Measure": {
        "bench": "bench:bench",
        "watch": "watch:watch",
        "pull": "bench:pull",
        "tune": "tune:tune",
        "bisect": "bisect:bisect",
        "eval": "evaluation:evaluate",
        "tradeoff": "evaluation:tradeoff",
    },
    "Services": {
        "serve": "serve:serve",
        "service.install": "service:install",
        "service.list": "service:list_services",
        "service.status": "service:status",
        "service.logs": "service:logs",
        "service.stop": "service:stop",
        "service.restart": "service:restart",
        "service.update": "service:update",
        "service.rollback": "service:rollback",
        "service.remove": "service:remove",
        "service.keys": "service:keys",
        "chat": "chat:chat",
        "load": "load:load",
    },
    "Results": {
        "show": "show:show",
        "report": "show:report",
        "compare": "compare:compare",
        "export": "exchange:export",
        "import": "exchange:import_results",
    },
    "Administration": {
        "config": "config:config",
        "trust": "trust:trust",
        "completion": "completion:completion",
        "clean": "clean:clean",
        "worker": "worker:worker",
    },
}
"""The module and the function of each verb, by its name and heading, as help lists them."""

ALL_VERBS = "all"
"""What follows ``help`` for the page of all verbs, and ``help VERB`` for that of all options."""

HELP_ALL = f"--help-{ALL_VERBS}"

WEEK = (
    *("demo", "init", "build", "deploy", "bench", "chat", "service", "fit", "compare"),
    "show",
)
"""What the first page of help shows; a group stands for its verbs, and is left out without any."""

GROUPS: Mapping[str, str] = {
    "service": "Models that stay on boards as services: install, update, watch.",
}
"""What the verbs of a group do, where the first page shows the group."""


class _Verbs(Mapping[str, "Verb"]):
    def __init__(self) -> None:
        self._places = {
            name: place for each in VERB_GROUPS.values() for name, place in each.items()
        }

    def __getitem__(self, name: str) -> Verb:
        module, _, function = self._places[name].partition(":")
        found: Verb = getattr(import_module(f"armload.cli.verbs.{module}"), function)
        found.name = name  # with that of its group
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


VERBS: Mapping[str, Verb] = _Verbs()


def verbs_in(group: str) -> list[str]:
    """Return the verbs of a group, such as ``board.list`` of ``board``."""
    return [name for name in VERBS if name.startswith(f"{group}.")]
