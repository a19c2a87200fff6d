"""Texts that are published: those whose form, or a fixed list, leaves no room for a name.

A text of a run may hold anything: the name of a board may be that of its owner. Each function
returns the part of a text that may be published, empty where it has another form. A second call
changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import get_args

from armload.bench.suite import standard_suite
from armload.boards.device_clocks import ClockKind, kind_of
from armload.boards.governors import governors_in, governors_text
from armload.build.features import ENCODINGS
from armload.core.cpu_sets import cpu_numbers, cpu_words
from armload.core.places import shipped_folders
from armload.engines.plan import KV_TYPES
from armload.models.shape import SHAPES

Form = Callable[[str], str | None]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
SHA256 = re.compile(r"[0-9a-f]{64}")
BUILD_ID = re.compile(r"[0-9a-f]{6,64}")
VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}(?:\.?(?:a|b|rc|dev|post)\d{1,3})?")
RELEASE = re.compile(rf"armload {VERSION.pattern}")
ENGINE_COMMIT = re.compile(
    r"(?:b\d{1,6}-)?[0-9a-f]{7,40}|b\d{1,6}|\d{1,2}\.\d{1,3}\.\d{1,3}(?:-dev)?"
)
SOURCE = re.compile(r"llama-cpp-python \d{1,2}\.\d{1,3}\.\d{1,3}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
QUANTISATION = re.compile(r"(?:BF|F|I)\d{2}|I8|(?:I|T)?Q\d_[01KMSLNX]{1,3}(?:_[SML])?|(?:MX|NV)FP4")
_COMPILER = re.compile(r"(zig|gnu|native) (?:.*[^\d.])?(\d{1,2}\.\d{1,2}\.\d{1,2})")
_KERNEL_THREAD = re.compile(
    r"(?:kswapd|kcompactd|ksoftirqd/|migration/|kworker/u?\d+:|loop|irq/)\d+"
    r"|rcu_(?:sched|preempt|bh|tasks)|rcu[bcogps]{1,3}/\d+|khugepaged|ksmd|kdevtmpfs|kauditd"
    r"|kthreadd|khungtaskd|jbd2|mmcqd|nvme|kblockd|writeback|zswap|spi\d+|usb-storage"
)
_KERNEL = re.compile(r"(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.])")
_FLAG_VALUE = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")

_FAMILIES = (
    *("arctic", "baichuan", "bailing", "bitnet", "bloom", "chatglm", "cohere", "command-r"),
    *("dbrx", "deci", "deepseek", "dots", "ernie", "exaone", "falcon", "gemma", "glm", "gpt"),
    *("granite", "grok", "hunyuan", "internlm", "jais", "jamba", "lfm", "llada", "llama", "mamba"),
    *("mimo", "minicpm", "minimax", "mistral", "mpt", "nemotron", "olmo", "orion", "phi", "plamo"),
    *("qwen", "rwkv", "seed_oss", "smallthinker", "smollm", "stablelm", "starcoder", "xverse"),
)
ARCHITECTURE = re.compile(
    rf"(?:{'|'.join(_FAMILIES)})\d{{0,3}}(?:[._]\d)?"
    r"(?:[._-]?(?:e|h1|hybrid|h|j|moe|neox|next|n|oss|swa|vl|v)){0,3}"
)
"""As llama.cpp calls them (``src/llama-arch.cpp``)."""

_DEVICE = re.compile(r"cpu|gpu|Vulkan\d{1,2}", re.ASCII)
_OPERATION = re.compile(r"[A-Z0-9_]{2,32}", re.ASCII)
_PROJECTORS = (
    *("mlp", "ldp", "resampler", "adapter", "step", "ultravox", "pixtral", "idefics", "internvl"),
    *("glma", "voxtral", "meralion", "musicflamingo", "kimivl", "paddleocr", "lightonocr"),
    *("cogvlm", "janus_pro", "youtuvl", "mimovl", "parakeet", "pockettts", "muse-glimmer"),
    *("yasa", "ling", "kimik", "minicpmv", "minimax_m"),
)
PROJECTOR = re.compile(
    rf"(?:{'|'.join((*_PROJECTORS, *_FAMILIES))})\d{{0,3}}(?:[._]\d)?"
    r"(?:[._-]?(?:a|audio|gen|merger|na|nv|note|o|ocr|spkenc|speech|tts|ua|uv|v|v2|vl|vision)\d?)"
    r"{0,3}"
)
"""As llama.cpp calls them (``tools/mtmd/clip-impl.h``)."""

_KERNEL_WORDS = frozenset(
    (
        *("aarch64", "amd64", "android", "arm64", "armbian", "cloud", "current", "edge", "generic"),
        *("legacy", "lowlatency", "lts", "meson64", "openharmony", "preempt", "raspi", "rk2410"),
        *("rockchip", "rpi", "rt", "sunxi", "sunxi64", "tegra", "v7", "v8", "vendor", "x86"),
    )
)
"""That tell kernels of one version apart, where they follow it."""

_GOVERNORS = frozenset(
    (
        *("conservative", "interactive", "ondemand", "performance", "powersave", "schedutil"),
        *("userspace", "walt"),
        # Of devices beside the CPU.
        *("bw_hwmon", "dmc_ondemand", "msm-adreno-tz", "nvhost_podgov", "passive"),
        *("rknpu_ondemand", "simple_ondemand", "tegra_actmon"),
    )
)
_DEVICE_CLOCK = re.compile(
    rf"(?:[0-9a-f]{{6,12}}\.)?(?:{'|'.join(get_args(ClockKind))}|dmc|emc|dram|arm|core|v3d|mali"
    r"|dram-controller|memory-controller)"
)
_READS = ("direct", "buffered", "both")
_CPU_FEATURES = frozenset(
    (
        *(encoding.feature for encoding in ENCODINGS),
        *("asimd", "fp", "half", "neon", "vfpv3", "vfpv4"),
        *("avx", "avx2", "avx512_bf16", "avx512_vnni", "avx512bw", "avx512f", "avx_vnni", "f16c"),
        *("amx_bf16", "amx_int8", "bmi2", "fma", "sse4_2", "ssse3"),
    )
)
_PROGRAMS = frozenset(
    (
        *("llama-bench", "llama-cli", "llama-completion", "llama-server"),
        *("llama-embedding", "llama-speculative-simple", "llm_bench", "llm_demo"),
    )
)
_SWITCHES = frozenset(
    (
        *("--ignore-eos", "--kv-unified", "-kvu", "--mlock", "--no-escape", "--no-mmap"),
        *("--no-display-prompt", "--no-kv-offload", "--no-repack", "--no-warmup", "--offline"),
        *("--perf", "--repack", "--swa-full", "-no-cnv", "-nr"),
    )
)
_FLAGS = frozenset(
    (
        *("--batch-size", "--cache-type-k", "--cache-type-v", "--ctx-size", "--draft"),
        *("--draft-max", "--draft-min", "--flash-attn", "--n-cpu-moe", "--numa", "--poll"),
        *("--predict", "--prio", "--seed", "--spec-ngram-simple-size-m"),
        *("--spec-ngram-simple-size-n", "--spec-type", "--temp", "--threads", "--threads-batch"),
        *("--ubatch-size", "-b", "-c", "-ctk", "-ctv", "-fa", "-fit", "-n", "-ncmoe", "-s", "-t"),
        *("-tb", "-ub"),
    )
)
"""Of llama.cpp; with a number, or one of the words below."""

_FLAG_WORDS = frozenset(
    (
        *KV_TYPES,
        *("auto", "distribute", "isolate", "numactl", "off", "on"),
        *("draft-mtp", "draft-simple", "ngram-simple"),
    )
)


def in_form(text: str, form: re.Pattern[str]) -> str:
    return text if form.fullmatch(text) else ""


def random_model(name: str) -> str:
    """Return the name of a model of random weights that armload made, from its own shapes only."""
    found = _RANDOM_MODEL.fullmatch(name)
    is_ours = found and (found["shape"] is None or found["shape"] in _shapes())
    return name if is_ours else ""


_RANDOM_MODEL = re.compile(
    r"random-(?:\d{1,3}x\d{1,5}-[a-z0-9_]{2,6}|(?P<shape>[a-z0-9.-]+)-[A-Z0-9_]{2,9}-[0-9a-f]{8})"
    r"-seed\d{1,3}\.gguf"
)


@cache
def _shapes() -> frozenset[str]:
    return frozenset(
        path.stem for folder in shipped_folders(SHAPES) for path in folder.glob("*.yaml")
    )


def digits_of(text: str) -> str:
    """Return the random digits that end an id, or of another text as many of its checksum."""
    end = re.fullmatch(r"(?:.*-)?([0-9a-f]{4})", text, re.DOTALL)
    return end[1] if end else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:4]


@cache
def shipped(kind: str) -> frozenset[str]:
    """Return the names of armload's own files of a kind; a person's may be called anything."""
    folders = shipped_folders(kind)
    return frozenset(path.stem for folder in folders for path in folder.glob("*.yaml"))


def target_name(name: str) -> str:
    return name if name in shipped("toolchains") else ""


def program_name(name: str) -> str:
    return name if name in _PROGRAMS else "program"


def governor_name(name: str) -> str | None:
    """Return a governor that is known, or the known ones of several devices."""
    if name in _GOVERNORS:
        return name
    try:
        known = {kind: each for kind, each in governors_in(name).items() if each in _GOVERNORS}
    except ValueError:
        return None
    return governors_text(known)


def device_clock_name(name: str) -> str:
    """Return a name that only a driver gives; of another one, what it drives."""
    return name if _DEVICE_CLOCK.fullmatch(name) else kind_of(name)


def known_word(text: str) -> str:
    return text if text in _GOVERNORS or text in _READS else ""


def core_list(words: str) -> str | None:
    try:
        return words and cpu_words(cpu_numbers(words))
    except ValueError:
        return None


def compiler_label(label: str) -> str:
    found = _COMPILER.fullmatch(label)
    return f"{found[1]} {found[2]}" if found else ""


def kernel_thread(name: str) -> str:
    found = _KERNEL_THREAD.match(name)
    return found[0] if found else "a thread"


def kernel_release(release: str) -> str:
    version = _KERNEL.match(release)
    if version is None:
        return ""
    words = re.split(r"[-+_.~]", release[version.end() :])
    return "-".join((version[1], *(word for word in words if word in _KERNEL_WORDS)))


def flags(words: Iterable[str]) -> tuple[str, ...]:
    """Return the known options of a command line, with numbers and fixed words as their values."""
    parts = [part for word in words for part in word.split("=", 1)]
    found: list[str] = []
    for word, value in pairwise([*parts, ""]):
        if word in _SWITCHES:
            found.append(word)
        elif word in _FLAGS and (value in _FLAG_WORDS or _FLAG_VALUE.fullmatch(value)):
            found += [word, value]
    return tuple(found)


def _matching(form: re.Pattern[str]) -> Form:
    return lambda text: in_form(text, form)


@cache
def _standard_tests() -> frozenset[str]:
    return frozenset(test.name for test in standard_suite().tests)


FORMS: Mapping[str, Form] = {
    "CPU feature": lambda text: text if text in _CPU_FEATURES else "",
    "KV types": lambda text: text if {*text.split("/")} <= {*KV_TYPES} else None,
    "SHA-256": _matching(SHA256),
    "architecture": _matching(ARCHITECTURE),
    "build id": _matching(BUILD_ID),
    "clock": lambda _: "CLOCK_MONOTONIC",
    "compiler": compiler_label,
    "cores": core_list,
    "device": _matching(_DEVICE),
    "device clock": device_clock_name,
    "end of an id": digits_of,
    "engine commit": _matching(ENGINE_COMMIT),
    "governor": governor_name,
    "kernel": kernel_release,
    "operation": _matching(_OPERATION),
    "program": program_name,
    "projector type": _matching(PROJECTOR),
    "quantisation": _matching(QUANTISATION),
    "release": _matching(RELEASE),
    "source": _matching(SOURCE),
    "target": target_name,
    "test of the standard suite": lambda text: text if text in _standard_tests() else "",
    "time": _matching(TIME),
    "version": _matching(VERSION),
}
"""By the names that marks of fields give."""
