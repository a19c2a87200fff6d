"""Converts a checkpoint to GGUF: convert_gguf.py CONVERTER ARGUMENTS.

Runs llama.cpp's own converter in the converters' environment, where armload is not installed.

The converter recognises how a byte-pair tokenizer splits text by what it makes of one text, so
that it knows published vocabularies only. Here one that it does not know is recognised by the rule
that its ``tokenizer.json`` states. Of a BERT's, llama.cpp knows a single rule.

It reads sentence pieces from a ``tokenizer.model``, and without one gives all pieces the same score
or refuses the checkpoint. The transformers of today save ``tokenizer.json`` alone: then the file is
made of that.

Qwen3-Next has layers that predict further tokens. The converter insists on them unless it is told
otherwise; transformers does not save them.

Weights of vision encoders have other names since transformers 5.

How a mixture of experts turns scores into weights is a setting of published models that
transformers leaves out where its class does nothing else. Then the class's code tells it.

llama.cpp takes a model whose name has ``phi-3`` or ``phi3`` in it for one whose special tokens drop
the spaces after them. The name in the file is made to say what the tokenizer does.

For some architectures the converter drops a sliding window, as llama.cpp has none for them. Then
the file's context ends where the window does, so that the model is the same for every text that
fits.

The file's metadata say that nothing was checked, until the comparison has.
"""

import json
import re
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN = {
    (rf"{_WORDS}|\p{{N}}{_REST}", False): "qwen2",
    (rf"{_WORDS}|\p{{N}}{{1,3}}{_REST}", True): "llama-bpe",
    (rf"{_WORDS}|\p{{N}}{{1,3}}{_REST}", False): "dbrx",
    ("", False): "gpt-2",
}
"""What llama-vocab.cpp calls a rule: the expression that splits text, none for ByteLevel's own;
and whether a word of the vocabulary is taken whole, whatever the merges."""

GATES = {"score_function", "scoring_func", "score_func", "moe_router_activation"}
GATES |= {"moe_router_activation_func", "expert_selection_fn"}
"""What published models call the setting, as the converter knows them."""

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
LOGITS = r"(?:router|routing|gate)\w*_logits"
GATING = {
    name: re.compile(rf"{LOGITS}\S*?\.{name}\(|\b{name}\(\s*{LOGITS}")
    for name in ("sigmoid", "softmax")
}
FORMER_LAYERS = {"linear_attention": "mamba", "full_attention": "attention"}
"""Layers of hybrids with Mamba before transformers 5, and still for the converter."""

VISION = re.compile(r"^((?:model\.)?vision_tower\.)(?=embeddings|encoder|post_layernorm)")
"""Begins the names of a vision encoder's weights as transformers 5 saves them; before, they had
``vision_model`` in them."""

COMPARING = "comparing"
"""The folder beside this environment's own packages that has today's transformers."""

PHI3 = re.compile("phi-?3", re.IGNORECASE)
PLAIN = {"<unk>", "<s>", "<|endoftext|>"}
"""Special tokens after which llama.cpp leaves the spaces of a Phi-3, too."""

FLAGS = ("armload.checked.tokens", "armload.checked.logits")

SPACE = "\u2581"
BYTES = re.compile(r"<0x[0-9A-F]{2}>")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of pieces in sentencepiece_model.proto."""


def main() -> None:
    """Run the converter, with one more way to recognise a tokenizer."""
    script, *arguments = sys.argv[1:]
    provide_pieces(Path(arguments[0]))
    sys.path.insert(0, str(Path(script).parent))
    model = import_module("conversion.base").TextModel
    published = model.get_vocab_base_pre

    def get_vocab_base_pre(self: Any, tokenizer: Any) -> str:
        try:
            return str(published(self, tokenizer))
        except NotImplementedError:
            backend = getattr(tokenizer, "backend_tokenizer", None)
            stated = json.loads(backend.to_str()) if backend else None
            name = stated and (word_pieces_of(stated) or KNOWN.get(rule_of(stated)))
            if not name:
                raise
            return name

    model.get_vocab_base_pre = get_vocab_base_pre
    change_names(Path(arguments[0]))
    complete_settings(import_module("conversion.base").ModelBase)
    end_with_window(model)
    name_as_published(import_module("conversion.base").MmprojModel)
    if not predicts_ahead(Path(arguments[0])):
        import_module("conversion.qwen")._QwenMtpMixin.no_mtp = True  # noqa: SLF001
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def change_names(checkpoint: Path) -> None:
    """Write the name that llama.cpp needs, and the flags."""
    writer = import_module("gguf").GGUFWriter
    published = writer.add_name
    strips = strips_spaces(checkpoint)

    def add_name(self: Any, name: str) -> None:
        published(self, name_for(name, strips=strips))
        for flag in FLAGS:
            self.add_bool(flag, False)  # noqa: FBT003 - the library's way

    writer.add_name = add_name


def name_for(name: str, *, strips: bool) -> str:
    """Return a model's name by which llama.cpp strips spaces after special tokens, or does not."""
    if strips == bool(PHI3.search(name)):
        return name
    return f"{name} (Phi-3)" if strips else PHI3.sub("Phi 3", name)


def strips_spaces(checkpoint: Path) -> bool:
    """Say whether the special tokens drop the spaces after them, as those of Phi-3 do."""
    path = checkpoint / "tokenizer.json"
    added = json.loads(path.read_text(encoding="utf-8"))["added_tokens"] if path.is_file() else []
    others = [each for each in added if each["special"] and each["content"] not in PLAIN]
    is_phi = any(each["content"] == "</s>" for each in added)  # without it, llama.cpp ends
    return is_phi and bool(others) and all(each["rstrip"] for each in others)


def complete_settings(base: Any) -> None:
    """Give a configuration what converters read in it and transformers 5 no longer writes."""
    load, begin = base.load_hparams, base.__init__

    def load_hparams(*words: Any, **named: Any) -> dict[str, Any]:
        return completed(load(*words, **named))

    def __init__(self: Any, *words: Any, **named: Any) -> None:  # noqa: N807
        if named.get("hparams"):  # some classes read config.json themselves
            named["hparams"] = completed(named["hparams"])
        begin(self, *words, **named)

    base.load_hparams, base.__init__ = staticmethod(load_hparams), __init__


def completed(settings: dict[str, Any]) -> dict[str, Any]:
    """Say how experts are chosen, and name the layers of hybrids as the converter knows them."""
    inner = settings.get("text_config")
    text = inner if isinstance(inner, dict) else settings
    gating = gating_of(str(text.get("model_type")))
    if gating and any(text.get(each) for each in EXPERTS) and not GATES & {*settings, *text}:
        text["scoring_func"] = gating
    if "mamba_d_state" in text and isinstance(text.get("layer_types"), list):
        text["layer_types"] = [FORMER_LAYERS.get(each, each) for each in text["layer_types"]]
    return settings


def name_as_published(projector: Any) -> None:
    """Name the weights of a vision encoder as published models do, and the converter knows them."""
    published = projector.map_tensor_name

    def map_tensor_name(self: Any, name: str, *words: Any, **named: Any) -> str:
        try:
            return str(published(self, name, *words, **named))
        except ValueError:
            return str(published(self, VISION.sub(r"\1vision_model.", name), *words, **named))

    projector.map_tensor_name = map_tensor_name


def end_with_window(model: Any) -> None:
    """Let a context be no longer than a sliding window that the file lacks."""
    published = model.prepare_metadata

    def prepare_metadata(self: Any, *words: Any, **named: Any) -> None:
        published(self, *words, **named)
        (values,) = self.gguf_writer.kv_data
        window = window_of(self.hparams)
        has_window = any(key.endswith(".attention.sliding_window") for key in values)
        for key, entry in values.items():
            if window and not has_window and key.endswith(".context_length"):
                entry.value = min(entry.value, window)

    model.prepare_metadata = prepare_metadata


def window_of(settings: dict[str, Any]) -> int:
    """Return the tokens of a sliding window; 0 if no layer has one."""
    window = settings.get("sliding_window")
    layers = settings.get("layer_types") or ["sliding_attention"]
    is_used = settings.get("use_sliding_window", True) and "sliding_attention" in layers
    return window if is_used and isinstance(window, int) else 0


def gating_of(model_type: str) -> str:
    """Return ``sigmoid`` or ``softmax``, as the code of transformers says; else nothing."""
    name = model_type.replace("-", "_")
    models = Path(sys.prefix, COMPARING, "transformers", "models")
    path = models / name / f"modeling_{name}.py"
    if not name.isidentifier() or not path.is_file():
        return ""
    code = path.read_text(encoding="utf-8")
    used = [gating for gating, pattern in GATING.items() if pattern.search(code)]
    return used[0] if len(used) == 1 else ""


def predicts_ahead(checkpoint: Path) -> bool:
    """Say whether there are layers that predict further tokens, which transformers leaves out."""
    opened = import_module("safetensors").safe_open
    files = checkpoint.glob("*.safetensors")
    names = (name for file in files for name in opened(file, framework="np").keys())  # noqa: SIM118
    return any(name.startswith(("mtp.", "model.mtp.")) for name in names)


def provide_pieces(checkpoint: Path) -> None:
    """Write ``tokenizer.model`` where ``tokenizer.json`` alone has sentence pieces."""
    stated, made = checkpoint / "tokenizer.json", checkpoint / "tokenizer.model"
    if made.exists() or not stated.is_file():
        return
    tokenizer = json.loads(stated.read_text(encoding="utf-8"))
    found = pieces_of(tokenizer)
    if not found:
        return
    model = import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    for text, score, kind in found:
        model.pieces.add(piece=text, score=score, type=kind)
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.add_dummy_prefix = begins_with_space(tokenizer)
    made.write_bytes(model.SerializeToString())
    settings = checkpoint / "tokenizer_config.json"
    content = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    content["add_prefix_space"] = begins_with_space(tokenizer)
    settings.unlink(missing_ok=True)  # a link to the checkpoint's own
    settings.write_text(json.dumps(content), encoding="utf-8")


def pieces_of(tokenizer: Any) -> list[tuple[str, float, int]]:
    """Return text, score and type of each sentence piece; nothing of another kind of tokenizer.

    The first pair to be merged makes the piece with the highest score.
    """
    model = tokenizer["model"]
    splits = json.dumps([tokenizer["normalizer"], tokenizer["pre_tokenizer"]], ensure_ascii=False)
    if model["type"] != "BPE" or not model.get("byte_fallback") or SPACE not in splits:
        return []
    ids: dict[str, int] = dict(model["vocab"])
    added = {each["content"]: each for each in tokenizer["added_tokens"]}
    ids |= {text: each["id"] for text, each in added.items()}
    unknown = model.get("unk_token") or "<unk>"
    if unknown not in ids:
        return []
    merged = ("".join(m.split(" ", 1) if isinstance(m, str) else m) for m in model["merges"])
    scores = {text: -float(place) for place, text in enumerate(dict.fromkeys(merged))}
    found = {number: (f"[UNUSED{number}]", 0.0, UNUSED) for number in range(max(ids.values()) + 1)}
    others = len(scores)
    for text, number in sorted(ids.items(), key=lambda item: item[1]):
        kind = BYTE if BYTES.fullmatch(text) else NORMAL
        if text in added:
            kind = CONTROL if added[text]["special"] else USER_DEFINED
        kind = UNKNOWN if text == unknown else kind
        score = scores.get(text, 0.0)
        if kind == NORMAL and text not in scores:
            score, others = -float(others), others + 1
        found[number] = (text, score, kind)
    return [found[number] for number in sorted(found)]


def begins_with_space(tokenizer: Any) -> bool:
    """Say whether a space is put in front of a text."""
    rules = [tokenizer["normalizer"] or {}, tokenizer["pre_tokenizer"] or {}]
    each = [*rules, *(inner for rule in rules for inner in rule.get("normalizers", ()))]
    return any(
        rule.get("type") == "Prepend"
        or (rule.get("type") == "Metaspace" and rule.get("prepend_scheme", "always") != "never")
        for rule in each
    )


def word_pieces_of(tokenizer: Any) -> str:
    """Return what a BERT's vocabulary is called, if it splits text as llama.cpp does for each."""
    normalizer, splits = tokenizer["normalizer"] or {}, tokenizer["pre_tokenizer"] or {}
    is_bert = (normalizer.get("type"), splits.get("type")) == ("BertNormalizer", "BertPreTokenizer")
    is_lower = normalizer.get("lowercase") and normalizer.get("strip_accents") is not False
    return "bert-bge" if is_bert and is_lower and tokenizer["model"]["type"] == "WordPiece" else ""


def rule_of(tokenizer: Any) -> tuple[str, bool]:
    """Return how a ``tokenizer.json`` splits text, as in ``KNOWN``; a mismatch has no expression.

    The bytes must be spelt as GPT-2 does, with no space added in front.
    """
    unknown = ("unknown", False)
    rule = tokenizer["pre_tokenizer"] or {}
    *splits, last = rule["pretokenizers"] if rule.get("type") == "Sequence" else [rule]
    if last.get("type") != "ByteLevel" or last["add_prefix_space"] or len(splits) > 1:
        return unknown
    whole = bool(tokenizer["model"].get("ignore_merges"))
    if not splits:
        return ("", whole) if last["use_regex"] else unknown
    (split,) = splits
    isolates = split.get("type") == "Split" and split["behavior"] == "Isolated"
    if not isolates or split["invert"] or last["use_regex"]:
        return unknown
    return str(split["pattern"].get("Regex", "unknown")), whole


if __name__ == "__main__":
    main()
