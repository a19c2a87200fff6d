"""A real model gives real answers: SmolLM2, evaluated and quantised on this machine."""

from __future__ import annotations

import json

import pytest

from armload.core.errors import ConnectError
from armload.core.progress import Silent
from armload.models.find import resolve
from tests.person import Person

pytestmark = [
    pytest.mark.build,
    pytest.mark.exhaustive(
        covers=[
            "armload/evaluation",
            "armload/conversion",
            "armload/engines",
            "armload/models/quant_rules.py",
            "toolchains/native/scorer",
            "toolchains/sources",
        ]
    ),
]

EVERYDAY = [
    ("To cut a loaf of bread, you need", "a sharp knife.", "a soft pillow."),
    ("To keep milk fresh for a week,", "put it in the refrigerator.", "put it in the oven."),
    ("When it rains outside, take", "an umbrella with you.", "a spoon with you."),
    ("To open a locked door, use", "the right key.", "a wet towel."),
    ("To see in a dark room,", "turn on the light.", "turn on the water."),
    ("To boil water for tea, put", "the kettle on the stove.", "the kettle on the bed."),
    ("Before you eat a banana,", "peel it.", "paint it."),
    ("To clean dirty hands,", "wash them with soap and water.", "cover them with mud."),
    ("To write on paper, use", "a pen.", "a shoe."),
    ("If your car has no fuel,", "go to a gas station.", "go to a bakery."),
    ("To hang a picture on the wall, you need", "a hammer and a nail.", "a cup and a fork."),
    ("When your shoelaces are loose,", "tie them.", "cook them."),
    ("To make ice, put", "water in the freezer.", "water in the toaster."),
    (
        "To grow a plant from a seed,",
        "put it in soil and water it.",
        "put it in plastic and burn it.",
    ),
    ("To sweeten coffee, add", "sugar.", "sand."),
    ("When a child is tired at night,", "put the child to bed.", "put the child in a box."),
    ("To stop a bleeding cut,", "put a bandage on it.", "put a magnet on it."),
    ("To find out what time it is,", "look at a clock.", "look at a carpet."),
    ("To send a letter, you need", "an envelope and a stamp.", "a bucket and a rope."),
    ("To dry wet clothes,", "hang them in the sun.", "hang them in the lake."),
    ("To cross a busy road safely,", "wait for the green light.", "close your eyes and run."),
    ("To bake a cake,", "heat the oven first.", "freeze the oven first."),
    ("To sit down at a table, use", "a chair.", "a lamp."),
    ("If you want to borrow a book,", "go to the library.", "go to the swimming pool."),
]
"""Beginnings with a sensible end and another one."""

LEAST_RIGHT = 20
"""Of 24. Guessing at random gives 18 or more in one of 90 cases; SmolLM2 gave 23, and 24 by
likelihood per character."""

FACTS = [
    ("The capital of France is", "Paris"),
    ("The capital of Japan is", "Tokyo"),
    ("The largest planet in our solar system is", "Jupiter"),
]


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Person:
    try:
        resolve("smollm2", Silent())
    except ConnectError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("people")
    person = Person(folder / "ann")
    person.add_board("here", f"target: host\nreach: {{kind: local}}\nworkdir: {folder / 'board'}\n")
    with (person.folder / "everyday.jsonl").open("w") as file:
        for number, (goal, right, wrong) in enumerate(EVERYDAY):
            label = number % 2  # which answer comes first must not matter
            first, second = (right, wrong) if label == 0 else (wrong, right)
            question = {"goal": goal, "sol1": first, "sol2": second, "label": label}
            file.write(json.dumps(question) + "\n")
    return person


def test_it_chooses_what_is_sensible_far_more_often_than_by_chance(ann: Person) -> None:
    words = ("eval", "--task", "piqa", "--data", "everyday.jsonl", "--board", "here", "--json")
    (point,) = json.loads(ann.types(*words, "--model", "smollm2").stdout)["points"]
    for scored in ("accuracy", "normalised"):
        assert point[scored]["questions"] == len(EVERYDAY)
        assert point[scored]["correct"] >= LEAST_RIGHT, scored


def test_a_finer_type_made_of_it_still_knows_facts_and_a_coarse_one_strays(ann: Person) -> None:
    words = ("model.quantize", "smollm2", "--type", "Q8_0,Q2_K", "--kld", "--allow-requantize")
    finer, coarse = json.loads(ann.types(*words, "--json").stdout)["models"]
    assert finer["divergence"]["kl_mean"] < coarse["divergence"]["kl_mean"] / 4
    assert finer["divergence"]["top1_share"] > 0.9
    for prompt, word in FACTS:
        for model in ("smollm2", finer["path"]):
            run = ann.benches("--model", model, "--prompt", prompt, "-n", "8", board="here")
            assert word in run["text"], (model, prompt)
