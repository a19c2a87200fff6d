"""Checkpoints are read without their weights, and what is missing is named before all else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from gguf import GGUFReader

from armload.build.source import pinned_source
from armload.conversion.checkpoints import checking
from armload.conversion.checkpoints.checking import (
    TOLERANCES,
    ComparedLogits,
    ConversionCheck,
    DifferentText,
    TextFindings,
    check_gguf,
    judge,
)
from armload.conversion.checkpoints.checkpoint import (
    Checkpoint,
    read_checkpoint,
    read_checkpoint_outline,
)
from armload.conversion.checkpoints.converting import convert
from armload.conversion.checkpoints.environment import Environment, pinned_packages
from armload.conversion.checkpoints.forms import (
    check_type,
    gguf_architectures,
    memory_bytes,
    result_bytes,
)
from armload.conversion.checkpoints.program import run_converter
from armload.conversion.checkpoints.proposal import Proposal
from armload.conversion.checkpoints.staging import staged
from armload.core.errors import ArmloadError, DataError, LocalMemoryError, UsageError
from armload.core.places import data_path
from armload.core.progress import Silent
from armload.models.header import read_header
from armload.models.packaged import word_problems_model
from tests.checkpoints import checkpoint_of
from tests.command_line import typed
from tests.tokenizers import write_as_today
from tests.unit.samples import binary

INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00003.safetensors"
UNUSABLE = f"{SECOND}: this file is truncated, damaged, or not a safetensors file ("


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return checkpoint_of(word_problems_model("word-problems:Q8_0"), tmp_path / "sums", shards=3)


def test_a_checkpoint_is_described_by_its_headers(checkpoint: Path) -> None:
    found = read_checkpoint(checkpoint)
    assert (found.name, found.architecture, found.model_type) == (
        "sums",
        "LlamaForCausalLM",
        "llama",
    )
    assert (found.dtype, found.parameters, found.tied) == ("F32", 2_520_576, True)
    assert found.size_bytes == sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    assert found.largest_tensor == 621 * 256


def _without_a_shard(folder: Path) -> None:
    (folder / SECOND).unlink()


def _cut_shard(folder: Path) -> None:
    os.truncate(folder / SECOND, (folder / SECOND).stat().st_size - 1000)


def _cut_header(folder: Path) -> None:
    os.truncate(folder / SECOND, 100)


def _not_safetensors(folder: Path) -> None:
    (folder / SECOND).write_bytes(b"<html>not found</html>")


def _another_version_s_shard(folder: Path) -> None:
    (folder / SECOND).write_bytes((folder / SECOND.replace("00002-", "00001-")).read_bytes())


def _without_index(folder: Path) -> None:
    (folder / INDEX).unlink()
    (folder / SECOND).unlink()


def _broken_index(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": {"a": "../../etc/passwd"}}')


def _broken_config(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace(", ", ",\n")[:-20])


def _config_is_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def _no_architecture(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "llama"}')


def _no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.model").unlink()


def _pickled(folder: Path) -> None:
    for path in (folder / INDEX, *folder.glob("*.safetensors")):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")


def _no_weights(folder: Path) -> None:
    for path in (folder / INDEX, *folder.glob("*.safetensors")):
        path.unlink()


def _adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def _another_folder(folder: Path) -> None:
    (folder / "config.json").unlink()


DAMAGES: dict[Callable[[Path], None], tuple[type[ArmloadError], str]] = {
    _without_a_shard: (DataError, f"1 of 3 weight files is missing: {SECOND}"),
    _cut_shard: (DataError, UNUSABLE),
    _cut_header: (DataError, UNUSABLE),
    _not_safetensors: (DataError, UNUSABLE),
    _another_version_s_shard: (DataError, "another version of the model"),
    _without_index: (DataError, f"1 of 3 weight files is missing: {SECOND}"),
    _broken_index: (DataError, "'weight_map' does not say"),
    _broken_config: (DataError, "line 16"),
    _config_is_a_list: (DataError, "expected a JSON object"),
    _no_architecture: (DataError, "'architectures' is missing"),
    _no_tokenizer: (DataError, "no tokenizer"),
    _pickled: (DataError, "safe_serialization=True"),
    _no_weights: (DataError, "no model.safetensors and no"),
    _adapter: (UsageError, "this is an adapter"),
    _another_folder: (UsageError, "there is no config.json"),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_what_is_missing_or_damaged_is_named(
    checkpoint: Path, damage: Callable[[Path], None]
) -> None:
    damage(checkpoint)
    kind, words = DAMAGES[damage]
    with pytest.raises(kind) as caught:
        read_checkpoint(checkpoint)
    assert words in str(caught.value)
    assert str(checkpoint) in caught.value.message
    assert caught.value.remedy


def test_the_inner_model_s_architecture_counts(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(
        json.dumps(
            {"architectures": ["OuterForConditionalGeneration"], "text_config": config}
            | {"auto_map": {"AutoModel": "modeling.Outer"}}
        )
    )
    outline = read_checkpoint_outline(checkpoint)
    assert (outline.architecture, outline.tied, outline.brings_code) == (
        "LlamaForCausalLM",
        True,
        True,
    )


def test_python_beside_the_weights_is_out_of_the_converter_s_reach(checkpoint: Path) -> None:
    (checkpoint / "tokenization_sums.py").write_text("raise SystemExit")
    (checkpoint / "pytorch_model.bin").write_bytes(b"")
    for folder in ("1_Pooling", "other"):
        (checkpoint / folder).mkdir()
        (checkpoint / folder / "config.json").write_text("{}")
        (checkpoint / folder / "modeling.py").write_text("raise SystemExit")
    with staged(read_checkpoint(checkpoint)) as stage:
        shown = {path.name for path in stage.iterdir()}
        assert [path.name for path in (stage / "1_Pooling").iterdir()] == ["config.json"]
        assert (stage / "config.json").read_bytes() == (checkpoint / "config.json").read_bytes()
    assert shown == {path.name for path in checkpoint.iterdir()} - {
        "tokenization_sums.py",
        "pytorch_model.bin",
        "other",
    }
    assert not stage.exists()


def test_what_transformers_5_writes_is_shown_in_the_words_of_the_converters(
    checkpoint: Path,
) -> None:
    path = checkpoint / "tokenizer_config.json"
    saved = {
        "tokenizer_class": "TokenizersBackend",
        "extra_special_tokens": ["<a>"],
        "backend": "x",
    }
    path.write_text(json.dumps(saved))
    with staged(read_checkpoint(checkpoint)) as stage:
        shown = json.loads((stage / path.name).read_text())
    assert shown == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "additional_special_tokens": ["<a>"],
        "backend": "x",
    }
    assert json.loads(path.read_text()) == saved
    named = {"tokenizer_class": "LlamaTokenizer", "extra_special_tokens": {"image": "<a>"}}
    path.write_text(json.dumps(named))
    with staged(read_checkpoint(checkpoint)) as stage:
        assert json.loads((stage / path.name).read_text()) == named


def test_sentence_pieces_in_a_tokenizer_json_have_the_scores_that_their_merges_say(
    checkpoint: Path,
) -> None:
    reader = GGUFReader(word_problems_model("word-problems:Q8_0"))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    write_as_today(checkpoint, fields)
    wrapper = run_path(str(data_path("toolchains", "converters", "convert_gguf.py")))
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    found = wrapper["pieces_of"](tokenizer)
    columns = ("tokens", "scores", "token_type")
    assert found == list(zip(*(fields[f"tokenizer.ggml.{each}"] for each in columns), strict=True))
    tokenizer["added_tokens"].append({"id": len(found) + 1, "content": "<x>", "special": False})
    assert wrapper["pieces_of"](tokenizer)[len(found) :] == [
        (f"[UNUSED{len(found)}]", 0.0, 5),
        ("<x>", 0.0, 4),
    ]
    tokenizer["model"]["byte_fallback"] = False
    assert wrapper["pieces_of"](tokenizer) == []


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "begins"),
    [
        (None, {"type": "Metaspace", "prepend_scheme": "never"}, False),
        (None, {"type": "Metaspace", "prepend_scheme": "first"}, True),
        ({"type": "Sequence", "normalizers": [{"type": "Prepend"}]}, None, True),
        ({"type": "Replace", "content": "\u2581"}, None, False),
    ],
)
def test_whether_a_text_begins_with_a_space_is_read(
    *, normalizer: object, pre_tokenizer: object, begins: bool
) -> None:
    wrapper = run_path(str(data_path("toolchains", "converters", "convert_gguf.py")))
    rules = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    assert wrapper["begins_with_space"](rules) == begins


def test_llama_cpp_s_source_tells_which_architectures_it_converts() -> None:
    known = gguf_architectures(pinned_source().provide(Silent()))
    assert {"LlamaForCausalLM", "Qwen2ForCausalLM", "Gemma2ForCausalLM"} <= set(known)
    assert set(pinned_packages().pieces_alone) <= set(known)
    assert len(known) > 100


@pytest.mark.parametrize(
    ("form", "dtype", "text", "type_name"),
    [
        ("gguf", "F16", "", "F16"),
        ("gguf", "F32", "", "BF16"),
        ("gguf", "BF16", "q8_0", "Q8_0"),
        ("mnn", "BF16", "", "4-bit"),
    ],
)
def test_a_type_is_found_whatever_its_case_and_has_a_default(
    form: str, dtype: str, text: str, type_name: str
) -> None:
    assert check_type("gguf" if form == "gguf" else "mnn", text, dtype) == type_name


def test_llmexport_needs_memory_for_the_whole_model_and_llama_cpp_for_a_tensor(
    checkpoint: Path,
) -> None:
    small = read_checkpoint(checkpoint)
    large = small.model_copy(update={"size_bytes": 16 * 10**9, "parameters": 8 * 10**9})
    assert memory_bytes("gguf", large) == memory_bytes("gguf", small) < 2 * 10**9
    assert memory_bytes("mnn", large) > 16 * 10**9
    assert result_bytes("gguf", "Q8_0", large) == 8.5 * 10**9
    assert 4 * 10**9 < result_bytes("mnn", "4-bit", large) < 6 * 10**9


REFUSED: dict[tuple[str, ...], tuple[int, str]] = {
    ("nowhere",): (2, "does not exist"),
    ("sums/config.json",): (2, "is a file"),
    ("sums", "--to", "onnx"): (2, "Available: gguf, mnn"),
    ("sums", "--type", "Q4_K_M"): (2, "model.quantize"),
    ("sums", "--to", "mnn", "--type", "Q8_0"): (2, "Available: 4-bit, 8-bit"),
    ("sums", "--output", "sums"): (2, "is a folder"),
    ("sums", "--to", "mnn", "--output", "sums"): (2, "not empty"),
    ("strange",): (2, "does not know the architecture Lama4CausalLM"),
    ("strange", "--to", "mnn"): (2, "does not know the model type lama. It knows: llama, "),
    ("cut",): (3, "1 of 3 weight files is missing"),
    ("pieces",): (3, "pieces/tokenizer.model: this file is missing, and the converter reads"),
    ("large",): (3, "tokens up to number 620, but config.json has 'vocab_size': 620"),
    ("hf:no", "--to", "mnn"): (2, "Write hf:ORG/REPO"),
}


def test_what_reading_tells_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    model = word_problems_model("word-problems:Q8_0")
    for name in ("sums", "strange", "cut"):
        checkpoint_of(model, tmp_path / name, shards=3)
    (tmp_path / "cut" / SECOND).unlink()
    for name, wrong in (
        ("pieces", {"architectures": ["Gemma2ForCausalLM"]}),
        ("large", {"vocab_size": 620}),
    ):
        path = checkpoint_of(model, tmp_path / name, "qwen2") / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    text = (tmp_path / "strange" / "config.json").read_text()
    text = text.replace('"LlamaForCausalLM"', '"Lama4CausalLM"').replace('"llama"', '"lama"')
    (tmp_path / "strange" / "config.json").write_text(text)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "sources").symlink_to(pinned_source().provide(Silent()).parent)
    for words, (status, said) in REFUSED.items():
        done = typed(tmp_path, "model.convert", *words, cache=cache)
        assert done.returncode == status, (words, done.stderr)
        assert said in " ".join(done.stderr.split()), words
    assert not (cache / "converters").exists()


@pytest.mark.parametrize(
    ("lacking", "part"), [("parameters", "GB free"), ("size_bytes", "of memory, but")]
)
def test_too_little_space_or_memory_is_told_before_anything_is_installed(
    lacking: str, part: str, checkpoint: Path
) -> None:
    def agree(proposal: Proposal) -> bool:
        raise AssertionError(proposal)

    found = read_checkpoint(checkpoint).model_copy(update={lacking: 10**15})
    path = checkpoint.parent / "model"
    with pytest.raises(ArmloadError, match=part):
        convert(
            found,
            path,
            form="mnn",
            type_name="4-bit",
            unchecked=False,
            agree=agree,
            progress=Silent(),
        )
    assert not path.exists()


@pytest.mark.parametrize("reads_older", [False, True])
def test_a_file_that_nothing_can_check_is_accepted_only_when_that_was_agreed_to(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reads_older: bool
) -> None:
    python = tmp_path / "held" / "bin" / "python"
    python.parent.mkdir(parents=True)
    older = "echo {} >$6; exit 0" if reads_older else "exit 1"
    python.write_text(f'#!/bin/sh\n[ "$PYTHONPATH" ] && exit 1\n{older}\n')
    python.chmod(0o755)
    monkeypatch.setattr(checking, "build", lambda *_, **__: (binary(),))
    file = word_problems_model("word-problems:Q8_0")
    today = read_checkpoint(checkpoint)
    saved_before = today.model_copy(update={"transformers": "4.50.0"})

    def checked(each: Checkpoint, *, unchecked: bool) -> ConversionCheck:
        with (tmp_path / "lock").open("w") as lock:
            held = Environment(python=python, lock=lock.fileno())
            return check_gguf(
                *(each, file, read_header(file), "Q8_0", held, Silent()), unchecked=unchecked
            )

    with pytest.raises(DataError) as refused:
        checked(today.model_copy(update={"transformers": "5.0.0"}), unchecked=False)
    assert "--unchecked" in refused.value.remedy
    accepted = checked(saved_before, unchecked=True).unchecked
    assert any("status 1" in each for each in accepted) is not reads_older
    if reads_older:
        checked(saved_before, unchecked=False)
    else:
        with pytest.raises(DataError):
            checked(saved_before, unchecked=False)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("bytearray(1 << 62)", "could get no more memory"),
        ("import os; os.kill(os.getpid(), 9)", "was killed, probably for lack of memory"),
    ],
)
def test_a_converter_without_memory_has_an_exit_status_of_its_own(
    program: str, said: str, checkpoint: Path, tmp_path: Path
) -> None:
    with (
        (tmp_path / "lock").open("w") as lock,
        pytest.raises(LocalMemoryError, match=said) as caught,
    ):
        run_converter(
            ["-c", program],
            checkpoint=read_checkpoint(checkpoint),
            held=Environment(python=Path(sys.executable), lock=lock.fileno()),
            folder=tmp_path,
            watch=lambda _: None,
        )
    assert caught.value.exit_status == 14


@pytest.mark.parametrize(
    ("program", "said", "remedy"),
    [
        (
            "open(stage / 'tokenizer.model2')",
            "sums: the converter needs tokenizer.model2, ",
            "Copy",
        ),
        (
            "raise ValueError(f'Error: Missing {stage / \"vocab.x\"}')",
            "sums: the converter needs vocab.x, which is missing.",
            "Copy",
        ),
        (
            "\ntry:\n    open(stage / 'none')\nexcept OSError:\n    raise ValueError('too long')",
            "sums: the converter refused this checkpoint: too long",
            "Check the checkpoint's files",
        ),
        ("{}['rotary_pct']", "sums: the converter needs the setting 'rotary_pct', ", "Compare"),
        ("{}['[gMASK]']", "sums: the converter needs the token [gMASK], ", "Compare"),
        ("{}['<|user|>']", "sums: the converter needs the token <|user|>, ", "Compare"),
        (
            "raise ValueError(f'cannot read {stage / \"config.json\"}: bad')",
            "sums: the converter refused this checkpoint: cannot read ",
            "Check the checkpoint's files",
        ),
    ],
)
def test_a_refusal_names_what_is_missing_in_the_person_s_own_folder(
    program: str, said: str, remedy: str, checkpoint: Path, tmp_path: Path
) -> None:
    found = read_checkpoint(checkpoint)
    with (
        (tmp_path / "lock").open("w") as lock,
        staged(found) as stage,
        pytest.raises(DataError) as caught,
    ):
        run_converter(
            ["-c", f"from pathlib import Path; stage = Path({str(stage)!r}); {program}"],
            checkpoint=found,
            held=Environment(python=Path(sys.executable), lock=lock.fileno()),
            folder=stage.parent,
            watch=lambda _: None,
        )
    assert said in caught.value.message
    assert caught.value.remedy.startswith(remedy)
    assert str(checkpoint) in caught.value.message
    assert "armload-" not in caught.value.message


def test_a_check_of_the_converter_that_says_nothing_is_told_by_its_condition(
    checkpoint: Path, tmp_path: Path
) -> None:
    script = tmp_path / "converter.py"
    script.write_text("n_mtp = 0\nif True:\n    assert n_mtp != 0  # as the config says\n")
    with (tmp_path / "lock").open("w") as lock, pytest.raises(DataError) as caught:
        run_converter(
            [str(script)],
            checkpoint=read_checkpoint(checkpoint),
            held=Environment(python=Path(sys.executable), lock=lock.fileno()),
            folder=tmp_path,
            watch=lambda _: None,
        )
    assert caught.value.message == (
        f"{checkpoint}: the converter refused this checkpoint: it requires that n_mtp != 0"
    )


def test_a_converter_s_libraries_are_told_to_ask_no_network(
    checkpoint: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    names = ("HF_HUB_OFFLINE", "PIP_NO_INDEX")
    with (tmp_path / "lock").open("w") as lock:
        run_converter(
            ["-c", f"import os; print([os.environ.get(name) for name in {names}])"],
            checkpoint=read_checkpoint(checkpoint),
            held=Environment(python=Path(sys.executable), lock=lock.fileno()),
            folder=tmp_path,
            watch=said.append,
        )
    assert "".join(said).strip() == "['1', '1']"


def test_versions_are_pinned_and_name_the_environment() -> None:
    packages = pinned_packages()
    assert all("==" in each for each in (*packages.packages, *packages.alone, *packages.comparing))
    newer = packages.model_copy(update={"alone": ("llmexport==0.0.6",)})
    assert newer.environment_id != packages.environment_id


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"model_type": "cohere2"}, {"rotary_pct": 1.0}),
        ({"model_type": "cohere2", "rotary_pct": 0.5}, {}),
        ({"model_type": "gpt2", "n_positions": 1024}, {"n_ctx": 1024}),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            {"rope_theta": 5e5},
        ),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 8.0}},
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        ),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                }
            },
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
        ),
    ],
)
def test_what_transformers_leaves_out_of_a_configuration_is_shown_to_the_converters(
    config: dict[str, object], shown: dict[str, object], checkpoint: Path
) -> None:
    own = json.loads((checkpoint / "config.json").read_text())
    del own["rope_theta"]
    found = read_checkpoint(checkpoint)
    for outer in (own | config, {"architectures": ["Outer"], "text_config": own | config}):
        (checkpoint / "config.json").write_text(json.dumps(outer))
        with staged(found) as stage:
            seen = json.loads((stage / "config.json").read_text())
        assert seen.get("text_config", seen) == own | config | shown
        assert json.loads((checkpoint / "config.json").read_text()) == outer


LOGITS = {"tokens": 64, "positions": 64, "difference": 0.4, "same_top": 0.9}
TWO_RESULTS = DifferentText(text="a b", checkpoint=(1, 5, 6), file=(1, 7))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (TextFindings(engine="missing tensor"), "cannot load the converted file: missing tensor"),
        (
            TextFindings(texts=19, different=(TWO_RESULTS,)),
            (
                "1 of 19 texts are tokenized differently after the conversion: 'a b' is [1, 5, 6] "
                "in the checkpoint and [1, 7] in the file"
            ),
        ),
        (
            TextFindings(texts=19, logits=ComparedLogits(relative=0.03, **LOGITS)),
            "up to 0.4, in the median of the positions by 3.0% of their spread (at most 2% is",
        ),
        (
            TextFindings(not_finite=(0, 1)),
            "1 logit of a prompt is no finite number after the conversion to F16",
        ),
        (TextFindings(not_finite=(64 * 600, 64 * 600)), "38,400 logits of a prompt are no finite"),
        (
            TextFindings(
                logits=ComparedLogits(relative=0.03, **LOGITS),
                missing=("lm_head.weight",),
                unexpected=("model.layers.0.self_attn.q_proj.bias",),
            ),
            "found no weights for lm_head.weight. transformers ignores model.layers.0.self_attn",
        ),
        (
            TextFindings(mismatched=("model.norm.weight torch.Size([2]) torch.Size([4])",)),
            "weights have another shape than config.json says: model.norm.weight",
        ),
        (TextFindings(window=128, window_reached=False), "drops 'sliding_window': 128"),
        (
            TextFindings(window=64, logits=ComparedLogits(relative=0.03, **LOGITS)),
            "drops 'sliding_window': 64",
        ),
    ],
)
def test_a_file_that_is_not_the_checkpoint_s_model_is_refused_with_both_results(
    found: TextFindings, said: str, checkpoint: Path
) -> None:
    header = read_header(word_problems_model("word-problems:Q8_0"))
    with pytest.raises(DataError) as caught:
        judge(read_checkpoint(checkpoint), found, header, "F16")
    assert said in caught.value.message
    assert str(checkpoint) in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["difference", "relative", "same_top"])
def test_a_comparison_is_of_finite_numbers(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        ComparedLogits(**{**LOGITS, "relative": 0.01, name: wrong})


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("missing tensor 'blk.2.attn_q.weight'", "lacks this tensor"),
        ("tensor 'blk.0.ffn_up.weight' has invalid data", "--type BF16"),
        ("unknown model architecture: 'x'", "config.json"),
    ],
)
def test_the_remedy_suits_what_llama_cpp_says(checkpoint: Path, said: str, remedy: str) -> None:
    header = read_header(word_problems_model("word-problems:Q8_0"))
    with pytest.raises(DataError) as caught:
        judge(read_checkpoint(checkpoint), TextFindings(engine=said), header, "F16")
    assert said in caught.value.message
    assert remedy in str(caught.value.remedy)
    assert ("config.json" in str(caught.value.remedy)) == (remedy == "config.json")


@pytest.mark.parametrize(
    ("version", "is_new"),
    [("5.24.0", True), ("10.0", True), ("4.57.6", False), ("", False), ("x.y", False)],
)
def test_the_version_that_saved_a_checkpoint_is_read(
    checkpoint: Path, version: str, *, is_new: bool
) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"transformers_version": version}))
    assert read_checkpoint(checkpoint).is_new == is_new


def test_the_comparison_sees_a_checkpoint_as_it_is(checkpoint: Path) -> None:
    path = checkpoint / "tokenizer_config.json"
    path.write_text(json.dumps({"tokenizer_class": "TokenizersBackend"}))
    found = read_checkpoint(checkpoint)
    with staged(found, for_converters=False) as stage:
        for name in ("config.json", path.name):
            assert (stage / name).read_bytes() == (checkpoint / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "strips", "written"),
    [
        ("Phi3", False, "Phi 3"),
        ("my phi-3 of sums", False, "my Phi 3 of sums"),
        ("P3", True, "P3 (Phi-3)"),
        ("Phi 3 Mini 4k", True, "Phi 3 Mini 4k (Phi-3)"),
        ("Phi-3 Mini", True, "Phi-3 Mini"),
        ("Llama", False, "Llama"),
    ],
)
def test_a_name_says_to_llama_cpp_what_the_tokenizer_does(
    name: str, written: str, *, strips: bool
) -> None:
    wrapper = run_path(str(data_path("toolchains", "converters", "convert_gguf.py")))
    assert wrapper["name_for"](name, strips=strips) == written


def test_a_phi_3_is_known_by_its_special_tokens(checkpoint: Path) -> None:
    wrapper = run_path(str(data_path("toolchains", "converters", "convert_gguf.py")))
    texts = ("<unk>", "<s>", "</s>", "<|user|>")
    added = [{"content": each, "special": True, "rstrip": False} for each in texts]
    path = checkpoint / "tokenizer.json"

    def strips(*stripping: str) -> bool:
        stated = [each | {"rstrip": each["content"] in stripping} for each in added]
        path.write_text(json.dumps({"added_tokens": stated}))
        return bool(wrapper["strips_spaces"](checkpoint))

    assert strips("</s>", "<|user|>")
    assert not strips("<|user|>")
    assert not strips()
    path.unlink()
    assert not wrapper["strips_spaces"](checkpoint)


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        ({"sliding_window": 512}, 512),
        ({"sliding_window": 512, "layer_types": ["full_attention", "sliding_attention"]}, 512),
        ({"sliding_window": 512, "layer_types": ["full_attention"]}, 0),
        ({"sliding_window": 512, "use_sliding_window": False}, 0),
        ({"sliding_window": None}, 0),
        ({}, 0),
    ],
)
@pytest.mark.parametrize("written", [True, False])
def test_a_context_ends_with_a_window_that_the_file_lacks(
    settings: dict[str, object], window: int, *, written: bool
) -> None:
    wrapper = run_path(str(data_path("toolchains", "converters", "convert_gguf.py")))
    assert wrapper["window_of"](settings) == window
    context, other = SimpleNamespace(value=4096), SimpleNamespace(value=7)
    values = {"llama.context_length": context, "llama.block_count": other}
    if written:
        values["llama.attention.sliding_window"] = other

    class Model:
        hparams = settings
        gguf_writer = SimpleNamespace(kv_data=[values])

        def prepare_metadata(self, *, vocab_only: bool) -> None:
            assert vocab_only

    wrapper["end_with_window"](Model)
    Model().prepare_metadata(vocab_only=True)
    assert context.value == (window if window and not written else 4096)
    assert other.value == 7


@pytest.mark.parametrize(
    ("code", "gating"),
    [
        ("scores = router_logits.sigmoid()", "sigmoid"),
        ("w = nn.functional.sigmoid(router_logits.float())", "sigmoid"),
        ("w = F.softmax(router_logits, dim=1, dtype=torch.float)", "softmax"),
        ("w = gate_logits.float().softmax(-1)\na = scores.sigmoid()", "softmax"),
        ("a = torch.softmax(attention, -1)", ""),
        ("a = router_logits.sigmoid(); b = router_logits.softmax(-1)", ""),
    ],
)
def test_how_experts_are_chosen_is_read_from_the_code_of_transformers(
    code: str, gating: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = run_path(str(data_path("toolchains", "converters", "convert_gguf.py")))
    folder = tmp_path / "comparing" / "transformers" / "models" / "sums_moe"
    folder.mkdir(parents=True)
    (folder / "modeling_sums_moe.py").write_text(code)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert wrapper["gating_of"]("sums-moe") == gating
    assert wrapper["gating_of"]("../sums_moe") == wrapper["gating_of"]("other") == ""

    class Base:
        @staticmethod
        def load_hparams(folder: Path, *, is_mistral_format: bool) -> dict[str, object]:
            assert folder == tmp_path
            assert not is_mistral_format
            return dict(config)

    config: dict[str, object] = {"model_type": "sums_moe", "num_experts": 4}
    wrapper["complete_settings"](Base)
    for stated, expected in (({}, gating), ({"scoring_func": "own"}, "own")):
        config |= stated
        found = Base.load_hparams(tmp_path, is_mistral_format=False)
        assert found.get("scoring_func", "") == expected
    config = {"model_type": "sums_moe"}
    assert Base.load_hparams(tmp_path, is_mistral_format=False) == config


def test_a_window_is_not_missed_where_the_context_is_no_longer(checkpoint: Path) -> None:
    header = read_header(word_problems_model("word-problems:Q8_0"))
    found = TextFindings(window=1 << 20, window_reached=False)
    judge(read_checkpoint(checkpoint), found, header, "F16")


def test_experts_that_stay_in_mxfp4_allow_for_the_rounding_of_what_they_are_multiplied_with(
    checkpoint: Path,
) -> None:
    plain = read_header(word_problems_model("word-problems:Q8_0"))
    kept = replace(plain, tensors=(replace(plain.tensors[0], type_name="MXFP4"),))
    own = read_checkpoint(checkpoint)
    rounded, other = (
        TextFindings(logits=ComparedLogits(relative=each, **LOGITS)) for each in (0.011, 0.06)
    )
    judge(own, rounded, kept, "F32")
    for found, header in ((rounded, plain), (other, kept)):
        with pytest.raises(DataError, match="computes different logits"):
            judge(own, found, header, "F32")


def test_a_type_allows_for_its_own_rounding(checkpoint: Path) -> None:
    header = read_header(word_problems_model("word-problems:Q8_0"))
    for type_name, most in TOLERANCES.items():
        found = TextFindings(logits=ComparedLogits(relative=most, **LOGITS))
        judge(read_checkpoint(checkpoint), found, header, type_name)
