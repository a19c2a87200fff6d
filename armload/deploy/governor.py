"""Whether a run may have a CPU frequency governor of its own; its script sets and restores it."""

from __future__ import annotations

from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.shell import render


def check_governor(host: Host, wanted: str) -> None:
    """Refuse a governor that a board cannot be given.

    Raises:
        BoardError: it has none at all, or not this one, or this user may not set it.
        ConnectError: it does not answer.
    """
    policies = [
        line.split(";") for line in host.run(render("governor_may.sh.j2", {})).text.splitlines()
    ]
    if not policies:
        raise BoardError(
            f"{host.name}: its kernel exposes no CPU frequency governors, so none can be set.",
            "Omit --governor.",
        )
    offered = {name for _, now, names in policies for name in (now, *names.split())}
    for may, now, names in policies:
        if wanted not in (now, *names.split()):
            raise BoardError(
                f"{host.name}: there is no CPU frequency governor {wanted!r}.",
                f"Available: {', '.join(sorted(offered))}.",
            )
        if may != "yes":
            raise BoardError(
                f"{host.name}: the governor is {now}, and this user may not change it.",
                "Log in as root ('user' under 'reach' in the board's file), or omit --governor.",
            )
