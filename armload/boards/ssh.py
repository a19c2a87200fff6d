"""A board reached by SSH: commands over a connection's channels, bulk data by the quickest way."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from armload.boards.bulk import TRANSFER_SILENCE_S, NotStartedError, reporting_chunks
from armload.boards.failures import translated
from armload.boards.forward import Proxy, Tunnel, proxied
from armload.boards.framing import appending, cutting, reason, receiving, size_of
from armload.boards.host import TransportChoice
from armload.boards.ports import free_port
from armload.boards.ssh_commands import LONGEST_COMMAND_BYTES, SshCommands, fits, output_of, sent_to
from armload.boards.ssh_transport import CipherChoice, choose_ciphers, features_here, features_in
from armload.boards.system_ssh import SystemSsh, open_reverse_tunnel, open_tunnel
from armload.core.errors import BoardError
from armload.core.shell import quote

# Below, a second login takes longer than what it saves.
BULK_BYTES = 8 << 20
# Nothing can listen there, so that a trial disturbs nobody.
_NOBODYS_PORT = 0


class SshHost(SshCommands):
    """The Host protocol over SSH.

    Needs nothing of the board but an SSH server, a POSIX shell and ``cat``.
    """

    _system_ssh: SystemSsh | None = None
    _why_no_system_ssh = ""
    _cipher_choice: CipherChoice | None = None

    def transports(self) -> tuple[TransportChoice, ...]:
        """Return how commands, data and clients reach the board, after a trial login."""
        negotiated = ""

        def log_in(ssh: SystemSsh) -> None:
            nonlocal negotiated
            negotiated = ssh.negotiated_cipher()

        self._by_system_ssh(log_in)
        connection, why_no_ssh = self._connected(), self._why_no_system_ssh
        bulk = connection.bulk(why_no_ssh)
        return (
            connection.commands,
            TransportChoice(
                purpose="long commands",
                chosen="a shell's standard input",
                reason=f"small servers accept no command longer than {LONGEST_COMMAND_BYTES} bytes",
            ),
            bulk,
            connection.encryption(negotiated, self._ciphers(), why_no_ssh),
            self._forwarding(bulk),
        )

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        command = f"cat <{quote(path)}"
        blocks: Iterator[bytes] = iter(())

        def begin(ssh: SystemSsh) -> None:
            nonlocal blocks
            blocks = ssh.carrier(command).read(path)
            next(blocks)

        size = self.run(size_of(path)).text.strip()
        large = size.isdecimal() and int(size) >= BULK_BYTES
        if large and fits(command) and self._by_system_ssh(begin):
            with self._watched():
                yield from blocks
            return
        with self._started(command, b"") as channel, translated(self._name):
            channel.settimeout(TRANSFER_SILENCE_S)
            yield from output_of(channel)
            self._check_done(channel, f"{path} cannot be read")

    def write(self, path: PurePosixPath, chunks: Iterable[bytes], *, offset_bytes: int = 0) -> None:
        command = self._receiving(path, offset_bytes)
        rest = iter(chunks)
        first, size = [], 0
        while size < BULK_BYTES and (chunk := next(rest, None)) is not None:
            first.append(chunk)
            size += len(chunk)
        every = itertools.chain(first, rest)
        if (
            size >= BULK_BYTES
            and fits(command)
            and self._by_system_ssh(lambda ssh: ssh.carrier(command).write(path, every))
        ):
            return
        with self._started(command, None) as channel, translated(self._name):
            channel.settimeout(TRANSFER_SILENCE_S)
            for chunk in every:
                if channel.exit_status_ready() or not sent_to(channel, chunk):
                    break
            else:
                channel.shutdown_write()
            self._check_done(channel, f"{path} cannot be written")

    def send_file(
        self, local: Path, remote: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        command = self._receiving(remote, offset_bytes)

        def send(ssh: SystemSsh) -> None:
            carrier = ssh.carrier(command)
            carrier.send_file(local, remote, offset_bytes=offset_bytes, sent=sent)

        large = local.stat().st_size - offset_bytes >= BULK_BYTES
        if not (large and fits(command) and self._by_system_ssh(send)):
            self.write(
                remote, reporting_chunks(local, offset_bytes, sent), offset_bytes=offset_bytes
            )

    def forwarded(self, port: int, local_port: int = 0) -> contextlib.AbstractContextManager[Proxy]:
        return proxied(lambda: self._tunnel(port), self._name, local_port)

    @contextlib.contextmanager
    def reverse_forwarded(self, local_port: int) -> Iterator[int]:
        """Let programs on the board reach a port of this machine's loopback."""
        with self._explained_if_off():
            port = free_port(self)
            tunnel = open_reverse_tunnel(
                *(self._address, self._name, port, local_port), self._ciphers().order
            )
        with tunnel:
            yield port

    def close(self) -> None:
        if self._system_ssh is not None:
            self._system_ssh.close()
            self._system_ssh = None
        self._why_no_system_ssh = ""
        super().close()

    def _tunnel(self, port: int) -> Tunnel:
        with self._explained_if_off():
            return open_tunnel(self._address, self._name, port, self._ciphers().order)

    def _forwarding(self, bulk: TransportChoice) -> TransportChoice:
        chosen, why = bulk.chosen, bulk.reason
        try:
            with self._watched():
                self._connected().check_forwarding(_NOBODYS_PORT)
        except BoardError as error:
            chosen, why = "none", error.message
        return TransportChoice(purpose="port forwarding", chosen=chosen, reason=why)

    def _by_system_ssh(self, carry: Callable[[SystemSsh], None]) -> bool:
        """Let the system's ``ssh`` carry bytes; return False when it cannot log in."""
        with self._watched():
            ciphers = self._ciphers().order
            connection = self._connected()
            if self._why_no_system_ssh:
                return False
            try:
                if self._system_ssh is None:
                    self._system_ssh = SystemSsh(connection, self._name, ciphers)
                carry(self._system_ssh)
            except NotStartedError as error:
                self._why_no_system_ssh = str(error)
                return False
        return True

    def _ciphers(self) -> CipherChoice:
        if self._cipher_choice is None:
            cpuinfo = self.run("cat /proc/cpuinfo").stdout
            self._cipher_choice = choose_ciphers(features_in(cpuinfo), features_here())
        return self._cipher_choice

    def _receiving(self, path: PurePosixPath, offset_bytes: int) -> str:
        """Return the command that receives a file; a longer one runs in two halves."""
        command = receiving(path, offset_bytes)
        if fits(command):
            return command
        done = self.run(cutting(path, offset_bytes))
        if done.status != 0:
            raise BoardError(f"{self._name}: {path} cannot be written: {reason(done.stderr)}.")
        return appending(path, offset_bytes)
