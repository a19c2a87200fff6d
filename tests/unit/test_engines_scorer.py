"""armload-score: its command line, its files, and what is kept of its answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from armload.core.errors import UsageError
from armload.core.pictures import read_picture
from armload.core.progress import Silent
from armload.deploy.follow import ProgressUpdate
from armload.engines.job import Job
from armload.engines.prediction import Sequences
from armload.engines.registry import engine_called
from armload.engines.scorer import SCORER, Scoring, ScoringPlan, SeenImages, look_at_items
from armload.models.projector import read_whole_projector
from tests.projectors import write_projector
from tests.unit.samples import binary, board_record, conditions, model
from tests.unit.test_engines_answers import FAILED, GENERATED, LIKELIHOOD, TOKENS
from tests.unit.test_engines_speculation import context, option

PROGRAM = b"\x7fELF\0llama\0--no-repack\0--offline\0ARMLOAD_WEIGHTS\0[on|off|auto]\0"


def engine(folder: Path, plan: dict[str, object], *, items: str = "{}\n\n{}\n") -> Scoring:
    (folder / SCORER).write_bytes(PROGRAM)
    (folder / "m.gguf").write_bytes(b"weights")
    (folder / "items.jsonl").write_text(items)
    sha256, count = look_at_items(folder / "items.jsonl")
    facts = {"items_sha256": sha256, "items_count": count, "context_tokens": 64}
    whole = ScoringPlan.model_validate({**facts, **plan})
    return Scoring(whole, binary(folder / SCORER), model(folder / "m.gguf"), folder / "items.jsonl")


def test_it_is_in_the_list_of_engines() -> None:
    assert engine_called("armload-score") is Scoring


def test_program_model_and_items_lie_on_the_board(tmp_path: Path) -> None:
    one = engine(tmp_path, {"parallel": 4, "threads": 2, "flash_attention": "on"})
    words = one.command(context())
    remote = {each.name: str(each.items(context().layout)[0].remote) for each in one.payload}
    assert words[0] == remote[SCORER]
    assert option(words, "-m") == remote["m.gguf"]
    assert option(words, "--items") == remote["items.jsonl"]
    assert (option(words, "-c"), option(words, "-np")) == ("64", "4")
    assert (option(words, "-t"), option(words, "-fa")) == ("2", "on")
    assert one.total == 2


def test_images_and_their_projector_lie_on_the_board_and_count(tmp_path: Path) -> None:
    blind = engine(tmp_path, {})
    projector = read_whole_projector(write_projector(tmp_path / "p.gguf", width=64), Silent())
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    seen = SeenImages(projector=projector, images={picture.sha256: picture}, most_tokens=128)
    one = Scoring(blind.plan, blind.binary, blind.model, blind.items, seen)
    words = one.command(context())
    remote = {each.name: each.items(context().layout)[0].remote for each in one.payload}
    assert option(words, "--mmproj") == str(remote["p.gguf"])
    assert option(words, "--images") == str(remote["images"].parent)
    assert remote["images"].name == picture.sha256
    assert option(words, "--image-max-tokens") == "128"
    assert one.fingerprint != blind.fingerprint
    assert one.more_bytes == blind.more_bytes + projector.size_bytes
    assert one.spreadable is None
    assert one.subject.projector is not None
    assert [each.name for each in one.subject.images] == ["a.png"]


def test_every_item_at_a_time_has_a_cache_of_its_own(tmp_path: Path) -> None:
    one, four = (
        engine(tmp_path, {"parallel": count, "context_tokens": 512}).memory for count in (1, 4)
    )
    assert (four.context_tokens, four.kv_bytes) == (4 * one.context_tokens, 4 * one.kv_bytes)
    assert four.sequences == Sequences(count=4, kind="question")
    halved = engine(tmp_path, {"parallel": 4, "context_tokens": 512, "kv_type": "q8_0"}).memory
    assert 0.5 < halved.kv_bytes / four.kv_bytes < 0.6


def test_weights_are_streamed_on_request(tmp_path: Path) -> None:
    one = engine(tmp_path, {"weights": "streamed", "resident_bytes": 4096})
    expected = {"ARMLOAD_WEIGHTS": "streamed", "ARMLOAD_RESIDENT": "4096"}
    assert one.environment(context()) == expected
    words = one.command(context())
    assert "--no-repack" in words
    assert option(words, "--poll") == "0"


def test_other_items_are_another_run(tmp_path: Path) -> None:
    first = engine(tmp_path, {}).fingerprint
    assert engine(tmp_path, {}).fingerprint == first
    assert engine(tmp_path, {}, items="{}\n").fingerprint != first


def test_a_context_beyond_the_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trained for"):
        engine(tmp_path, {"context_tokens": 10_000_000})


def test_progress_counts_answers_and_not_passes(tmp_path: Path) -> None:
    one = engine(tmp_path, {})
    now = ProgressUpdate(steps=700, lines=3, text='{"id":"secret"}\n')
    assert one.progress(now) == 3
    assert one.note(now) == "700 passes over the weights"


def test_only_sums_of_the_answers_are_kept(tmp_path: Path) -> None:
    one = engine(tmp_path, {"threads": 2})
    lines = (GENERATED, LIKELIHOOD, TOKENS, FAILED)
    (tmp_path / "stdout").write_text("".join(f"{line}\n" for line in lines))
    output = Scoring.read(job(one, items_count=5), tmp_path)
    assert output.text is None
    assert output.result == {
        "answers": 4,
        "errors": 1,
        "prompt_tokens": 10,
        "generated_tokens": 3,
        "scored_tokens": 2,
    }
    assert output.missing == "1 of 5 items have no answer."
    assert Scoring.read(job(one, items_count=4), tmp_path).missing == ""


def job(one: Scoring, *, items_count: int) -> Job:
    arguments = {**(one.subject.arguments or {}), "items_count": items_count}
    return Job(
        **{**dict(one.subject), "arguments": arguments},
        id="x",
        fingerprint="f",
        started_utc="2026-11-22T23:00:00+00:00",
        armload="0",
        engine_name=one.name,
        command=(),
        board=board_record(),
        before=conditions(),
    )
