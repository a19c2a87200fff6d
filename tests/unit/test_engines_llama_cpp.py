"""llama.cpp is called with the options that the very program knows, and read to the letter."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.core.cpu_sets import cpu_mask, cpu_numbers
from armload.core.errors import UsageError
from armload.deploy.follow import ProgressUpdate
from armload.engines.completion import Completion
from armload.engines.llama_cpp import (
    MAX_PROMPT_BYTES,
    check_architecture,
    check_options,
    command,
    context_tokens,
    engine_times,
    generated_text,
    offers,
    whole_plan,
)
from armload.engines.plan import Plan
from tests.unit.samples import binary, model
from tests.unit.test_engines_scorer import PROGRAM


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "llama-completion"
    path.write_bytes(b"\x7fELF\0--perf\0--no-repack\0-fit\0text about --offline mode\0")
    return path


def words(
    plan: Plan,
    program: Path,
    memory_available_bytes: int = 10**9,
    *,
    memory_bytes: int = 2 * 10**9,
    streamed: bool = False,
    cores: str | None = None,
) -> tuple[str, ...]:
    return command(
        plan,
        model(),
        program,
        on_board=PurePosixPath("/w/bin/llama-completion"),
        model_on_board=PurePosixPath("/w/models/m.gguf"),
        memory_bytes=memory_bytes,
        memory_available_bytes=memory_available_bytes,
        streamed=streamed,
        cores=cores,
    )


def test_only_whole_option_names_count_as_offered(program: Path) -> None:
    assert offers(program, "--perf")
    assert not offers(program, "--offline")
    assert not offers(program, "--per")


def test_the_prompt_goes_as_one_word_unchanged(program: Path) -> None:
    prompt = "-x $(reboot) 'a' \"b\"\nline \\n é"
    line = words(Plan(prompt=prompt), program)
    assert line[line.index("-p") + 1] == prompt
    assert "--no-escape" in line


def test_a_measurement_does_not_stop_at_the_end_of_the_text(program: Path) -> None:
    assert "--ignore-eos" in words(Plan(), program)
    assert "--ignore-eos" not in words(Plan(stop_at_end=True), program)


def test_weights_are_rearranged_only_where_two_copies_fit(program: Path) -> None:
    assert "--no-repack" not in words(Plan(), program, memory_available_bytes=10**9)
    assert "--no-repack" in words(Plan(), program, memory_available_bytes=80_000_000)


def test_a_micro_batch_is_one_whose_buffers_the_board_can_reserve(program: Path) -> None:
    per_token = 4 * model().vocabulary + model().activation_bytes_per_token
    plan = Plan(context_tokens=512)
    assert "-ub" not in words(plan, program, memory_bytes=700 * per_token)
    for memory, tokens in ((600, "256"), (200, "128"), (100, "64"), (1, "16")):
        line = words(plan, program, memory_bytes=memory * per_token)
        assert line[line.index("-ub") + 1] == tokens
    asked = words(Plan(micro_batch_tokens=512), program, memory_bytes=per_token)
    assert asked.count("-ub") == 1
    assert asked[asked.index("-ub") + 1] == "512"


def test_streamed_weights_are_neither_rearranged_nor_read_for_a_warm_up(program: Path) -> None:
    line = words(Plan(), program, streamed=True)
    assert {"--no-repack", "--no-warmup"} <= {*line}
    assert line[line.index("--poll") + 1] == "0"
    assert "--no-warmup" not in words(Plan(), program)


def test_the_cache_holds_prompt_and_output_and_not_more_than_the_model_knows() -> None:
    assert context_tokens(Plan(prompt="x" * 100, n_predict=128), model()) == 256
    assert context_tokens(Plan(prompt="x" * 1900, n_predict=128), model()) == 2048
    assert context_tokens(Plan(context_tokens=300), model()) == 300
    with pytest.raises(UsageError, match="trained for 2048"):
        context_tokens(Plan(context_tokens=4096), model())


def test_a_context_without_room_for_prompt_and_output_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 129 tokens"):
        context_tokens(Plan(context_tokens=128, n_predict=128), model())
    with pytest.raises(UsageError, match="at least 640 tokens"):
        context_tokens(Plan(context_tokens=600, n_predict=128, prompt_tokens=512), model())
    with pytest.raises(UsageError, match="need at least 5001 tokens") as refused:
        context_tokens(Plan(n_predict=5000), model())
    assert "-n" not in refused.value.remedy, "fit has no such option"


def test_the_engine_is_given_what_the_plan_says(program: Path) -> None:
    plan = Plan(batch_tokens=64, micro_batch_tokens=32, kv_type="q8_0/q4_0", flash_attention="on")
    line = " ".join(words(plan, program))
    assert "-b 64 -ub 32 -ctk q8_0 -ctv q4_0 -fa" in line
    assert " -fa on" not in line
    program.write_bytes(program.read_bytes() + b"[on|off|auto]\0")
    assert " -fa on" in " ".join(words(plan, program))
    assert " --numa distribute " in " ".join(words(Plan(numa="distribute"), program))
    assert "--numa" not in words(Plan(), program)
    assert " -t 4 " in " ".join(words(Plan(), program, cores="4-7"))
    assert " -t 1 " in " ".join(words(Plan(cpus="0"), program, cores="0"))
    assert " -t 3 " in " ".join(words(Plan(threads=3), program, cores="4-7"))
    with pytest.raises(UsageError, match="--numa isolate with --cpus 0-3: "):
        check_options(program, Plan(numa="isolate", cpus="0-3"))
    check_options(program, Plan(numa="numactl", cpus="0-3"))


def test_flash_attention_was_a_flag_before_it_had_values(program: Path) -> None:
    assert "-fa" not in words(Plan(flash_attention="off"), program)
    with pytest.raises(UsageError, match="only on and off"):
        words(Plan(flash_attention="auto"), program)


def test_cores_are_written_as_the_kernel_writes_them() -> None:
    assert cpu_numbers("0-2,6,1") == (0, 1, 2, 6)
    assert cpu_mask("4-7") == "f0"


def test_a_model_whose_architecture_the_source_lacks_is_refused() -> None:
    unknown = model().model_copy(update={"architecture": "mamba9"})
    knows = binary().model_copy(update={"architectures": ("llama", "qwen2")})
    check_architecture(knows, model())
    with pytest.raises(UsageError, match=r"'mamba9', which llama\.cpp b\d+ does not") as refused:
        check_architecture(knows, unknown)
    assert "--source" in refused.value.remedy
    check_architecture(binary(), unknown)  # of that program's source nothing is recorded


def test_a_prompt_beyond_a_command_line_is_refused_before_any_work() -> None:
    roomy = model().model_copy(update={"context_length": 1 << 20})
    with pytest.raises(UsageError, match="bytes long"):
        whole_plan(Plan(prompt="x" * (MAX_PROMPT_BYTES + 1)), roomy)


@pytest.mark.parametrize(
    ("stdout", "text"),
    [
        (b" there was\n\n", " there was"),
        (b" the end. [end of text]\n\n\n", " the end."),
        (b" cut in the mid", " cut in the mid"),
        (b"two\n\n\n\n", "two\n\n"),
        (b"caf\xc3\n\n", "caf\ufffd"),
    ],
)
def test_the_text_is_what_the_model_wrote(stdout: bytes, text: str) -> None:
    assert generated_text(stdout) == text


PERF = """\
common_perf_print:        load time =     103.84 ms
common_perf_print: prompt eval time =      41.32 ms /     5 tokens (    8.26 ms per token)
common_perf_print:        eval time =    1234.50 ms /   251 runs   (    4.92 ms per token)
common_perf_print:       total time =    1400.00 ms /   256 tokens
"""


def test_the_engines_own_sums_are_read() -> None:
    times = engine_times(PERF)
    assert times is not None
    assert (times.load_ms, times.prompt_ms, times.prompt_tokens) == (103.84, 41.32, 5)
    assert (times.eval_ms, times.eval_tokens) == (1234.5, 251)


def test_no_sums_are_no_error() -> None:
    assert engine_times("error: out of memory\n") is None


def test_what_comes_before_the_first_token_is_named(tmp_path: Path) -> None:
    program = tmp_path / "llama-completion"
    program.write_bytes(PROGRAM)
    engine = Completion(Plan(prompt="x"), binary(program), model())
    waiting = ProgressUpdate(steps=0, lines=0, text="")
    assert "processing the prompt" in engine.phase(waiting)
    assert engine.phase(ProgressUpdate(steps=1, lines=0, text="Once")) == "generating"
