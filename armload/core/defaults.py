"""Names that verbs take or leave out; apart from what they are, so that help starts fast."""

from __future__ import annotations

VIRTUAL = "virtual"
"""The board that needs no hardware."""

DEMO = "demo"
"""The name of the model: a real one."""

LIBRARIES = ("s2n-tls",)
"""Source files that are of no engine."""
