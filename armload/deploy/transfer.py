"""Files onto a board: verified, resumed, and not sent when they are there."""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path, PurePosixPath

from armload.boards.host import Host
from armload.core.errors import BoardError, ConnectError, TransferError
from armload.core.progress import Progress
from armload.core.shell import render
from armload.core.values import format_bytes
from armload.deploy.item import Item, Stored, parse_stored, stored_script
from armload.deploy.space import ask_space, need_space
from armload.deploy.sums import NO_TOOL, good_prefix_bytes, patience_s

PATIENCE_S = 60.0
"""So long a board may be out of reach while a file is on its way there."""

_FULL_BELOW_BYTES = 1 << 20
_LONGEST_PAUSE_S = 2.0
_BEYOND_BUFFERS_BYTES = 16 << 20
"""What has left this machine and fits into no buffer on the way has reached the board."""


def push(
    host: Host,
    local: Path,
    remote: PurePosixPath,
    *,
    sha256: str,
    executable: bool,
    progress: Progress,
    helper: PurePosixPath | None = None,
    patience_s: float = PATIENCE_S,
) -> bool:
    """Make ``remote`` hold the content of ``local``; return False when it did already.

    The file grows beside its place and is synced to the board's storage while it does; when it
    is whole its SHA-256 is compared, and it is renamed. What a broken transfer left is continued
    as far as its content is right. A board without any SHA-256 tool has the file read back.

    Args:
        host: the board.
        local: the file.
        remote: where it is to lie.
        sha256: of the content, 64 hexadecimal digits.
        executable: whether it is a program.
        progress: where it is shown.
        helper: our checksum program on the board; none where it cannot run.
        patience_s: so long the board may be out of reach meanwhile.

    Raises:
        ConnectError: the board does not answer, or has not for ``patience_s``.
        BoardError: no space, or the folder cannot be written.
        TransferError: the content differs after it was sent twice.
    """
    item = Item(local=local, remote=remote, sha256=sha256, executable=executable)
    stored = what_is_stored(host, item)
    return deliver(host, item, stored, progress, helper=helper, patience_s=patience_s)


def what_is_stored(host: Host, item: Item) -> Stored:
    """Ask a board what of an item it has.

    Raises:
        ConnectError: it does not answer.
    """
    (stored,) = parse_stored([item], host.run(stored_script([item])).stdout)
    return stored


def deliver(
    host: Host,
    item: Item,
    stored: Stored,
    progress: Progress,
    *,
    helper: PurePosixPath | None = None,
    cold: bool = False,
    patience_s: float = PATIENCE_S,
) -> bool:
    """Do what ``push`` does from a known state on; the errors are the same.

    With ``cold`` a check reads the storage instead of the page cache, where the helper is there.
    """
    return _Delivery(host, item, progress, helper, cold=cold).run(stored, patience_s)


class _Delivery:
    """One item's way to a board, over as many lines as it takes."""

    def __init__(
        self,
        host: Host,
        item: Item,
        progress: Progress,
        helper: PurePosixPath | None,
        *,
        cold: bool,
    ) -> None:
        self._host = host
        self._item = item
        self._progress = progress
        self._helper = helper
        self._cold = cold
        self._known_good_bytes = 0
        self._sent = False
        self._differed = False
        self._failing_since_s: float | None = None

    def run(self, stored: Stored, patience_s: float) -> bool:
        while True:
            try:
                if self._arrived(stored):
                    return self._sent
                stored = self._after_a_difference()
            except ConnectError as error:
                stored = self._over_a_new_line(error, patience_s)

    def _arrived(self, stored: Stored) -> bool:
        """Do what is left to do; tell whether the file is in its place then."""
        if stored.state == "present":
            return True
        if stored.state == "unchecked":
            if self._accepted(self._item.remote):
                return True
            self._progress.say(
                f"{self._item.remote.name} on {self._host.name} is damaged; it is sent again."
            )
            self._remove(self._item.remote)
            stored = Stored(state="absent")
        need_space(self._host, [self._item], [stored])
        self._send(stored)
        return self._accepted(self._item.part)

    def _send(self, stored: Stored) -> None:
        name, size = self._item.remote.name, self._item.size_bytes
        with self._progress.step(f"Copying {name}", total=size, unit="B") as step:
            if stored.part_bytes:
                step.update(0, note="checking what is there")
            offset = self._offset_bytes(stored)
            self._keep_synced()
            if offset:
                step.update(offset, note=f"going on from {format_bytes(offset)}")
            self._sent = True

            def sent(position: int) -> None:
                if position - offset >= _BEYOND_BUFFERS_BYTES:
                    self._failing_since_s = None
                step.update(position)

            try:
                self._host.send_file(
                    self._item.local, self._item.part, offset_bytes=offset, sent=sent
                )
            except BoardError as error:
                self._say_if_full(error)
                raise

    def _offset_bytes(self, stored: Stored) -> int:
        offset = good_prefix_bytes(
            self._host,
            self._item,
            stored.part_bytes,
            known_good_bytes=self._known_good_bytes,
            helper=self._helper,
        )
        if offset > self._known_good_bytes:
            self._failing_since_s = None
        self._known_good_bytes = offset
        return offset

    def _keep_synced(self) -> None:
        values = {"part": self._item.part, "token": secrets.token_hex(8)}
        self._host.run(render("keep_synced.sh.j2", values))

    def _say_if_full(self, error: BoardError) -> None:
        space = ask_space(self._host, [self._item.remote.parent])
        if space.free_bytes is not None and space.free_bytes < _FULL_BELOW_BYTES:
            there = what_is_stored(self._host, self._item).part_bytes
            raise BoardError(
                f"{self._host.name}: its storage is full. {format_bytes(there)} of "
                f"{self._item.remote.name} ({format_bytes(self._item.size_bytes)}) are there; the "
                "same command goes on from them once there is room.",
                space.advice,
            ) from error

    def _accepted(self, source: PurePosixPath) -> bool:
        label = f"Checking {self._item.remote.name} on {self._host.name}"
        with self._progress.step(label) as step:
            said = self._accept(source, verified=False)
            if said == NO_TOOL:
                step.update(0, note="reading it back")
                digest = hashlib.sha256()
                for chunk in self._host.read(source):
                    digest.update(chunk)
                if digest.hexdigest() == self._item.sha256:
                    said = self._accept(source, verified=True)
            return said == "accepted"

    def _accept(self, source: PurePosixPath, *, verified: bool) -> str:
        item = self._item
        script = render(
            "accept.sh.j2",
            {
                "source": source,
                "remote": item.remote,
                "sha256": item.sha256,
                "executable": item.executable,
                "verified": verified,
                "helper": self._helper or "",
                "cold": self._cold,
            },
        )
        done = self._host.run(script, timeout_s=patience_s(item.size_bytes))
        if done.status != 0:
            reason = done.stderr.decode("utf-8", "replace").strip()
            raise BoardError(
                f"{self._host.name}: {item.remote} cannot be put into place: {reason}."
            )
        return done.text

    def _after_a_difference(self) -> Stored:
        """Return the state to go on from once a file has arrived that is not as it was sent."""
        item = self._item
        if self._differed:
            self._remove(item.part)
            raise TransferError(
                f"{self._host.name}: {item.remote} differs from {item.local} after it was sent "
                "twice.",
                "Did the local file change meanwhile? If not, the board's storage or memory is "
                "faulty.",
            )
        self._differed = True
        self._known_good_bytes = 0
        self._progress.say(f"{item.remote.name} differs on {self._host.name}; sending it again.")
        if self._helper is None:  # where it differs cannot be told
            self._remove(item.part)
        return what_is_stored(self._host, item)

    def _remove(self, path: PurePosixPath) -> None:
        beside = (path.with_name(f"{path.name}.syncing"), path.with_name(f"{path.name}.writer"))
        self._host.run(render("remove.sh.j2", {"paths": [path, *beside]}))

    def _over_a_new_line(self, error: ConnectError, patience_s: float) -> Stored:
        """Return what the board holds once it answers again."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            self._progress.say(f"{error.message} Going on as soon as the board answers.")
        give_up_at_s = self._failing_since_s + patience_s
        pause_s = 0.1
        while time.monotonic() + pause_s < give_up_at_s:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                return what_is_stored(self._host, self._item)
            except ConnectError as newer:
                error = newer
        raise error
