"""llama-server: its command line, its key, and what is kept of a service."""

from __future__ import annotations

import json
import stat
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from armload.boards.local import LocalHost
from armload.cli.verbs.serve import ServeOptions
from armload.core.errors import BoardError, UsageError
from armload.deploy.layout import Layout
from armload.engines.job import Job
from armload.engines.prediction import Sequences
from armload.engines.registry import engine_called
from armload.engines.server import SERVER, TRACE_BYTES, ServerAddress, Serving, plan_for
from armload.engines.service_plan import ServingPlan
from armload.models.context_memory import ContextMemory
from armload.serving.planning import serving_plan
from tests.unit.samples import binary, board_record, conditions, model
from tests.unit.test_engines_speculation import context, option

KEY = "a-key-that-nobody-guesses"
OFFERED = (
    *("--no-repack", "--offline", "--no-ui", "--no-kv-unified", "--cache-ram", "--no-cache-prompt"),
    *("--no-cache-idle-slots", "--ctx-checkpoints", "ARMLOAD_WEIGHTS", "[on|off|auto]", "-fit"),
)
PROGRAM = b"\x7fELF\0llama\0" + b"\0".join(each.encode() for each in OFFERED) + b"\0"


def engine(
    folder: Path,
    plan: ServingPlan | None = None,
    *,
    program: bytes = PROGRAM,
    memory: ContextMemory | None = None,
) -> Serving:
    (folder / SERVER).write_bytes(program)
    (folder / "m.gguf").write_bytes(b"weights")
    plan = plan or ServingPlan(context_tokens=256)
    served = model(folder / "m.gguf", context_length=SLOT_TOKENS)
    served = served.model_copy(update={"context_memory": memory or served.context_memory})
    return Serving(plan, binary(folder / SERVER), served, api_key=KEY)


def test_it_is_in_the_list_of_engines() -> None:
    assert engine_called("llama-server") is Serving


def test_it_listens_on_the_loopback_and_takes_its_key_from_a_file(tmp_path: Path) -> None:
    words = engine(tmp_path).command(context())
    assert option(words, "--host") == "127.0.0.1"
    assert option(words, "--api-key-file") == str(context().layout.api_key)
    assert KEY not in " ".join(words)
    assert KEY not in engine(tmp_path).subject.model_dump_json()
    assert KEY not in str(engine(tmp_path).environment(context()))


def test_each_slot_has_a_context_of_its_own(tmp_path: Path) -> None:
    one = engine(tmp_path, ServingPlan(slots=3, context_tokens=256))
    words = one.command(context())
    assert (option(words, "-np"), option(words, "-c")) == ("3", "768")
    assert "--no-kv-unified" in words
    assert one.memory.context_tokens == 768
    assert one.memory.sequences == Sequences(count=3, kind="slot")


def test_nothing_is_left_to_defaults_that_hurt_a_board(tmp_path: Path) -> None:
    words = engine(tmp_path).command(context())
    assert (option(words, "--cache-ram"), option(words, "--temp")) == ("0", "0")
    assert (option(words, "-b"), option(words, "-ub")) == ("2048", "512")
    assert (option(words, "-ctk"), option(words, "-ctv")) == ("f16", "f16")
    assert (option(words, "-fa"), option(words, "-fit")) == ("auto", "off")
    assert {"--no-cache-prompt", "--no-cache-idle-slots", "--no-ui", "--offline"} <= set(words)


@pytest.mark.parametrize(
    ("plan", "threads"), [({}, "2"), ({"threads": 3}, "3"), ({"cpus": "4-7"}, "4")]
)
def test_threads_are_always_said(plan: dict[str, Any], threads: str, tmp_path: Path) -> None:
    words = engine(tmp_path, ServingPlan(context_tokens=256, **plan)).command(context())
    assert option(words, "-t") == threads
    assert words.count("-t") == 1


def test_a_prompt_cache_is_counted_as_memory(tmp_path: Path) -> None:
    without = engine(tmp_path).memory.program_bytes
    with_cache = engine(tmp_path, ServingPlan(context_tokens=256, prompt_cache_bytes=3 << 20))
    assert with_cache.memory.program_bytes == without + (3 << 20)
    words = with_cache.command(context())
    assert option(words, "--cache-ram") == "3"
    assert option(words, "--ctx-checkpoints") == "0", "a whole KV cache needs none"
    assert "--cache-prompt" in words
    assert "--no-cache-prompt" not in words


WINDOWED = ContextMemory(
    key_values=1024, value_values=1024, window_tokens=512, window_key_values=2048,
    window_value_values=1024, window_layers=4,
)  # fmt: skip
HYBRID = ContextMemory(key_values=1024, value_values=1024, state_bytes=3 << 20, recurrent_layers=6)
SLOTS, SLOT_TOKENS = 3, 4096


@pytest.mark.parametrize(
    ("memory", "each_bytes"),
    [
        # A window has room for a micro-batch more; keys and values are of 16 bits.
        (WINDOWED, (512 + 512) * (2048 + 1024) * 2),
        (HYBRID, 3 << 20),
    ],
    ids=["windowed", "hybrid"],
)
@pytest.mark.parametrize("cache_mib", [0, 1, 17, 36, 100, 1000, 4000])
def test_checkpoints_and_prompts_share_the_prompt_cache(
    tmp_path: Path, memory: ContextMemory, each_bytes: int, cache_mib: int
) -> None:
    plan = ServingPlan(slots=SLOTS, context_tokens=SLOT_TOKENS, prompt_cache_bytes=cache_mib << 20)
    served = engine(tmp_path, plan, memory=memory)
    words = served.command(context())
    count, prompts_mib = (
        int(option(words, f"--{each}")) for each in ("ctx-checkpoints", "cache-ram")
    )
    taken_bytes = count * SLOTS * each_bytes
    assert taken_bytes + (prompts_mib << 20) == cache_mib << 20
    assert taken_bytes <= (cache_mib << 20) / 2
    assert count == 32 or taken_bytes + SLOTS * each_bytes > (cache_mib << 20) / 2
    without = engine(tmp_path, plan.model_copy(update={"prompt_cache_bytes": 0}), memory=memory)
    counted = served.memory.program_bytes - without.memory.program_bytes
    assert counted == cache_mib << 20


ADDRESS = ServerAddress(behind="private/server.sock", key_file=PurePosixPath("keys"))
CACHED: dict[str, Any] = {"slots": SLOTS, "context_tokens": 256, "prompt_cache_bytes": 1 << 20}


@pytest.mark.parametrize(
    ("plan", "memory", "address", "kept"),
    [
        ({}, None, ADDRESS, SLOTS),
        ({"prompt_cache_bytes": 0}, None, ADDRESS, 0),
        ({"speculate": "ngram"}, None, ADDRESS, 0),
        ({"embeddings": "mean"}, None, ADDRESS, 0),
        ({}, WINDOWED, ADDRESS, 0),
        ({}, HYBRID, ADDRESS, 0),
        ({}, None, None, 0),
        ({}, None, ADDRESS.model_copy(update={"behind": ""}), 0),
        ({}, None, ADDRESS.model_copy(update={"sleep_idle_s": 60}), 0),
    ],
)
def test_slots_are_kept_over_a_restart_where_llama_cpp_restores_them(
    tmp_path: Path,
    plan: dict[str, Any],
    memory: ContextMemory | None,
    address: ServerAddress | None,
    kept: int,
) -> None:
    offered = (
        *(b"--slot-save-path", b"UNIX socket", b"--spec-ngram-simple-size-n"),
        b"--sleep-idle-seconds",
    )
    program = PROGRAM + b"\0".join(offered) + b"\0"
    one = engine(tmp_path, program=program, memory=memory)
    served = Serving(
        *(ServingPlan(**{**CACHED, **plan}), one.binary, one.model), api_key=KEY, address=address
    )
    assert served.kept_slots == kept
    words = served.command(context())
    assert (option(words, "--slot-save-path") if "--slot-save-path" in words else "") == (
        "private" if kept else ""
    )


def test_without_the_size_of_a_checkpoint_there_are_none(tmp_path: Path) -> None:
    plan = ServingPlan(slots=1, context_tokens=SLOT_TOKENS, prompt_cache_bytes=1 << 30)
    unknown = HYBRID.model_copy(update={"is_exact": False})
    words = engine(tmp_path, plan, memory=unknown).command(context())
    assert (option(words, "--ctx-checkpoints"), option(words, "--cache-ram")) == ("0", "1024")


@pytest.mark.parametrize(
    ("pooling", "words"),
    [("model", ["--embeddings"]), ("mean", ["--embeddings", "--pooling", "mean"])],
)
def test_embeddings_are_pooled_as_asked(pooling: Any, words: list[str], tmp_path: Path) -> None:
    plan = ServingPlan(context_tokens=256, embeddings=pooling)
    command = engine(tmp_path, plan).command(context())
    begin = command.index("--embeddings")
    assert list(command[begin : begin + len(words)]) == words
    assert ("--pooling" in command) == (pooling != "model")
    assert "--embeddings" not in engine(tmp_path).command(context())


def test_an_older_server_is_given_no_option_that_it_does_not_know(tmp_path: Path) -> None:
    words = engine(tmp_path, program=b"\x7fELF\0llama\0[on|off|auto]\0").command(context())
    assert not set(words) & set(OFFERED)


def test_its_trace_has_a_limit_and_weights_are_streamed_on_request(tmp_path: Path) -> None:
    streamed = engine(tmp_path, ServingPlan(context_tokens=256, weights="streamed"))
    assert streamed.environment(context()) == {
        "ARMLOAD_TRACE_BYTES": str(TRACE_BYTES),
        "ARMLOAD_WEIGHTS": "streamed",
    }
    words = streamed.command(context())
    assert {"--no-repack", "--no-warmup"} <= set(words)


def test_the_key_is_only_its_owners(tmp_path: Path) -> None:
    layout = Layout(workdir=PurePosixPath(tmp_path / "board"))
    path = Path(layout.api_key)
    path.parent.mkdir()
    path.write_text("an older one that others could read")
    path.chmod(0o666)
    engine(tmp_path).place_secret(LocalHost("here"), layout)
    assert path.read_text() == f"{KEY}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_that_cannot_be_written_is_the_boards_failure(tmp_path: Path) -> None:
    layout = Layout(workdir=PurePosixPath(tmp_path / "absent"))
    with pytest.raises(BoardError, match=r"here: .*api-key: "):
        engine(tmp_path).place_secret(LocalHost("here"), layout)


def test_the_context_is_what_the_model_was_trained_for_unless_less_is_asked_for(
    tmp_path: Path,
) -> None:
    trained = model(tmp_path / "m.gguf").model_copy(update={"context_length": 512})
    assert plan_for(trained).context_tokens == 512
    assert plan_for(trained, ServingPlan(slots=2)).context_tokens == 512
    assert plan_for(trained, ServingPlan(context_tokens=256)).context_tokens == 256
    assert plan_for(trained, ServingPlan(context_tokens=300)).context_tokens == 512
    with pytest.raises(UsageError, match="--context 600 is too large"):
        plan_for(trained, ServingPlan(context_tokens=600))


def test_sums_are_those_of_both_files_of_the_trace_and_steps_stay_there(tmp_path: Path) -> None:
    header = {"format": 2, "clock": "CLOCK_MONOTONIC", "page_bytes": 4096, "start_ns": 1}
    step = {
        "tokens": 2,
        "start_ns": 1,
        "end_ns": 2,
        "major_faults": 0,
        "rss_bytes": 1,
        "cpu_ns": 1,
        "prompt_tokens": 1,
        "generated_tokens": 1,
    }
    for name, numbers in (("trace.jsonl.1", (7, 8)), ("trace.jsonl", (9,))):
        lines = [header, *({"step": number, **step} for number in numbers)]
        (tmp_path / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    job = Job(
        **dict(engine(tmp_path).subject),
        id="r",
        fingerprint="f",
        started_utc="2026-11-21T10:00:00+00:00",
        armload="1",
        engine_name=SERVER,
        command=(SERVER,),
        board=board_record(),
        before=conditions(),
    )
    output = Serving.read(job, tmp_path)
    assert output.result == {"steps": 3, "prompt_tokens": 3, "generated_tokens": 3}
    assert output.steps == ()
    assert output.header is not None


def planned(**typed: str) -> ServingPlan | None:
    return serving_plan(ServeOptions.typed(typed).part(ServingPlan))


def test_options_make_a_plan_and_none_make_none() -> None:
    assert planned(slots="", context_tokens="") is None
    plan = planned(slots="2", context_tokens="64", prompt_cache_bytes="1 MiB", kv_type="q8_0")
    assert plan == ServingPlan(
        slots=2, context_tokens=64, prompt_cache_bytes=1 << 20, kv_type="q8_0"
    )


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"slots": "0"}, "--slots: "),
        ({"slots": "many"}, "--slots: must be a whole number"),
        ({"context_tokens": "-1"}, "--context: "),
        ({"prompt_cache_bytes": "a lot"}, "--prompt-cache: "),
        ({"micro_batch_tokens": "0"}, "--micro-batch: "),
        ({"weights": "mapped", "resident_bytes": "1 MB"}, "--resident locks streamed weights"),
    ],
)
def test_a_wrong_option_is_named(typed: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(**typed)
    assert caught.value.message.startswith(said)


SPECULATES = PROGRAM + b"\0".join(
    (b"", b"--spec-ngram-simple-size-n", b"--cache-reuse", b"--cors-origins", b"--timeout", b"")
)


def test_guesses_reused_parts_and_further_arguments_are_options_of_a_service(
    tmp_path: Path,
) -> None:
    plan = ServingPlan(
        context_tokens=256,
        prompt_cache_bytes=1 << 20,
        cache_reuse_tokens=64,
        speculate="ngram",
        engine_args="--seed 7 --jinja",
    )
    words = engine(tmp_path, plan, program=SPECULATES).command(context())
    assert option(words, "--spec-type") == "ngram-simple"
    assert option(words, "--cache-reuse") == "64"
    assert words[-3:] == ("--seed", "7", "--jinja")


@pytest.mark.parametrize(
    "arguments", ["--host 0.0.0.0", "--port=80", "--api-key x", "-a other", "--models-max 3"]
)
def test_who_reaches_a_service_is_not_decided_by_further_arguments(
    tmp_path: Path, arguments: str
) -> None:
    with pytest.raises(UsageError, match="is armload's to decide"):
        engine(tmp_path, ServingPlan(context_tokens=256, engine_args=arguments))


def test_a_program_too_old_to_guess_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too old"):
        engine(tmp_path, ServingPlan(context_tokens=256, speculate="ngram"))


def test_an_installed_one_listens_where_it_was_told_without_cors(tmp_path: Path) -> None:
    keys = PurePosixPath("/services/tutor/keys")
    address = ServerAddress(addresses=("127.0.0.1",), port=8081, key_file=keys)
    words = tuple(address.words(engine(tmp_path, program=SPECULATES).binary.path, 2))
    assert (option(words, "--host"), option(words, "--port")) == ("127.0.0.1", "8081")
    assert option(words, "--api-key-file") == str(keys)
    assert option(words, "--cors-origins") == "none"
    several = address.model_copy(update={"addresses": ("127.0.0.1", "192.168.1.20")})
    with pytest.raises(UsageError, match="one address only"):
        several.words(engine(tmp_path, program=SPECULATES).binary.path, 2)
