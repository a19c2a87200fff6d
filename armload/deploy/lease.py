"""One user at a time on a board: a lease is a claim of one's own with no other beside it.

A claim is a file ``<token>.<boot id>.<uptime in seconds>`` in the lease's folder: in which boot it
counts, and until when. Boards have no battery, so no clock of theirs is asked but the time since
the boot.

Every step of the protocol is one system call that either works or does not.
"""

from __future__ import annotations

import contextlib
import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath

from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import ArmloadError, BoardError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.core.shell import call, render
from armload.core.values import Value, parse_json, whole_number
from armload.deploy.holder import LeaseHolder, this_process
from armload.deploy.layout import Layout
from armload.deploy.retry import patiently
from armload.deploy.stored import list_runs
from armload.deploy.upload import refusal

SERVING = "serving"
"""Follows the id of a run that ends only when it is stopped."""


class Claim(Value):
    """What one user of a board has written there.

    Attributes:
        token: tells it apart from all others.
        owner: who put it up; none when that was not written in time.
        run: the run that keeps it; empty while a workstation does.
        is_service: that run ends only when it is stopped.
        held_s: how long it has stood; none when that is not known.
        left_s: how long it lasts when nobody renews it; 0 when it has ended.
    """

    token: str
    owner: LeaseHolder | None
    run: str
    is_service: bool = False
    held_s: int | None
    left_s: int

    @property
    def words(self) -> str:
        """Who, for how long and what for, in words."""
        who = self.owner.who if self.owner else "unknown user"
        held = "" if self.held_s is None else f" for {_duration(self.held_s)}"
        how = "serving" if self.is_service else "running"
        doing = f", {how} {self.run}" if self.run else ", copying or preparing"
        return f"{who}{held}{doing}"


def claims(host: Host, workdir: PurePosixPath) -> tuple[Claim, ...]:
    """Return who has a board; nobody, mostly one, and for a moment two that both give way.

    Raises:
        ConnectError: the board does not answer.
    """
    folder = Layout(workdir=workdir).lease
    return parse_claims(host.run(call("tell_leases", folder)).text)


def need_board(host: Host, workdir: PurePosixPath) -> None:
    """Make sure that nobody has taken a board over from this process.

    Raises:
        BusyError: somebody has.
        ConnectError: the board does not answer.
    """
    found = [claim for claim in claims(host, workdir) if claim.left_s]
    me = this_process()
    # Whoever comes to look puts up a claim for a moment, beside ours.
    if found and all(claim.owner != me for claim in found):
        raise taken_over(host)


def release(host: Host, workdir: PurePosixPath, *, force: bool) -> tuple[Claim, ...]:
    """End the claims on a board, and return them.

    Without ``force`` only those that have ended by themselves, and those of this machine that keep
    the board for no run that is still running.

    Raises:
        BusyError: somebody else has it, or a run of this machine.
        ConnectError: the board does not answer.
    """
    found = claims(host, workdir)
    mine = this_process().workstation
    lasting = [claim for claim in found if claim.left_s]
    theirs = [claim for claim in lasting if claim.owner is None or claim.owner.workstation != mine]
    if theirs and not force:
        raise BusyError(
            f"{host.name} is in use by {theirs[0].words}.",
            "Use --force to end that lease anyway; a program that runs there keeps running.",
        )
    if not force and any(claim.run for claim in lasting):
        going = {run.id for run in list_runs(host, workdir) if run.state == "running"}
        for claim in lasting:
            if claim.run in going:
                raise BusyError(
                    f"{host.name}: your run {claim.run} is still running there and holds the "
                    "lease.",
                    "The lease ends with the run. Use --force to end it now: the run "
                    "continues, but others can use the board, and the result will not be valid.",
                )
    free(host, workdir, [claim.token for claim in found])
    return found


def parse_claims(text: str) -> tuple[Claim, ...]:
    """Read what the board tells of its claims: its boot and uptime, then each one."""
    first, *lines = text.splitlines() or [""]
    boot, _, up = first.partition(" ")
    parts: list[list[str]] = []
    for line in lines:
        if line.startswith("#claim "):
            parts.append([line.removeprefix("#claim ")])
        elif parts:
            parts[-1].append(line)
    found: dict[str, Claim] = {}
    for part in parts:
        claim = _claim(part, boot, whole_number(up) or 0)
        # One that is just renewed is there twice.
        if claim.token not in found or claim.left_s > found[claim.token].left_s:
            found[claim.token] = claim
    return tuple(found.values())


def _claim(part: Sequence[str], boot: str, up_s: int) -> Claim:
    name, holder, since, run = (*part, "", "", "", "")[:4]
    run, _, how = run.partition(" ")
    token, _, rest = name.partition(".")
    theirs, _, until = rest.rpartition(".")
    until_s, since_s = (whole_number(each) if theirs == boot else None for each in (until, since))
    left_s = 0 if until_s is None else until_s - up_s
    try:
        owner = LeaseHolder.model_validate(parse_json(holder))
    except ValueError:
        owner = None
    return Claim(
        token=token,
        owner=owner,
        run=run,
        is_service=how == SERVING,
        held_s=None if since_s is None else up_s - since_s,
        left_s=max(left_s, 0),
    )


def free(host: Host, workdir: PurePosixPath, tokens: Sequence[str]) -> None:
    """Remove the claims with these tokens, whoever put them up.

    Raises:
        ConnectError: the board does not answer.
    """
    fit = [token for token in tokens if re.fullmatch(r"[\w-]+", token)]
    if fit:
        host.run(call("free_leases", Layout(workdir=workdir).lease, *fit))


def taken_over(host: Host) -> BusyError:
    """Return the error of whoever finds somebody else on the board that was theirs."""
    return BusyError(
        f"{host.name}: the lease expired, and another user has the board now.",
        "What was copied is kept. Repeat the command to continue.",
    )


def _duration(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


TERM_S = 60
"""A claim that nobody renews ends after so long."""

RENEW_EVERY_S = TERM_S / 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.3, 5.0


class Lease:
    """A board that is one's own, until the block ends or a run takes it over.

    Attributes:
        waited: somebody else had the board first.
        kept_by_run: a run renews it from now on and ends it.
    """

    def __init__(self, host: Host, workdir: PurePosixPath, token: str) -> None:
        self._host = host
        self.folder = Layout(workdir=workdir).lease
        self.token = token
        self.waited = False
        self.kept_by_run = False
        self._ended = threading.Event()
        self._renewer: threading.Thread | None = None

    def renew(self) -> None:
        """Give it its whole term again.

        Raises:
            BusyError: it had ended, and somebody else has the board.
            ConnectError: the board does not answer.
        """
        if not patiently(lambda: _renewed(self._host, self)):
            raise taken_over(self._host)

    def renew_by_itself(self, beside: Callable[[], Host]) -> None:
        """Renew it regularly over a separate connection, until it is stopped."""
        self._renewer = threading.Thread(target=self._keep, args=(beside,), daemon=True)
        self._renewer.start()

    def hand_to_run(self) -> None:
        """Give it its whole term, and leave it to a run that is about to start.

        Raises:
            BusyError, ConnectError: as for ``renew``.
        """
        self.stop_renewing()
        self.renew()
        self.kept_by_run = True

    @contextmanager
    def handed_to_run(self) -> Iterator[None]:
        """Leave it to the run that is started in the block; it is ours as before if that fails.

        Raises:
            BusyError, ConnectError: as for ``renew``.
        """
        self.hand_to_run()
        try:
            yield
        except BoardError:
            self.take_back()
            raise

    def take_back(self) -> None:
        """Have it back from a run that was not started, or has ended."""
        self.kept_by_run = False

    def stop_renewing(self) -> None:
        """Leave it to its term, or to a run; a renewal that is under way is done afterwards."""
        self._ended.set()
        if self._renewer is not None:
            self._renewer.join()

    def abandon(self) -> None:
        """Leave it to its term at once."""
        self._ended.set()

    def _keep(self, beside: Callable[[], Host]) -> None:
        host: Host | None = None
        try:
            while not self._ended.wait(RENEW_EVERY_S):
                with contextlib.suppress(ArmloadError):
                    host = host or beside()
                    if not _renewed(host, self):
                        return  # it shows at the next renewal that somebody waits for
        finally:
            if host is not None:
                host.close()


@contextmanager
def leased(
    host: Host,
    workdir: PurePosixPath,
    progress: Progress,
    *,
    wait_s: float,
    beside: Callable[[], Host],
) -> Iterator[Lease]:
    """Have a board for oneself within the block; wait for it when somebody else has it.

    Args:
        beside: opens another connection to the board, over which a long lease is renewed.

    Raises:
        BusyError: somebody else still has it.
        BoardError: the work folder cannot be written.
        ConnectError: the board does not answer.
    """
    lease = Lease(host, workdir, secrets.token_hex(6))
    try:
        _acquire(lease, host, workdir, progress, wait_s)
        lease.renew_by_itself(beside)
        yield lease
    except ConnectError:
        raise  # the connection is gone; the claim expires
    except BaseException:
        if not lease.kept_by_run:
            with contextlib.suppress(ArmloadError):
                free(host, workdir, [lease.token])
        raise
    else:
        lease.stop_renewing()
        if not lease.kept_by_run:
            with contextlib.suppress(ConnectError):  # what the block had to do is done
                free(host, workdir, [lease.token])
    finally:
        lease.abandon()


def _acquire(
    lease: Lease,
    host: Host,
    workdir: PurePosixPath,
    progress: Progress,
    wait_s: float,
) -> None:
    other = _taken(lease, host, workdir, "")
    if other is None:
        return
    began = time.monotonic()
    pause_s = _FIRST_PAUSE_S
    announced = ""
    with progress.step(f"Waiting for {host.name}") as step:
        while other is not None:
            lease.waited = True
            # A command of this machine that was killed will never come back for it; its run may.
            over = other.token if other.owner and other.owner.is_gone() and not other.run else ""
            if not over:
                if other.is_service:
                    raise BusyError(
                        f"{host.name} is in use by {other.words}. A service keeps the board until "
                        "it is stopped.",
                        f"Stop it: armload serve.stop --board {host.name}{_how_to_load(other)}",
                    )
                waited_s = time.monotonic() - began
                if waited_s >= wait_s:
                    raise BusyError(
                        f"{host.name} is in use by {other.words}.",
                        "Wait longer with --wait SECONDS. If the lease is stale: "
                        f"armload board.release --board {host.name} --force",
                    )
                if other.token != announced:
                    progress.say(
                        f"{host.name} is in use by {other.words}; waiting up to {wait_s:.0f} s for "
                        "it (--wait SECONDS). Press Ctrl-C to stop waiting. If the lease is stale: "
                        f"armload board.release --board {host.name} --force"
                    )
                    announced = other.token
                step.update(waited_s, note=f"in use by {other.words}")
                # Two that came at once must not come at once again.
                time.sleep(min(pause_s * random.uniform(0.5, 1), max(wait_s - waited_s, 0.05)))  # noqa: S311
                pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
            other = _taken(lease, host, workdir, over)


def _how_to_load(service: Claim) -> str:
    """Return how to use a service that a command in another terminal of this machine attends."""
    if service.owner is None or not service.owner.is_alive_here():
        return ""
    return (
        ". Or put it under load with the address and the key file that its armload serve shows: "
        "armload load --url URL --api-key-file FILE"
    )


def _taken(lease: Lease, host: Host, workdir: PurePosixPath, over: str) -> Claim | None:
    """Try once; return the claim that is in the way."""
    layout = Layout(workdir=workdir)
    script = render(
        "board/take_lease.sh.j2",
        {
            "folder": layout.lease,
            "runs": layout.runs,
            "token": lease.token,
            "term_s": TERM_S,
            "holder": this_process().model_dump_json(),
            "over": over,
        },
    )
    done = patiently(lambda: host.run(script))
    word, _, rest = done.text.partition("\n")
    if word == "held":
        return None
    if done.status != 0 or word != "busy":
        raise refusal(host, workdir, f"{workdir} cannot be written", reason(done.stderr), workdir)
    return parse_claims(rest)[0]


def _renewed(host: Host, lease: Lease) -> bool:
    return host.run(call("keep_lease", lease.folder, lease.token, TERM_S)).text == "held"
