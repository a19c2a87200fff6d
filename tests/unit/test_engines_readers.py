"""What other programs print is read by files: the shipped ones, and those that a person writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from armload.core.deciding import deciding
from armload.core.errors import DataError
from armload.core.workspace import data_names
from armload.engines.watched.output import EngineOutput, read_output
from armload.engines.watched.pattern import compiled, find
from armload.engines.watched.reader import READERS, Reader, chosen_reader, load_reader

DASHES = "I rkllm: " + "-" * 86


class Recorded(NamedTuple):
    """An output, and what is right of it."""

    reader: str
    stdout: str
    stderr: str
    figures: Mapping[str, float]
    text: str


LLAMA_CPP = """\

llama_print_timings:        load time =     576.45 ms
llama_print_timings:      sample time =     283.10 ms /   400 runs   (    0.71 ms per token,  1412.91 tokens per second)
llama_print_timings: prompt eval time =     599.83 ms /    19 tokens (   31.57 ms per token,    31.68 tokens per second)
llama_print_timings:        eval time =   24513.59 ms /   399 runs   (   61.44 ms per token,    16.28 tokens per second)
llama_print_timings:       total time =   25431.49 ms /   418 tokens
"""  # noqa: E501
LLAMA_CPP_OLDEST = """\
llama_print_timings:        load time =   134.84 ms
llama_print_timings: prompt eval time =   925.78 ms /    24 tokens (   38.57 ms per token)
llama_print_timings:        eval time =  4178.32 ms /    31 runs   (  134.78 ms per token)
"""
LLAMA_CPP_PERF = """\
llama_perf_sampler_print:    sampling time =     170.97 ms /   136 runs   (    1.26 ms per token,   795.48 tokens per second)
llama_perf_context_print:        load time =    4450.58 ms
llama_perf_context_print: prompt eval time =    4245.68 ms /     8 tokens (  530.71 ms per token,     1.88 tokens per second)
llama_perf_context_print:        eval time =  124973.60 ms /   127 runs   (  984.04 ms per token,     1.02 tokens per second)
llama_perf_context_print:       total time =  129561.47 ms /   135 tokens
"""  # noqa: E501
MNN = """\
config path is qwen/config.json
The device supports: i8sdot:1, fp16:1, i8mm: 0, sve2: 0, sme2: 0
main, 228, cost time: 95.1 ms
prompt file is prompt.txt
It is warm.
#################################
prompt tokens num = 15
decode tokens num = 63
 vision time = 0.00 s
prefill time = 0.05 s
 decode time = 5.73 s
 sample time = 0.02 s
prefill speed = 319.66 tok/s
 decode speed = 11.00 tok/s
##################################
"""
RKLLM = f"""\
rkllm init start
rkllm init success

user: robot: It is warm.
{DASHES}
I rkllm:  Model init time (ms)  5482.81
{DASHES}
I rkllm:  Stage         Total Time (ms)  Tokens    Time per Token (ms)      Tokens per Second
{DASHES}
I rkllm:  Prefill       4143.53          223       18.58                    53.82
I rkllm:  Generate      20911.60         116       180.27                   5.55
{DASHES}
I rkllm:  Peak Memory Usage (GB)
I rkllm:  4.55
{DASHES}

user: """
RKLLM_1_3 = """\
user: ok
robot: It is warm.
I rkllm:  Prefill       196.36           4         49.09                    20.37
I rkllm:  Generate      125.08           1         125.08                   7.99
I rkllm:  Peak Memory Usage (MB)
I rkllm:  1673.56
"""
RKLLM_OLDER = f"""\
robot: It is warm.
{DASHES}
I rkllm:  Stage         Total Time (ms)  Tokens    Time per Token (ms)      Tokens per Second      \

{DASHES}
I rkllm:  Init          189073.94        /         /                        /                      \

I rkllm:  Prefill       1523.53          47        32.42                    30.85                  \

I rkllm:  Generate      308636.08        999       308.95                   3.24                   \

{DASHES}
I rkllm:  Memory Usage (GB)
I rkllm:  6.66        \n"""
DISTRIBUTED_LLAMA = """\
How is it?
🔷️ Eval  532 ms Sync    8 ms | Sent 12456 kB Recv   642 kB | (3 tokens)
🔶 Pred   45 ms Sync    1 ms | Sent   156 kB Recv   313 kB | It
🔶 Pred12345 ms Sync    1 ms | Sent   156 kB Recv   313 kB |  is
🔶 Pred   45 ms Sync    1 ms | Sent   156 kB Recv   313 kB |  warm
🔶 Pred   45 ms Sync    1 ms | Sent   156 kB Recv   313 kB | .


Evaluation
   nBatches: 32
    nTokens: 3
   tokens/s: 5.56 (180.00 ms/tok)
Prediction
    nTokens: 4
   tokens/s: 21.74 (46.00 ms/tok)
"""
LITERT_LM = """\
It is warm.
BenchmarkInfo:
  Init Phases (3):
    - Init Executor: 400.5 ms
    - Init Total: 512.05 ms
    - Init Tokenizer: 12.1 ms
--------------------------------------------------
  Time to first token: 0.81 s
--------------------------------------------------
  Prefill Turns (Total 1 turns):
    Prefill Turn 1: Processed 20 tokens in 764.48ms duration.
      Prefill Speed: 26.1616 tokens/sec.
--------------------------------------------------
  Decode Turns (Total 1 turns):
    Decode Turn 1: Processed 128 tokens in 1m4.918169165s duration.
      Decode Speed: 1.97172 tokens/sec.
--------------------------------------------------
"""
EXECUTORCH = """\
It is warm.
PyTorchObserver {"prompt_tokens":54,"generated_tokens":53,"model_load_start_ms":1710296030044}
I 00:00:05.882600 executorch:stats.h:111] \tPrompt Tokens: 54    Generated Tokens: 53
I 00:00:05.882602 executorch:stats.h:117] \tModel Load Time:\t\t3.577000 (seconds)
I 00:00:05.882604 executorch:stats.h:127] \tTotal inference time:\t\t1.557000 (seconds)\t\t Rate: \
\t34.039820 (tokens/second)
I 00:00:05.882607 executorch:stats.h:135] \t\tPrompt evaluation:\t0.185000 (seconds)\t\t Rate: \
\t291.891892 (tokens/second)
I 00:00:05.882609 executorch:stats.h:146] \t\tGenerated 53 tokens:\t1.372000 (seconds)\t\t Rate: \
\t38.629738 (tokens/second)
I 00:00:05.882613 executorch:stats.h:154] \tTime to first generated token:\t0.185000 (seconds)
"""
OLLAMA = """\
\x1b[?25l⠙ \x1b[?25h\x1b[?25l\x1b[2K\x1b[1G⠹ \x1b[?25h\x1b[2K\x1b[1G\x1b[?25h
total duration:       1m43.893740965s
load duration:        8.28468358s
prompt eval count:    66 token(s)
prompt eval duration: 301.350534ms
prompt eval rate:     219.01 tokens/s
eval count:           1248 token(s)
eval duration:        1m34.992010661s
eval rate:            13.14 tokens/s
"""
OF_LLAMA_CPP = {"prefill_tokens": 19, "prefill_s": 0.59983, "decode_tokens": 399}
OF_LLAMA_CPP |= {"decode_s": 24.51359, "prefill_tps": 31.68, "decode_tps": 16.28}

RECORDED = {
    "llama.cpp": Recorded(
        "llama-cpp", "It is warm.", LLAMA_CPP, OF_LLAMA_CPP | {"load_time": 0.57645}, "It is warm."
    ),
    "llama.cpp of 2023": Recorded(
        "llama-cpp",
        "It is warm.",
        LLAMA_CPP_OLDEST,
        {"prefill_tps": 25.924, "decode_tps": 7.4193, "load_time": 0.13484},
        "It is warm.",
    ),
    "llama.cpp of 2024": Recorded(
        "llama-cpp",
        "It is warm.",
        LLAMA_CPP_PERF,
        {"prefill_tokens": 8, "decode_tokens": 127, "decode_tps": 1.0162, "load_time": 4.45058},
        "It is warm.",
    ),
    "MNN": Recorded(
        "mnn",
        MNN,
        "",
        {"prefill_tokens": 15, "decode_tokens": 63, "prefill_s": 0.05, "decode_s": 5.73}
        | {"prefill_tps": 319.66, "decode_tps": 11.0},
        "It is warm.",
    ),
    "RKLLM": Recorded(
        "rkllm",
        RKLLM,
        "",
        {"prefill_tokens": 223, "decode_tokens": 116, "prefill_s": 4.14353, "decode_s": 20.9116}
        | {"prefill_tps": 53.82, "decode_tps": 5.55, "load_time": 5.48281, "peak_memory": 4.55e9},
        " It is warm.",
    ),
    "RKLLM 1.3": Recorded(
        "rkllm",
        RKLLM_1_3,
        "",
        {"prefill_tokens": 4, "decode_tps": 7.99, "peak_memory": 1673.56e6},
        " It is warm.",
    ),
    "RKLLM, older": Recorded(
        "rkllm",
        RKLLM_OLDER,
        "",
        {"load_time": 189.07394, "prefill_tokens": 47, "decode_tps": 3.24, "peak_memory": 6.66e9},
        " It is warm.",
    ),
    "distributed-llama": Recorded(
        "distributed-llama",
        DISTRIBUTED_LLAMA,
        "",
        {"prefill_tokens": 3, "decode_tokens": 4, "prefill_tps": 5.56, "decode_tps": 21.74},
        "It is warm.",
    ),
    "LiteRT-LM": Recorded(
        "litert-lm",
        LITERT_LM,
        "",
        {"prefill_tokens": 20, "prefill_s": 0.76448, "prefill_tps": 26.1616, "decode_tokens": 128}
        | {"decode_s": 64.918169165, "first_token_time": 0.81, "load_time": 0.51205},
        "It is warm.",
    ),
    "ExecuTorch": Recorded(
        "executorch",
        EXECUTORCH,
        "",
        {"prefill_tokens": 54, "decode_tokens": 53, "prefill_s": 0.185, "decode_s": 1.372}
        | {"decode_tps": 38.629738, "load_time": 3.577, "first_token_time": 0.185},
        "It is warm.",
    ),
    "ExecuTorch without its log's prefixes": Recorded(
        "executorch",
        "It is warm.\n"
        + "\n".join(line.partition("] ")[2] for line in EXECUTORCH.splitlines()[2:]),
        "",
        {"prefill_tokens": 54, "decode_tps": 38.629738},
        "It is warm.",
    ),
    "ollama": Recorded(
        "ollama",
        "It is warm.\n\n",
        OLLAMA,
        {"prefill_tokens": 66, "prefill_s": 0.301350534, "decode_tokens": 1248}
        | {"decode_s": 94.992010661, "prefill_tps": 219.01, "decode_tps": 13.14}
        | {"total_time": 103.893740965, "load_time": 8.28468358},
        "It is warm.\n\n",
    ),
}
EACH = pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)


def text_of(output: EngineOutput, stdout: bytes) -> str:
    assert output.answer is not None
    ranges = (output.answer,) if output.tokens is None else output.tokens
    return b"".join(stdout[begin:end] for begin, end in ranges).decode()


def check(recorded: Recorded, stdout: bytes, stderr: bytes) -> EngineOutput:
    output = read_output(load_reader(recorded.reader), stdout, stderr)
    assert output.missing == ""
    found = output.model_dump() | {each.name: each.value for each in output.figures}
    for name, value in recorded.figures.items():
        assert found[name] == pytest.approx(value, rel=1e-3), name
    return output


@EACH
def test_each_shipped_reader_reads_what_its_program_prints(recorded: Recorded) -> None:
    stdout = recorded.stdout.encode()
    output = check(recorded, stdout, recorded.stderr.encode())
    assert text_of(output, stdout) == recorded.text


@EACH
def test_colours_and_carriage_returns_change_no_figure(recorded: Recorded) -> None:
    def coloured(text: str) -> bytes:
        lines = [f"\x1b[1;32m{line}\x1b[0m\x1b[K" for line in text.splitlines()]
        return ("\rloading 10 %\rloading 99 %\r" + "\r\n".join(lines)).encode()

    check(recorded, coloured(recorded.stdout), coloured(recorded.stderr))


def test_every_shipped_reader_has_a_recorded_output_or_says_that_it_finds_nothing() -> None:
    recorded = {each.reader for each in RECORDED.values()}
    assert {name for name in data_names(READERS) if load_reader(name).lines} - recorded == {
        "mnn-wheel"  # is tested with the answers of MNN
    }


def test_every_shipped_reader_says_where_its_patterns_come_from_and_decides_nothing() -> None:
    for name in data_names(READERS):
        reader = load_reader(name)
        assert reader.seen_in or not reader.lines
        assert deciding(Reader, reader.model_dump(mode="json", exclude={"name"})) == {}


def test_of_several_reports_none_is_used() -> None:
    output = read_output(load_reader("rkllm"), (RKLLM + RKLLM).encode())
    assert (output.decode_tps, output.missing) == (None, "")
    assert "2 reports" in output.notes[0]


def test_a_report_that_was_cut_short_counts_for_nothing_beside_a_whole_one() -> None:
    cut = RKLLM[: RKLLM.index("I rkllm:  Generate")]
    output = read_output(load_reader("rkllm"), (RKLLM + cut).encode())
    assert output.decode_tps == 5.55


def test_a_pattern_that_never_matches_is_named_with_what_the_output_began_with() -> None:
    output = read_output(load_reader("rkllm"), b"\n\x1b[31mrkllm init failed\x1b[0m\n")
    assert "'I rkllm: Prefill {prefill_time:ms}" in output.missing
    assert "the reader rkllm" in output.missing
    assert "standard output begins with 'rkllm init failed'" in output.missing
    assert "RKLLM_LOG_LEVEL=1" in output.missing
    silent = read_output(load_reader("ollama"), b"")
    assert "the program printed nothing" in silent.missing
    assert "and 2 more" in silent.missing


def test_tokens_are_counted_as_written_where_a_program_counts_its_steps() -> None:
    output = read_output(load_reader("llama-cpp"), b"", LLAMA_CPP.encode())
    assert (output.decode_tokens, output.output_tokens) == (399, 400)


OWN = """\
description: a program of one's own
units: {npu_load: "%"}
lines:
  - "speed {prefill_rate} / {decode_rate} tok/s, NPU {npu_load} %"
"""


def own(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_a_person_adds_a_reader_with_figures_of_their_own(tmp_path: Path) -> None:
    reader = load_reader(str(own(tmp_path, OWN)))
    assert reader.name == "mine"
    output = read_output(reader, b"Hello.\nspeed 51.5/12.25 tok/s,  NPU 0 % busy\n")
    assert (output.prefill_tps, output.decode_tps) == (51.5, 12.25)
    (figure,) = output.figures
    assert (figure.name, figure.value, figure.unit) == ("npu_load", 0.0, "%")
    assert figure.words == "npu load 0 %"


@pytest.mark.parametrize(
    ("changed", "to", "line", "said"),
    [
        ("{prefill_rate}", "{prefil_rate}", 4, "{prefil_rate}: no such figure"),
        ("{prefill_rate}", "{prefill_time}", 4, "needs a unit"),
        ("{prefill_rate}", "{prefill_time:furlongs}", 4, "'furlongs' is no unit of it"),
        ("{prefill_rate}", "{prefill_rate", 4, "no partner"),
        ("{prefill_rate}", "{decode_rate}", 4, "names a figure twice"),
        ("{npu_load} %", "{npu_load:%}", 4, "stands under 'units' already"),
        ("npu_load: ", "load_time: s, npu_load: ", 2, "armload knows load_time"),
        ('"speed {prefill_rate} / {decode_rate} tok/s, NPU {npu_load} %"', "speed", 4, "no figure"),
        ('"speed {prefill_rate} / {decode_rate} tok/s, NPU {npu_load} %"', "'{any}'", 4, "fixed"),
        ("lines:", "lins:", 3, "lins"),
    ],
)
def test_a_mistake_in_a_reader_is_answered_with_its_line(
    tmp_path: Path, changed: str, to: str, line: int, said: str
) -> None:
    path = own(tmp_path, OWN.replace(changed, to))
    with pytest.raises(DataError) as caught:
        load_reader(str(path))
    assert said in caught.value.message
    assert f"line {line}" in caught.value.message or f"line {line - 1}" in caught.value.message


def test_a_program_s_name_chooses_its_reader_unless_two_claim_it() -> None:
    assert chosen_reader("", ("/opt/bin/dllama", "inference"))[0].name == "distributed-llama"
    assert chosen_reader("", ("/usr/bin/env", "A=1", "ollama", "run"))[0].name == "ollama"
    assert chosen_reader("", ("python3", "x.py")) == (load_reader("text"), "")
    reader, note = chosen_reader("", ("llm_demo",))
    assert reader.name == "text"
    assert "--reader mnn or --reader rkllm" in note
    assert chosen_reader("rkllm", ("llm_demo",))[0].name == "rkllm"


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (b"abc12345 ms", 12345.0),
        (b"abc   1e3 ms", 1000.0),
        (b"abc -1.5ms", -1.5),
        (b"\t abc \x1b[1m7\x1b[0m ms and more", 7.0),
        (b"abc ms", None),
        (b"abc 5 5 ms", None),
        (b"xabc 5 ms", None),
        (b"abc 1.2.3 ms", None),
    ],
)
def test_a_number_is_found_whole_or_not_at_all(printed: bytes, found: float | None) -> None:
    values = [each.figures["n"].value for each in find(compiled("abc {n} ms"), printed)]
    assert values == ([] if found is None else [found])


def test_two_numbers_of_a_line_are_read_by_one_pattern_or_by_two() -> None:
    line = b"rates: 5.5 in, 6.5 out\n"
    (both,) = find(compiled("rates: {a} in, {b} out"), line)
    assert [each.value for each in both.figures.values()] == [5.5, 6.5]
    (second,) = find(compiled("rates: {number} in, {b} out"), line)
    assert second.figures["b"].value == 6.5
    (last,) = find(compiled("{any} {b} out"), line)
    assert last.figures["b"].value == 6.5


def test_numbers_that_are_none_are_read_and_not_used() -> None:
    reader = Reader(description="x", lines=("speed {decode_rate} of {decode_tokens}",))
    for printed in (b"speed inf of 5", b"speed -nan of 5", b"speed 0 of 5"):
        output = read_output(reader, printed)
        assert (output.decode_tps, output.decode_tokens) == (None, 5)
    for printed in (b"speed 2 of 1.5", b"speed 2 of -1", b"speed 2 of 1e300"):
        output = read_output(reader, printed)
        assert (output.decode_tps, output.decode_tokens) == (2.0, None)
    (found,) = find(compiled("speed {n}"), b"speed nan")
    assert math.isnan(found.figures["n"].value)


@pytest.mark.parametrize(
    "line",
    [
        b"speed" + b"1" * 4000,
        b"speed " * 700,
        b"speed 1." * 500,
        b" " * 4000 + b"speed",
        b"speed" + b"\x1b[" * 2000,
        b"speed" + b"m1" * 2000,
        b"speed" + b"1h" * 2000,
    ],
)
def test_hostile_output_is_read_to_its_end(line: bytes) -> None:
    """A regular expression of this shape would try each of these lines for years."""
    pattern = compiled("speed{any}{a} zz {b:duration} yy{any}speed{any}{c} q{any}speed {d}")
    assert list(find(pattern, (line + b"\n") * 200)) == []


def test_a_line_without_end_is_looked_at_only_at_its_beginning() -> None:
    assert list(find(compiled("speed {n}"), b"x" * 100_000 + b"speed 5" + b"x" * 100_000)) == []
    (found,) = find(compiled("speed {n}"), b"speed 5 " + b"x" * 100_000)
    assert found.figures["n"].value == 5.0
