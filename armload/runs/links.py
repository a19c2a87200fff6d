"""The connections between the first member of a group and the others: made, and measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network

from armload.boards.forward import LOOPBACK, LocalTunnel, Proxy, proxied
from armload.boards.framing import reason
from armload.boards.group import address_in
from armload.boards.host import Host
from armload.build.helper import LINK
from armload.core.errors import ArmloadError, BoardError, ConnectError
from armload.core.progress import Progress
from armload.core.shell import join, render
from armload.core.values import Value, parse_json
from armload.deploy.layout import Layout
from armload.deploy.own_programs import own_program
from armload.engines.spread import LinkRates
from armload.runs.cached_answers import cached_path, read_cached, write_cached
from armload.runs.session import Connection, Session

_LIMIT_S = 40.0
_EXCHANGES = 3


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A port of a member, as the first one reaches it.

    Attributes:
        endpoint: ``HOST:PORT``.
        proxy: what the bytes pass through; none where they do not pass this machine.
    """

    endpoint: str
    proxy: Proxy | None = None


@contextmanager
def reached(first: Connection, other: Connection, address: str, port: int) -> Iterator[Reached]:
    """Let the first member reach a port of another one, until the block ends.

    Args:
        address: that the other one listens on.
    """
    if address != LOOPBACK or other is first:
        yield Reached(endpoint=f"{address}:{port}")
        return
    with (
        closing(other.beside()) as there,
        there.forwarded(port) as forward,
        proxied(lambda: LocalTunnel(forward.port), other.board.name) as proxy,
        closing(first.beside()) as here,
        here.reverse_forwarded(proxy.port) as reverse_port,
    ):
        yield Reached(endpoint=f"{LOOPBACK}:{reverse_port}", proxy=proxy)


def listening_address(host: Host, network: IPv4Network | None) -> str:
    """Return the address that a member's RPC server listens on.

    Args:
        network: of the group; none where this machine forwards.
    """
    if network is None:
        return LOOPBACK
    found = address_in(network, host.run("cat /proc/net/fib_trie").text)
    if found is None:
        raise BoardError(
            f"{host.name}: it has no address in {network}, where its RPC server should listen.",
            "Correct 'listen' in the group's file, or remove it: armload then forwards.",
        )
    return str(found)


def measured_links(
    session: Session, threads: int | None, progress: Progress
) -> tuple[LinkRates, ...]:
    """Return what the connections to a group's other members give.

    Each is measured once per boot of its two boards, in a few seconds. What cannot be measured is
    left out: it is no reason to give up a run.

    Args:
        threads: of the run on each member; none for one on each usual core.
    """
    found = []
    busy = threads or session.found.conditions.usual_threads
    for member in session.other_members:
        name = member.connection.board.name
        boards = [
            each.connection.board.model_dump(mode="json", include={"name", "reach", "workdir"})
            for each in (session, member)
        ]
        boots = [each.found.conditions.boot_id for each in (session, member)]
        conditions = member.found.conditions
        both = (busy, conditions.threads_as_asked(threads) or conditions.usual_threads)
        kept = cached_path("operations/link", [*boards, *boots, *both, str(_network(session))])
        link = read_cached(LinkRates, kept)
        if link is None:
            address = listening_address(member.connection.host, _network(session))
            try:
                with progress.step(f"Measuring the connection to {name}"):
                    link = _measured(session, member, address, both, progress)
            except ConnectError:
                raise
            except (ArmloadError, ValueError) as error:
                progress.say(f"The connection to {name} was not measured: {error}")
                continue
            write_cached(kept, link)
        found.append(link)
    return tuple(found)


class Clocks(Value):
    """A board's clocks, less this machine's monotonic one.

    Attributes:
        monotonic_s: that the trace's times are on.
        since_boot_s: that counts while the board is suspended, too; the kernel's uptime.
        error_s: both are known within this, to either side.
    """

    monotonic_s: float
    since_boot_s: float
    error_s: float


def read_clocks(session: Session, progress: Progress) -> Clocks:
    """Compare a board's clocks with this machine's, by the quickest of some exchanges.

    The board has read them between our question and its answer (Cristian 1989).

    Raises:
        BoardError, ConnectError: it does not answer.
    """
    host, words = session.connection.host, join((*_program(session, progress), "clock"))
    found = []
    for _ in range(_EXCHANGES):
        asked_s = time.monotonic()
        shown = host.run(words)
        answered_s = time.monotonic()
        try:
            clocks = parse_json(shown.stdout)
            monotonic_s, since_boot_s = (
                clocks[name] / 1e9 for name in ("monotonic_ns", "since_boot_ns")
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BoardError(f"{host.name}: {reason(shown.stderr)}") from error
        middle_s = (asked_s + answered_s) / 2
        found.append(
            Clocks(
                monotonic_s=monotonic_s - middle_s,
                since_boot_s=since_boot_s - middle_s,
                error_s=(answered_s - asked_s) / 2,
            )
        )
    return min(found, key=lambda each: each.error_s)


def _network(session: Session) -> IPv4Network | None:
    return session.group.listen if session.group is not None else None


def _measured(
    session: Session, member: Session, address: str, threads: tuple[int, int], progress: Progress
) -> LinkRates:
    host, board = member.connection.host, member.connection.board
    program = (*_program(member, progress), "serve", address, str(threads[1]))
    values = {"workdir": board.workdir, "program": program}
    done = host.run(render("board/serve_link.sh.j2", values))
    if not done.text.isdecimal():
        raise BoardError(f"{board.name}: {done.text or reason(done.stderr)}")
    with reached(session.connection, member.connection, address, int(done.text)) as way:
        ip, port = way.endpoint.split(":")
        words = (*_program(session, progress), "ask", ip, port, str(threads[0]))
        done = session.connection.host.run(join(words), timeout_s=_LIMIT_S)
    if done.status != 0:
        raise BoardError(f"{session.connection.board.name}: {reason(done.stderr)}")
    return LinkRates.model_validate({"board": board.name, **parse_json(done.stdout)})


def _program(session: Session, progress: Progress) -> tuple[str, ...]:
    """Put the program on a board, and return the words that start it."""
    connection, found = session.connection, session.found
    layout = Layout(workdir=connection.board.workdir)
    words = own_program(connection.host, layout, LINK, found, progress)
    if words is None:
        raise BoardError(f"{connection.board.name}: armload has no program for {found.machine}.")
    return words
