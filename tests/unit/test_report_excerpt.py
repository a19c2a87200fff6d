"""What of a run is published: what makes it checkable, and nothing that says whose it is."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import psutil
import pytest
from pydantic import create_model

from armload.analysis.background import BackgroundProcess
from armload.analysis.compare import compare
from armload.analysis.contention import Contended
from armload.analysis.measurement import measurement_of
from armload.analysis.run import Run
from armload.analysis.verdict import Verdict
from armload.core.errors import UsageError
from armload.core.values import LEAVES, Leaves, as_json
from armload.deploy.exit_reason import Exit, ExitKind
from armload.engines.plan import SEED_PROMPT, Plan
from armload.models.packaged import SMOLLM2_MODEL
from armload.report import run_words
from armload.report.exchange import Included
from armload.report.exchange.excerpt import EVERYTHING, excerpt_of
from armload.report.exchange.forms import FORMS
from armload.report.run_words import background_line, verdict_line
from tests.unit.findings import CC1, KSWAPD
from tests.unit.published import (
    fields_at,
    free_texts,
    on_a_group,
    on_boards_that_share_layers,
    planted,
    records_in,
    talkative_run,
    text_fields,
)
from tests.unit.runs import failed_run, quick_run, storage_run
from tests.unit.streamed import streamed_run
from tests.unit.sweeps import made_run

USER, HOST, HOME, ADDRESS, IPV6 = "zaphod", "heart-of-gold", "/home/zaphod", "10.1.2.33", "fe80::7"
SECRETS = (USER, HOST, HOME, ADDRESS, "192.168.7.21", IPV6, "zaphod@heart-of-gold")
WAYS: tuple[Callable[[str, str], str], ...] = (
    lambda secret, _: secret,
    lambda secret, text: f"{text} {secret}",
    lambda secret, text: f"{text}-{secret}",
    lambda secret, text: f"{text}/{secret}",
    lambda secret, text: f"{secret}-{text}",
    lambda secret, text: f"{secret}\n{text}",
)


def of_this_machine() -> list[str]:
    """Return the user, the host, the home folder and the addresses that are those of the tests."""
    addresses = [
        each.address.partition("%")[0]
        for several in psutil.net_if_addrs().values()
        for each in several
    ]
    return [getpass.getuser(), socket.gethostname(), str(Path.home()), *addresses]


def occurrences(text: str, secret: str) -> int:
    return len(re.findall(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", text))


def leaked(run: Run) -> list[str]:
    """Return the secrets that are published of a run, whatever text they were written into.

    A host may be called like a word of ours, such as ``vm``, which is no more often there then.
    """
    found, usual, places = [], as_json(excerpt_of(run)), free_texts(run)
    for secret in dict.fromkeys([*SECRETS, *of_this_machine()]):
        for way in WAYS:
            full = planted(run, partial(way, secret), places)
            assert occurrences(as_json(full), secret) > 40
            if occurrences(as_json(excerpt_of(full)), secret) > occurrences(usual, secret):
                found.append(secret)
    return found


@pytest.mark.parametrize("run", [talkative_run(), made_run()], ids=["talkative", "usual"])
def test_no_text_of_a_run_brings_a_secret_into_what_is_published(run: Run) -> None:
    assert leaked(run) == []


def test_the_secrets_are_in_every_field_that_can_hold_a_text() -> None:
    run = talkative_run()
    formed = {
        "Plan.cpus",
        "Plan.device",
        "Plan.kv_type",
        "Plan.speculate",
    }  # are checked when a run is read
    formed |= {"MediaNeed.products"}  # types of tensors, by which figures are told apart
    formed |= {"Reader.lines", "Reader.optional_lines", "Reader.token"}
    formed |= {f"AnswerPlace.{part}" for part in ("after", "before", "skips", "ends")}
    groups = (on_a_group(run), on_boards_that_share_layers(run))
    found = {field for each in (run, *groups) for field in fields_at(each, free_texts(each))}
    assert text_fields() - formed <= found
    assert [leaked(group) for group in groups] == [[], []]


def test_names_and_the_prompt_are_published_only_if_asked_for() -> None:
    run = talkative_run()
    own = run.model.model_copy(update={"name": "beeblebrox.gguf"})
    run = run.model_copy(update={"model": own})
    silent = as_json(excerpt_of(run))
    told: dict[Included, list[str]] = {
        "board": [f'"{run.board.name}-'],
        "model": [f'"{run.model.name}"'],
        "prompt": [f'"{run.plan.prompt if run.plan else ""}"', run.text],
    }
    assert set(told) == set(EVERYTHING)
    for included, words in told.items():
        text = as_json(excerpt_of(run, [included]))
        assert all(word in text for word in words)
        assert not any(word in silent for word in words)


def test_a_model_that_armload_provides_is_published_by_its_name_wherever_it_lies() -> None:
    run = quick_run()

    def published(name: str, sha256: str) -> Run:
        model = run.model.model_copy(update={"name": name, "sha256": sha256})
        return excerpt_of(run.model_copy(update={"model": model, "draft": model}))

    known = published("zaphod.gguf", SMOLLM2_MODEL.sha256)
    assert known.model.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert known.draft == known.model
    assert "SmolLM2-135M-Instruct.Q4_1-" in known.id
    assert "zaphod" not in as_json(known)
    unknown = published("SmolLM2-135M-Instruct.Q4_1.gguf", "a" * 64)
    assert unknown.model.name == "llama-81.8M-Q4_0.gguf"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("random-12x768-q4_0-seed1.gguf", ""),
        ("random-llama-3.2-1b-Q4_0-0123abcd-seed1.gguf", ""),
        ("random-zaphod-Q4_0-0123abcd-seed1.gguf", "llama-81.8M-Q4_0.gguf"),
        ("random-zaphod.gguf", "llama-81.8M-Q4_0.gguf"),
    ],
)
def test_models_of_random_weights_are_published_as_such(name: str, shown: str) -> None:
    run = quick_run()
    model = run.model.model_copy(update={"name": name})
    published = excerpt_of(run.model_copy(update={"model": model})).model.name
    assert published == (shown or name)


def test_a_name_that_was_asked_for_is_a_name_and_no_path() -> None:
    run = planted(talkative_run(), lambda _: "/home/zaphod/x")
    assert "zaphod" not in as_json(excerpt_of(run, ["board", "model"]))


@pytest.mark.parametrize(
    "run",
    [quick_run(), storage_run(), streamed_run(), failed_run(), made_run(), talkative_run()],
    ids=lambda run: run.id,
)
def test_what_is_published_is_the_same_when_it_is_published_again(run: Run) -> None:
    for include in ((), EVERYTHING):
        published = excerpt_of(run, include)
        assert excerpt_of(published) == published
        assert Run.model_validate_json(as_json(published)) == published


def test_what_makes_a_result_checkable_is_published() -> None:
    run = talkative_run()
    published = excerpt_of(run)
    assert published.steps == run.steps
    assert published.summary.token_s == run.summary.token_s
    assert published.model.sha256 == run.model.sha256
    assert published.binary == run.binary
    assert published.board.name == "raspberry-pi-5-2gb-" + published.board.name[-4:]
    assert published.board.cpu_features == run.board.cpu_features
    assert published.before.kernel == run.before.kernel
    assert published.before.governors == ("schedutil",)
    assert (published.before.celsius, published.governor) == (45.0, "performance")
    assert published.command == ("llama-completion", "-n", "32", "-no-cnv")
    assert published.plan is not None
    assert published.plan.extra == ("--no-repack", "-ub", "256")
    assert [each.name for each in published.verdict.findings] == [
        each.name for each in run.verdict.findings
    ]
    assert not published.verdict.valid


def test_every_field_of_a_plan_is_published_but_for_the_texts_that_a_person_wrote() -> None:
    unusual: dict[str, Any] = {
        "engine": "dllama",
        "device": "Vulkan1",
        "prompt": "a secret",
        "prompt_tokens": 64,
        "depth_tokens": 600,
        "n_predict": 33,
        "threads": 3,
        "cpus": "0-2",
        "numa": "isolate",
        "context_tokens": 512,
        "kv_type": "q8_0",
        "flash_attention": "on",
        "weights": "streamed",
        "resident_bytes": 4096,
        "batch_tokens": 256,
        "seed": 7,
        "micro_batch_tokens": 64,
        "speculate": "ngram",
        "split": "tensor",
        "extra": ("--no-repack",),
        "lora": "/home/ann/tuned.gguf",
        "image": "/home/ann/street.jpg",
        "audio": "/home/ann/hello.wav",
        "mmproj": "/home/ann/mmproj.gguf",
        "image_max_tokens": 256,
        "embed": 8,
        "pooling": "mean",
        "texts": 32,
        "temperature": 0.5,
        "stop_at_end": True,
        "cold": True,
        "cool_to_celsius": 50.0,
        "governor": "performance",
        "time_limit_s": 77.0,
    }
    plan, usual = Plan(**unusual), Plan()
    assert [name for name in Plan.model_fields if getattr(plan, name) == getattr(usual, name)] == []
    published = excerpt_of(quick_run().model_copy(update={"plan": plan})).plan
    assert published is not None
    lost = [name for name in unusual if getattr(published, name) != unusual[name]]
    assert lost == ["prompt", "lora", "image", "audio", "mmproj"]


def test_the_default_prompt_is_no_secret() -> None:
    plan = excerpt_of(quick_run()).plan
    assert plan is not None
    assert plan.prompt == SEED_PROMPT


@pytest.mark.parametrize(
    ("release", "published"),
    [
        ("6.12.48+deb13-arm64", "6.12.48-arm64"),
        ("6.6.51-v8-16k+", "6.6.51-v8"),
        ("5.10.160-rockchip-rk3588", "5.10.160-rockchip"),
        ("5.10.209-zaphod", "5.10.209"),
        ("6.8", "6.8"),
        ("10.1.2.33", ""),
        ("zaphod", ""),
    ],
)
def test_a_kernel_keeps_its_version_and_its_vendor(release: str, published: str) -> None:
    run = quick_run()
    before = run.before.model_copy(update={"kernel": release})
    assert excerpt_of(run.model_copy(update={"before": before})).before.kernel == published


@pytest.mark.parametrize(
    ("architecture", "published"),
    [
        *((name, name) for name in ("llama", "qwen3moe", "gemma3n", "gpt-oss", "falcon-h1")),
        *((name, name) for name in ("lfm2moe", "ernie4_5-moe", "nemotron_h_moe", "granitehybrid")),
        *((name, "") for name in ("zaphod", "llama-zaphod", "llama zaphod")),
    ],
)
def test_an_architecture_is_one_of_llama_cpp(architecture: str, published: str) -> None:
    run = quick_run()
    model = run.model.model_copy(update={"architecture": architecture})
    assert excerpt_of(run.model_copy(update={"model": model})).model.architecture == published


@pytest.mark.parametrize(
    ("other", "published"),
    [
        (KSWAPD, "kswapd0"),
        (KSWAPD.model_copy(update={"name": "rcu_sched"}), "rcu_sched"),
        (KSWAPD.model_copy(update={"name": "kworker/0:1-eve"}), "kworker/0:1"),
        (KSWAPD.model_copy(update={"name": "zaphod_wq"}), "a thread"),
        (CC1, "another program"),
        (CC1.model_copy(update={"name": "rcu_sched"}), "another program"),
    ],
)
def test_threads_of_the_kernel_keep_their_names_and_programs_do_not(
    other: BackgroundProcess, published: str
) -> None:
    found = Contended(
        busy_share=0.5, threads=4, switches=9, per="token", process=other, workstation=None
    )
    update = {"background_processes": (other,), "verdict": Verdict.of([found])}
    run = excerpt_of(quick_run().model_copy(update=update))
    assert background_line(run).startswith(published)
    assert f"mostly by {published} (" in run.verdict.reasons[0]


def test_advice_to_whoever_measures_is_not_published() -> None:
    run = excerpt_of(talkative_run())
    advice = re.compile(r"\b(Stop|Repeat|Use|Allow|Let|Check|Free) ")
    assert [reason for reason in run.verdict.reasons if advice.search(reason)] == []
    assert verdict_line(run).endswith(".")
    limited = storage_run()
    assert run_words.advice(limited)
    assert run_words.advice(excerpt_of(limited)) == ""


def test_boards_of_a_kind_stay_apart_and_boots_of_one_do_not_tell_which() -> None:
    names = []
    for boot in ("one", "two", "one"):
        before = quick_run().before.model_copy(update={"boot_id": boot})
        names.append(excerpt_of(quick_run().model_copy(update={"before": before})).board.name)
    assert names[0] == names[2] != names[1]
    assert all(re.fullmatch("rk3568-[0-9a-f]{4}", name) for name in names)


def test_a_run_without_its_text_is_not_garbage() -> None:
    mine, theirs = measurement_of(quick_run()), measurement_of(excerpt_of(quick_run()))
    assert (theirs.garbage, theirs.text) == ("", None)
    (compared,) = compare([mine], [theirs])
    assert compared.subjects
    assert not any("garbage" in each for each in compared.obstacles)
    assert compared.figures[0].ratio.ratio == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("stopped", "The run was interrupted: stopped."), ("killed", "The program failed: killed.")],
)
def test_an_interrupted_run_is_not_published_as_a_failure_of_its_program(
    kind: ExitKind, said: str
) -> None:
    ended = Exit(kind=kind, status=143, meaning="zaphod")
    assert excerpt_of(quick_run().model_copy(update={"exit": ended})).exit.meaning == said


def test_only_runs_that_time_tokens_are_published() -> None:
    scorer = quick_run().model_copy(update={"engine_name": "llama-scorer"})
    with pytest.raises(UsageError, match="no token times to export"):
        excerpt_of(scorer)


def test_a_new_field_stays_until_it_says_that_it_may_leave() -> None:
    def newer(record: Any) -> Any:
        more: Any = {
            "serial": (str, ""),
            "visits": (int, 0),
            "heat": (Annotated[int, LEAVES], 0),
        }
        kind = create_model("Newer", __base__=type(record), **more)
        return kind(**dict(record), serial="zaphod", visits=7, heat=9)

    run = talkative_run()
    parts = ("plan", "binary", "model", "draft", "board", "before", "after", "trace", "place")
    published = excerpt_of(
        newer(run.model_copy(update={name: newer(getattr(run, name)) for name in parts}))
    )
    for record in (published, *(getattr(published, name) for name in parts)):
        assert (record.serial, record.visits, record.heat) == ("", 0, 9)


def test_every_text_that_leaves_has_a_form() -> None:
    texts = text_fields()
    marks = [
        (f"{kind.__name__}.{name}", mark.form)
        for kind in {type(each) for each in records_in(talkative_run())}
        for name, field in kind.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, Leaves)
    ]
    assert len(marks) > 90
    assert {name for name, form in marks if name in texts and not form} == set()
    assert {form for _, form in marks} <= {"", "numbers", *FORMS}
