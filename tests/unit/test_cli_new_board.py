"""How a new board's address is given."""

from __future__ import annotations

import pytest

from armload.cli.verbs.init import InitOptions
from armload.core.errors import UsageError


def test_a_user_may_come_before_the_host() -> None:
    reach = InitOptions(host="pi@kitchen").reach()
    assert (reach.user, reach.host) == ("pi", "kitchen")
    assert InitOptions(host="pi@kitchen", user="root").reach().user == "root"
    assert InitOptions(host="kitchen").reach().user is None
    with pytest.raises(UsageError, match="names no host"):
        InitOptions(host="pi@").reach()


@pytest.mark.parametrize("host", ["::1", "fe80::1%eth0", "pi@2001:db8::7", "my_alias", "küche"])
def test_names_aliases_and_addresses_are_taken(host: str) -> None:
    assert InitOptions(host=host).reach().host == host.rpartition("@")[2]


@pytest.mark.parametrize(
    "host",
    [
        *("no such host", "a b@kitchen", "kitchen\t", "kitchen\n", "-oProxyCommand=x", "a;b"),
        *("ssh://pi@kitchen", "ssh://pi@kitchen:22", "fe80::zz", "1:2:3", "[::1]"),
    ],
)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="neither the name nor the address of a host") as found:
        InitOptions(host=host).reach()
    assert "[USER@]HOST" in found.value.remedy


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        ("pi@kitchen:2222", "Use --host pi@kitchen --port 2222."),
        ("root@127.0.0.1:22x", "Use --host root@127.0.0.1 --port PORT."),
        ("[::1]:22", "Use --host ::1 --port 22."),
        ("kitchen:", "Use --host kitchen --port PORT."),
    ],
)
def test_a_port_behind_the_host_is_refused_with_the_option_for_it(host: str, remedy: str) -> None:
    with pytest.raises(UsageError, match="the port has an option of its own") as found:
        InitOptions(host=host).reach()
    assert found.value.remedy == remedy
