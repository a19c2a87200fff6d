"""A service's certificate and private key on its board: put there, and seen to be in force."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePosixPath

from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import BoardError, RunError
from armload.core.shell import join, quote, render
from armload.deploy.retry import with_retries
from armload.services.certificate import TlsFiles
from armload.services.state import service_at
from armload.services.version import ServiceLayout

_SHOWN_WITHIN_S = 20.0
"""The supervisor looks at the file every second, and tells of it in the next."""

_LOOK_EVERY_S = 0.5


def write_tls_file(
    host: Host,
    layout: ServiceLayout,
    files: TlsFiles,
    opened: Callable[[PurePosixPath], str] = lambda _: "",
) -> None:
    """Replace a service's certificate and key in one step; its owner alone may read them then.

    What was there before stays beside them until :func:`confirm_tls_file`, or is put back.

    Args:
        opened: returns a command that lets somebody else read a file, too; empty for nobody.

    Raises:
        BoardError: they cannot be written.
    """
    part = _part(layout)
    values = {"folder": layout.folder, "part": part, "opened": opened(part / layout.tls.name)}
    done = host.run(render("service/tls.sh.j2", values), stdin=files.pem.encode())
    if done.status != 0:
        raise BoardError(f"{host.name}: {layout.tls}: {reason(done.stderr)}.")


def confirm_tls_file(host: Host, layout: ServiceLayout) -> None:
    """Delete the certificate and the key that were there before."""
    with_retries(lambda: host.run(join(["rm", "-rf", _part(layout)])))


def put_back_tls_file(host: Host, layout: ServiceLayout) -> None:
    """Put the certificate and the key back that were there before, or delete the new ones."""
    part, tls = _part(layout), quote(layout.tls)
    former = quote(part / "former")
    script = f"if [ -f {former} ]; then mv -f {former} {tls}; else rm -f {tls}; fi\nsync"
    with_retries(lambda: host.run(f"{script}\n{join(['rm', '-rf', part])}"))


def _part(layout: ServiceLayout) -> PurePosixPath:
    return layout.folder / "versions" / ".tls.part"


def wait_until_shown(host: Host, layout: ServiceLayout, files: TlsFiles) -> None:
    """Wait until a running service shows its clients a certificate.

    Raises:
        RunError: it does not; says why.
    """
    until_s = time.monotonic() + _SHOWN_WITHIN_S
    why = "its supervisor has not taken it up"
    while True:
        found = with_retries(lambda: service_at(host, layout))
        state = found.state if found is not None and found.is_alive else None
        if state is not None and state.certificate_problem:
            why = state.certificate_problem
        elif state is not None and state.certificate == files.certificate.sha256:
            return
        if time.monotonic() >= until_s:
            raise RunError(
                f"{host.name}: the service {layout.service} does not use its new certificate: "
                f"{why}.",
                f"Its log: armload service.logs {host.named} --name {layout.service}",
            )
        time.sleep(_LOOK_EVERY_S)


def remove_tls_file(host: Host, layout: ServiceLayout) -> None:
    """Delete a service's certificate and key, which no version of it needs any more."""
    with_retries(lambda: host.run(join(["rm", "-f", layout.tls])))
