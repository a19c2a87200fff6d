"""llama-speculative-simple: its command line, its files, and the text among what it writes."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from armload.bench.combination import combination
from armload.boards.probe import Probe
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.deploy.layout import Layout
from armload.engines.engine import RunContext
from armload.engines.job import BinaryRecord, Job, ModelRecord
from armload.engines.plan import MICRO_BATCH_TOKENS, Plan
from armload.engines.speculation import Speculation, check_predicts
from armload.models.model import Model
from tests.unit.samples import binary, board_record, conditions, model

NEWER = b"\x7fELF\0llama\0--spec-ngram-simple-size-n\0--no-repack\0--offline\0--perf\0-fit\0"
OLDER = b"\x7fELF\0llama\0-md\0"


def model_file(path: Path, *, sha256: str) -> Model:
    path.write_bytes(b"weights")
    return model(path).model_copy(update={"sha256": sha256 * 64})


def engine(folder: Path, *, speculate: str, program: bytes = NEWER, draft: str = "") -> Speculation:
    path = folder / "llama-speculative-simple"
    path.write_bytes(program)
    plan = Plan(prompt="Once", n_predict=20, speculate=speculate)
    second = model_file(folder / "draft.gguf", sha256=draft) if draft else None
    first = model_file(folder / "m.gguf", sha256="a")
    return Speculation(plan, binary(path), first, second)


def context() -> RunContext:
    found = Probe(
        machine="aarch64",
        cores=2,
        cpu_features=(),
        workdir_writable=True,
        workdir_executable=True,
        clusters=(),
        conditions=conditions(),
    )
    return RunContext(layout=Layout(workdir=PurePosixPath("/w")), found=found)


def option(words: tuple[str, ...], name: str) -> str:
    return words[words.index(name) + 1]


def test_ngrams_need_no_second_model(tmp_path: Path) -> None:
    one = engine(tmp_path, speculate="ngram")
    words = one.command(context())
    assert option(words, "--spec-type") == "ngram-simple"
    assert "-md" not in words
    assert len(one.payload) == 2
    assert one.subject.draft is None


def test_it_generates_one_more_than_it_is_told(tmp_path: Path) -> None:
    assert option(engine(tmp_path, speculate="ngram").command(context()), "-n") == "19"


def test_it_is_given_no_option_that_only_other_programs_take(tmp_path: Path) -> None:
    words = engine(tmp_path, speculate="ngram").command(context())
    assert not {"-no-cnv", "--no-display-prompt", "--offline", "--no-warmup"} & {*words}


def test_threads_do_not_poll_while_streamed_weights_are_read(tmp_path: Path) -> None:
    one = engine(tmp_path, speculate="ngram", program=NEWER + b"ARMLOAD_WEIGHTS\0")
    streamed = Speculation(
        one.plan.model_copy(update={"weights": "streamed"}),
        binary(tmp_path / "llama-speculative-simple"),
        one.model,
        None,
    )
    assert option(streamed.command(context()), "--poll") == "0"
    assert "--no-warmup" not in streamed.command(context())
    assert "--poll" not in one.command(context())


def test_a_draft_model_lies_on_the_board_and_takes_memory(tmp_path: Path) -> None:
    one = engine(tmp_path, speculate="draft:draft.gguf", draft="b")
    alone = engine(tmp_path, speculate="ngram")
    assert option(one.command(context()), "-md") == f"/w/models/{'b' * 12}/draft.gguf"
    assert [each.name for each in one.payload] == [
        *("llama-speculative-simple", "m.gguf", "draft.gguf")
    ]
    assert one.memory.weights_bytes == 2 * alone.memory.weights_bytes
    # The same model drafts, in whole batches, whose mask of 16 bits is larger.
    mask_bytes = 2 * MICRO_BATCH_TOKENS * alone.memory.context_tokens
    drafting_bytes = one.memory.own_bytes - alone.memory.own_bytes
    assert alone.memory.own_bytes < drafting_bytes < alone.memory.own_bytes + mask_bytes
    assert one.subject.draft is not None
    assert one.subject.draft.name == "draft.gguf"


def test_layers_for_mtp_need_no_second_model_and_a_cache_of_their_own(tmp_path: Path) -> None:
    program = NEWER + b"--mtp\0"
    one = engine(tmp_path, speculate="mtp", program=program)
    assert option(one.command(context()), "--spec-type") == "draft-mtp"
    assert "-md" not in one.command(context())
    assert len(one.payload) == 2
    with_cache = model().model_copy(
        update={
            "context_memory": one.model.context_memory.model_copy(
                update={"prediction_values": 2_000}
            )
        }
    )
    other = Speculation(one.plan, binary(tmp_path / "llama-speculative-simple"), with_cache, None)
    tokens = one.memory.context_tokens
    assert other.memory.program_bytes - one.memory.program_bytes == 2 * 2_000 * tokens


def test_a_program_without_mtp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no option --mtp, and is too old"):
        engine(tmp_path, speculate="mtp")


def test_a_model_without_layers_for_mtp_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(UsageError, match=r"m\.gguf has no layers that predict") as refused:
        check_predicts(model())
    assert "ngram" in refused.value.remedy
    with pytest.raises(UsageError, match=r"m\.gguf has no layers that predict"):
        combination(model(), Plan(speculate="mtp"), Silent())
    check_predicts(model().model_copy(update={"prediction_layers": 1}))


def test_another_draft_model_is_another_run(tmp_path: Path) -> None:
    (one, other) = (engine(tmp_path, speculate="draft:draft.gguf", draft=sha) for sha in "bc")
    assert one.fingerprint != other.fingerprint


def test_weights_are_not_repacked_where_the_draft_model_leaves_no_room(tmp_path: Path) -> None:
    tight = context()
    now = conditions(available=2 * 40_000_000 * 5 // 4 + 40_000_000)
    tight = tight.model_copy(update={"found": tight.found.model_copy(update={"conditions": now})})
    alone = engine(tmp_path, speculate="ngram")
    assert "--no-repack" not in alone.command(tight)
    both = engine(tmp_path, speculate="draft:draft.gguf", draft="b")
    assert "--no-repack" in both.command(tight)


def test_an_older_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no option --spec-ngram-simple-size-n"):
        engine(tmp_path, speculate="ngram", program=OLDER)


def job(prompt: str) -> Job:
    return Job(
        id="r",
        fingerprint="f",
        started_utc="2026-11-21T02:15:00+00:00",
        armload="0",
        engine_name=Speculation.name,
        command=("llama-speculative-simple",),
        plan=Plan(prompt=prompt, speculate="ngram"),
        binary=BinaryRecord(program="llama-speculative-simple", sha256="1" * 64),
        model=ModelRecord(name="m.gguf", sha256="2" * 64, size_bytes=None),
        board=board_record(),
        before=conditions(),
    )


def test_the_text_is_what_follows_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"\n\n<s> Once\nupon, Once\nupon a time\n\n\n\n")
    output = Speculation.read(job("Once\nupon"), tmp_path)
    assert output.text == ", Once\nupon a time"
    assert not output.missing


def test_a_prompt_that_was_not_written_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"\n\nsomething else")
    assert Speculation.read(job("Once"), tmp_path).missing
