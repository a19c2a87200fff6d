"""Compares a GGUF file with its checkpoint: check_gguf.py CHECKPOINT FILE SCORER RESULT [--tokens].

Runs in the converters' environment, where armload is not installed. transformers reads the
checkpoint, armload-score the file: both give the tokens of fixed texts and, without ``--tokens``,
the logits of a prompt. RESULT is written after each of the two.
"""

import inspect
import json
import re
import signal
import subprocess
import sys
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
ENGINE_ERROR = re.compile(r"error|ASSERT|what\(\)", re.IGNORECASE)


class EngineError(Exception):
    """armload-score could not load the file, or failed."""


def main() -> None:
    """Write what was found as JSON."""
    checkpoint, file, program, result, *rest = sys.argv[1:]
    scorer = Scorer(program, file, Path(result).parent)
    found: dict[str, Any] = {"texts": 0, "different": [], "unchecked": []}
    try:
        tokenizer = read_tokenizer(checkpoint, found)
        found |= compared_tokens(tokenizer, scorer)
        Path(result).write_text(json.dumps(found), encoding="utf-8")
        if "--tokens" not in rest and not found["different"]:
            signal.signal(signal.SIGALRM, give_up)
            signal.alarm(LIMIT_S)
            found |= compared_logits(checkpoint, tokenizer, scorer)
            signal.alarm(0)
    except EngineError as error:
        found["engine"] = str(error)
    except TimeoutError:
        found["unchecked"].append(f"logits: they take more than {LIMIT_S // 60} min here")
    except Exception as error:  # noqa: BLE001 - transformers raises any; it is told
        found["unchecked"].append(f"logits: transformers cannot compute them ({said(error)})")
    Path(result).write_text(json.dumps(found), encoding="utf-8")


def read_tokenizer(checkpoint: str, found: dict[str, Any]) -> Any:
    """Return the checkpoint's tokenizer; none if transformers cannot read it."""
    try:
        return import_module("transformers").AutoTokenizer.from_pretrained(checkpoint)
    except Exception as error:  # noqa: BLE001
        found["unchecked"].append(f"tokens: transformers cannot read the tokenizer ({said(error)})")
        return None


class Scorer:
    """armload-score with the file.

    Args:
        program: its path.
        file: the model's.
        folder: for items and logits.
    """

    def __init__(self, program: str, file: str, folder: Path) -> None:
        self._words = [program, "-m", file, "--no-repack"]
        self._folder = folder

    def answers(self, items: list[dict[str, Any]], *words: str) -> dict[str, dict[str, Any]]:
        """Return the answer to each item by its id."""
        path = self._folder / "items.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in items), encoding="utf-8")
        command = [*self._words, "--items", str(path), *words]
        done = subprocess.run(command, capture_output=True, check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        failed = [each["error"] for each in answers if "error" in each]
        if done.returncode != 0 or failed:
            lines = done.stderr.decode("utf-8", "replace").splitlines()
            errors = failed or [line for line in lines if ENGINE_ERROR.search(line)] or lines
            raise EngineError(
                " ".join(errors[0].split()) if errors else f"status {done.returncode}"
            )
        return {each["id"]: each for each in answers}

    def logits(self, prompt: str, positions: list[int]) -> tuple[list[int], Any]:
        """Return a prompt's tokens, and the logits at some of its positions."""
        path = self._folder / "logits.f32"
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
    items = [{"id": str(n), "kind": "tokenize", "text": text} for n, text in enumerate(texts)]
    answers = scorer.answers(items, "-c", "256")
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
    different = [each for each in compared if each["checkpoint"] != each["file"]]
    if all(has_same_text(tokenizer, each) for each in different):
        return {"texts": len(texts), "spaced": len(different)}
    return {"texts": len(texts), "different": different}


def has_same_text(tokenizer: Any, one: dict[str, Any]) -> bool:
    """Say whether only the spaces before a text or after a special token differ.

    There llama.cpp has a rule of its own for sentence pieces.
    """
    if one["text"] in TEXTS[:-1] and not one["text"].startswith(" "):
        return False
    own, file = (
        "".join(tokenizer.convert_ids_to_tokens(one[side])).replace(SPACE, "")
        for side in ("checkpoint", "file")
    )
    return bool(own == file)


def compared_logits(checkpoint: str, tokenizer: Any, scorer: Scorer) -> dict[str, Any]:
    """Return how far the logits of a prompt differ."""
    torch, transformers = import_module("torch"), import_module("transformers")
    if tokenizer is None:
        return {}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    window = getattr(model.config.get_text_config(), "sliding_window", None) or 0
    is_reached = window <= LONGEST_WINDOW
    prompt = prompt_of(tokenizer, PROMPT_TOKENS + (window if is_reached else 0))
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
    spread = ((own - own.mean(1, keepdims=True)) ** 2).mean(1) ** 0.5
    apart = ((file - own) ** 2).mean(1) ** 0.5
    relative = sorted(float(each) for each in apart / spread)
    return {
        "logits": {
            "tokens": len(ids),
            "positions": len(positions),
            "difference": float(abs(file - own).max()),
            "relative": relative[len(relative) // 2],
            "same_top": float((own.argmax(1) == file.argmax(1)).mean()),
        },
        "window": window,
        "window_reached": is_reached,
    }


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
