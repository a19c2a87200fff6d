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


def add_group(namespace: Collection, group: Group) -> None:
    """Add a group and the verb that it is named after, side by side."""
    namespace.add_task(group.own)
    namespace.collections[group.own.name] = group
