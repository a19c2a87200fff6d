"""Compares how a GGUF file and its projector see an image, or hear a sound, with the checkpoint.

    check_projector.py CHECKPOINT FILE PROJECTOR SCORER RESULT

Runs in the converters' environment, where armload is not installed. armload-score-media says what
its encoder was given, and transformers is given the same, so that how an image is scaled, or a
sound's spectrum computed, makes no difference. Compared are the embeddings of all parts, and the
logits of the token after them and a question.
"""

import json
import sys
import wave
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from check_gguf import SMALLEST, EngineError, Scorer, read_model, said

CONTEXT = "4096"
"""Tokens, with room for an image in parts."""

WIDTH, HEIGHT = 300, 200
"""In pixels: no encoder's own size, and several windows of those that have windows."""

RATE_HZ, SECONDS = 16_000, 3
QUESTION = "What is it?"
IMAGE, SOUND = "image.ppm", "sound.wav"
MEDIA_TOKENS = ("image_token_id", "audio_token_id")


def main() -> None:
    """Write what was found as JSON."""
    checkpoint, file, projector, program, result = sys.argv[1:]
    found: dict[str, Any] = {}
    try:
        found = compared(checkpoint, projector, Scorer(program, file, Path(result).parent))
    except EngineError as error:
        found["engine"] = str(error)
    except Exception as error:  # noqa: BLE001 - transformers raises any; it is told
        found["unchecked"] = f"transformers cannot compute them ({said(error)})"
    Path(result).write_text(json.dumps(found, allow_nan=False), encoding="utf-8")


def compared(checkpoint: str, projector: str, scorer: Scorer) -> dict[str, Any]:
    """Return how far embeddings and logits differ, or why they were not compared."""
    config = import_module("transformers").AutoConfig.from_pretrained(checkpoint)
    kind = config.model_type
    if kind not in KINDS:
        return {"unchecked": f"a comparison for {kind} is not known here"}
    hears = kind in HEARING
    name = SOUND if hears else IMAGE
    write_sound(scorer.folder / SOUND) if hears else write_image(scorer.folder / IMAGE)
    file = seen_by(projector, scorer, name)
    rows, logits = seen_in(checkpoint, KINDS[kind](config, file["inputs"]), file["tokens"])
    if file["rows"].shape != rows.shape:
        return {"engine": f"{file['rows'].shape} values instead of {rows.shape}"}
    columns = min(len(logits), len(file["logits"]))  # either may be padded
    embeddings = difference(rows, file["rows"])
    after = difference(logits[None, :columns], file["logits"][None, :columns])
    if embeddings is None or after is None:
        return {"engine": "they are not finite numbers"}
    about = {"seconds": SECONDS} if hears else {"width": WIDTH, "height": HEIGHT}
    found = {**about, "tokens": len(rows), **embeddings, "after": after}
    return {"sound" if hears else "image": found}


def difference(own: Any, other: Any) -> dict[str, float] | None:
    """Return how far rows differ, the spread of each row as the measure; none if not finite."""
    numpy = import_module("numpy")
    if not (numpy.isfinite(own).all() and numpy.isfinite(other).all()):
        return None
    spread = ((own - own.mean(1, keepdims=True)) ** 2).mean(1) ** 0.5
    apart = ((other - own) ** 2).mean(1) ** 0.5 / numpy.maximum(spread, SMALLEST)
    return {
        "difference": float(abs(other - own).max()),
        "largest": float(abs(own).max()),
        "relative": float(numpy.median(apart)),
    }


def write_image(path: Path) -> None:
    """Write pixels with edges, slopes and noise, the same each time."""
    numpy = import_module("numpy")
    noise = numpy.random.default_rng(1).integers(0, 64, (HEIGHT, WIDTH, 3))
    rows, columns = numpy.mgrid[:HEIGHT, :WIDTH]
    slopes = numpy.stack([rows, columns, rows + columns], axis=2) * 48 // HEIGHT
    squares = ((rows // 9 + columns // 7) % 2)[:, :, None] * 70
    pixels = numpy.clip(noise + slopes + squares, 0, 255).astype("u1")
    path.write_bytes(b"P6 %d %d 255\n" % (WIDTH, HEIGHT) + pixels.tobytes())


def write_sound(path: Path) -> None:
    """Write a tone that rises, and noise, the same each time."""
    numpy = import_module("numpy")
    times = numpy.arange(RATE_HZ * SECONDS) / RATE_HZ
    tone = numpy.sin(2 * numpy.pi * (200 + 300 * times) * times)
    samples = 8_000 * tone + numpy.random.default_rng(1).normal(0, 500, len(times))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(samples.astype("<i2").tobytes())


def seen_by(projector: str, scorer: Scorer, name: str) -> dict[str, Any]:
    """Return what llama.cpp gives its encoder and makes of it: rows, tokens and logits.

    Of the tokens, those of the image are -1.
    """
    numpy = import_module("numpy")
    shown: dict[str, Any] = {"images": [name]}
    asked = {"kind": "logits", "prompt": QUESTION, "positions": "last", **shown}
    items = [{"id": "1", "kind": "image-embeddings", **shown}, {"id": "2", **asked}]
    path = scorer.folder / "rows.f32"
    words = ("--mmproj", projector, "--images", str(scorer.folder), "--logits", str(path))
    exact = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")
    answers = scorer.answers(items, *words, "-c", CONTEXT, *exact)
    values = path.read_bytes()

    def matrix(offset: int, *shape: int) -> Any:
        flat = numpy.frombuffer(values, "<f4", int(numpy.prod(shape)), offset)
        return flat.reshape(shape).astype("f8")

    rows, asked = answers["1"], answers["2"]
    return {
        "rows": matrix(rows["offset_bytes"], rows["rows"], rows["columns"]),
        "inputs": [
            matrix(each["offset_bytes"], *reversed(each["shape"])).astype("f4")
            for each in rows["inputs"]
        ],
        "tokens": asked["before"] + asked["tokens"],
        "logits": matrix(asked["offset_bytes"], asked["columns"]),
    }


def seen_in(checkpoint: str, given: dict[str, Any], tokens: list[int]) -> tuple[Any, Any]:
    """Return what transformers makes of the same: rows, and the logits after the last token."""
    torch = import_module("torch")
    model, _ = read_model(checkpoint)
    media = next(
        found for name in MEDIA_TOKENS if (found := getattr(model.config, name, None)) is not None
    )
    ids = torch.tensor([[media if token < 0 else token for token in tokens]])
    types = torch.tensor([[int(token < 0) for token in tokens]])
    takes = signature(model.forward).parameters
    marked = {name: types for name in ("token_type_ids", "mm_token_type_ids") if name in takes}
    rows = []
    with torch.inference_mode():
        if features := getattr(model, "get_image_features", None) or getattr(
            model, "get_audio_features", None
        ):
            found = features(**given)
            found = getattr(found, "pooler_output", found)
            rows = [found] if torch.is_tensor(found) else list(found)
        else:
            projector = model.model.multi_modal_projector
            projector.register_forward_hook(lambda _module, _given, made: rows.append(made))
        logits = model(input_ids=ids, use_cache=False, **given, **marked).logits[0, -1]
    found = torch.cat([each.reshape(-1, each.shape[-1]) for each in rows])
    return found.double().numpy(), logits.double().numpy()


def squares(_config: Any, parts: list[Any]) -> dict[str, Any]:
    """Return parts of one size, as Gemma 3 takes them."""
    numpy, torch = import_module("numpy"), import_module("torch")
    return {"pixel_values": torch.from_numpy(numpy.stack(parts))}


def tiles(config: Any, parts: list[Any]) -> dict[str, Any]:
    """Return parts of one size that are one image, as Idefics3 takes them."""
    return {"pixel_values": squares(config, parts)["pixel_values"][None]}


def merged_patches(config: Any, parts: list[Any]) -> dict[str, Any]:
    """Return patches in the order in which Qwen's encoders merge them, each for two frames."""
    numpy, torch = import_module("numpy"), import_module("torch")
    vision = config.vision_config
    side, merge = vision.patch_size, vision.spatial_merge_size
    patches, grids = [], []
    for part in parts:
        channels, rows, columns = part.shape[0], part.shape[1] // side, part.shape[2] // side
        split = part.reshape(channels, rows // merge, merge, side, columns // merge, merge, side)
        split = split.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
        split = numpy.repeat(split, vision.temporal_patch_size, axis=5)
        patches.append(split.reshape(rows * columns, -1))
        grids.append([1, rows, columns])
    values = torch.from_numpy(numpy.concatenate(patches))
    return {"pixel_values": values, "image_grid_thw": torch.tensor(grids)}


def padded_patches(config: Any, parts: list[Any]) -> dict[str, Any]:
    """Return patches row by row, as SigLIP 2 takes them."""
    numpy, torch = import_module("numpy"), import_module("torch")
    side = config.vision_config.patch_size
    shapes = [[part.shape[1] // side, part.shape[2] // side] for part in parts]
    most = max(rows * columns for rows, columns in shapes)
    values = numpy.zeros((len(parts), most, side * side * parts[0].shape[0]), "f4")
    mask = numpy.zeros((len(parts), most), "i4")
    for number, (part, (rows, columns)) in enumerate(zip(parts, shapes, strict=True)):
        split = part.reshape(-1, rows, side, columns, side).transpose(1, 3, 2, 4, 0)
        values[number, : rows * columns] = split.reshape(rows * columns, -1)
        mask[number, : rows * columns] = 1
    found = {"pixel_values": values, "pixel_attention_mask": mask}
    return {
        **{name: torch.from_numpy(each) for name, each in found.items()},
        "spatial_shapes": torch.tensor(shapes),
    }


def spectra(config: Any, parts: list[Any]) -> dict[str, Any]:
    """Return half minutes of a sound, all of whose frames count."""
    numpy, torch = import_module("numpy"), import_module("torch")
    values = numpy.concatenate(parts)
    mask = torch.ones((len(values), values.shape[2]), dtype=torch.long)
    masked = {"feature_attention_mask": mask} if config.model_type == "qwen2_audio" else {}
    return {"input_features": torch.from_numpy(values), **masked}


HEARING = {"qwen2_audio", "voxtral"}
KINDS: dict[str, Callable[[Any, list[Any]], dict[str, Any]]] = {
    "gemma3": squares,
    "idefics3": tiles,
    "lfm2_vl": padded_patches,
    "qwen2_5_vl": merged_patches,
    "qwen2_audio": spectra,
    "qwen2_vl": merged_patches,
    "smolvlm": tiles,
    "voxtral": spectra,
}
"""What transformers takes of each kind, from what llama.cpp's encoder was given."""


if __name__ == "__main__":
    main()
