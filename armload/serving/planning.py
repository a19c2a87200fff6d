"""From the options of a plan file to how a model is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armload.bench.options import Options
from armload.core.errors import UsageError
from armload.core.options import declared_options
from armload.engines.contradictions import check_consistent
from armload.engines.plan import Computation
from armload.engines.service_plan import ServingPlan

_FIELDS = {each.name.replace("-", "_"): each.field for each in declared_options(ServingPlan)}
"""Options that a service has, and what they are called in its plan."""

_OF_A_RUN = frozenset(("cool_to", "governor"))
"""Options that change a run's speed, and that a service does not have."""


def serving_fields(options: Options, origin: str) -> dict[str, Any]:
    """Return the fields of a ``ServingPlan`` that are set.

    Args:
        origin: of the options, for messages.
    """
    found = {}
    for name, field in _FIELDS.items():
        if name not in options.model_fields_set:
            continue
        value = getattr(options, name)
        if isinstance(value, tuple):
            if len(value) > 1:
                several = ", ".join(str(each) for each in value)
                raise UsageError(
                    f"{origin}: {name} lists {several}, but a service has one.", "List one value."
                )
            (value,) = value
        found[field] = value
    return found


def serving_plan(typed: Computation, origin: Mapping[str, Any] | None = None) -> ServingPlan | None:
    """Return how a model is served; none where nothing is set.

    Args:
        typed: what is set here comes before what else is.
        origin: fields that a file sets.
    """
    given = {
        **(origin or {}),
        **{name: getattr(typed, name) for name in typed.model_fields_set},
    }
    if given.get("weights") == "mapped" and given.get("resident_bytes") is not None:
        raise UsageError(
            "--resident locks streamed weights, and cannot be combined with --weights mapped.",
            "Remove one.",
        )
    if not given:
        return None
    plan = ServingPlan.model_validate(given)
    check_consistent(plan)
    return plan


def serving_plan_of(options: Options, origin: str) -> ServingPlan:
    """Return how a model is served with these options; the others are as usual."""
    return ServingPlan.model_validate(serving_fields(options, origin))


def without_effect(options: Options) -> list[str]:
    """Return the options that would make a run faster or slower, but no service."""
    return sorted(options.model_fields_set & _OF_A_RUN)
