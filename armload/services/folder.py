"""Writing a service's folder on a board: its versions, its keys, and which version is in force."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from armload.boards.boot import BootFacts
from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import BoardError, UsageError
from armload.core.shell import join, quote, render
from armload.core.values import Value, parse_json
from armload.deploy.retry import with_retries
from armload.deploy.space import refusal
from armload.services.init_systems import as_root, told
from armload.services.version import ServiceLayout

_KEY = re.compile(r"[\x21-\x7e]{16,256}")
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_MOST_KEYS = 100
_ENDS_WITHIN_S = 90.0


class ApiKey(Value):
    """A key that requests may show.

    Attributes:
        name: for whom or what it is.
        key: what is shown.
    """

    name: str
    key: str


class KeyNames(Value):
    """Whose the lines of a key file are, in their order."""

    names: tuple[str, ...]


def new_api_key(name: str, key: str = "") -> ApiKey:
    """Return a key under a name.

    Args:
        key: empty for one that nobody guesses.

    Raises:
        UsageError: the name or the key cannot be one.
    """
    if not _KEY_NAME.fullmatch(name):
        raise UsageError(
            f"{name!a:.80} is not a valid key name.",
            "Use letters, digits and . _ @ -, such as laptop or prometheus.",
        )
    if key and not _KEY.fullmatch(key):
        raise UsageError(
            "The key must have 16 to 256 visible ASCII characters.",
            "Generate one: openssl rand -hex 32",
        )
    return ApiKey(name=name, key=key or secrets.token_urlsafe(32))


def write_keys(
    host: Host,
    layout: ServiceLayout,
    keys: Sequence[ApiKey],
    opened: Callable[[PurePosixPath], str] = lambda _: "",
) -> None:
    """Replace a service's keys, which its owner alone may read then.

    Args:
        opened: returns a command that lets somebody else read a file, too; empty for nobody.
    """
    if len(keys) > _MOST_KEYS:
        raise UsageError(f"A service has at most {_MOST_KEYS} keys.", "Revoke some first.")
    names = KeyNames(names=tuple(each.name for each in keys)).model_dump_json().encode() + b"\n"
    part = layout.folder / "versions" / ".keys.part"
    values = {"folder": layout.folder, "part": part, "opened": opened(part / "keys")}
    content = names + "".join(f"{each.key}\n" for each in keys).encode()
    done = host.run(render("service/keys.sh.j2", values), stdin=content)
    if done.status != 0:
        raise BoardError(f"{host.name}: {layout.keys}: {reason(done.stderr)}.")


def read_keys(host: Host, layout: ServiceLayout) -> tuple[ApiKey, ...]:
    """Return a service's keys, each with its name.

    Raises:
        BoardError: they cannot be read, or by others than their owner, too.
    """
    script = f"cd {quote(layout.folder)} && ls -ln keys && cat keys.json && cat keys"
    done = with_retries(lambda: host.run(script))
    mode, *lines = done.text.splitlines() or [""]
    if done.status != 0 or not lines:
        raise BoardError(
            f"{host.name}: {layout.keys} cannot be read: {reason(done.stderr)}.",
            "Log in as the user that installed the service.",
        )
    if mode[7:10] != "---":  # its group is the service's own
        raise BoardError(
            f"{host.name}: other users can read {layout.keys} ({mode[:10]}).",
            f"Replace its keys: chmod 600 {layout.keys} on the board, then armload service.keys "
            f"{host.named} --name {layout.name} --add NEW --revoke OLD",
        )
    try:
        names = KeyNames.model_validate(parse_json(lines[0])).names
    except ValueError:
        names = ()
    keys = [line for line in lines[1:] if line]
    known = (*names, *(f"key-{n}" for n in range(len(names) + 1, len(keys) + 1)))
    return tuple(ApiKey(name=name, key=key) for name, key in zip(known, keys, strict=False))


def write_version(
    host: Host, layout: ServiceLayout, version_id: str, files: Mapping[str, str]
) -> None:
    """Put a version's folder on a board, whole or not at all.

    Args:
        files: contents by name; a name may have one folder before it.
    """
    versions = layout.version(version_id).parent
    part = versions / f".{version_id}.part"
    folders = sorted({part, *((part / name).parent for name in files)})
    # An interrupted command, whose lease is over, may have left parts of other versions.
    left = f"rm -rf {quote(versions)}/.*.part"
    done = host.run(f"{left} && {join(['mkdir', '-p', *folders])}")
    if done.status != 0:
        complaint = f"{layout.folder} cannot be made"
        raise refusal(host, versions, complaint, reason(done.stderr), layout.workdir)
    try:
        for name, content in files.items():
            host.write(part / name, [content.encode()])
    except BoardError as error:
        complaint = f"version {version_id} of {layout.service} cannot be written"
        raise refusal(host, part, complaint, error.message, layout.workdir) from error
    values = {"versions": versions, "part": part.name, "id": version_id}
    _do(host, render("service/settle.sh.j2", values), f"{layout.version(version_id)}")


def write_run(host: Host, layout: ServiceLayout, content: str, supervise: PurePosixPath) -> None:
    """Write what the board's init starts.

    Args:
        supervise: that it starts, which is noted as needed first.
    """
    # The service's user may make files in its folder, such as links, but none among its versions.
    versions = layout.folder / "versions"
    uses, run = versions / ".uses.part", versions / ".run.part"
    host.write(uses, [f"{supervise.parent.relative_to(layout.workdir)}\n".encode()])
    host.write(run, [content.encode()])
    script = (
        join(["mv", "-f", uses, layout.folder / "uses"]),
        join(["chmod", "755", run]),
        "sync",
        join(["mv", "-f", run, layout.run]),
        "sync",
    )
    _do(host, " && ".join(script), f"{layout.run}")


def switch(
    host: Host,
    layout: ServiceLayout,
    version_id: str,
    *,
    trial: str = "",
    former: str = "",
    confirmed: bool = False,
    removed: Sequence[str] = (),
) -> None:
    """Put a version in force from the next start on.

    Args:
        trial: what the supervisor falls back to while it is not confirmed; empty for nothing.
        former: what a rollback puts in force; empty leaves that as it is.
        confirmed: nothing is fallen back to any more.
        removed: versions to delete.
    """
    values = {
        "folder": layout.folder,
        "id": version_id,
        "trial": trial,
        "former": former,
        "confirmed": confirmed,
        "removed": list(removed),
    }
    script = render("service/switch.sh.j2", values)
    # Every step may be repeated after a dropped connection.
    done = with_retries(lambda: host.run(script))
    if done.status != 0:
        complaint = f"the version of {layout.service} cannot be changed"
        raise refusal(host, layout.folder, complaint, reason(done.stderr), layout.workdir)


def write_speed(host: Host, layout: ServiceLayout, version_id: str, content: str) -> None:
    """Keep beside a version how fast it answered."""
    path = layout.version(version_id) / "speed.json"
    host.write(path, [f"{content}\n".encode()])


def delete_folder(host: Host, facts: BootFacts, folder: PurePosixPath) -> None:
    """Delete a service's folder, or that of a version being tried, however a power cut comes.

    In it are folders of the service's user, which the login may not be able to empty.
    """
    script = f"{join(['rm', '-rf', '--', folder])} && sync"
    _do(host, as_root(script, facts), f"{folder}")


def delete_version(host: Host, layout: ServiceLayout, version_id: str) -> None:
    """Delete a version that is not in force, with whatever was half written beside it."""
    version = layout.version(version_id)
    _do(host, f"rm -rf -- {quote(version)} {quote(version.parent)}/.*.part && sync", f"{version}")


def end_trying(host: Host, facts: BootFacts, layout: ServiceLayout) -> None:
    """End a version that is being tried, and delete its folder; harmless where there is none."""
    end_by_hand(host, facts, layout.trying.folder)
    delete_folder(host, facts, layout.trying.folder)


def end_by_hand(host: Host, facts: BootFacts, folder: PurePosixPath) -> None:
    """End what is supervised in a folder, whatever started it; harmless where nothing is."""
    run = folder / "run"
    script = f"[ ! -e {quote(run)} ] || {{\n{as_root(told(run, 'stop'), facts)}\n}}"
    host.run(script, timeout_s=_ENDS_WITHIN_S)


def _do(host: Host, script: str, what: str) -> None:
    done = host.run(script)
    if done.status != 0:
        raise BoardError(f"{host.name}: {what}: {reason(done.stderr)}.")
