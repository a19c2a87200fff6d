"""The claims on a board: who has it, and until when.

A claim is a file ``<token>.<boot id>.<uptime in seconds>`` in the lease's folder: in which boot it
counts, and until when. Boards have no battery, so no clock of theirs is asked but the time since
the boot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal, get_args

from armload.boards.host import Host
from armload.core.errors import BusyError
from armload.core.shell import call
from armload.core.values import Value, parse_json, whole_number
from armload.deploy.board_runs import list_runs
from armload.deploy.holder import LeaseHolder, this_process
from armload.deploy.layout import Layout

SERVING = "serving"
"""Follows the id of a run that ends only when it is stopped."""


Activity = Literal[
    "copying or preparing",
    "timing operations",
    "installing a service",
    "changing a service",
    "deleting files",
]
"""What a command does with a board, unless a run of it has the board."""

PREPARING: Activity = "copying or preparing"


class Claim(Value):
    """What one user of a board has written there.

    Attributes:
        token: tells it apart from all others.
        owner: who put it up; none when that was not written in time.
        run: the run that keeps it; empty while a workstation does.
        is_service: that run ends only when it is stopped.
        doing: what its owner does while there is no run.
        held_s: how long it has stood; none when that is not known.
        left_s: how long it lasts when nobody renews it; 0 when it has ended.
    """

    token: str
    owner: LeaseHolder | None
    run: str
    is_service: bool = False
    doing: Activity = PREPARING
    held_s: int | None
    left_s: int

    @property
    def words(self) -> str:
        """Who, for how long and what for, in words."""
        who = self.owner.who if self.owner else "unknown user"
        held = "" if self.held_s is None else f" for {_duration(self.held_s)}"
        how = "serving" if self.is_service else "running"
        doing = f", {how} {self.run}" if self.run else f", {self.doing}"
        return f"{who}{held}{doing}"


def claims(host: Host, workdir: PurePosixPath) -> tuple[Claim, ...]:
    """Return who has a board; nobody, mostly one, and for a moment two that both give way."""
    folder = Layout(workdir=workdir).lease
    return parse_claims(host.run(call("tell_leases", folder)).text)


def users(host: Host, workdir: PurePosixPath) -> tuple[str, ...]:
    """Say who uses a board: commands that have its lease, and runs; nobody else would be disturbed.

    Raises:
        ConnectError: the board does not answer.
        TransferError: its answer makes no sense.
    """
    found = [
        claim
        for claim in claims(host, workdir)
        if claim.left_s and (claim.run or claim.owner is None or not claim.owner.is_gone())
    ]
    named = {claim.run for claim in found}
    going = [run.id for run in list_runs(host, workdir) if run.state == "running"]
    return (
        *(claim.words for claim in found),
        *(f"the run {run}" for run in going if run not in named),
    )


def need_board(host: Host, workdir: PurePosixPath) -> None:
    """Make sure that nobody has taken a board over from this process."""
    found = [claim for claim in claims(host, workdir) if claim.left_s]
    me = this_process()
    # Whoever comes to look puts up a claim for a moment, beside ours.
    if found and all(claim.owner != me for claim in found):
        raise taken_over(host)


def release(host: Host, workdir: PurePosixPath, *, force: bool) -> tuple[Claim, ...]:
    """End the claims on a board, and return them.

    Without ``force`` only those that have ended by themselves, and those of this machine that keep
    the board for no run that is still running.
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
    doing: object = None
    try:
        told = parse_json(holder)
        doing = told.pop("doing", None) if isinstance(told, dict) else None
        owner = LeaseHolder.model_validate(told)
    except ValueError:
        owner = None
    return Claim(
        token=token,
        owner=owner,
        run=run,
        is_service=how == SERVING,
        doing=next((each for each in get_args(Activity) if each == doing), PREPARING),
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
