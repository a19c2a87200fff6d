"""Addresses of repositories, and what is made of git's words."""

from __future__ import annotations

import pytest

from armload.build.git import GitAnswer
from armload.build.repository import address_of, failure, shown
from armload.core.errors import BuildError, UsageError


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("https://github.com/ggml-org/llama.cpp", "https://github.com/ggml-org/llama.cpp"),
        ("https://me@example.org/~me/x", "https://example.org/~me/x"),
        ("ssh://git@example.org:22/x", "ssh://example.org:22/x"),
        ("ssh://git@[::1]:22/x", "ssh://[::1]:22/x"),
        ("git@github.com:ggml-org/llama.cpp", "github.com:ggml-org/llama.cpp"),
        ("board:src/llama.cpp", "board:src/llama.cpp"),
        ("file:///srv/a%20b", "file:///srv/a%20b"),
    ],
)
def test_an_address_is_known_and_shown_without_a_login(typed: str, seen: str) -> None:
    address = address_of(typed)
    assert address is not None
    assert address.url == typed
    assert address.shown == seen


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("https://me:s3cret@x.org:8443/x", "https://x.org:8443/x"),
        ("http://me%40y:s3cret@[::1]:80/a@b", "b"),
        ("https://:s3cret@x.org/x", "https://x.org/x"),
        ("ssh://git:s3cret@x.org/x", "ssh://x.org/x"),
    ],
)
def test_a_password_reaches_git_and_is_never_shown(typed: str, seen: str) -> None:
    address = address_of(typed)
    assert address is not None
    assert address.url == typed
    assert address.shown.endswith(seen)
    assert "s3cret" not in repr(address)


@pytest.mark.parametrize(
    "typed",
    [
        "llama-cpp",
        "./llama.cpp",
        "../a:b",
        "-oProxyCommand=id:x",
        "ext::sh -c id",
        "ext::sh",
        "fd::17",
        "a b:c",
        "host:a b",
        "",
    ],
)
def test_what_git_could_take_for_an_option_or_a_command_is_no_address(typed: str) -> None:
    assert address_of(typed) is None


@pytest.mark.parametrize(
    "typed",
    [
        "https://",
        "https://example.org",
        "https:///x",
        "ssh://-oProxyCommand=id/x",
        "https://example.org/a b",
        "https://example.org/a\nb",
        "https://me:s3cret/more@example.org/x",
        "https://me:s3cret@[::1/x",
        "ext::https://s3cret/x",
        "ftp://me:s3cret@example.org/x",
        "ext://me:s3cret://more@example.org/x",
    ],
)
def test_a_malformed_address_is_refused_without_a_word_of_its_login(typed: str) -> None:
    with pytest.raises(UsageError) as caught:
        address_of(typed)
    assert "me:" not in str(caught.value)
    assert "more" not in str(caught.value)


def test_what_is_shown_never_holds_what_may_be_a_login() -> None:
    assert shown("htps://me:s3://cret@x/y") == "htps://x/y"
    assert shown("me:s3cret@host:x") == "host:x"


def test_one_repository_has_one_folder_however_it_is_spelt() -> None:
    def folder(typed: str) -> str:
        address = address_of(typed)
        assert address is not None
        return address.folder.name

    assert folder("https://a:b@x.org/llama.cpp.git") == folder("https://x.org/llama.cpp/")
    assert folder("https://x.org/llama.cpp") != folder("https://x.org/other")
    assert folder("https://x.org/llama.cpp").startswith("llama.cpp-")
    assert folder("https://x.org/%2e%2e/..").count(".") == 0
    assert "/" not in folder("file:///..")


@pytest.mark.parametrize(
    ("stderr", "kind", "message"),
    [
        ("fatal: repository 'https://x.org/y/' not found", UsageError, "no such repository"),
        ("ERROR: Repository not found.", UsageError, "no such repository"),
        ("fatal: '/x' does not appear to be a git repository", UsageError, "no such repository"),
        (
            "fatal: could not read Username for 'https://github.com': terminal prompts disabled",
            BuildError,
            "needs a login",
        ),
        ("git@github.com: Permission denied (publickey).", BuildError, "needs a login"),
        ("fatal: Authentication failed for 'https://x.org/y/'", BuildError, "needs a login"),
        ("Host key verification failed.", BuildError, "host key is not known"),
        (
            "fatal: unable to access 'https://x.org/y/': Could not resolve host: x.org",
            BuildError,
            "cannot be reached",
        ),
        ("ssh: connect to host x port 22: Connection timed out", BuildError, "cannot be reached"),
        ("fatal: Could not read from remote repository.", BuildError, "cannot be reached"),
        (
            "fatal: detected dubious ownership\nfatal: Could not read from remote repository.",
            BuildError,
            "dubious ownership",
        ),
        ("", BuildError, "status 128"),
    ],
)
def test_git_s_words_become_one_clear_error(
    stderr: str, kind: type[Exception], message: str
) -> None:
    address = address_of("https://x.org/y")
    assert address is not None
    error = failure(address, GitAnswer(128, "", stderr))
    assert isinstance(error, kind)
    assert message in error.message
    assert error.message.startswith("https://x.org/y: ")
    assert error.message.count("\n") == 0


def test_an_address_that_git_repeats_is_shown_without_its_login() -> None:
    address = address_of("https://me:s3cret@x.org/y")
    assert address is not None
    stderr = "fatal: unable to access 'https://me:s3cret@x.org/y/': Connection refused"
    assert "s3cret" not in str(failure(address, GitAnswer(128, "", stderr)))
