"""Compares how a GGUF file and its projector see an image with the checkpoint.

    check_projector.py CHECKPOINT FILE PROJECTOR SCORER RESULT

Runs in the converters' environment, where armload is not installed. The image is as large as what
the encoder takes at a time, so that nothing is scaled: transformers is given its pixels as they
are, armload-score-media the image. It may cut the image into scaled parts besides; one of them is
the whole image.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from check_gguf import SMALLEST, EngineError, Scorer, read_model, said

CONTEXT = "4096"
"""Tokens, with room for an image in parts."""

PARTS = {"gemma3": False, "idefics3": True, "smolvlm": True}
"""Kinds whose encoder takes a square of one size, and whether several at a time."""


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
    """Return how far the embeddings differ, or why they were not compared."""
    numpy = import_module("numpy")
    config = import_module("transformers").AutoConfig.from_pretrained(checkpoint)
    kind, size = config.model_type, getattr(config.vision_config, "image_size", None)
    if kind not in PARTS or not isinstance(size, int):
        return {"unchecked": f"a comparison for {kind} is not known here"}
    pixels = picture(size)
    own = embeddings_of(checkpoint, kind, normal(checkpoint, pixels))
    file = embeddings_in(projector, scorer, pixels)
    if file.shape[1] != own.shape[1] or file.shape[0] % own.shape[0]:
        return {"engine": f"{file.shape} values instead of {own.shape}"}
    parts = file.reshape(-1, *own.shape)
    if not (numpy.isfinite(own).all() and numpy.isfinite(parts).all()):
        return {"engine": "they are not finite numbers"}
    spread = ((own - own.mean(1, keepdims=True)) ** 2).mean(1) ** 0.5
    apart = ((parts - own) ** 2).mean(2) ** 0.5 / numpy.maximum(spread, SMALLEST)
    relative = numpy.median(apart, axis=1)
    nearest = int(relative.argmin())
    image = {"width": size, "height": size, "tokens": own.shape[0]}
    image["difference"] = float(abs(parts[nearest] - own).max())
    image["largest"] = float(abs(own).max())
    image["relative"] = float(relative[nearest])
    return {"image": image}


def picture(size: int) -> Any:
    """Return pixels with edges, slopes and noise, the same each time."""
    numpy = import_module("numpy")
    noise = numpy.random.default_rng(1).integers(0, 64, (size, size, 3))
    rows, columns = numpy.mgrid[:size, :size]
    slopes = numpy.stack([rows, columns, rows + columns], axis=2) * 96 // size
    squares = ((rows // 9 + columns // 7) % 2)[:, :, None] * 95
    return numpy.clip(noise + slopes + squares, 0, 255).astype("u1")


def normal(checkpoint: str, pixels: Any) -> Any:
    """Return pixels as the encoder takes them."""
    numpy = import_module("numpy")
    settings: dict[str, Any] = {}
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = Path(checkpoint) / name
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        settings |= content | content.get("image_processor", {})
    mean, std = (numpy.array(settings[f"image_{each}"]) for each in ("mean", "std"))
    return ((pixels / 255 - mean) / std).transpose(2, 0, 1).astype("f4")


def embeddings_of(checkpoint: str, kind: str, values: Any) -> Any:
    """Return what transformers makes of the image."""
    torch = import_module("torch")
    model, _ = read_model(checkpoint)
    given = torch.from_numpy(values)[None]
    with torch.inference_mode():
        found = model.get_image_features(pixel_values=given[None] if PARTS[kind] else given)
    found = getattr(found, "pooler_output", found)
    found = found if torch.is_tensor(found) else found[0]
    return found.reshape(-1, found.shape[-1]).double().numpy()


def embeddings_in(projector: str, scorer: Scorer, pixels: Any) -> Any:
    """Return what llama.cpp makes of it, after it has answered a question about it.

    A vocabulary without the tokens that stand around an image ends the program.
    """
    numpy = import_module("numpy")
    folder = scorer.folder
    height, width, _ = pixels.shape
    (folder / "image.ppm").write_bytes(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes())
    shown: dict[str, Any] = {"images": ["image.ppm"]}
    asked = {"kind": "generate", "prompt": "What is it?", "max_tokens": 1, **shown}
    items = [{"id": "1", "kind": "image-embeddings", **shown}, {"id": "2", **asked}]
    rows = folder / "rows.f32"
    words = ("--mmproj", projector, "--images", str(folder), "--logits", str(rows))
    answer = scorer.answers(items, *words, "-c", CONTEXT, "-fa", "off")["1"]
    values = numpy.fromfile(rows, dtype="<f4").astype("f8")
    return values.reshape(answer["rows"], answer["columns"])


if __name__ == "__main__":
    main()
