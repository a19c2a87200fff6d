"""Files onto a board: verified, resumed, and not sent when they are there."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import BoardError, TransferError
from armload.core.progress import Progress
from armload.core.shell import join, render
from armload.core.values import format_bytes
from armload.deploy.layout import Layout
from armload.deploy.retry import Retry, with_retries
from armload.deploy.space import need_space, refusal, why_refused
from armload.deploy.upload import (
    NO_TOOL,
    Upload,
    UploadState,
    good_prefix_bytes,
    transfer_timeout_s,
    what_is_stored,
)
from armload.models.model import BLOCK_BYTES, cached_checksums

RETRY_FOR_S = 60.0
"""So long a board may be out of reach while a file is on its way there."""

_BEYOND_BUFFERS_BYTES = 16 << 20
"""What has left this machine and fits into no buffer on the way has reached the board."""


def push(
    host: Host,
    layout: Layout,
    local: Path,
    remote: PurePosixPath,
    *,
    sha256: str,
    executable: bool,
    progress: Progress,
    helper: PurePosixPath | None = None,
    retry_for_s: float = RETRY_FOR_S,
) -> bool:
    """Make ``remote`` hold the content of ``local``; return False when it did already.

    The file grows beside its place and is synced to the board's storage while it does; when it
    is whole its SHA-256 is compared, and it is renamed. What a broken transfer left is continued
    as far as its content is right. A board without any SHA-256 tool has the file read back.

    Args:
        remote: where it is to lie.
        sha256: of the content, 64 hexadecimal digits.
        helper: our checksum program on the board; none where it cannot run.
        retry_for_s: so long the board may be out of reach meanwhile.

    Raises:
        BoardError: no space, or the folder cannot be written.
    """
    upload = Upload(local=local, remote=remote, sha256=sha256, executable=executable)
    return deliver(host, layout, upload, None, progress, helper=helper, retry_for_s=retry_for_s)


def deliver(
    host: Host,
    layout: Layout,
    upload: Upload,
    stored: UploadState | None,
    progress: Progress,
    *,
    helper: PurePosixPath | None = None,
    cold: bool = False,
    retry_for_s: float = RETRY_FOR_S,
    still_ours: Callable[[], None] = lambda: None,
) -> bool:
    """Do what ``push`` does from a known state on, if there is one.

    With ``cold`` a check reads the storage instead of the page cache, where the helper is there.
    ``still_ours`` is called when something went wrong, and raises if somebody else has taken the
    board over meanwhile: then theirs is left alone.
    """
    retry = Retry(retry_for_s)
    delivery = _Delivery(
        host, layout, upload, stored, progress, helper, retry, still_ours, cold=cold
    )
    return delivery.run()


class _Delivery:
    """Uploads one file to a board, over as many connections as it takes."""

    def __init__(
        self,
        host: Host,
        layout: Layout,
        upload: Upload,
        stored: UploadState | None,
        progress: Progress,
        helper: PurePosixPath | None,
        retry: Retry,
        still_ours: Callable[[], None],
        *,
        cold: bool,
    ) -> None:
        self._host = host
        self._layout = layout
        self._upload = upload
        self._stored = stored
        self._progress = progress
        self._helper = helper
        self._retry = retry
        self._still_ours = still_ours
        self._cold = cold
        self._known_good_bytes = 0
        self._blocks_sha256 = ""
        self._sent = False
        self._differed = False

    def run(self) -> bool:
        return with_retries(
            self._deliver,
            self._retry,
            lambda error: self._progress.say(f"{error} Resuming when the board answers."),
        )

    def _deliver(self) -> bool:
        stored, self._stored = self._stored, None
        if stored is None:
            stored = what_is_stored(self._host, self._upload)
            if self._retry.away:
                self._still_ours()
        while not self._arrived(stored):
            # The whole file has arrived, and is not as it was sent.
            upload = self._upload
            self._still_ours()
            if self._differed:
                self._remove(upload.part)
                raise TransferError(
                    f"{self._host.name}: {upload.remote} still differs from {upload.local} after a "
                    "second copy.",
                    "If the local file did not change during the copy, the board's storage or "
                    "memory is faulty.",
                )
            self._differed = True
            self._known_good_bytes = 0
            self._progress.say(
                f"{upload.remote.name} differs on {self._host.name}; sending it again."
            )
            if self._helper is None:  # where it differs cannot be told
                self._remove(upload.part)
            stored = what_is_stored(self._host, upload)
        return self._sent

    def _arrived(self, stored: UploadState) -> bool:
        """Do what is left to do; tell whether the file is in its place then."""
        if stored.state == "present":
            return True
        if self._helper is not None and not self._blocks_sha256:
            upload = self._upload
            ours = cached_checksums(upload.local, self._progress)
            if ours.sha256 != upload.sha256:
                raise TransferError(
                    f"{upload.local}: the file has changed since its checksum was computed.",
                    "Wait until it is completely written, then repeat the command.",
                )
            self._blocks_sha256 = ours.blocks_sha256
        if stored.state == "unchecked":
            if self._accepted(self._upload.remote):
                return True
            self._progress.say(
                f"{self._upload.remote.name} on {self._host.name} is damaged; sending it again."
            )
            self._remove(self._upload.remote)
            stored = UploadState(state="absent")
        need_space(self._host, self._layout, [self._upload], [stored])
        self._send(stored)
        return self._accepted(self._upload.part)

    def _send(self, stored: UploadState) -> None:
        name, size = self._upload.remote.name, self._upload.size_bytes
        with self._progress.step(f"Copying {name}", total=size, unit="B") as step:
            if stored.part_bytes:
                step.update(0, note="checking the file on the board")
            offset = good_prefix_bytes(
                self._host,
                self._upload,
                stored.part_bytes,
                known_good_bytes=self._known_good_bytes,
                helper=self._helper,
            )
            if offset > self._known_good_bytes:
                self._retry.heard()
            self._known_good_bytes = offset
            values = {"part": self._upload.part, "token": secrets.token_hex(8)}
            self._host.run(render("files/keep_synced.sh.j2", values))
            if offset:
                step.update(offset, note=f"resuming at {format_bytes(offset)}")
            self._sent = True

            def sent(position: int) -> None:
                if position - offset >= _BEYOND_BUFFERS_BYTES:
                    self._retry.heard()
                step.update(position)

            try:
                self._host.send_file(
                    self._upload.local, self._upload.part, offset_bytes=offset, sent=sent
                )
            except BoardError as error:
                self._still_ours()
                raise self._explained(error) from error

    def _explained(self, error: BoardError) -> BoardError:
        upload = self._upload
        folder, workdir = upload.remote.parent, self._layout.workdir
        why = why_refused(self._host, folder, error.message, workdir)
        if not why.remedy:
            return error
        there = what_is_stored(self._host, upload).part_bytes
        return BoardError(
            f"{self._host.name}: {why.words}. {format_bytes(there)} of {upload.remote.name} "
            f"({format_bytes(upload.size_bytes)}) were copied; repeat the command to resume.",
            why.remedy,
        )

    def _accepted(self, source: PurePosixPath) -> bool:
        label = f"Checking {self._upload.remote.name} on {self._host.name}"
        with self._progress.step(label) as step:
            answer = self._accept(source, verified=False)
            if answer == NO_TOOL:
                step.update(0, note="reading it back")
                digest = hashlib.sha256()
                for chunk in self._host.read(source):
                    digest.update(chunk)
                if digest.hexdigest() == self._upload.sha256:
                    answer = self._accept(source, verified=True)
            return answer == "accepted"

    def _accept(self, source: PurePosixPath, *, verified: bool) -> str:
        upload = self._upload
        script = render(
            "files/accept.sh.j2",
            {
                "source": source,
                "remote": upload.remote,
                "sha256": upload.sha256,
                "blocks_sha256": self._blocks_sha256,
                "block": BLOCK_BYTES,
                "executable": upload.executable,
                "verified": verified,
                "helper": self._helper or "",
                "cold": self._cold,
            },
        )
        done = self._host.run(script, timeout_s=transfer_timeout_s(upload.size_bytes))
        if done.status != 0:
            self._still_ours()
            folder, workdir = upload.remote.parent, self._layout.workdir
            complaint = f"{upload.remote} cannot be moved into place"
            raise refusal(self._host, folder, complaint, reason(done.stderr), workdir)
        return done.text

    def _remove(self, path: PurePosixPath) -> None:
        part = self._upload.part
        beside = (part.with_name(f"{part.name}.syncing"), part.with_name(f"{part.name}.writer"))
        self._host.run(join(["rm", "-f", "--", path, *beside]))
