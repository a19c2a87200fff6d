"""Models quantised by llama.cpp's own program, held against the gguf package as another reader."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from armload.build.builder import build
from armload.build.target import load_target
from armload.engines.quantise import PROGRAM
from armload.evaluation.word_problems import problems
from armload.models.file_types import TENSOR_TYPES
from armload.models.gguf import read_outline
from armload.models.packaged import word_problems_model
from armload.models.quant_mix import MIXTURES, predict_quantised
from armload.models.quant_rules import OTHER_RULES
from tests.footprints import architectures
from tests.outside_data import shared
from tests.person import Person
from tests.quantising import PREDICTED_TYPES, known_here, said_by_llama_quantize

pytestmark = [pytest.mark.build, pytest.mark.timeout(1800)]
exhaustive = pytest.mark.exhaustive(
    covers=["armload/conversion", "armload/engines", "armload/models", "toolchains/sources"]
)

MODEL = "word-problems:Q8_0"
SHAPE = "extends: qwen2.5-0.5b\nlayers: 2\n"
AGAIN = ("--allow-requantize", "--json")
AWAY = "target: rk3568\nreach: {kind: ssh, host: 127.0.0.1, port: 1}\nworkdir: /tmp/none\n"


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    person.add_board("emulated", "extends: qemu-user\n")
    person.add_board("away", AWAY)
    return person


def quantised(person: Person, *words: str) -> list[dict[str, Any]]:
    models: list[dict[str, Any]]
    models = json.loads(person.types("model.quantize", *words).stdout)["models"]
    return models


def tensors(path: Path) -> dict[str, tuple[str, int]]:
    """Return types and sizes as the gguf package reads them."""
    read = GGUFReader(path)
    return {each.name: (each.tensor_type.name, int(each.n_bytes)) for each in read.tensors}


def largest_error(path: Path, base: Path) -> float:
    """Return by how much a matrix strays from the base's, of its standard deviation, at most."""
    before = {each.name: each for each in GGUFReader(base).tensors}
    worst = 0.0
    for each in GGUFReader(path).tensors:
        old = before[each.name]
        was = dequantize(old.data, old.tensor_type)
        now = dequantize(each.data, each.tensor_type)
        worst = max(worst, float(((was - now) ** 2).mean() ** 0.5 / (was.std() or 1)))
    return worst


@pytest.mark.exhaustive(covers=["armload/engines", "armload/models"])
def test_a_board_quantises_and_what_it_made_is_found_without_any_board(ann: Person) -> None:
    words = (MODEL, "--type", "Q2_K,Q4_K_M", *AGAIN)
    made = quantised(ann, *words, "--on", "emulated")
    assert [each["type"] for each in made] == ["Q2_K", "Q4_K_M"]
    base = word_problems_model(MODEL)
    outline = read_outline(base)
    for each in made:
        path = Path(each["path"])
        found = predict_quantised(*outline, each["type"])
        assert found is not None
        assert tensors(path) == {
            tensor.name: (tensor.type_name, tensor.size_bytes) for tensor in found[1].tensors
        }
        assert abs(each["size_bytes"] - found[0].size_bytes) < 256
        assert each["bytes_per_token"] == found[0].bytes_per_token
        assert (each["fallbacks"], each["made_on"], each["was_there"]) == ([], "emulated", False)
    errors = [largest_error(Path(each["path"]), base) for each in made]
    assert 0 < errors[1] < errors[0] < 0.5
    assert not list(ann.runs.glob("*"))
    again = quantised(ann, *words, "--on", "away")
    assert [each["was_there"] for each in again] == [True, True]
    assert [each["sha256"] for each in again] == [each["sha256"] for each in made]


@exhaustive
def test_this_machine_quantises_and_says_what_fell_back_and_how_far_it_strays(
    ann: Person,
) -> None:
    base = shared("stories260K.gguf")
    output = ann.folder / "made"
    output.mkdir()
    made = quantised(ann, str(base), "--type", "Q8_0,Q2_K", "--output", "made", "--json")
    for each in made:
        path = output / Path(each["path"]).name
        wanted = {tensor["tensor"]: tensor["type"] for tensor in each["fallbacks"]}
        types = {name: kind for name, (kind, _) in tensors(path).items()}
        assert wanted
        assert {name: types[name] for name in wanted} == wanted
        usual = set(types.values()) - {"F32"} - set(wanted.values())
        assert usual == {"Q8_0"}  # of the output, too, whose rows are too short for Q6_K
    strays = [each["divergence"]["kl_mean"] for each in made]
    assert 0 < strays[0] < strays[1]
    assert made[0]["divergence"]["top1_share"] > made[1]["divergence"]["top1_share"]
    assert not list(ann.runs.glob("*"))


@exhaustive
def test_every_type_is_as_predicted_and_known_to_the_program(ann: Person) -> None:
    outline = read_outline(word_problems_model(MODEL))
    for each in quantised(ann, MODEL, "--type", ",".join(MIXTURES), *AGAIN):
        found = predict_quantised(*outline, each["type"])
        assert found is not None
        assert tensors(Path(each["path"])) == {
            tensor.name: (tensor.type_name, tensor.size_bytes) for tensor in found[1].tensors
        }, each["type"]
    (program,) = build(load_target("host"), programs=[PROGRAM])
    done = subprocess.run([program.path, "--help"], capture_output=True, text=True, check=False)
    offered = re.findall(r"^ +(?:\d+ +or +)?(\w+) +: ", done.stdout, re.MULTILINE)
    assert set(TENSOR_TYPES) <= set(offered)
    assert set(offered) - set(TENSOR_TYPES) == {"COPY", "Q3_K", "Q4_K", "Q5_K"}


@exhaustive
def test_types_are_predicted_as_llama_quantize_says_for_every_architecture(tmp_path: Path) -> None:
    (program,) = build(load_target("host"), programs=[PROGRAM])
    models = [
        path
        for path in architectures(tmp_path)
        if read_outline(path)[0].architecture not in OTHER_RULES
    ]
    assert len(models) >= 120
    for path in models:
        for file_type in PREDICTED_TYPES:
            said = said_by_llama_quantize(program.path, path, file_type)
            assert known_here(path, file_type) == said, (path.stem, file_type)


@exhaustive
def test_a_text_makes_the_smallest_types_possible_and_the_others_better(ann: Person) -> None:
    text = "\n".join(f"{each.question} {each.solution}" for each in problems("train", 120, 3))
    (ann.folder / "text.txt").write_text(text)
    words = ("--type", "IQ2_XXS,Q2_K", "--kld", "--calibration", "text.txt", *AGAIN)
    made = quantised(ann, MODEL, *words)
    names = [Path(each["path"]).name for each in made]
    assert names == ["word-problems-IQ2_XXS-imatrix.gguf", "word-problems-Q2_K-imatrix.gguf"]
    assert "IQ2_XXS" in {kind for kind, _ in tensors(Path(made[0]["path"])).values()}
    (plain,) = quantised(ann, MODEL, "--type", "Q2_K", "--kld", *AGAIN)
    assert made[1]["divergence"]["kl_mean"] < plain["divergence"]["kl_mean"]
    assert made[1]["sha256"] != plain["sha256"]


@exhaustive
def test_a_run_takes_types_on_demand(ann: Person) -> None:
    base = str(shared("stories260K.gguf"))
    words = ("--model", base, "--type", "Q8_0,Q4_0", "-n", "20", "--board", "emulated", "--json")
    cells = json.loads(ann.types("bench", *words).stdout)["cells"]
    assert [cell["model"] for cell in cells] == ["stories260K-Q8_0.gguf", "stories260K-Q4_0.gguf"]
    plan = f"model: {base}\ntype: Q8_0\nn_predict: 20\nrepeats: 1\nboard: emulated\n"
    (ann.folder / "plan.yaml").write_text(plan)
    run = json.loads(ann.types("bench", "--plan", "plan.yaml", "--json").stdout)
    assert run["model"]["name"] == "stories260K-Q8_0.gguf"


@exhaustive
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_command_leaves_nothing_that_looks_finished(
    ann: Person, how: signal.Signals
) -> None:
    (ann.folder / "shapes").mkdir(exist_ok=True)
    (ann.folder / "shapes" / "small.yaml").write_text(SHAPE)
    cache = ann.folder / "cache" / "quantised"
    words = ("model.quantize", "like:small:F16", "--type", "Q3_K_S", "--json")
    before = set(cache.glob("*/made.json"))
    process = ann.start(*words)
    wait_for(cache, process, before)
    process.send_signal(how)
    process.communicate(timeout=120)
    assert set(cache.glob("*/made.json")) == before
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert not list(cache.glob("*/part"))
    else:
        (model,) = json.loads(ann.types(*words).stdout)["models"]
        assert {"Q3_K"} <= {kind for kind, _ in tensors(Path(model["path"])).values()}


def wait_for(cache: Path, process: subprocess.Popen[str], before: set[Path]) -> None:
    while not any(part.stat().st_size for part in cache.glob("*/part")):
        assert process.poll() is None, process.communicate()
        assert set(cache.glob("*/made.json")) == before
        time.sleep(0.05)
