"""All cases."""

from __future__ import annotations

from armload.cli.verb import VERBS
from tests.golden.case import WIDTHS, Case, gathered, slug, typed
from tests.golden.mistakes import DAMAGED, MISCONFIGURED, MISTAKES
from tests.golden.results import DONE
from tests.golden.sandbox import UNWATCHED
from tests.golden.typed_words import COMPLETED

EVALUATIONS = (
    *("eval-sums-6b86", "eval-sums-d473", "eval-piqa-4a44", "eval-word-problems-adf6"),
    "eval-sums-f0e1",
)
LOADS = tuple(f"load-kitchen-230{last}" for last in "3456789a")
TUNINGS = (
    "tune-kitchen-4b22",
    "tune-kitchen-ef2d",
    "tune-kitchen-e7f6",
    "tune-kitchen-7902",
    "ee51",
)
REAL_RUNS = ("5bf8", "692f", "62e9", "7aa1", "013e", "0f78", "0b1d")
RUNS = (*(f"{number:04x}" for number in range(1, 0x27)), "0201", "9066", "020b", "09d0", *REAL_RUNS)
REPORTED_RUNS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "000b",
    "000e",
    "0010",
    "0011",
    "5bf8",
    "692f",
)
SWEEPS = ("sweep-kitchen-5eed", "repeats-kitchen-a11a", "sweep-this-machine-1e90")
BOTH = ("0066,0067,0068", "0069,006a,006b")

SHOWN = [
    "show",
    "show --last 3",
    "show --last 0",
    "show --board kitchen",
    "show --board kitchen,cellar --model Q4",
    "show --model qwen",
    "show --since 2026-11-21T04:00",
    "show --until 2026-11-21T02:20",
    "show --model nothing-like-it",
    "show --loads",
    "show --loads --last 1",
    *(f"show {run}" for run in RUNS),
    *(f"show {each}" for each in (*SWEEPS, *EVALUATIONS, *LOADS, *TUNINGS)),
    "show latest",
    "show latest-sweep",
    "show latest-eval",
    "show latest-load",
    "show latest-bisect",
    "show kitchen:Q4",
    "show latest:losing",
]
REPORTED = [
    *(f"report {run}" for run in REPORTED_RUNS),
    "report 0004 0005 0006 0007 0008",
    "report 0009 000a 0001",
    "report 000b 000c 000d",
    *(f"report {each}" for each in (*SWEEPS, *EVALUATIONS, *LOADS, *TUNINGS)),
    "report sweep-kitchen-5eed repeats-kitchen-a11a repeats-cellar-ce11",
    "report --board kitchen --model Q8",
    "report --model qwen -o pages",
]
COMPARED = [
    f"compare {BOTH[0]} {BOTH[1]}",
    f"compare {BOTH[1]} {BOTH[0]}",
    "compare 0066 0069",
    "compare 0066 0001",
    "compare 0001 0010",
    "compare 0004 0008",
    "compare 000b 000c",
    "compare 0001 0013",
    "compare 0011 0012",
    "compare 0011 0001",
    "compare 0b1d 0011",
    "compare 0b1d 0001",
    "compare 0078,0079 0076,0077",
    "compare 0203,0204,0205,0206 0207,0208,0209,020a",
    "compare 000b,000c 020b",
    "compare 0001 0202",
    "compare 0066 9066",
    "compare 9066 9072",
    "compare 0001 0201",
    "compare 5bf8 692f",
    "compare 013e 5bf8",
    "compare @shelf:Q4 @shelf:Q8",
    "compare sweep-kitchen-5eed/1 sweep-kitchen-5eed/2",
    "compare sweep-kitchen-5eed repeats-kitchen-a11a",
    "compare repeats-kitchen-a11a repeats-cellar-ce11",
    "compare load-kitchen-2303 load-kitchen-2304",
    "compare load-kitchen-2304 load-kitchen-2303",
    "compare load-kitchen-2304 load-kitchen-230a",
    "compare load-kitchen-2304 load-kitchen-2308",
    "compare load-kitchen-2305 load-kitchen-2306",
    "compare load-kitchen-2305 load-kitchen-2304",
    "compare load-kitchen-2307 load-kitchen-2309",
    "compare tune-kitchen-2c62 tune-kitchen-1958",
    "compare tune-kitchen-ef2d tune-this-machine-ee51",
    "compare tune-kitchen-ef2d tune-kitchen-e7f6",
    "compare tune-kitchen-4b22 tune-kitchen-ef2d",
    f"compare {BOTH[0]} {BOTH[1]} --fail-if-slower 3%",
    f"compare {BOTH[1]} {BOTH[0]} --fail-if-slower 3%",
    "compare 0001 0013 --fail-if-slower 3%",
    "compare load-kitchen-2304 load-kitchen-2303 --fail-if-slower 10%",
    "compare 0066 0001 --fail-if-slower 3%",
]
EXPORTED = [
    f"export {runs} --format {form}{more}"
    for runs in ("0001", "0001 0002 0003 0010", "0009 000b 000e 0011", "sweep-kitchen-5eed")
    for form in ("markdown", "csv", "json", "llama-bench")
    for more in ("", " --include board,model,prompt")
]
TRADED = [
    *(f"tradeoff {each}" for each in EVALUATIONS),
    "tradeoff eval-sums-6b86 --times 0001,0002",
    "tradeoff eval-sums-6b86:a eval-sums-f0e1",
    "tradeoff eval-sums-6b86 --deadline 0.3,1",
]
KEPT = ["build --list", "clean", "clean --what builds,models", "clean --what reports"]
IMPORTED = ["import results/one.json", "import results/one.json results/two.json"]
LISTED = [
    *(f"completion {shell}" for shell in ("bash", "zsh", "fish")),
    "completion bash --install",
    "report results --leaderboard",
    "board.list",
    "board.hardware",
    "config",
    "config bench",
    "trust",
    "trust --list",
]
FITTED = [
    "fit --hardware raspberry-pi-5-8gb --model llama-3.2-1b:Q4_0",
    "fit --hardware raspberry-pi-5-8gb,rock-5b-8gb --model llama-3.2-1b:Q4_0",
    "fit --hardware all --model llama-3.1-8b:Q4_K_M",
    "fit --hardware raspberry-pi-5-8gb --model llama-3.2-1b:Q4_0,llama-3.1-8b:Q4_0 --context 4096",
    "fit --hardware 4x-raspberry-pi-5-8gb --model llama-3.1-8b:Q4_0",
]
RANKED = [
    "show",
    "show latest-sweep",
    "show 5a04",
    "report latest-sweep",
    "compare 5a04 5a03",
    "export latest-sweep --format markdown",
    "report results --leaderboard",
]
"""Of a suite's runs."""
SHOWN_ELSEWHERE = ("bench --board kitchen --repeats", "demo", "eval --regrade", "tune")
"""Verbs that end with what show shows, and write pages, which takes long."""
CONFIGURED = ["config", "config bench", "config show", "show", "board.list"]

CASES: list[Case] = [
    Case(group="help", name="armload", lines=("--help",), widths=(80,)),
    Case(group="help", name="all", lines=("help all",), widths=(80,)),
    Case(group="help", name="bench-all", lines=("bench --help-all",), widths=(80,)),
    Case(group="help", name="service", lines=("help service", "service --help"), widths=(80,)),
    *(
        Case(group="help", name=verb, lines=(f"{verb} --help",), widths=(80,))
        for verb in sorted(VERBS)
    ),
    *typed("show", SHOWN, has_pages=False),
    *typed("report", REPORTED, widths=(80,)),
    *typed("compare", COMPARED),
    *typed("export", EXPORTED, widths=(None,), has_documents=False),
    *typed("tradeoff", TRADED),
    *typed("kept", KEPT),
    *typed("listed", LISTED),
    *typed("fit", FITTED[:2], cache=UNWATCHED),
    *typed("fit", FITTED[2:], cache=UNWATCHED, widths=(80,)),
    *typed("import", IMPORTED),
    *(
        Case(
            group="done",
            name=slug(line),
            lines=(line,),
            widths=(80,) if line.startswith(SHOWN_ELSEWHERE) else WIDTHS,
            stand_ins=stand_ins,
            has_document=True,
        )
        for line, stand_ins in DONE.items()
    ),
    *typed("ranked", RANKED, widths=(80,), folder="ranked"),
    *typed("configured", CONFIGURED, folder="configured"),
    *gathered("mistakes", DAMAGED, folder="damaged"),
    *gathered("mistakes", MISCONFIGURED, folder="misconfigured"),
    *gathered("mistakes", MISTAKES),
    *gathered("completion", COMPLETED, is_completion=True),
]
