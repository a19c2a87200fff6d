"""Workspaces of a stranger: one for each key of each kind of file that decides what runs."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from armload.bench.options import Options
from armload.boards.board import Board
from armload.boards.group import Group
from armload.build.archive import Archive
from armload.build.target import Target
from armload.cli.verb import VERBS
from armload.core.deciding import Decides, deciding, default_decides, models_in
from armload.core.options import declared_options

MARKER = "marker"
FLAGS = (
    "-include",
    "-fplugin=./evil.so",
    "-B.",
    "-specs=evil",
    "@evil",
    "-isystem",
    "-wrapper",
    "-Xclang",
    "-fuse-ld=./evil",
    "-Wl,-rpath,.",
    "-Wp,-include,x",
    "-DGGML_ASSERT(x)=system(x)",
    "-I.",
    "-imacros",
    "-load",
    "-fprofile-use=x",
    "-fmodule-file=x",
    "-L.",
    "-O2 -include x",
    "-O2;-include",
    "-ivfsoverlay",
    "--sysroot=.",
)
BASES = {"boards": "this-machine", "toolchains": "rk3568", "toolchains/sources": "llama-cpp"}
WHOLE_TASK = {"fields": {"question": "q"}, "expected": "{{ question }}", "prompts": {}}


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """A file that decides something.

    Attributes:
        kind: the folder that it lies in; empty for a plan.
        key: that decides.
        content: of the file.
    """

    kind: str
    key: str
    content: dict[str, Any]

    def write(self, folder: Path, name: str = "evil") -> Path:
        path = folder / self.kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(self.content, sort_keys=False)
        path.write_text(text.replace(MARKER, str(folder / MARKER)))
        return path

    @property
    def label(self) -> str:
        return f"{self.kind}:{self.key}"


def hostile_files() -> Iterator[Hostile]:
    """Yield a file for each key of a board, group, target, source, task and plan that decides."""
    for key, value in _values(Board):
        yield Hostile(kind="boards", key=key, content=_board(key, value))
    members: dict[str, Any] = {"members": ["virtual", "virtual-dayu200"]}
    for key, value in _values(Group):
        assert key == "listen", value
        yield Hostile(kind="boards", key=key, content=members | {"listen": "192.168.0.0/16"})
    for key, value in _values(Archive):
        yield Hostile(
            kind="toolchains/sources",
            key=key,
            content={"extends": BASES["toolchains/sources"], key: _source_value(key, value)},
        )
    for key, _ in _values(Target):
        for flag in FLAGS:
            content = {"extends": BASES["toolchains"], key: ["-O3", flag, MARKER]}
            yield Hostile(kind="toolchains", key=f"{key}", content=content)
    prompts = {"plain": {"user": "{{ question }}"}}
    for data in ("/etc/passwd", "../secret.jsonl", "hf:org/repo/data.jsonl", "ms:org/repo/x.csv"):
        task = WHOLE_TASK | {"prompts": prompts, "data": data}
        yield Hostile(kind="tasks", key="data", content=task)
    for key, _ in _values(Options):
        is_list = key in {"engine_args", "board"}
        value = [f"--log-file {MARKER}"] if is_list else MARKER
        yield Hostile(kind="", key=key, content={key: value})


def hostile_defaults() -> Iterator[tuple[str, str, str]]:
    """Yield each verb's options whose default decides, and a line that sets it."""
    for verb, each_verb in VERBS.items():
        for each in declared_options(each_verb.options):
            if not each.option.is_argument and default_decides(each.info):
                word = "true" if each.is_switch else f'"{MARKER}"'
                yield verb, each.name, f"{each.name} = {word}"


def _board(key: str, value: object) -> dict[str, Any]:
    if not key.startswith("reach"):
        base: dict[str, Any] = {"extends": BASES["boards"]}
    else:
        base = {"target": "host"}
    if key == "workdir":
        return base | {key: f"/{MARKER}"}
    inner: dict[str, Any] = base
    *parts, last = key.split(".")
    for part in parts:
        inner = inner.setdefault(part, {})
    inner[last] = value
    if key.startswith("reach."):
        _, kind, name = key.split(".")
        need = {"host": "localhost"} if kind == "ssh" else {}
        base = {"target": "host", "reach": {"kind": kind, **need, name: value}}
    if key.startswith("power."):
        _, kind, name = key.split(".")
        base = {"extends": BASES["boards"], "power": {"kind": kind, name: value}}
    return base


def _source_value(key: str, value: object) -> object:
    if key == "engine":
        return "distributed-llama"  # what it may be is fixed, and decides what is built
    return {"ggml": [[MARKER]]} if key == "together" else value


def _values(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, object]]:
    for name, info in model.model_fields.items():
        key = f"{before}{name}"
        mark = next((each for each in info.metadata if isinstance(each, Decides)), None)
        parts = [each for each in models_in(info.annotation) if "virtual" not in _kind(each)]
        for part in parts:
            yield from _values(part, f"{key}.{_kind(part)}." if _kind(part) else f"{key}.")
            if mark is not None and _kind(part):
                yield f"{key}.{_kind(part)}.kind", _kind(part)
        if not parts and (mark is not None or deciding(model, {name: MARKER})):
            yield key, _hostile_value(name, info)


def _kind(model: type[BaseModel]) -> str:
    info = model.model_fields.get("kind")
    words = get_args(info.annotation) if info is not None else ()
    return str(words[0]) if len(words) == 1 else ""


def _hostile_value(name: str, info: FieldInfo) -> object:
    if name == "url":
        return "http://192.168.1.1/reboot?x="
    if name == "port":
        return 2222
    if name == "folder":
        return f"/{MARKER}"
    return ["touch", MARKER] if _is_list(info.annotation) else MARKER


def _is_list(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated or origin is Union or origin is types.UnionType:
        return any(map(_is_list, get_args(annotation)))
    return origin is tuple
