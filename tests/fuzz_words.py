"""Values, names and files that command lines are made of at random, and how they are damaged."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from armload.core.options import Declared

HUGE = "9" * 5000
NUMBERS = (
    *("0", "1", "2", "-1", "+1", "1.5", "1e3", "1e-9", "1e308", "1e400", "nan", "inf", "-inf"),
    *(
        "99999999",
        "4294967296",
        "99999999999999999999",
        HUGE,
        "1_000",
        "0x10",
        "007",
        "\u0661",
        "²",
    ),
    *("1,2,4", "1,,2", ",", "1,1", "5%", "100%", "0%", "4-7", "7-4", "0-99999999999", "1/2", " 1 "),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "-",
        "--",
        "a,b",
        "a b",
        "a=b",
        ":",
        "::",
        "a:",
        ":a",
        "=",
        "/",
        "\\",
        "'",
        '"',
    ),
    *(
        "\n",
        "\t",
        "\x1b[31m",
        "\x7f",
        "\u202e",
        "é",
        "e\u0301",
        "板",
        "🙂",
        "\udcff",
        "\udcc4\udce3",
    ),
    *("%s", "{}", "{{x}}", "[bold]", "[/]", "$(x)", "`x`", "*", "?", "x" * 300, "x" * 10_000),
    *(
        "none",
        "auto",
        "on",
        "latest",
        "latest-sweep",
        "latest-load",
        "demo",
        "null",
        "true",
        "{",
        "[",
    ),
    *("like:", "like:stories260k", "like:stories260k:Q8_0", "like:x:y:z", "word-problems:x"),
    *(
        "hf:",
        "hf:a",
        "hf:a/b",
        "hf:a/b/c.gguf",
        "hf:a/b@c/d.gguf",
        "hf:../..",
        "hf:a/b/\udcff.gguf",
    ),
    *("draft:", "draft:m.gguf", "ngram", "q8_0/q4_0", "q8_0/", "/q8_0", "400MB", "1e9GB", "1 TB"),
)
ADDRESSES = (
    *(
        "http://[::1",
        "http://[::1]",
        "http://",
        "http:",
        "//x",
        "http://127.0.0.1:1",
        "https://x:y",
    ),
    *("http://127.0.0.1:99999", "http://x:0", "http://u:p@h/", "http://a b/", "http://\udcff/"),
    *(
        "http://x\n/",
        "http://xn--/",
        "http://" + "x" * 300,
        "file:///x",
        "http://é/",
        "http://x:²/",
    ),
    *(
        "http://..",
        "http://x..y",
        "http://%/",
        "http://h/#?",
        "git@h:x",
        "ssh://h/x",
        "file://\udcff",
    ),
    *("http://2130706433/", "http://[v1.x]/", "http://1.2.3.4.5/", "http://[::ffff:1.2.3.4%25x]/"),
)
PATHS = (
    *(
        "m.gguf",
        "cut.gguf",
        "hybrid.gguf",
        "notes.txt",
        "bytes.bin",
        "empty",
        "folder",
        "loop",
        "to",
    ),
    *("plan.yaml", "space.yaml", "task.yaml", "bad.yaml", "deep.yaml", "data.jsonl", "data.csv"),
    *("prompts.txt", "deep.json", "program", "checkpoint", "nothing", "folder/x", "m.gguf/x", "."),
    *(
        "..",
        "~",
        "~nobody/x",
        "/dev/null",
        "/dev/zero",
        "/proc/self/mem",
        "/proc/self/fd/0",
        "out/x",
    ),
    *(
        "m-\udcc4\udce3.gguf",
        "checkpoint/config-\udcc4\udce3.json",
        "new\nline.gguf",
        "板.gguf",
        "y" * 300,
        "m.gguf/",
        "./m.gguf",
        "a,b",
    ),
    *("runs", "loads/kept", "evaluations", "sweeps", "tunings", "runs/*", "key"),
)
HINTS: Mapping[str, tuple[str, ...]] = {
    "api-key-file": ("key",),
    "a": (
        "kitchen-a",
        "runs/20260101T000000Z-kitchen-a",
        "loads/kept",
        "latest-evaluation",
        "latest-tuning",
        "latest-load",
    ),
    "b": ("latest", "kitchen-b", "loads/kept"),
    "arrivals": ("poisson", "constant", "trace", "gamma:2", "gamma:0", "gamma:x"),
    "base": ("m.gguf", "f16.gguf", "like:stories260k:F16"),
    "board": ("here", "virtual", "away", "adb", "hdc", "broken", "here,away", "板"),
    "budget": ("64", "16,64"),
    "calibration": ("prompts.txt",),
    "checkpoint": ("checkpoint", "hf:a/b"),
    "command": ("./program", "program", "echo"),
    "compiler": ("zig", "gnu", "native"),
    "context": ("64", "512"),
    "cool-to": ("60",),
    "cpus": ("0", "0-1"),
    "data": ("data.jsonl", "data.csv", "prompts.txt"),
    "deadline": ("5", "10,60"),
    "dialect": ("openai", "ollama", "llama-server", "llm-serving"),
    "duration": ("1", "60"),
    "export": ("genai-perf", "vllm"),
    "file": ("m.gguf", "hybrid.gguf", "program"),
    "files": ("results/a.json", "runs/20260101T000000Z-kitchen-a/run.json"),
    "flash-attention": ("on", "off", "auto"),
    "folder": ("boards", "nothing"),
    "for": ("decode", "prefill", "energy", "goodput", "slo", "accuracy"),
    "format": ("markdown", "csv", "json", "llama-bench"),
    "front": ("openai", "llm-serving"),
    "grader": ("boxed", "number", "choice", "qwen", "math-verify", "exact"),
    "hardware": ("raspberry-pi-5-8gb", "rock-5b-8gb,raspberry-pi-5-4gb", "raspberry-pi-5", "all"),
    "host": ("127.0.0.1", "away.invalid"),
    "include": ("board", "model,prompt"),
    "key": ("key",),
    "kld-prompts": ("prompts.txt",),
    "kv-type": ("f16", "q8_0", "q8_0/q4_0"),
    "like": ("stories260k",),
    "max-kld": ("0.1",),
    "max-memory": ("400MB",),
    "max-time": ("30m", "90s"),
    "min-accuracy": ("0.5:word-problems", "0.5:task.yaml"),
    "model": ("m.gguf", "hybrid.gguf", "random", "like:stories260k:Q8_0", "m.gguf,hybrid.gguf"),
    "n-predict": ("8", "8,16"),
    "verb": ("bench",),
    "shell": ("bash",),
    "name": ("new", "here", "板"),
    "older-than": ("30",),
    "on": ("here", "virtual", "away"),
    "output": ("out/x", "out/x.gguf", "out/x.yaml", "out/x.html"),
    "images": (".", "nowhere"),
    "image": ("picture.png", "picture.png,picture.png", "notes.txt", "nowhere.png"),
    "audio": ("sound.wav", "notes.txt"),
    "mmproj": ("mmproj.gguf", "m.gguf", "auto", "none"),
    "plan": ("plan.yaml", "bad.yaml", "deep.yaml"),
    "port": ("8080",),
    "precision": ("5%",),
    "programs": ("llama-completion", "llama-server,scorer"),
    "prompt": ("Once upon a time", "steps", "steps,quick"),
    "put": ("program", "program,notes.txt"),
    "rate": ("0.5", "0.5,1"),
    "reader": ("text", "rkllm", "mine.yaml"),
    "reference": ("kitchen-a", "latest"),
    **dict.fromkeys(("ref", "good", "bad"), ("master", "-x")),
    "regrade": ("latest",),
    "resident": ("400MB",),
    "run": (
        "kitchen-a",
        "runs/20260101T000000Z-kitchen-a",
        "loads/kept",
        "latest-sweep",
        "latest-evaluation",
    ),
    "runs": (
        "runs/20260101T000000Z-kitchen-a",
        "latest",
        "results",
        "kitchen-a",
        "kitchen-b",
        "loads/kept",
        "latest-evaluation",
        "latest-tuning",
    ),
    "slo": ("ttft=2s,tpot=500ms", "ttft=2s", "e2e=1"),
    "source": ("llama-cpp-2025-08", "folder", "file:///nowhere"),
    "space": ("space.yaml", "bad.yaml"),
    "stdin": ("hello", "notes.txt", "nowhere.txt"),
    "speculate": ("none", "ngram", "draft:m.gguf"),
    "target": ("rk3568", "armv8-generic"),
    "task": (
        "word-problems",
        "task.yaml",
        "gsm8k",
        "logits",
        "piqa",
        "lm-eval:x",
        "multiple-choice",
    ),
    "task-data": ("data.jsonl",),
    "tell-budget": ("no", "yes", "both"),
    "template": ("model", "chatml", "none"),
    "to": ("gguf", "mnn"),
    "type": ("Q8_0", "Q4_K_M", "Q4_K_M,Q2_K", "4", "IQ2_XXS"),
    "url": ADDRESSES,
    "weights": ("mapped", "streamed", "auto"),
    "what": ("builds", "all", "models,operations"),
}
"""Values of some options that verbs understand; all others get numbers, texts and paths alone."""

NUMERIC = {
    *("CELSIUS", "CLIENTS", "DAYS", "DURATION", "N", "NATS", "PER-SECOND", "PERCENT", "PORT"),
    *("SECONDS", "SIZE", "T", "TOKENS"),
}
"""What help calls values that are numbers."""

_TUNED = ("--for=total-time", "--rate=1", "--requests=2")
NEEDED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("board.add", ""): ("--host=127.0.0.1", "--", "new"),
    ("bisect", ""): ("--good=a", "--bad=b"),
    ("board.clean", ""): ("--board=here",),
    ("load", ""): ("--board=here", "--rate=1"),
    ("load", "rate"): ("--board=here",),
    ("load", "concurrency"): ("--board=here",),
    ("model.quantize", ""): ("--type=Q8_0", "--", "f16.gguf"),
    ("model.synth", ""): ("--like=stories260k",),
    ("tune", "duration"): ("--for=total-time", "--rate=1"),
    ("tune", "rate"): ("--for=total-time", "--requests=2"),
    ("tune", "requests"): ("--for=total-time", "--rate=1"),
    ("tune", "timeout"): _TUNED,
    ("tradeoff", ""): ("--", "latest:a.gguf", "latest:b.gguf"),
    **{
        (f"service.{verb}", ""): ("--board=here",)
        for verb in ("install", "logs", "restart", "update", "rollback", "remove", "keys")
    },
}
"""What else a command line needs before a number counts: of an option, or of a verb."""

BOARDS = {
    "here": "description: 这台机器\ntarget: armv8-generic\nreach: {kind: local}\n",
    "板": "extends: here\n",
    "away": "extends: dayu200\nreach: {kind: ssh, host: 127.0.0.1, port: 1, user: nobody}\n",
    "adb": "target: rk3568\nreach: {kind: adb, program: no-adb}\n",
    "hdc": "target: rk3568\nreach: {kind: hdc, program: no-hdc}\nworkdir: /data/armload\n",
    "broken": "extends: [\n",
}
FILES: Mapping[str, bytes] = {
    "notes.txt": b"not a model\n",
    "bytes.bin": bytes(range(256)) * 8,
    "empty": b"",
    "plan.yaml": b"model: m.gguf\nthreads: [1, 2]\nn_predict: 8\nprompt: hello\nboard: here\n",
    "space.yaml": b"threads: [1, 2]\nkv_type: [q8_0, f16]\n",
    "task.yaml": (
        b"description: sums\ndata: data.jsonl\nfields: {question: question}\n"
        b"expected: answer\ngrader: number\nprompts: {steps: {user: '{{ question }}'}}\n"
    ),
    "bad.yaml": b"threads: [1\nx: {y: \xff",
    "deep.yaml": b"threads: " + b"[" * 5000,
    "deep.json": b"[" * 100_000,
    "data.jsonl": b'{"question": "1+1?", "answer": "2"}\n{"prompt": "hi", "max_tokens": 4}\n',
    "data.csv": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
    "prompts.txt": b"Once upon a time\nThere was\n",
    "program": b"#!/bin/sh\nexit 3\n",
    "key": b"secret\n",
    "checkpoint/config.json": b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}',
    "checkpoint/model.safetensors": b"\x02\0\0\0\0\0\0\0{}",
    "folder/x": b"x",
}


def make_world(folder: Path) -> None:
    """Fill a folder with one of everything that a command line can name."""
    from armload.core.progress import Silent
    from armload.core.values import as_json
    from armload.engines.plan import Plan
    from armload.models.shape import load_shape
    from armload.models.synth import synthesise_like
    from armload.report.exchange.document import results_of
    from armload.report.exchange.excerpt import excerpt_of as published
    from armload.runs import store
    from tests.recurrent import hybrid_model
    from tests.unit.builds import finished_build, unfinished_build
    from tests.unit.evaluations import evaluated
    from tests.unit.kept_tunings import SPACE, entry, kept, setting
    from tests.unit.runs import failed_run, quick_run, storage_run
    from tests.unit.samples import plan_cells, sweep_of
    from tests.unit.served_loads import keep, points
    from tests.unit.simulated_server import Simulated

    os.chdir(folder)
    for name in ("boards", "out", "home/.ssh", "cache", "tmp", "loads/kept"):
        (folder / name).mkdir(parents=True)
    for name, text in BOARDS.items():
        place = f"workdir: {folder.parent / 'work'}\n" if name == "here" else ""
        (folder / "boards" / f"{name}.yaml").write_text(text + place, encoding="utf-8")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "program").chmod(0o755)
    (folder / "loop").symlink_to("loop")
    (folder / "to").symlink_to("m.gguf")
    for name, file_type in (("m.gguf", "Q8_0"), ("f16.gguf", "F16")):
        shape = load_shape("stories260k").model_copy(update={"layers": 1})
        synthesise_like(shape, folder / name, file_type=file_type, seed=1, progress=Silent())
    hybrid_model(folder / "m.gguf", folder / "hybrid.gguf")
    for name in (*FILES, "m.gguf", "f16.gguf", "hybrid.gguf"):
        shutil.copy(folder / name, twin_of(folder / name))
    for name in ("new\nline.gguf", "板.gguf", "a,b"):
        shutil.copy(folder / "m.gguf", folder / name)
    (folder / "cut.gguf").write_bytes((folder / "m.gguf").read_bytes()[:-1000])
    for name, run in (("a", quick_run()), ("b", storage_run()), ("c", failed_run())):
        named = run.model_copy(update={"id": f"20260101T000000Z-kitchen-{name}"})
        store.save(named, folder / "runs" / named.id)
    results = folder / "results" / "a.json"
    results.parent.mkdir()
    results.write_text(as_json(results_of([published(quick_run())])))
    shutil.copy(results, twin_of(results))
    sweep = sweep_of(*plan_cells(Plan(threads=1)))
    (folder / "sweeps" / sweep.id).mkdir(parents=True)
    (folder / "sweeps" / sweep.id / "sweep.json").write_text(sweep.model_dump_json())
    (folder / "sweeps" / sweep.id / "journal.jsonl").touch()
    evaluated()
    kept(folder, (entry(0, SPACE.defaults, 0.4), entry(1, setting(4), 0.2)))
    keep(points(Simulated(), (0.2,)), folder / "loads" / "kept")
    library = folder / "cache" / "vega" / f"{version('vl-convert-python')}.js"
    library.parent.mkdir()
    library.touch()
    for name in ("checkpoint", "loads/kept", "runs/20260101T000000Z-kitchen-a"):
        shutil.copytree(folder / name, twin_of(folder / name))
    finished_build(folder / "cache")
    unfinished_build(folder / "cache")


def twin_of(path: Path) -> Path:
    """Return the path of a copy whose name is no UTF-8, as GBK's names are none."""
    return path.with_name(f"{path.stem}-\udcc4\udce3{path.suffix}")


def words_of(chance: random.Random, verbs: Mapping[str, Sequence[Declared]]) -> list[str]:
    """Return a command line: mostly one that makes sense but for one value."""
    verb = chance.choice(sorted(verbs))
    named = [each for each in verbs[verb] if not each.option.is_argument and each.name != "json"]
    most = chance.choice((1, 1, 2, 3, 5, len(named)))
    asked = [each for each in verbs[verb] if each.option.is_argument and chance.random() < 0.95]
    asked += chance.sample(named, min(most, len(named)))
    odd = chance.choice(asked).name if asked else ""
    is_wild = chance.random() < 0.2
    words, positional = [verb, "--json"], []
    for option in asked:
        name = option.name
        value = _value(chance, name, is_odd=name == odd or (is_wild and chance.random() < 0.5))
        if option.option.is_argument:
            positional.append(value)
        elif option.is_switch:
            words.append(f"--{name}")
        else:
            words += [f"--{name}", value] if chance.random() < 0.5 else [f"--{name}={value}"]
    if chance.random() < 0.02:
        words.append(chance.choice(TEXTS))
    return [*words, *(["--"] if positional and chance.random() < 0.8 else []), *positional]


def _value(chance: random.Random, name: str, *, is_odd: bool) -> str:
    hints = HINTS.get(name, ("2",))
    if is_odd and chance.random() < 0.15:
        return str(twin_of(Path(chance.choice(hints))))
    if is_odd:
        return chance.choice(chance.choice((NUMBERS, NUMBERS, TEXTS, PATHS, ADDRESSES)))
    return chance.choice(hints)


def damage(chance: random.Random, folder: Path) -> str:
    """Damage one file of a world; return its name, or nothing."""
    if chance.random() < 0.6:
        return ""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and "cache" not in path.parts
    )
    path = chance.choice(files)
    path.write_bytes(_damaged(chance, path.read_bytes()))
    return str(path.relative_to(folder))


_ODD = (
    *(b"-1", b"0", b"1e999", b"NaN", b"-Infinity", b"1" * 400, b"9" * 5000, b"null", b"{}", b"[]"),
    *(
        b'""',
        b"true",
        b'"\\ud800"',
        b"[" * 20_000,
        b'{"a":' * 5000,
        b"1e-320",
        b"4294967296",
        b"0.5",
    ),
)


def _damaged(chance: random.Random, content: bytes) -> bytes:
    at = chance.randrange(min(len(content), 4000) + 1)
    kind = chance.randrange(6)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
    if kind == 2:
        return (
            content[:at] + chance.choice((b"\xff", b"\0", b"\n", b"[" * 9999, b"}")) + content[at:]
        )
    values = list(re.finditer(rb'(?<=[:\[,])\s*("[^"\n]*"|-?[0-9.]+|true|false|null)', content))
    if values:
        value = chance.choice(values)
        return content[: value.start(1)] + chance.choice(_ODD) + content[value.end(1) :]
    return chance.choice(_ODD)
