"""One user at a time on a board: a lease is a claim of one's own with no other beside it.

Every step of the protocol is one system call that either works or does not.
"""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import ArmloadError, BoardError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.core.shell import call, render
from armload.deploy.claims import PREPARING, Activity, Claim, free, parse_claims, taken_over
from armload.deploy.heartbeat import ENDS_WITHIN_S, heartbeat
from armload.deploy.holder import this_process
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries
from armload.deploy.space import refusal

TERM_S = 60
"""A claim that nobody renews ends after so long."""

RENEW_EVERY_S = TERM_S / 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.3, 5.0


class Lease:
    """A board that is one's own, until the block ends or a run takes it over.

    Attributes:
        doing: what others are told of it.
        waited: somebody else had the board first.
        kept_by_run: a run renews it from now on and ends it.
    """

    def __init__(
        self, host: Host, workdir: PurePosixPath, token: str, doing: Activity = PREPARING
    ) -> None:
        self._host = host
        self.doing = doing
        self.folder = Layout(workdir=workdir).lease
        self.token = token
        self.waited = False
        self.kept_by_run = False
        self._ended = threading.Event()
        self._renewer: threading.Thread | None = None

    def renew(self) -> None:
        if not with_retries(lambda: _renewed(self._host, self)):
            raise taken_over(self._host)

    def renew_by_itself(self, beside: Callable[[], Host]) -> None:
        """Renew it regularly over a separate connection, until it is stopped."""
        self._renewer = threading.Thread(target=self._keep, args=(beside,), daemon=True)
        self._renewer.start()

    def hand_to_run(self) -> None:
        """Give it its whole term, and leave it to a run that is about to start."""
        self.stop_renewing()
        self.renew()
        self.kept_by_run = True

    @contextmanager
    def handed_to_run(self) -> Iterator[None]:
        """Leave it to the run that is started in the block; it is ours as before if that fails."""
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
    doing: Activity = PREPARING,
) -> Iterator[Lease]:
    """Have a board for oneself within the block; wait for it when somebody else has it.

    Args:
        beside: opens another connection to the board, over which a long lease is renewed.
        doing: what others who want the board are told.
    """
    lease = Lease(host, workdir, secrets.token_hex(6), doing)
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
    lease: Lease, host: Host, workdir: PurePosixPath, progress: Progress, wait_s: float
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
                waited_s = time.monotonic() - began
                is_ending = other.is_service and _is_abandoned(host, workdir, other)
                if other.is_service and not (is_ending and waited_s < ENDS_WITHIN_S):
                    raise BusyError(
                        f"{host.name} is in use by {other.words}. A service keeps the board until "
                        "it is stopped.",
                        f"Stop it: {_how_to_stop(host, other)}{_how_to_load(other)}",
                    )
                if is_ending:
                    if other.token != announced:
                        progress.say(
                            f"{host.name} still runs the service {other.run} of a command that "
                            "was killed; waiting for it to end by itself, within "
                            f"{ENDS_WITHIN_S} s. To end it now: {_how_to_stop(host, other)}"
                        )
                elif waited_s >= wait_s:
                    raise BusyError(
                        f"{host.name} is in use by {other.words}.",
                        "Wait longer with --wait SECONDS. If the lease is stale: "
                        f"armload board.release --board {host.name} --force",
                    )
                elif other.token != announced:
                    progress.say(
                        f"{host.name} is in use by {other.words}; waiting up to {wait_s:.0f} s for "
                        "it (--wait SECONDS). Press Ctrl-C to stop waiting. If the lease is stale: "
                        f"armload board.release --board {host.name} --force"
                    )
                announced = other.token
                step.update(waited_s, note=f"in use by {other.words}")
                left_s = (ENDS_WITHIN_S if is_ending else wait_s) - waited_s
                # Two that came at once must not come at once again.
                time.sleep(min(pause_s * random.uniform(0.5, 1), max(left_s, 0.05)))  # noqa: S311
                pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
            other = _taken(lease, host, workdir, over)


def _is_abandoned(host: Host, workdir: PurePosixPath, service: Claim) -> bool:
    """Return whether a service ends by itself soon: the command that kept it running was killed."""
    if service.owner is None or not service.owner.is_gone():
        return False
    folder = Layout(workdir=workdir).runs / service.run
    return with_retries(lambda: heartbeat(host, folder, look_only=True)).is_attended


def _how_to_stop(host: Host, service: Claim) -> str:
    # By its name: the board may have an installed service, too.
    return f"armload service.stop --board {host.name} --name {service.run}"


def _how_to_load(service: Claim) -> str:
    """Return how to use a service of a command in another terminal of this machine."""
    if service.owner is None or not service.owner.is_alive_here():
        return ""
    return (
        ". Or put it under load with the address and the key file that its armload serve printed: "
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
            "holder": json.dumps({**this_process().model_dump(mode="json"), "doing": lease.doing}),
            "over": over,
        },
    )
    done = with_retries(lambda: host.run(script))
    word, _, rest = done.text.partition("\n")
    if word == "held":
        return None
    if done.status != 0 or word != "busy":
        raise refusal(host, workdir, f"{workdir} cannot be written", reason(done.stderr), workdir)
    return parse_claims(rest)[0]


def _renewed(host: Host, lease: Lease) -> bool:
    return host.run(call("keep_lease", lease.folder, lease.token, TERM_S)).text == "held"
