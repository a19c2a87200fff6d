"""What else runs on a board while something is measured there: its installed services."""

from __future__ import annotations

from itertools import pairwise

from armload.boards.host import Host
from armload.core.progress import Progress
from armload.core.shell import render
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries


def mention_services(host: Host, layout: Layout, progress: Progress) -> None:
    """Say which installed services of a board run; once per board and command."""
    if host.name in _mentioned:
        return
    _mentioned.add(host.name)
    script = render("service/tell.sh.j2", {"services": layout.services})
    lines = with_retries(lambda: host.run(script)).text.splitlines()
    for line, after in pairwise(lines):
        if after != "#alive":
            continue
        name = line.removeprefix("#service ")
        progress.say(
            f"{host.name}: the installed service {name} is running; it uses memory, and the CPU "
            f"while it answers. To stop it before the next run: armload service.stop --board "
            f"{host.name} --name {name}"
        )


_mentioned: set[str] = set()
