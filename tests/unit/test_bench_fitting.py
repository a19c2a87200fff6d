"""What is expected of models on a board that does not answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from armload.bench.fitting import BoardsFit, fit, fit_hardware
from armload.boards.board import SshReach, load_board
from armload.boards.failures import place_of_reach
from armload.boards.hardware import all_hardware
from armload.core.errors import BoardError, UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.find import header_of, resolve
from armload.models.gguf import read_outline
from armload.models.outline import outline_of_shape, outlined
from armload.models.shape import load_shape
from armload.runs.request import Request
from tests.command_line import typed
from tests.recurrent import hybrid_model, recurrent_model

BOARD = """extends: dayu200
reach:
  kind: ssh
  host: no-such-board.invalid
"""


class Telling(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(autouse=True)
def _board_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Whether a build lies in this machine's cache must not decide.
    monkeypatch.setattr("armload.runs.predicting.footprint_here", lambda *_: None)
    Path("boards").mkdir()
    Path("boards/away.yaml").write_text(BOARD, encoding="utf-8")


def test_what_to_do_about_a_board_that_does_not_answer_is_said() -> None:
    progress = Telling()
    found = fit(Request(board="away"), ["word-problems:Q2_K"], Plan(prompt_tokens=4), progress)
    assert "cannot be resolved" in found.unreachable
    cause, remedy, instead = progress.said
    assert cause == found.unreachable
    assert remedy.startswith("Check the spelling.")
    assert "'host' under 'reach' in boards/away.yaml.\nOr add it to ~/.ssh/config" in remedy
    assert instead == "Predicting from the facts in boards/away.yaml instead."


def test_how_to_change_a_shipped_board_is_said() -> None:
    place = place_of_reach("dayu200", "host")
    assert place.endswith(
        "your own boards/dayu200.yaml (create it with the line 'extends: dayu200')"
    )
    Path("boards/dayu200.yaml").write_text("extends: dayu200\nreach: {host: pi}\n")
    assert place_of_reach("dayu200", "host") == "'host' under 'reach' in boards/dayu200.yaml"
    assert load_board("dayu200").reach == SshReach(host="pi")


def test_a_group_whose_members_do_not_answer_is_predicted_from_their_files() -> None:
    for name in ("one", "two", "three"):
        Path(f"boards/{name}.yaml").write_text(BOARD, encoding="utf-8")
    Path("boards/lab.yaml").write_text("members: [one, two, three]\n", encoding="utf-8")
    progress = Telling()
    found = fit(Request(board="lab"), ["like:llama-3.1-8b:Q2_K"], Plan(prompt_tokens=4), progress)
    assert progress.said[-1] == (
        "Predicting from the facts in boards/one.yaml, boards/two.yaml, boards/three.yaml instead."
    )
    (model,) = found.models
    group, alone = model.prediction, fit(
        Request(board="away"), ["like:llama-3.1-8b:Q2_K"], Plan(prompt_tokens=4), Silent()
    ).models[0].prediction  # fmt: skip
    assert (group.verdict, alone.verdict) == ("fits", "streams")
    assert group.token_s is not None
    assert alone.token_s is not None
    assert group.token_s.high < alone.token_s.low
    assert group.group is not None
    assert {part.board for part in group.group.parts} == {"one", "two", "three"}
    assert {"memory assumed", "group without links"} <= {note.kind for note in group.notes}
    assert group.division is not None
    assert sum(share.layers for share in group.division.shares) == 32
    assert re.search(r"Layers: one \d+, two \d+, three \d+\.", model.sentence)


def test_a_group_is_not_predicted_without_the_memory_of_its_members() -> None:
    for name in ("one", "two"):
        text = "target: rk3568\nreach: {kind: ssh, host: no-such-board.invalid}\nworkdir: /data/a\n"
        Path(f"boards/{name}.yaml").write_text(text, encoding="utf-8")
    Path("boards/lab.yaml").write_text("members: [one, two]\n", encoding="utf-8")
    with pytest.raises(BoardError, match=r"boards/one.yaml does not say how much memory") as found:
        fit(Request(board="lab"), ["like:llama-3.2-1b:Q2_K"], Plan(prompt_tokens=4), Silent())
    assert "facts.memory" in found.value.remedy


def test_the_type_of_the_cache_counts_in_memory_and_time() -> None:
    words = (
        *("fit", "--hardware", "raspberry-pi-5-8gb", "--model", "like:llama-3.2-1b:Q4_0"),
        *("--context", "8192", "--prompt-tokens", "4000", "--json"),
    )
    (usual,), (small,) = (
        json.loads(typed(Path.cwd(), *words, *more).stdout)["boards"][0]["models"]
        for more in ((), ("--kv-type", "q8_0"))
    )
    sizes = [each["prediction"]["memory"]["kv_bytes"] for each in (usual, small)]
    assert sizes[1] == pytest.approx(sizes[0] * 34 / 64)
    assert small["prediction"]["token_s"]["value"] < usual["prediction"]["token_s"]["value"]


def test_layers_without_attention_are_estimated_with_a_wider_interval() -> None:
    paths = [resolve("like:stories260k:Q8_0", Silent())]
    tokens = paths[0]
    paths += [write(tokens, Path(write.__name__)) for write in (recurrent_model, hybrid_model)]
    found = fit(Request(board="away"), [str(path) for path in paths], Plan(), Silent())
    times = [each.prediction.token_s for each in found.models]
    dense, recurrent, hybrid = (time.high / time.value for time in times if time)
    assert recurrent == pytest.approx(hybrid)
    assert recurrent > 1.05 * dense


def test_without_a_model_current_models_are_listed_the_fastest_first() -> None:
    found = fit(Request(board="away"), (), Plan(prompt_tokens=128), Silent())
    names = [each.model for each in found.models]
    assert len(names) == len(set(names)) >= 36
    assert {"llama-3.2-1b:Q4_0", "qwen3-8b:Q8_0"} <= set(names)
    commands = {each.model: each.command for each in found.models}
    command = commands["llama-3.2-1b:Q4_0"]
    assert command == "armload bench --board away --model llama-3.2-1b:Q4_0"
    assert not commands["qwen3-8b:Q8_0"], "of which armload knows no file"
    files = {each.model: each.has_file for each in found.models}
    assert (files["llama-3.2-1b:Q4_0"], files["qwen3-8b:Q8_0"]) == (True, False)
    assert not [name for name in names if "stories260k" in name]
    times = [each.prediction.token_s.value for each in found.models if each.prediction.token_s]
    assert times == sorted(times)
    assert {"fits", "streams"} <= {each.prediction.verdict for each in found.models}


@pytest.mark.parametrize("rate", ["", "facts: {memory_bytes_per_s: 3000000000}\n"])
def test_for_the_list_of_current_models_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: str
) -> None:
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    Path("boards/here.yaml").write_text(f"extends: this-machine\n{rate}", encoding="utf-8")
    found = fit(Request(board="here"), (), Plan(prompt_tokens=128), Silent())
    assert found.unreachable == ""
    assert not (tmp_path / "cache" / "builds").exists()
    assert all(each.prediction.memory for each in found.models), "the board answered"
    runs = [each.prediction for each in found.models if each.prediction.verdict == "fits"]
    assert runs
    for each in runs:
        kinds = {note.kind for note in each.notes}
        assert (each.token_s is None) == ("memory rate unknown" in kinds) == (not rate)


def test_a_shape_of_one_s_own_is_listed_and_types_can_be_chosen() -> None:
    Path("shapes").mkdir()
    Path("shapes/mine.yaml").write_text("extends: qwen3-0.6b\ndescription: Mine\nlayers: 2\n")
    found = fit(Request(board="away"), (), Plan(prompt_tokens=128), Silent(), file_types=("Q6_K",))
    names = [each.model for each in found.models]
    assert "mine:Q6_K" in names
    assert all(name.endswith(":Q6_K") for name in names)


def test_a_type_that_only_others_make_is_listed_without_a_command() -> None:
    found = fit(Request(board="away"), (), Plan(), Silent(), file_types=("IQ2_XXS",))
    assert len(found.models) > 10
    assert not any(each.command or each.has_file for each in found.models)
    assert "armload knows no file of it" in found.recommendation
    assert "hf:ORG/REPO:IQ2_XXS" in found.recommendation


@pytest.mark.parametrize("reference", ["like:qwen2.5-0.5b:Q4_K_M", "like:llama-3.2-1b:Q8_0"])
def test_a_listed_model_is_that_of_its_file(reference: str) -> None:
    _, name, file_type = reference.split(":")
    listed, _ = outlined(outline_of_shape(name, load_shape(name)), file_type)
    made, _ = read_outline(header_of(reference, Silent()))
    for fact in ("bytes_per_token", "context_memory", "parameters", "vocabulary", "layers"):
        assert getattr(listed, fact) == getattr(made, fact), fact


def test_models_that_have_weights_have_a_command_that_runs_them() -> None:
    names = ("like:stories260k:Q8_0", "like:gemma-3-1b:Q4_0", "qwen2.5-7b:Q4_0")
    found = fit(Request(board="away"), names, Plan(), Silent())
    commands = [each.command for each in found.models]
    assert commands == ["armload bench --board away --model like:stories260k:Q8_0", "", ""]
    found = fit(Request(board="away"), names[:1], Plan(), Silent(), file_types=("Q4_0",))
    assert found.models[0].command.endswith("--model like:stories260k:Q8_0 --type Q4_0")


MODEL = "like:llama-3.1-8b:Q4_K_M"


def compared(*names: str, models: tuple[str, ...] = (MODEL,)) -> BoardsFit:
    return fit_hardware(Request(board="away"), names, models, Plan(prompt_tokens=128), Silent())


def test_hardware_is_compared_the_fastest_first_without_any_board() -> None:
    found = compared("raspberry-pi-5-8gb", "rock-5b-8gb", "raspberry-pi-5-4gb")
    assert [each.board for each in found.boards] == [
        "rock-5b-8gb",
        "raspberry-pi-5-8gb",
        "raspberry-pi-5-4gb",
    ]
    assert [each.models[0].prediction.verdict for each in found.boards] == [
        "fits",
        "fits",
        "streams",
    ]
    assert f"Fastest for {MODEL}: rock-5b-8gb" in found.recommendation


def test_the_board_with_the_least_memory_that_holds_the_model_is_named() -> None:
    found = compared("orange-pi-5-16gb", "raspberry-pi-5-8gb", "raspberry-pi-5-4gb")
    assert "Fastest for like:llama-3.1-8b:Q4_K_M: orange-pi-5-16gb" in found.recommendation
    assert "With the least memory that holds it: raspberry-pi-5-8gb" in found.recommendation


def test_all_hardware_is_compared_and_unknown_speeds_come_last() -> None:
    found = compared("all")
    times = [each.models[0].prediction.token_s for each in found.boards]
    assert len(times) == len(list(all_hardware())) >= 60
    known = [time.value for time in times if time]
    assert known == sorted(known)
    assert all(time is None for time in times[len(known) :])


def test_one_hardware_without_a_model_lists_current_models() -> None:
    found = compared("raspberry-pi-5-8gb", models=())
    (fitted,) = found.boards
    assert len(fitted.models) >= 36
    assert found.recommendation == fitted.recommendation


def test_several_without_a_model_are_refused() -> None:
    with pytest.raises(UsageError, match="name the models"):
        compared("raspberry-pi-5-8gb", "rock-5b-8gb", models=())


def test_a_model_that_no_board_holds_is_said() -> None:
    found = compared("raspberry-pi-5-4gb", "raspberry-pi-4-4gb")
    assert found.recommendation == (f"{MODEL} does not stay in the memory of any of these boards.")


def test_threads_count_for_hardware() -> None:
    names = ("raspberry-pi-5-8gb",)
    one = fit_hardware(Request(board="away"), names, (MODEL,), Plan(threads=1), Silent())
    usual = fit_hardware(Request(board="away"), names, (MODEL,), Plan(), Silent())
    times = [each.boards[0].models[0].prediction.token_s for each in (one, usual)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[0].value > 1.5 * times[1].value


def test_a_forecast_from_facts_says_the_level_of_its_interval() -> None:
    (fitted,) = compared("raspberry-pi-5-8gb").boards
    notes = [note.sentence for note in fitted.models[0].prediction.notes]
    assert any("80% interval" in note for note in notes)
