"""The same verbs for Invoke, whose parser reads options by their names alone."""

from __future__ import annotations

from typing import Any

from invoke.collection import Collection
from invoke.parser.argument import Argument
from invoke.tasks import Task

from armload.cli.execution import run_verb
from armload.cli.verb import VERBS, Verb
from armload.core.options import declared_options


class _Task(Task[Any]):
    def __init__(self, verb: Verb) -> None:
        super().__init__(verb.body)
        self._verb = verb
        self._options = {
            # To Invoke, A and B would be the letters -a and -b.
            each.name if len(each.name) > 1 else f"argument-{each.name}": each
            for each in declared_options(verb.options)
        }

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return what the verb takes, all with defaults: the verb itself says what is missing."""
        del ignore_unknown_help
        kinds = [
            bool if each.is_switch else list if each.is_repeated else str
            for each in self._options.values()
        ]
        return [
            Argument(
                names=(name, each.letter) if each.letter else (name,),
                attr_name=name.replace("-", "_") if "-" in name else None,
                kind=kind,
                default=kind(),
                help=each.help,
            )
            for kind, (name, each) in zip(kinds, self._options.items(), strict=True)
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the verb.

        Raises:
            SystemExit: it failed; with its exit status.
        """
        del args
        self.times_called += 1
        words = {each.field: kwargs[name.replace("-", "_")] for name, each in self._options.items()}
        run_verb(self._verb, words)


def tasks() -> Collection:
    """Return all verbs; one that a group is named after is the group's default."""
    root = Collection("armload")
    groups = {name.partition(".")[0]: Collection() for name in VERBS if "." in name}
    for name, verb in VERBS.items():
        group, _, own = name.partition(".")
        if group in groups:
            groups[group].add_task(_Task(verb), own or group, default=not own)
        else:
            root.add_task(_Task(verb), name)
    for group, collection in groups.items():
        root.add_collection(collection, group)
    return root
