"""Lines at whose end a shell's completion asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COMPLETED: Mapping[str, Sequence[str]] = {
    "verbs": [
        "armload ",
        "armload ben",
        "armload board.",
        "armload hel",
        "armload help board.tr",
        "armload --ver",
    ],
    "options": [
        "armload bench --",
        "armload bench --prec",
        "armload bench --prompt a --promp",
        "armload show --",
        "armload load --",
        "armload eval --task ",
        "armload bench --flash-attention ",
        "armload bench --kv-type ",
        "armload bench --weights ",
        "armload bench --speculate ",
        "armload tune --for ",
        "armload export latest --format ",
        "armload completion ",
        "armload clean --what ",
        "armload build --programs llama-b",
    ],
    "names": [
        "armload bench --board ",
        "armload bench --board=vi",
        "armload bench --model ",
        "armload bench --model like:",
        "armload build --target ",
        "armload fit --hardware r",
        "armload show ",
        "armload show latest",
        "armload compare 2026",
        "armload report 20261123",
        "armload tradeoff ",
        "armload eval --regrade ",
        "armload bench --plan ",
    ],
}
