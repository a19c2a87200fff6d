"""The cipher follows what the CPUs of both ends can do."""

from __future__ import annotations

import pytest

from armload.boards.ssh_transport import choose_ciphers, features_in
from tests import cpuinfo

GCM, CHACHA20 = "aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com"


@pytest.mark.parametrize(
    ("board", "here", "first", "reason"),
    [
        (cpuinfo.ODROID_M1, cpuinfo.X86, GCM, "the CPUs of both ends have"),
        (cpuinfo.RASPBERRY_PI_4, cpuinfo.X86, CHACHA20, "the board's CPU has no instructions"),
        (cpuinfo.RASPBERRY_PI_ZERO_2, cpuinfo.X86, CHACHA20, "the board's CPU has no"),
        (cpuinfo.RASPBERRY_PI_4_OF_32_BITS, cpuinfo.X86, CHACHA20, "the board's CPU has no"),
        (cpuinfo.ODROID_M1, cpuinfo.OLD_X86, CHACHA20, "this machine's CPU has no"),
        (cpuinfo.ODROID_M1, cpuinfo.RASPBERRY_PI_4, CHACHA20, "this machine's CPU has no"),
        (
            cpuinfo.RASPBERRY_PI_4,
            cpuinfo.OLD_X86,
            CHACHA20,
            "the board's CPU and this machine's CPU have no",
        ),
        ("", cpuinfo.X86, GCM, "the features of the board's CPU are unknown"),
        (
            "processor\t: 0\nisa\t\t: rv64imafdc\n",
            cpuinfo.X86,
            GCM,
            "the features of the board's CPU",
        ),
        (cpuinfo.ODROID_M1, "", GCM, "the features of this machine's CPU are unknown"),
    ],
)
def test_aes_comes_first_only_where_both_cpus_have_instructions_for_it(
    board: str, here: str, first: str, reason: str
) -> None:
    choice = choose_ciphers(features_in(board.encode()), features_in(here.encode()))
    assert choice.order[0] == first
    assert sorted(choice.order) == sorted(choose_ciphers((), ()).order), "each stays on offer"
    assert choice.reason.startswith(reason)


@pytest.mark.parametrize(
    ("board", "negotiated", "by_program", "why"),
    [
        (cpuinfo.ODROID_M1, GCM, True, "AES-GCM"),
        (cpuinfo.ODROID_M1, CHACHA20, True, f", but the server does not offer {GCM}"),
        (cpuinfo.RASPBERRY_PI_4, CHACHA20, True, "AES-GCM"),
        (cpuinfo.RASPBERRY_PI_4, GCM, True, f", but the server does not offer {CHACHA20}"),
        (
            cpuinfo.RASPBERRY_PI_4,
            GCM,
            False,
            f", but Python's SSH client does not support {CHACHA20}",
        ),
        (
            cpuinfo.RASPBERRY_PI_4,
            "aes128-ctr",
            False,
            (
                f", but Python's SSH client does not support {CHACHA20} and the server does not "
                f"offer {GCM}"
            ),
        ),
        (cpuinfo.ODROID_M1, "", True, "; the negotiated cipher is unknown"),
    ],
)
def test_the_cipher_that_was_agreed_on_is_told_with_the_reason(
    board: str, negotiated: str, why: str, *, by_program: bool
) -> None:
    choice = choose_ciphers(features_in(board.encode()), features_in(cpuinfo.X86.encode()))
    transport = choice.transport(negotiated, by_program=by_program)
    assert transport.chosen == (negotiated or GCM)
    assert transport.reason.endswith(why)
