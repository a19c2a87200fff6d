"""Which targets' CPUs a program fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from armload.build.features import CHECKED_BY_LIBRARIES
from armload.build.inspection import Inspection, check
from armload.build.target import Target
from armload.core.errors import BuildError
from armload.core.values import Value


class Compatibility(Value):
    """What becomes of a program on a target.

    Attributes:
        target: its name.
        verdict: ``runs``; ``slow`` where it runs without what the target must use; ``perhaps``
            where the board must have a loader or libraries for it, or where a feature that the
            CPU lacks may lie behind a check, which a stripped program does not show; or ``no``.
        reason: why it does not simply run; else empty.
    """

    target: str
    verdict: Literal["runs", "slow", "perhaps", "no"]
    reason: str


def fits(inspection: Inspection, targets: Sequence[Target]) -> Iterator[Compatibility]:
    """Say of each target whether the program runs there, as ``check`` sees it.

    That a program was not stripped costs room, and hinders nothing.
    """
    # What does not depend on the CPU is not asked of each CPU again.
    code = inspection.model_copy(update={"is_static": True, "is_stripped": True})
    for target in targets:
        lenient = target.model_copy(update={"must_use": ()})
        if _complaint(code, lenient):
            other_reason = _complaint(code.model_copy(update={"features": ()}), lenient)
            lacking = [
                use.feature
                for use in inspection.features
                if use.feature not in target.features and not use.guarded
            ]
            reason = other_reason or f"the CPU lacks {', '.join(lacking)}"
            if (
                not other_reason
                and inspection.is_stripped
                and CHECKED_BY_LIBRARIES.issuperset(lacking)
            ):
                reason += ", which the C library may check for at run time; symbols would show that"
                yield Compatibility(target=target.name, verdict="perhaps", reason=reason)
            else:
                yield Compatibility(target=target.name, verdict="no", reason=reason)
        elif not inspection.is_static:
            wanted = [inspection.interpreter] if inspection.interpreter else []
            yield Compatibility(
                target=target.name,
                verdict="perhaps",
                reason=f"on boards that have {', '.join([*wanted, *inspection.needed])}",
            )
        elif _complaint(code, target):
            used = {use.feature for use in inspection.features if not use.guarded}
            unused = [feature for feature in target.must_use if feature not in used]
            reason = f"it does not use {', '.join(unused)}"
            yield Compatibility(target=target.name, verdict="slow", reason=reason)
        else:
            yield Compatibility(target=target.name, verdict="runs", reason="")


def _complaint(inspection: Inspection, target: Target) -> str:
    try:
        check(inspection, target)
    except BuildError as error:
        return error.message.removeprefix(f"{inspection.path}: ")
    return ""
