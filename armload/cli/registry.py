"""All verbs, by what a person does with them; each is imported when it is looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armload.cli.verb import Verb

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
