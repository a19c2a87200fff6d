"""What other engines' benchmarks print is read as they print it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.benchmark_file import read_benchmark_file
from armload.core.errors import DataError

# The fields and figures of llama.cpp's own example in tools/llama-bench/README.md.
LLAMA_BENCH: dict[str, Any] = {
    "build_commit": "8cf427ff",
    "build_number": 5163,
    "cpu_info": "AMD Ryzen 7 7800X3D 8-Core Processor",
    "backends": "CPU",
    "model_filename": "models/Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    "model_size": 4677120000,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_threads": 8,
    "type_k": "f16",
    "type_v": "q8_0",
    "flash_attn": -1,
    "n_prompt": 0,
    "n_gen": 128,
    "n_depth": 0,
    "avg_ns": 1068078400,
    "stddev_ns": 6279455,
    "avg_ts": 119.844681,
    "stddev_ts": 0.699739,
    "samples_ns": [1066331700, 1064864900, 1079042600, 1063328400, 1066824400],
    "samples_ts": [120.038, 120.203, 118.624, 120.377, 119.982],
}
PREFILL = LLAMA_BENCH | {"n_prompt": 512, "n_gen": 0, "avg_ts": 7263.6, "samples_ns": [71551000]}

LLM_DEMO = """\
The meaning of life is to be happy.

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
CLI_DEMO = """\
#################################
prompt tokens num  = 15
decode tokens num  = 63
prefill time = 0.05 s
 decode time = 5.73 s
prefill speed = 319.66 tok/s
 decode speed = 11.00 tok/s
##################################
"""
LLM_BENCH = {
    "model": "/data/qwen-1.8b-mnn/config.json",
    "modelSize": 1.1e9,
    "backend": "CPU",
    "threads": 8,
    "precision": "Low",
    "results": [
        {"type": "prefill", "prompt_len": 512, "generate_len": 0, "tps": 320.5, "std": 1.2},
        {"type": "decode", "prompt_len": 0, "generate_len": 128, "tps": 11.25, "std": 0.1},
        {
            "type": "prefill_and_decode",
            "prompt_len": 32,
            "generate_len": 16,
            "prefill_tps": 300.0,
            "decode_tps": 10.5,
        },
        {"type": "prefill_and_decode", "prompt_len": 32, "generate_len": 16, "tps": 40.0, "std": 1},
    ],
}


def written(folder: Path, content: object) -> Path:
    path = folder / "figures"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_every_repetition_of_llama_bench_is_a_measurement(tmp_path: Path) -> None:
    found = read_benchmark_file(written(tmp_path, [PREFILL, LLAMA_BENCH]))
    assert [each.decode_tps for each in found[1:]] == pytest.approx(
        LLAMA_BENCH["samples_ts"], rel=1e-5
    )
    assert found[0].prefill_tps == pytest.approx(7155.74)
    assert (found[0].decode_tps, found[1].prefill_tps) == (None, None)
    assert found[1].work.model == "Qwen2.5-7B-Instruct-Q4_K_M.gguf"
    assert found[1].work.output_tokens == 128
    assert found[1].work.kv_type == "f16/q8_0"
    assert found[1].work.depth_tokens == 0
    assert found[1].method.threads == 8
    assert len({each.name for each in found}) == 6


def test_a_test_s_depth_is_no_part_of_its_prompt(tmp_path: Path) -> None:
    tests = [PREFILL | {"n_depth": 4096}, LLAMA_BENCH | {"n_depth": 4096}]
    prefill, *decode = (each.work for each in read_benchmark_file(written(tmp_path, tests)))
    assert (prefill.prompt_tokens, prefill.depth_tokens) == (512, 4096)
    assert {(each.prompt_tokens, each.depth_tokens) for each in decode} == {(None, 4096)}


def test_llama_bench_s_jsonl_is_read_too(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(each) for each in (PREFILL, LLAMA_BENCH)) + "\n"
    assert len(read_benchmark_file(written(tmp_path, text))) == 6
    assert len(read_benchmark_file(written(tmp_path, json.dumps(LLAMA_BENCH)))) == 5


def test_a_test_without_samples_gives_its_mean_and_a_mixed_one_nothing(tmp_path: Path) -> None:
    alone = {key: value for key, value in LLAMA_BENCH.items() if not key.startswith("samples")}
    (one,) = read_benchmark_file(written(tmp_path, [alone, LLAMA_BENCH | {"n_prompt": 512}]))
    assert one.decode_tps == 119.844681


@pytest.mark.parametrize("text", [LLM_DEMO, CLI_DEMO], ids=["llm_demo", "cli_demo"])
def test_mnn_s_demo_is_read_in_both_its_layouts(tmp_path: Path, text: str) -> None:
    (one,) = read_benchmark_file(written(tmp_path, text))
    assert (one.prefill_tps, one.decode_tps) == (319.66, 11.0)
    assert (one.work.prompt_tokens, one.work.output_tokens) == (15, 63)


def test_each_summary_of_mnn_s_demo_is_a_measurement(tmp_path: Path) -> None:
    found = read_benchmark_file(written(tmp_path, LLM_DEMO + LLM_DEMO.replace("11.00", "12.00")))
    assert [each.decode_tps for each in found] == [11.0, 12.0]
    assert found[0].name != found[1].name


def test_a_speed_of_nothing_is_none(tmp_path: Path) -> None:
    (one,) = read_benchmark_file(written(tmp_path, LLM_DEMO.replace("11.00", "inf")))
    assert one.decode_tps is None


def test_mnn_s_llm_bench_is_read(tmp_path: Path) -> None:
    found = read_benchmark_file(written(tmp_path, LLM_BENCH))
    assert [(each.prefill_tps, each.decode_tps) for each in found] == [
        (320.5, None),
        (None, 11.25),
        (300.0, 10.5),
    ]
    assert found[0].method.threads == 8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello", "no results"),
        ("", "no results"),
        ([], "no results"),
        ("[{", "JSON document is incomplete"),
        (json.dumps([LLAMA_BENCH])[:-40], "JSON document is incomplete"),
        ([{"a": 1}], "model_filename"),
        ([LLAMA_BENCH | {"avg_ts": 0}], "0.avg_ts"),
        ([LLAMA_BENCH | {"samples_ns": [0]}], "0.samples_ns.0"),
        ([1, 2], "0: "),
        ({"results": [{"type": "odd"}]}, "model"),
        (LLM_DEMO.replace("decode speed", "speed"), "'decode speed = "),
    ],
)
def test_what_is_no_such_file_is_named(tmp_path: Path, content: object, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_benchmark_file(path)
    assert said in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.remedy


def test_bytes_that_are_no_text_are_no_figures(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(DataError, match="no results"):
        read_benchmark_file(path)
