"""A service that cannot answer is found out before a load on it."""

from __future__ import annotations

from typing import Any

import pytest

from armload.boards.virtual.process import free_port
from armload.core.errors import ConnectError, RunError, UsageError
from armload.serving.readiness import check_service, check_url
from tests.stub_service import ASK, stub_service, target


@pytest.mark.parametrize(
    ("behaviour", "dialect", "kind", "words"),
    [
        ({"api_key": "right"}, "openai", UsageError, "refuses the API key"),
        ({"status": 404}, "llm-serving", UsageError, "does not speak dialect llm-serving"),
        ({"status": 503}, "openai", RunError, "is not ready: as told"),
        (
            {"status": 400, "says": "default chat template is no longer allowed"},
            "openai-chat",
            UsageError,
            "has no chat template. The server rejects chats: default chat template is no",
        ),
        (
            {"status": 501, "says": "This server does not support embeddings."},
            "openai-embeddings",
            UsageError,
            "the service does not support this: This server does not support embeddings",
        ),
        (
            {"status": 400, "says": "Pooling type 'none' is not OAI compatible."},
            "openai-embeddings",
            UsageError,
            "the service does not support this: Pooling type 'none'",
        ),
    ],
)
def test_a_service_that_cannot_answer_is_found_out_before_the_load(
    behaviour: dict[str, Any], dialect: str, kind: type[Exception], words: str
) -> None:
    with stub_service(**behaviour) as service, pytest.raises(kind, match=words):
        check_service(target(service.url, dialect), ASK, 60)


def test_a_service_that_answers_is_asked_for_one_token() -> None:
    with stub_service(api_key="right") as service:
        check_service(target(service.url, api_key="right"), ASK, 60)
    assert [body["n_predict"] for _, body in service.bodies] == [1]


def test_one_request_that_is_refused_says_nothing_of_the_service() -> None:
    with stub_service(status=400) as service:
        check_service(target(service.url), ASK, 60)


def test_an_address_where_nothing_listens_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ConnectError, match="nothing answers there") as error:
        check_service(target(url), ASK, 60)
    assert url in error.value.message
    assert "armload serve" in error.value.remedy


@pytest.mark.parametrize(
    "text", ["board", "ftp://board", "http://", "http://board:x", "http://board:99999"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be the address"):
        check_url(text)


def test_a_key_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as error:
        check_url("http://user:secret@board:80")
    assert "secret" not in str(error.value)


def test_an_address_may_end_as_openais_clients_write_it() -> None:
    assert check_url("http://board:80/v1/") == "http://board:80"
