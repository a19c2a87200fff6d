"""A group of verbs that is called like a verb: ``serve``, ``serve.list``, ``serve.stop``."""

from __future__ import annotations

from typing import Any

from invoke.collection import Collection
from invoke.tasks import Task


class Group(Collection):
    """Verbs below the name of another one.

    To Invoke, the verb that a group's name stands for is one of the group, and is listed as
    ``serve.serve`` too.
    """

    def __init__(self, own: Task[Any], *others: Task[Any]) -> None:
        super().__init__(own.name, *others)
        self.own = own

    def task_with_config(self, name: str | None) -> tuple[Any, dict[str, Any]]:
        """Return a verb of the group; without a name the one that the group is named after."""
        return super().task_with_config(name) if name else (self.own, self.configuration())


def add_verb(namespace: Collection, verb: Task[Any] | Group) -> None:
    """Add a verb; of a group, the verb that it is named after and the group side by side."""
    if isinstance(verb, Group):
        namespace.add_task(verb.own)
        namespace.collections[verb.own.name] = verb
    else:
        namespace.add_task(verb)
