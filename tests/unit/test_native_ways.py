"""How streamed weights choose between direct I/O and the page cache, for known speeds."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from armload.build.backend import native_folder
from armload.build.helper import any_cpu_compiler
from armload.build.target import machine_architecture

# Four requests of 1 MiB are under way at a time. Each takes as long as its way's speed says, times
# noise that stays for some requests, as other programs make it; the first bytes come in a burst.
PROGRAM = """
#include "armload_ways.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double normal(void) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += drand48();
    return sum;
}

int main(int argc, char ** argv) {
    const double mib = 1 << 20, buffered = atof(argv[1]), noise = atof(argv[2]);
    const double burst = atof(argv[3]), later = atof(argv[4]);
    const int seed = atoi(argv[5]), total = 3000;
    struct armload_turn turns[4];
    double at_ns = 0, level = 1;
    srand48(seed + argc);
    armload_choose_ways(true);
    for (int i = 0; i < total; i += 4) {
        double took_ns = 0;
        for (int k = 0; k < 4; k++) turns[k] = armload_begin_turn(1 << 20, (int64_t) at_ns);
        for (int k = 0; k < 4; k++) {
            const double now = i > total / 2 ? later : buffered;
            const double speed = (turns[k].way == ARMLOAD_DIRECT ? 1 : now) * (i < burst ? 20 : 1);
            if (drand48() < 0.1) level = exp(noise * normal());
            took_ns += mib / (165e6 * speed) * level * 1e9;
        }
        at_ns += took_ns;
        for (int k = 0; k < 4; k++) armload_end_turn(&turns[k], (int64_t) at_ns);
        if (i == total / 2 || i + 4 >= total) printf("%s\\n", armload_ways().reads);
    }
    const struct armload_ways found = armload_ways();
    const double ratio = (double) found.bytes_per_s[1] / (double) found.bytes_per_s[0];
    printf("%s\\n%.3f\\n", found.reason, ratio);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ways")
    (folder / "main.c").write_text(PROGRAM)
    native = native_folder()
    compiler = [*any_cpu_compiler(machine_architecture()), "-std=gnu11", f"-I{native}"]
    sources = [folder / "main.c", native / "armload_ways.c"]
    subprocess.run([*compiler, *sources, "-lm", "-o", folder / "main"], check=True)
    return folder / "main"


def chosen(
    program: Path,
    buffered: float,
    *,
    noise: float = 0.0,
    burst_mib: int = 0,
    later: float | None = None,
    seed: int = 0,
) -> tuple[str, str, str, float]:
    """Return how is read half-way and in the end, why, and how fast the page cache was found."""
    words = [buffered, noise, burst_mib, buffered if later is None else later, seed]
    done = subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True)
    half_way, end, reason, ratio = done.stdout.splitlines()
    return half_way, end, reason, float(ratio)


@pytest.mark.parametrize("buffered", [0.6, 0.95, 1.0, 1.05])
def test_direct_reads_are_preferred_where_the_page_cache_is_not_clearly_faster(
    program: Path, buffered: float
) -> None:
    half_way, end, reason, ratio = chosen(program, buffered)
    assert (half_way, end) == ("direct", "direct")
    assert reason == "the page cache was not clearly faster in nearly all comparisons"
    assert ratio == pytest.approx(buffered, abs=0.01)


def test_the_page_cache_is_taken_where_it_is_clearly_faster(program: Path) -> None:
    half_way, end, reason, ratio = chosen(program, 1.5, noise=0.1)
    assert (half_way, end) == ("buffered", "buffered")
    assert reason == "the page cache was clearly faster in nearly all comparisons"
    assert ratio == pytest.approx(1.5, rel=0.15)


@pytest.mark.parametrize("burst_mib", [5, 12, 30, 100])
def test_a_burst_of_the_storage_decides_nothing(program: Path, burst_mib: int) -> None:
    assert chosen(program, 0.6, burst_mib=burst_mib)[:2] == ("direct", "direct")
    assert chosen(program, 1.0, burst_mib=burst_mib)[:2] == ("direct", "direct")


def test_a_page_cache_that_becomes_slower_is_left_again(program: Path) -> None:
    half_way, end, reason, _ = chosen(program, 1.5, later=0.6)
    assert (half_way, end) == ("buffered", "direct")
    assert reason == "the page cache had been faster and became slower"


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.0])
def test_noise_alone_rarely_makes_the_page_cache_win(program: Path, noise: float) -> None:
    wrong = sum(chosen(program, 1.0, noise=noise, seed=seed)[0] != "direct" for seed in range(200))
    assert wrong <= 10, "at most 1 in 20"


def test_an_answer_that_is_asked_for_is_given_without_a_comparison(program: Path) -> None:
    for way in ("direct", "buffered"):
        environment = {**os.environ, "ARMLOAD_READS": way}
        words = [str(program), "1", "0", "0", "1", "0"]
        done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
        assert done.stdout.splitlines()[:3] == [way, way, "ARMLOAD_READS says so"]
