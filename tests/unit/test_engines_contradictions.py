"""Every verb refuses options that exclude each other before it needs a model or a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.engines.contradictions import check_consistent
from armload.engines.plan import Plan
from armload.engines.service_plan import ServingPlan
from tests.command_line import run

QUANTISED_V = ("--kv-type", "q8_0", "--flash-attention", "off")
PINNED = ("--numa", "isolate", "--cpus", "0-1")
BATCHES = ("--batch", "64", "--micro-batch", "128")
NOWHERE = ("-b", "dayu200", "-m", "no-such-model.gguf")

REFUSED = [
    ("bench", QUANTISED_V, "--kv-type q8_0 with --flash-attention off"),
    ("bench", ("--kv-type", "f16,f16/q4_0", "--flash-attention", "on,off"), "f16/q4_0 with"),
    ("bench", PINNED, "--numa isolate with --cpus 0-1"),
    ("bench", BATCHES, "--micro-batch 128 with --batch 64"),
    ("bench", ("--depth", "32", "--image", "a.png"), "--depth 32 with --image or --audio"),
    ("serve", QUANTISED_V, "--kv-type q8_0 with --flash-attention off"),
    ("serve", BATCHES, "--micro-batch 128 with --batch 64"),
    ("load", ("--concurrency", "1", *QUANTISED_V), "--kv-type q8_0 with --flash-attention off"),
    ("eval", QUANTISED_V, "--kv-type q8_0 with --flash-attention off"),
    ("eval", PINNED, "--numa isolate with --cpus 0-1"),
    ("fit", QUANTISED_V, "--kv-type q8_0 with --flash-attention off"),
]


@pytest.mark.parametrize(("verb", "words", "said"), REFUSED)
def test_a_verb_refuses_them_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("armload", verb, *NOWHERE, *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "no-such-model" not in done.stderr


def test_defaults_contradict_nothing() -> None:
    check_consistent(ServingPlan(batch_tokens=64))  # the micro-batch is fitted to it
    check_consistent(Plan(kv_type="q8_0"))
    check_consistent(Plan(kv_type="q8_0/f16", flash_attention="off"))


def test_the_remedy_is_consistent() -> None:
    with pytest.raises(UsageError, match="quantised V cache") as refused:
        check_consistent(Plan(kv_type="q4_0", flash_attention="off"))
    assert "--kv-type q4_0/f16" in refused.value.remedy
