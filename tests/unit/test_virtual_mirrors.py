import platform
from pathlib import Path

import pytest

from armload.core.errors import MissingToolError
from armload.core.mirrors import (
    archives,
    distribution_uris,
    parse_deb822,
    parse_one_line,
)

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

DEBIAN_SOURCES = """\
Types: deb deb-src
# a comment inside the stanza
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""

THIRD_PARTY_SOURCES = """\
Types: deb
URIs: https://vendor.example/apt
Suites: nodistro
Components: main
Signed-By: /usr/share/keyrings/vendor.gpg
"""


def test_deb822_stanzas_become_sources() -> None:
    first, second = parse_deb822(DEBIAN_SOURCES)
    assert first.uris == ("http://mirror.example/debian",)
    assert first.suites == ("bookworm", "bookworm-updates")
    assert second.suites == ("bookworm-security",)


def test_disabled_and_source_only_stanzas_are_left_out() -> None:
    text = "Types: deb\nEnabled: no\nURIs: a\n\nTypes: deb-src\nURIs: b\n"
    assert parse_deb822(text) == []


def test_inline_key_is_one_field() -> None:
    (source,) = parse_deb822("Types: deb\nURIs: a\nSigned-By:\n -----BEGIN\n .\n abc\n")
    assert "abc" in source.signed_by
    assert source.uris == ("a",)


def test_one_line_sources_with_and_without_options() -> None:
    text = (
        "# deb http://off.example/debian bookworm main\n"
        "deb http://mirror.example/debian bookworm main contrib # near\n"
        "deb-src http://mirror.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/etc/vendor.gpg] https://vendor.example stable main\n"
    )
    own, vendor = parse_one_line(text)
    assert own.uris == ("http://mirror.example/debian",)
    assert own.components == ("main", "contrib")
    assert vendor.signed_by == "/etc/vendor.gpg"


def test_third_parties_and_security_archives_are_not_asked() -> None:
    sources = [*parse_deb822(THIRD_PARTY_SOURCES), *parse_deb822(DEBIAN_SOURCES)]
    assert distribution_uris(sources, KEYRING) == ["http://mirror.example/debian"]


def test_sources_that_name_the_distributions_keyring_come_first() -> None:
    sources = [
        *parse_one_line("deb http://old.example/debian bookworm main\n"),
        *parse_deb822(DEBIAN_SOURCES),
    ]
    assert distribution_uris(sources, KEYRING) == [
        "http://mirror.example/debian",
        "http://old.example/debian",
    ]


def test_a_missing_keyring_is_named_with_the_package_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "ubuntu"})
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(MissingToolError, match="keyring") as caught:
        archives()
    assert caught.value.remedy.endswith(": apt install ubuntu-keyring")
