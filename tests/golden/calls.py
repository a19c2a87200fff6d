"""Which places of the package were reached: where documents, tables and charts are made."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import isabstract
from pathlib import Path
from typing import Any, Self

import armload
from armload.cli.present import present
from armload.report.drawing import chart_of
from armload.report.figures.figure import drawn
from armload.report.layout import Table
from armload.report.result import Result, as_result
from tests.golden.sandbox import replaced

PACKAGE = Path(armload.__file__).parent

Place = tuple[str, int]
"""A file below the package, and a line."""


class Calls:
    """The places that called what was watched."""

    def __init__(self) -> None:
        self.places: dict[str, set[Place]] = {}
        self.results: set[type[Result]] = set()

    @classmethod
    @contextmanager
    def recorded(cls) -> Iterator[Self]:
        """Record who calls, until the block ends."""
        calls = cls()
        begin, lay_out = Table.__init__, Table.of

        def begun(table: Table, *columns: Any) -> None:
            calls._note("Table")
            begin(table, *columns)

        def laid_out(*words: Any, **more: Any) -> Table:
            calls._note("Table.of")
            return lay_out(*words, **more)

        watched: list[tuple[object, object]] = [
            (function, calls._watched(function)) for function in (as_result, chart_of, drawn)
        ]

        def presented(result: Result, *, as_json: bool) -> None:
            calls.results.add(type(result))
            present(result, as_json=as_json)

        watched.append((present, presented))
        Table.__init__ = begun  # type: ignore[assignment, method-assign]
        Table.of = laid_out  # type: ignore[method-assign]
        try:
            with replaced(*watched):
                yield calls
        finally:
            Table.__init__ = begin  # type: ignore[method-assign]
            Table.of = lay_out  # type: ignore[method-assign]

    def unshown(self) -> list[str]:
        """Return the kinds of results that no command has returned."""
        return sorted(
            each.__name__
            for each in _below(Result)  # type: ignore[type-abstract]
            if each not in self.results and not isabstract(each)
        )

    def unreached(self, name: str) -> list[str]:
        """Return the functions with places that call something, and did not."""
        reached = self.places.get(name, set())
        return [
            f"{file} {function}"
            for file, function, node in _calls_of(name)
            if not any(
                where == file and node.lineno <= line <= (node.end_lineno or node.lineno)
                for where, line in reached
            )
        ]

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__

        def watching(*words: Any, **more: Any) -> Any:
            self._note(name)
            return function(*words, **more)

        return watching

    def _note(self, name: str) -> None:
        frame = sys._getframe(2)
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            place = (str(path.relative_to(PACKAGE)), frame.f_lineno)
            self.places.setdefault(name, set()).add(place)


def _below(kind: type[Result]) -> Iterator[type[Result]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _calls_of(name: str) -> Iterator[tuple[str, str, ast.Call]]:
    for path, function, node in _every_call():
        if _called(node) == name:
            yield path, function, node


@cache
def _every_call() -> tuple[tuple[str, str, ast.Call], ...]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                name = str(path.relative_to(PACKAGE))
                found += [(name, function.name, node) for node in calls]
    return tuple(found)


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    if not isinstance(node.func, ast.Attribute):
        return ""
    is_of_table = isinstance(node.func.value, ast.Name) and node.func.value.id == "Table"
    return f"{'Table.' if is_of_table else ''}{node.func.attr}"
