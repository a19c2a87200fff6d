"""Hostile GGUF files end in one clear line, in little memory, wherever they are looked at."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from armload.boards.specs import DeclaredSpecs
from armload.core.errors import ArmloadError, DataError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.gguf import read_model, read_model_summary, read_outline
from armload.models.header import read_header
from armload.models.shape import load_shape
from armload.models.synth import synthesise
from armload.models.whole_header import whole_header
from armload.runs.predicting import predict_from_facts
from tests.hostile_gguf import KINDS, hostile_files

COUNT, SEED = 240, 46
MOST_BYTES = 64 << 20
"""Of Python's own objects; the sound file has a tenth of a megabyte."""

BOARD = DeclaredSpecs.model_validate({"memory": "2GB"})


@pytest.fixture
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("armload.runs.predicting.footprint_here", lambda *_: None)
    path = tmp_path / "sound.gguf"
    shape = load_shape("stories260k").model_copy(update={"feed_forward": 192})
    synthesise(shape, path, quantisation="Q8_0", seed=1, progress=Silent())
    return path


def test_no_damage_is_a_traceback_or_takes_much_memory(sound: Path, tmp_path: Path) -> None:
    content, header = sound.read_bytes(), read_header(sound)
    path = tmp_path / "hostile.gguf"
    counts: Counter[str] = Counter()
    for each in hostile_files(content, header, seed=SEED, count=COUNT):
        path.write_bytes(each.content)
        tracemalloc.start()
        try:
            for look in (read_model_summary, read_model, _predicted):
                error = _error_of(look, path)
                counts["refused" if error else "accepted"] += 1
                if error is not None:
                    assert isinstance(error, DataError), (each.kind, error)
                    assert error.message.isprintable(), (each.kind, error.message)
                    assert error.remedy
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most_bytes < MOST_BYTES, each.kind
        counts[each.kind] += 1
    assert set(counts) >= {kind for kind, _ in KINDS}
    assert counts["refused"] > COUNT, counts


def _error_of(look: Callable[[Path], object], path: Path) -> ArmloadError | None:
    try:
        look(path)
    except ArmloadError as error:
        return error
    return None


def _predicted(path: Path) -> None:
    model, _ = read_outline(path)
    predict_from_facts(BOARD, "armv8-generic", model, Plan(prompt_tokens=16, n_predict=8))
    whole_header(path)
