"""Small models of each kind that sees or hears become two files that see or hear the same.

What is measured stands in docs/figures.md. ``python -m tests.system.test_convert_projectors``
prints the rows of its table.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import PIL
import pytest

from armload.build.builder import build
from armload.build.programs import SEEING_SCORER
from armload.build.target import load_target
from armload.conversion.checkpoints.checking import TOLERANCES
from armload.core.places import data_path
from tests import projector_checkpoints
from tests.person import Person
from tests.projector_checkpoints import KINDS
from tests.small_checkpoints import in_environment, with_checkpoints

pytestmark = [
    pytest.mark.exhaustive(
        covers=[
            "armload/conversion/checkpoints",
            "toolchains/converters",
            "toolchains/native/scorer/media.cpp",
            "toolchains/sources/llama-cpp.yaml",
            "tests/projector_checkpoints.py",
            "tests/small_checkpoints.py",
        ]
    ),
    pytest.mark.build,
]
SCRIPT = Path(projector_checkpoints.__file__)
ENDS = {"voxtral": "Invalid number of output tokens"}
"""Kinds with which llama.cpp ends, and what it says."""

SIZES = ((300, 200), (256, 256))
"""Of images: one with other proportions than an encoder of squares, and one with these."""

MOST = 0.01
"""Of the largest value."""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    return written(tmp_path_factory.mktemp("person"))


def written(folder: Path) -> Person:
    """Return a person who has a checkpoint of each kind."""
    tokenizers = {kind: (each["tokenizer"], each["words"]) for kind, each in KINDS.items()}
    return with_checkpoints(folder, SCRIPT, tokenizers)


def measured(person: Person, kind: str) -> dict[str, Any]:
    """Return how far a kind's embeddings and logits are from those of its checkpoint."""
    words = ("model.convert", f"of/{kind}", "--type", "F32", "--output", f"{kind}.gguf")
    done = json.loads(person.types(*words, "--yes", "--json").stdout)
    assert done["projector"] == f"mmproj-{kind}.gguf"
    check = done["check"]
    assert not [each for each in check["unchecked"] if not each.startswith("spaces in ")], check
    found: dict[str, Any] = check["image"] or check["sound"]
    return found


def row(kind: str, found: dict[str, Any], *prepared: dict[str, float]) -> str:
    what = f"{found['width']}x{found['height']}" if "width" in found else f"{found['seconds']:g} s"
    shares = (each["difference"] / each["largest"] for each in (found, found["after"]))
    cells = (kind, what, found["tokens"], *(f"{share:.3%}" for share in shares))
    cells += tuple(
        f"{each['largest']:.2g} ({each['mean']:.2g}) of {each['range']:.0f}" for each in prepared
    )
    return f"| {' | '.join(map(str, cells))} |"


PREPARED = """
import json, sys, wave
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import check_projector as c
import numpy, torch
from PIL import Image
from transformers import AutoConfig, AutoFeatureExtractor, AutoImageProcessor
checkpoint, file, projector, program, folder, c.WIDTH, c.HEIGHT = sys.argv[2:]
c.WIDTH, c.HEIGHT = int(c.WIDTH), int(c.HEIGHT)
config, scorer = AutoConfig.from_pretrained(checkpoint), c.Scorer(program, file, Path(folder))
kind, given = config.model_type, scorer.folder / c.IMAGE
c.write_image(given)
c.write_sound(scorer.folder / c.SOUND)
parts = c.seen_by(projector, scorer, c.SOUND if kind in c.HEARING else c.IMAGE)["inputs"]
settings = json.loads((Path(checkpoint) / "preprocessor_config.json").read_text())
if kind in c.HEARING:
    with wave.open(str(scorer.folder / c.SOUND)) as sound:
        samples = numpy.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768
    extract = AutoFeatureExtractor.from_pretrained(checkpoint)
    own = extract(samples, sampling_rate=c.RATE_HZ, return_tensors="np").input_features
    apart, most = abs(own - numpy.concatenate(parts)), float(own.max() - own.min())
elif kind == "lfm2_vl":  # its class needs torchvision, which resizes so
    scale, mean = (numpy.array(settings[f"image_{each}"]) * 255 for each in ("std", "mean"))
    pixels = torch.from_numpy(numpy.array(Image.open(given)).transpose(2, 0, 1))[None].float()
    usual = {"mode": "bilinear", "antialias": True}
    own = [torch.nn.functional.interpolate(pixels, part.shape[1:], **usual) for part in parts]
    own = [each.round().clamp(0, 255)[0].numpy().transpose(1, 2, 0) for each in own]
    other = [part.transpose(1, 2, 0) * scale + mean for part in parts]
    apart, most = numpy.concatenate([abs(a - b).ravel() for a, b in zip(own, other)]), 255
else:
    processor = AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    own = processor(images=[Image.open(given)], return_tensors="np")["pixel_values"]
    other = c.KINDS[kind](config, parts)["pixel_values"].numpy()
    std = numpy.array(settings["image_std"])
    if own.ndim == 2:
        scale = std.repeat(own.shape[1] // 3)
    else:
        scale = std.reshape(3, 1, 1)
    apart, most = abs(own - other) * scale * 255, 255
found = {"largest": float(apart.max()), "mean": float(apart.mean()), "range": most}
print(json.dumps(found))
"""


def prepared(person: Person, kind: str, size: tuple[int, int]) -> dict[str, float]:
    """Return how far what llama.cpp gives its encoder is from what transformers would give it.

    Pixels are in levels from 0 to 255, a sound's spectrum in its own unit. Pillow is this
    environment's own.

    Args:
        size: of the image.
    """
    (scorer,) = build(load_target("host"), programs=[SEEING_SCORER])
    beside, place = person.folder / "pillow", person.folder / "prepared"
    place.mkdir(exist_ok=True)
    packages = Path(PIL.__file__).parents[1]
    if not beside.exists():
        beside.mkdir()
        for name in ("PIL", "pillow.libs"):
            (beside / name).symlink_to(packages / name)
    made = (f"of/{kind}", f"{kind}.gguf", f"mmproj-{kind}.gguf")
    files = (person.folder / each for each in made)
    words = (data_path("toolchains", "converters"), *files, scorer.path, place, *size)
    done = in_environment("-c", PREPARED, *map(str, words), beside=beside)
    found: dict[str, float] = json.loads(done)
    return found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ENDS])
def test_a_kind_sees_or_hears_the_same_and_continues_alike(person: Person, kind: str) -> None:
    found = measured(person, kind)
    assert 0 < found["difference"] < MOST * found["largest"]
    assert found["relative"] < TOLERANCES["F32"]
    after = found["after"]
    assert 0 < after["difference"] < MOST * after["largest"]


@pytest.mark.parametrize("kind", ENDS)
def test_a_kind_with_which_llama_cpp_ends_is_refused(person: Person, kind: str) -> None:
    words = ("model.convert", f"of/{kind}", "--type", "F32", "--output", "no.gguf", "--yes")
    refused = person.types(*words, status=3)
    assert ENDS[kind] in refused.stderr
    assert not list(person.folder.glob("*no.gguf"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        somebody = written(Path(place))
        for each in sys.argv[1:] or [kind for kind in KINDS if kind not in ENDS]:
            found = measured(somebody, each)
            apart = [prepared(somebody, each, size) for size in SIZES]
            print(row(each, found, *apart), flush=True)  # noqa: T201 - what it is for
