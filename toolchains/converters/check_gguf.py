"""Compares a GGUF file with its checkpoint.

    check_gguf.py CHECKPOINT FILE SCORER RESULT CONTEXT [--tokens [--vocabulary]]
                  [--adapter FOLDER FILE]

Runs in the converters' environment, where armload is not installed. transformers reads the
checkpoint, armload-score the file: both give the tokens of fixed texts and, without ``--tokens``,
the logits of a prompt, of CONTEXT tokens at most. RESULT is written after each of the two. An
encoder's FILE is read for its --vocabulary alone. An adapter's FOLDER, as PEFT saves it, is merged
into the checkpoint's weights, and its FILE given to armload-score.
"""

import inspect
import json
import re
import signal
import subprocess
import sys
import unicodedata
from bisect import bisect_left
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

TEXTS = (
    "The quick brown fox jumps over the lazy dog. It's 7 o'clock, isn't it?",
    "Größe, naïve façade, Ångström, İstanbul, smørrebrød, żółć",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "敏捷的棕色狐狸跳过了懒狗。素早い茶色の狐が犬を飛び越える。",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول. שלום עולם",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते पर कूदती है।",
    "def fibonacci(n): return n if n < 2 else fibonacci(n-1) + fibonacci(n-2)",
    "for (int i = 0; i < 10; ++i) {\n\tx[i] += y[i] * 0x1F; // sum\n}\n",
    "1 12 123 1234 12345 3.14159 1,000,000 2024-02-29 +49 30 901820",
    "a  b   c    d        e                f",
    "  begins with spaces, and ends with them  ",
    "one\ntwo\n\nthree\n\n\n\nfour\r\nfive\t\tsix\n ",
    "🙂 👩‍💻 🇩🇪 ❤️ → ∑ € ½ ™",
    '<s> </s> <b>bold</b> [INST] {"key": [null, true]}',
)
"""In Unicode's composed form: llama.cpp does not compose characters, as some tokenizers do."""

SPACE = "\u2581"
MOST_ADDED = 64
"""Of the tokens that are added to a vocabulary, most of them special ones."""

PROMPT_TOKENS, LONGEST_WINDOW = 64, 1024
"""A prompt is that much longer than a sliding window, unless the window is longer than this."""

FIRST, LAST = 24, 40
"""Positions whose logits are compared. Most of them are beyond a sliding window."""

LIMIT_S = 900
LETTERS = re.compile(r"[A-Za-z]{2,}")
MOST_WORDS, TEXT_WORDS = 512, 32
"""Words of the vocabulary that are compared, and those in a text."""

MOST_NAMES = 5
SMALLEST = 1e-30
"""What the spread of logits that are all the same counts for."""

DEQUANTIZING = {"fp8": "FineGrainedFP8Config", "mxfp4": "Mxfp4Config"}
"""What tells transformers to unpack weights, which it computes with on graphics cards alone."""

CLASSES = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForMultimodalLM")
"""Of transformers, for text, images and sounds; the last is of version 5."""

TAKEN = re.compile(r"control-looking token: +(\d+) '(.*)' was not control-type")
ENGINE_ERROR = re.compile(r"error|ASSERT|what\(\)|\.cpp:\d+: ", re.IGNORECASE)


class EngineError(Exception):
    """armload-score could not load the file, or failed."""


def main() -> None:
    """Write what was found as JSON."""
    checkpoint, file, program, result, context, *rest = sys.argv[1:]
    folder, lora = rest[rest.index("--adapter") + 1 :][:2] if "--adapter" in rest else ("", "")
    scorer = Scorer(program, file, Path(result).parent, lora, reads_all="--vocabulary" not in rest)
    found: dict[str, Any] = {"transformers": import_module("transformers").__version__}
    found |= {"different": [], "unread": [], "unchecked": []}
    try:
        tokenizer = read_tokenizer(checkpoint, found)
        found |= compared_tokens(tokenizer, scorer)
        found["template"] = compared_template(tokenizer, scorer)
        write(result, found)
        if "--tokens" not in rest and not found["different"]:
            signal.signal(signal.SIGALRM, give_up)
            signal.alarm(LIMIT_S)
            found |= compared_logits(checkpoint, tokenizer, scorer, int(context), folder)
            signal.alarm(0)
    except EngineError as error:
        found["engine"] = str(error)
    except TimeoutError:
        found["unchecked"].append(f"logits: they take more than {LIMIT_S // 60} min here")
    except Exception as error:  # noqa: BLE001 - transformers raises any; it is told
        found["unread"].append(f"logits: transformers cannot compute them ({said(error)})")
    write(result, found)


def write(result: str, found: dict[str, Any]) -> None:
    """Leave what was found so far, without a number that JSON has not."""
    Path(result).write_text(json.dumps(found, allow_nan=False), encoding="utf-8")


def read_tokenizer(checkpoint: str, found: dict[str, Any]) -> Any:
    """Return the checkpoint's tokenizer; none if transformers cannot read it."""
    try:
        return import_module("transformers").AutoTokenizer.from_pretrained(checkpoint)
    except Exception as error:  # noqa: BLE001
        found["unread"].append(f"tokens: transformers cannot read the tokenizer ({said(error)})")
        return None


class Scorer:
    """armload-score with the file.

    Args:
        program: its path.
        file: the model's.
        folder: for items and logits.
        adapter: a file that is added to the model; empty for none.
        reads_all: weights are loaded, too.

    Attributes:
        folder: as given.
        taken: what llama.cpp takes for special tokens, with their ids, whatever the file says.
    """

    def __init__(
        self, program: str, file: str, folder: Path, adapter: str = "", *, reads_all: bool = True
    ) -> None:
        self._words = [program, "-m", file, "--no-repack"]
        self._words += [] if reads_all else ["--vocab-only"]
        self._words += ["--lora", adapter] if adapter else []
        self.folder = folder
        self.taken: dict[str, int] = {}

    def answers(self, items: list[dict[str, Any]], *words: str) -> dict[str, dict[str, Any]]:
        """Return the answer to each item by its id."""
        path = self.folder / "items.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in items), encoding="utf-8")
        command = [*self._words, "--items", str(path), *words]
        done = subprocess.run(command, capture_output=True, check=False)
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        self.taken |= {each[2]: int(each[1]) for line in lines if (each := TAKEN.search(line))}
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        failed = [each["error"] for each in answers if "error" in each]
        if done.returncode != 0 or failed:
            errors = failed or [line for line in lines if ENGINE_ERROR.search(line)] or lines
            raise EngineError(
                " ".join(errors[0].split()) if errors else f"status {done.returncode}"
            )
        return {each["id"]: each for each in answers}

    def logits(self, prompt: str, positions: list[int]) -> tuple[list[int], Any]:
        """Return a prompt's tokens, and the logits at some of its positions."""
        path = self.folder / "logits.f32"
        item = {"id": "1", "kind": "logits", "prompt": prompt, "positions": positions}
        # The most exact of what the engine offers: the file is what is compared.
        exact = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")
        context = str(max(positions) + 1)
        answer = self.answers([item], "--logits", str(path), "-c", context, *exact)["1"]
        values = import_module("numpy").fromfile(path, dtype="<f4")
        return answer["tokens"], values.reshape(answer["rows"], answer["columns"])


def compared_tokens(tokenizer: Any, scorer: Scorer) -> dict[str, Any]:
    """Return how many texts have the same tokens in the file, and those that have others."""
    ids = tokenizer.get_added_vocab() if tokenizer else {}
    added = sorted(ids, key=ids.__getitem__)[:MOST_ADDED]
    texts = [*TEXTS, *(f"one {text} two{text}three" for text in added)]
    texts += texts_of_words(tokenizer) if tokenizer else []
    items = [{"id": str(n), "kind": "tokenize", "text": text} for n, text in enumerate(texts)]
    answers = scorer.answers(items, "--check-tensors", "-c", "256")
    if tokenizer is None:
        return {}
    compared = [
        {
            "text": text,
            "checkpoint": tokenizer(text)["input_ids"],
            "file": answers[str(n)]["tokens"],
        }
        for n, text in enumerate(texts)
    ]
    others = [each for each in compared if each["checkpoint"] != each["file"]]
    marked = [each for each in others if is_word_piece(tokenizer) and is_marked(each["text"])]
    others = [each for each in others if each not in marked]
    rules = SpaceRules(tokenizer, scorer.taken)
    different = [each for each in others if not rules.explain(each["text"], each["file"])]
    taken = [text for text in scorer.taken if any(text in each["text"] for each in others)]
    spaced = sum(not any(text in each["text"] for text in taken) for each in others)
    if different:
        return {"texts": len(texts), "different": different}
    same = len(texts) - len(marked)
    return {"texts": same, "spaced": spaced, "taken": taken, "marked": len(marked)}


def is_word_piece(tokenizer: Any) -> bool:
    """Tell whether a tokenizer is a BERT's, which decomposes a text and strips its marks."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    return type(model).__name__ == "WordPiece"


def is_marked(text: str) -> bool:
    """Tell whether a text has what llama.cpp decomposes or strips otherwise than BERT's tokenizers.

    These are Hangul syllables, and combining marks beside those of Latin, Greek and Cyrillic.
    """
    return any(
        "\uac00" <= each <= "\ud7a3"
        or (unicodedata.category(each)[0] == "M" and not "\u0300" <= each <= "\u036f")
        for each in (*text, *unicodedata.normalize("NFD", text))
    )


def texts_of_words(tokenizer: Any) -> list[str]:
    """Return texts of words that the vocabulary has a token for, from all of it."""
    pieces = (text.lstrip(SPACE + "\u0120") for text in tokenizer.get_vocab())
    words = sorted({text for text in pieces if LETTERS.fullmatch(text)})
    words = words[:: -(-len(words) // MOST_WORDS) or 1]
    return [" ".join(words[at : at + TEXT_WORDS]) for at in range(0, len(words), TEXT_WORDS)]


class SpaceRules:
    """Whether other tokens than the checkpoint's follow from rules that llama.cpp has of its own.

    It puts a space before a text and after special tokens, or leaves the spaces beside them, where
    the checkpoint's tokenizer does not; and takes some words, such as ``</s>``, for special tokens
    whatever the vocabulary says. Between special tokens, the tokens must be those that the
    checkpoint's own tokenizer makes of the same text, with or without such a space.

    Args:
        tokenizer: the checkpoint's.
        taken: what llama.cpp takes for special tokens, with their ids.
    """

    def __init__(self, tokenizer: Any, taken: dict[str, int]) -> None:
        self._tokenizer = tokenizer
        self._special = {**tokenizer.get_added_vocab(), **taken}
        self._pieces = any(text.startswith(SPACE) for text in tokenizer.get_vocab())
        names = sorted(self._special, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None
        begun = tokenizer("a")["input_ids"]
        plain = tokenizer("a", add_special_tokens=False)["input_ids"]
        at = next((n for n in range(len(begun)) if begun[n : n + len(plain)] == plain), 0)
        self._begin, self._end = begun[:at], begun[at + len(plain) :]

    def explain(self, text: str, ids: list[int]) -> bool:
        """Say whether the rules explain these tokens of a text."""
        parts = self._split.split(text) if self._split else [text]
        if ids[: len(self._begin)] != self._begin:
            return False
        places = {len(self._begin)}
        for number, part in enumerate(parts):
            ways = (
                [[self._special[part]]]
                if number % 2
                else self._ways(part, is_first=number == 0, is_last=number == len(parts) - 1)
            )
            places = {p + len(way) for p in places for way in ways if ids[p : p + len(way)] == way}
        return any(ids[place:] in ([], self._end) for place in places)

    def _ways(self, part: str, *, is_first: bool, is_last: bool) -> list[list[int]]:
        texts = {part}
        if not is_first:
            texts |= {part.lstrip(" ")}
        elif self._pieces and part.startswith(" "):
            texts |= {part[1:]}
        if self._pieces and (not is_first or part.startswith(" ")):
            texts |= {f" {text}" for text in texts}
        if not is_last:
            texts |= {text.rstrip(" ") for text in texts}
        return [way for text in sorted(texts) for way in self._readings(text, is_first=is_first)]

    def _readings(self, text: str, *, is_first: bool) -> list[list[int]]:
        """Return a text's tokens at the beginning, and after a special token."""
        if not text:
            return [[]]
        ways = [self._tokenizer(text, add_special_tokens=False)["input_ids"]]
        for name, number in [] if is_first else self._special.items():
            ids = self._tokenizer(name + text, add_special_tokens=False)["input_ids"]
            if ids[:1] == [number]:
                ways.append(ids[1:])
                break
        return ways


def compared_template(tokenizer: Any, scorer: Scorer) -> str:
    """Return why a message is another prompt for llama.cpp; nothing if it is the same."""
    if not getattr(tokenizer, "chat_template", None):
        return ""
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # noqa: BLE001 - a template raises whatever its filters do
        return f"transformers cannot apply it to a message of a user ({said(error)})"
    item = {"id": "1", "kind": "logits", "messages": messages, "positions": [0], "top_k": 1}
    try:
        file = scorer.answers([item], "-c", "4096")["1"]["tokens"]
    except EngineError as error:
        return f"llama.cpp cannot apply it ({error})"
    own = tokenizer(text, add_special_tokens=False)["input_ids"]
    first = [tokenizer.bos_token_id]
    own, bare = ((ids[1:] if ids[:1] == first else ids) for ids in (own, file))
    rules = SpaceRules(tokenizer, scorer.taken)
    begun = text.removeprefix(tokenizer.bos_token or "")  # llama.cpp may add it itself
    if own == bare or any(rules.explain(each, file) for each in (text, begun)):
        return ""
    return f"llama.cpp makes other tokens of a message: {bare} instead of {own}"


def compared_logits(
    checkpoint: str, tokenizer: Any, scorer: Scorer, context: int, adapter: str = ""
) -> dict[str, Any]:
    """Return how far the logits of a prompt differ; an adapter is a folder, empty for none."""
    torch, numpy = import_module("torch"), import_module("numpy")
    if tokenizer is None:
        return {}
    model, loading = read_model(checkpoint)
    weights = {
        key: sorted(map(str, loading.get(f"{key}_keys") or ()))[:MOST_NAMES]
        for key in ("missing", "unexpected")
    }
    if loading.get("mismatched_keys"):
        shapes = sorted(" ".join(map(str, each)) for each in loading["mismatched_keys"])
        return {"mismatched": shapes[:MOST_NAMES]}
    if adapter:
        merge(model, Path(adapter))
    window = getattr(model.config.get_text_config(), "sliding_window", None) or 0
    is_reached = window <= LONGEST_WINDOW
    wanted = min(context, PROMPT_TOKENS + (window if is_reached else 0))
    prompt = prompt_of(tokenizer, wanted)
    count = len(tokenizer(prompt)["input_ids"])
    positions = sorted({*range(min(FIRST, count)), *range(max(0, count - LAST), count)})
    ids, file = scorer.logits(prompt, positions)
    keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
    kept = {"logits_to_keep": torch.tensor(positions)} if keeps else {}
    with torch.inference_mode():
        own = model(input_ids=torch.tensor([ids]), use_cache=False, **kept).logits[0]
    own = (own if keeps else own[positions]).double().numpy()
    columns = min(own.shape[1], file.shape[1])  # either may be padded
    own, file = own[:, :columns], file[:, :columns].astype("f8")
    found = {"window": window, "window_reached": is_reached, **weights}
    nowhere = [int((~numpy.isfinite(each)).sum()) for each in (own, file)]
    if any(nowhere):
        return {**found, "not_finite": nowhere}
    spread = ((own - own.mean(1, keepdims=True)) ** 2).mean(1) ** 0.5
    apart = ((file - own) ** 2).mean(1) ** 0.5
    relative = sorted(float(each) for each in apart / numpy.maximum(spread, SMALLEST))
    found["logits"] = {
        "tokens": len(ids),
        "positions": len(positions),
        "difference": float(abs(file - own).max()),
        "relative": relative[len(relative) // 2],
        "same_top": float((own.argmax(1) == file.argmax(1)).mean()),
    }
    return found


def read_model(checkpoint: str) -> tuple[Any, dict[str, Any]]:
    """Return the checkpoint's model, with what transformers says of its weights."""
    torch, transformers = import_module("torch"), import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    settings: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    settings["ignore_mismatched_sizes"] = True  # they are told
    packed = getattr(config, "quantization_config", None) or {}
    packed = packed if isinstance(packed, dict) else packed.to_dict()
    if dequantizing := DEQUANTIZING.get(str(packed.get("quant_method"))):
        others = {key: value for key, value in packed.items() if key != "quant_method"}
        make = getattr(transformers, dequantizing)
        settings["quantization_config"] = make(**{**others, "dequantize": True})
    kinds = [getattr(transformers, name) for name in CLASSES if hasattr(transformers, name)]
    known = (each for each in kinds if type(config) in each._model_mapping)  # noqa: SLF001
    kind = next(known, transformers.AutoModelForCausalLM)  # which says what it does not know
    model, loading = kind.from_pretrained(checkpoint, output_loading_info=True, **settings)
    return model.eval().float(), loading


def merge(model: Any, adapter: Path) -> None:
    """Add an adapter's products to a model's weights: scale times B times A, as PEFT does it."""
    torch = import_module("torch")
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    weights = import_module("safetensors.torch").load_file(adapter / "adapter_model.safetensors")
    kinds = {".lora_A.weight": ".lora_B.weight", ".lora_embedding_A": ".lora_embedding_B"}
    for name, first in weights.items():
        ending = next((each for each in kinds if name.endswith(each)), None)
        if ending is None:
            continue
        begin = name.removesuffix(ending)
        second = weights[begin + kinds[ending]]
        scale = config["lora_alpha"] / first.shape[0]
        change = scale * (second.float() @ first.float())
        is_turned = "embedding" in ending or config.get("fan_in_fan_out")
        module = model.get_submodule(begin.removeprefix("base_model.model."))
        with torch.no_grad():
            module.weight += change.T if is_turned else change


def prompt_of(tokenizer: Any, count: int) -> str:
    """Return a text of that many tokens, or a few more."""
    text = " ".join(TEXTS[:-1])

    def tokens_of(length: int) -> int:
        return len(tokenizer(text[:length])["input_ids"])

    while tokens_of(len(text)) < count:
        text += " " + text
    return text[: bisect_left(range(len(text)), count, key=tokens_of)]


def said(error: Exception) -> str:
    """Return the first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def give_up(*_: object) -> NoReturn:
    """End what takes too long."""
    raise TimeoutError


if __name__ == "__main__":
    main()
