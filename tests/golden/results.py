"""What verbs print of what they have measured, where they cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

RESULTS: Mapping[str, Callable[[bool], object]] = {}
