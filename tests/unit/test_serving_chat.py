"""A conversation with a service: what is sent, what is kept, and how it fails."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from armload.core.errors import ArmloadError, ConnectError, DataError, RunError, UsageError
from armload.report.chat import figures_line
from armload.serving.chat import VARIED_TEMPERATURE, Chat, ChatSettings, ContextFullError, Reply
from armload.serving.chat_images import question_of, require_images, sent_image
from armload.serving.chat_partner import ChatPartner
from armload.serving.dialects.dialect import ChatMessage
from armload.serving.interrupts import Interrupts
from armload.serving.thoughts import ThoughtSplitter
from armload.serving.tokenizer import ServiceProperties
from tests.raw_service import DONE, HEAD, delta, event, last, raw_service, spaced, usage
from tests.stub_service import stub_service, target


def partner(url: str, **known: Any) -> ChatPartner:
    found = ChatPartner(target(url, "openai-chat"))
    if known:
        found.properties = ServiceProperties(**known)
    return found


def chat(url: str, *, known: dict[str, Any] | None = None, **settings: Any) -> Chat:
    return Chat(partner(url, **(known or {})), ChatSettings(**({"timeout_s": 30.0} | settings)))


def said(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def nobody(*_: object) -> None:
    pass


def test_each_question_sends_the_whole_conversation_and_thoughts_are_not_quoted() -> None:
    heard: list[tuple[bool, str]] = []
    pieces = ("let", " me", " see", " Blue", ".")
    with stub_service(thoughts=3, pieces=pieces) as service:
        talk = chat(service.url, system="Be brief.", max_tokens=9)
        reply, error = talk.ask(said("Why?"), lambda *word: heard.append(word))
        talk.ask(said("Really?"), nobody)
    assert error is None
    assert (reply.answer, reply.thoughts) == (" Blue.", "let me see")
    assert heard == [(True, "let"), (True, " me"), (True, " see"), (False, " Blue"), (False, ".")]
    (first, second) = [body for path, body in service.bodies if path.endswith("completions")]
    assert first["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    assert (first["max_tokens"], first["temperature"]) == (9, None)
    assert second["messages"][2:] == [
        {"role": "assistant", "content": " Blue."},
        {"role": "user", "content": "Really?"},
    ]


def test_figures_are_the_services_own() -> None:
    timings = {"prompt_n": 5, "cache_n": 2, "prompt_ms": 1.5, "predicted_n": 4}
    whole = last(timings={**timings, "predicted_ms": 500.0})
    stream = spaced(*(delta(" a") for _ in range(4)), whole, usage(4))
    with raw_service(*stream) as service:
        reply, _ = chat(service.url, known={"context_tokens": 64}).ask(said("Why?"), nobody)
    assert reply.decode_tps == 8.0
    assert (reply.prompt_tokens, reply.generated_tokens, reply.used_tokens) == (7, 4, 11)
    assert reply.cached_tokens == 2
    assert reply.context_tokens == 64


def test_another_answer_replaces_the_last_and_is_not_greedy_where_the_service_is() -> None:
    with stub_service(pieces=("Yes",)) as service:
        talk = chat(service.url, known={"is_greedy": True})
        with pytest.raises(LookupError):
            talk.ask_again(nobody)
        talk.ask(said("Why?"), nobody)
        service.behaviour.pieces = ("No",)
        talk.ask_again(nobody)
        warm = chat(service.url, temperature=0.3)
        warm.ask(said("Why?"), nobody)
        warm.ask_again(nobody)
    assert [message.text for message in talk.messages] == ["Why?", "No"]
    asked = [body for path, body in service.bodies if path.endswith("completions")]
    assert "seed" not in asked[0]
    assert asked[1]["messages"] == asked[0]["messages"]
    assert asked[1]["seed"] >= 0
    assert [body["temperature"] for body in asked] == [None, VARIED_TEMPERATURE, 0.3, 0.3]


def test_clearing_forgets_all_but_the_system_prompt() -> None:
    with stub_service(pieces=("Yes",)) as service:
        talk = chat(service.url, system="Be brief.")
        talk.ask(said("Why?"), nobody)
        talk.clear()
    assert [message.role for message in talk.whole] == ["system"]
    with pytest.raises(LookupError):
        talk.ask_again(nobody)


FAILURES: tuple[tuple[dict[str, Any], type[ArmloadError], str], ...] = (
    ({"cut_after": 2}, RunError, "did not finish its answer: the connection ended"),
    ({"error_after": 2}, RunError, "did not finish its answer: out of cells"),
    ({"cut_after": 0}, RunError, "did not answer: the connection ended"),
    ({"status": 500}, RunError, "did not answer: as told"),
    ({"status": 503}, RunError, "is not ready"),
    ({"status": 404}, UsageError, "does not answer chats"),
    ({"api_key": "secret"}, UsageError, "refuses the API key"),
    ({"tokens": 0}, RunError, "answered nothing"),
    ({"context": 1}, ContextFullError, "no longer fits into the model's context"),
)


@pytest.mark.parametrize(("fault", "kind", "says"), FAILURES, ids=lambda each: str(each)[:30])
def test_a_failure_is_said_and_keeps_what_came(
    fault: dict[str, Any], kind: type[ArmloadError], says: str
) -> None:
    with stub_service(**fault) as service:
        talk = chat(service.url, max_tokens=5)
        reply, error = talk.ask(said("Why?"), nobody)
        assert type(error) is kind
        assert says in error.message
        kept = ["Why?", reply.answer] if reply.answer else []
        assert bool(kept) == (fault in ({"cut_after": 2}, {"error_after": 2}))
        assert [message.text for message in talk.messages] == kept
        service.behaviour = type(service.behaviour)(pieces=("Yes",))
        again, error = talk.ask_again(nobody)
    assert (again.answer, error) == ("Yes", None), "asked again, it goes on"


def test_an_answer_that_takes_too_long_keeps_what_came_and_names_the_option() -> None:
    with stub_service(gap_s=30) as service:
        reply, error = chat(service.url, timeout_s=1.0).ask(said("Why?"), nobody)
    assert reply.outcome == "timeout"
    assert type(error) is RunError
    assert "--timeout" in error.remedy


def test_nobody_listens() -> None:
    with stub_service() as service:
        talk = chat(service.url)
    _, error = talk.ask(said("Why?"), nobody)
    assert type(error) is ConnectError


def test_why_a_service_has_ended_is_said_rather_than_that_it_did_not_answer() -> None:
    looks = []

    def ended() -> None:
        looks.append(1)
        if len(looks) > 1:  # the board has not noticed at once
            raise RunError("kitchen no longer serves m.gguf: killed.")

    with stub_service(cut_after=1) as service:
        talk = Chat(
            ChatPartner(target(service.url, "openai-chat"), ended), ChatSettings(timeout_s=30)
        )
        reply, error = talk.ask(said("Why?"), nobody)
    assert reply.answer == " once"
    assert error is not None
    assert error.message == "kitchen no longer serves m.gguf: killed."


def test_an_answer_that_fills_the_context_is_told() -> None:
    stream = spaced(delta(" a"), delta(" b"), last("length"), usage(2, prompt=61))
    with raw_service(*stream) as service:
        reply, error = chat(service.url, known={"context_tokens": 64}).ask(said("?"), nobody)
    assert reply.is_full
    assert isinstance(error, ContextFullError)
    assert "64 tokens" in error.message


def test_ctrl_c_ends_the_answer_and_keeps_what_came() -> None:
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    interrupts = Interrupts()
    with stub_service(gap_s=0.2, tokens=200) as service, interrupts.heeded():
        settings = ChatSettings(timeout_s=30, max_tokens=1000)
        talk = Chat(ChatPartner(target(service.url, "openai-chat")), settings, interrupts)
        thread = threading.Thread(target=interrupt)
        thread.start()
        reply, error = talk.ask(said("Why?"), lambda *_: begun.set())
        thread.join()
        assert (reply.outcome, error) == ("cancelled", None)
        assert reply.answer
        assert [message.text for message in talk.messages] == ["Why?", reply.answer]
        service.behaviour.tokens = 2
        interrupts.forget()
        assert talk.ask(said("And?"), nobody)[0].outcome == "ok"


def test_ctrl_c_before_the_answer_begins_ends_it_and_a_second_one_raises() -> None:
    interrupts = Interrupts()
    with stub_service(pieces=("Yes",)) as service, interrupts.heeded():
        talk = Chat(
            ChatPartner(target(service.url, "openai-chat")), ChatSettings(timeout_s=30), interrupts
        )
        os.kill(os.getpid(), signal.SIGINT)
        assert talk.ask(said("Why?"), nobody)[0].outcome == "cancelled"
        assert not [path for path, _ in service.bodies if path.endswith("completions")]
        interrupts.forget()
        assert talk.ask_again(nobody)[0].answer == "Yes"
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_full_disk_of_the_output_is_no_fault_of_the_service() -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with stub_service(gap_s=0.01, tokens=50) as service, pytest.raises(OSError, match="No space"):
        chat(service.url).ask(said("Why?"), full)


def test_an_event_of_megabytes_is_passed_on() -> None:
    long = "x" * (4 << 20)
    with raw_service(HEAD, event(delta(long)), event(last()), event(usage(1)), DONE) as service:
        reply, error = chat(service.url).ask(said("Why?"), nobody)
    assert (len(reply.answer), error) == (len(long), None)


def texts(*pieces: str) -> tuple[str, str]:
    splitter = ThoughtSplitter()
    found = [each for piece in pieces for each in splitter.feed(piece)] + list(splitter.end())
    return tuple("".join(text for is_t, text in found if is_t == kind) for kind in (True, False))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nhm\n</think>\n\nBlue.", ("\nhm\n", "Blue.")),
        (" \n<think>hm</think>Blue.", ("hm", "Blue.")),
        ("[THINK]hm[/THINK]Blue.", ("hm", "Blue.")),
        ("<think>never ends", ("never ends", "")),
        ("<think>a < b </thin </think>c", ("a < b </thin ", "c")),
        ("<b>bold</b> <think>no</think>", ("", "<b>bold</b> <think>no</think>")),
        ("<thin", ("", "<thin")),
        ("Blue.", ("", "Blue.")),
        ("", ("", "")),
    ],
)
def test_thoughts_at_the_begin_of_an_answer_are_told_apart(
    text: str, expected: tuple[str, str]
) -> None:
    assert texts(text) == expected
    assert texts(*text) == expected, "letter by letter"


def test_what_is_no_thought_is_not_held_back() -> None:
    splitter = ThoughtSplitter()
    assert list(splitter.feed("<")) == []
    assert list(splitter.feed("b")) == [(False, "<b")]
    assert list(splitter.feed("<think>")) == [(False, "<think>")]


def test_images_go_as_parts_and_only_to_models_that_take_them(tmp_path: Any) -> None:
    png = tmp_path / "a.png"
    Image.new("RGB", (4, 2)).save(png)
    message = question_of("What is it?", [sent_image(png).url])
    assert isinstance(message.content, tuple)
    assert message.content[0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert message.text == "What is it?"
    (tmp_path / "b.txt").write_text("no")
    with pytest.raises(DataError, match="not an image"):
        sent_image(tmp_path / "b.txt")
    with pytest.raises(UsageError, match="There is no image"):
        sent_image(tmp_path / "c.png")
    with stub_service() as service:
        with pytest.raises(UsageError, match="takes no images"):
            require_images(partner(service.url, takes_images=False))
        require_images(partner(service.url, takes_images=True))
        require_images(partner(service.url))
        talk = chat(service.url, max_tokens=1)
        service.behaviour.status = 500
        talk.ask(message, nobody)
    (body,) = [body for path, body in service.bodies if path.endswith("completions")]
    assert body["messages"][0]["content"][1] == {"type": "text", "text": "What is it?"}


@pytest.mark.parametrize(
    ("said_of_it", "expected"),
    [
        (
            {
                "chat_template": "x",
                "modalities": {"vision": True},
                "default_generation_settings": {"n_ctx": 512, "params": {"temperature": 0.0}},
            },
            {"template": "x", "takes_images": True, "context_tokens": 512, "is_greedy": True},
        ),
        ({"default_generation_settings": {"n_ctx": 0, "params": {}}}, {}),
        ({"default_generation_settings": [], "modalities": 1, "chat_template": 3}, {}),
        ({"default_generation_settings": {"n_ctx": "many", "params": {"temperature": "a"}}}, {}),
    ],
)
def test_what_a_server_says_of_itself_is_read_and_nonsense_is_unknown(
    said_of_it: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from armload.serving import tokenizer

    answer: Callable[..., object] = lambda *_: said_of_it  # noqa: E731
    monkeypatch.setattr(tokenizer.ServiceApi, "_answer", answer)
    found = tokenizer.ServiceApi("http://x", "").properties()
    assert found == ServiceProperties(**expected)


def test_a_reply_without_counts_has_no_figures() -> None:
    assert figures_line(Reply(answer="a", outcome="ok")) == ""
