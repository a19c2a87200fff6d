"""An engine that sleeps for each token, for boards that keep busy cores of this machine free.

It stands before a program as a board's launcher: what is ``llama-completion`` is not run, and other
programs run under qemu-user.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from armload.build.helper import any_cpu_compiler
from armload.build.target import machine_architecture

TOKEN_MS = 20

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const WORDS[] = {"The", " large", " house", " by", " the", " sea", " was",
    " empty", " when", " we", " came", " there", " on", " a", " cold", " day", " in", " late"};

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void step(FILE *trace, int number, int prompt, int generated) {
    long long start = now();
    usleep(TOKEN_MS * 1000);
    fprintf(trace, "{\"step\":%d,\"model\":0,\"sequences\":1,\"tokens\":%d,\"prompt_tokens\":%d,"
        "\"generated_tokens\":%d,\"speculated_tokens\":0,\"accepted_tokens\":0,\"start_ns\":%lld,"
        "\"end_ns\":%lld,\"major_faults\":0,\"read_bytes\":0,\"rss_bytes\":4096000,\"cpu_ns\":%lld,"
        "\"involuntary_switches\":0,\"cpu_khz\":[],\"celsius\":null}\n",
        number, prompt + generated, prompt, generated, start, now(), now() - start);
    fflush(trace);
}

int main(int argc, char **argv) {
    const char *name = strrchr(argv[1], '/');
    if (strcmp(name ? name + 1 : argv[1], "llama-completion")) {
        char **words = calloc(argc + 3, sizeof *words);
        words[0] = "qemu-aarch64";
        words[1] = "-cpu";
        words[2] = "cortex-a76";
        memcpy(words + 3, argv + 1, (argc - 1) * sizeof *words);
        execvp(words[0], words);
        return 127;
    }
    int count = 8;
    for (int i = 1; i + 1 < argc; i++) if (!strcmp(argv[i], "-n")) count = atoi(argv[i + 1]);
    FILE *trace = fopen(getenv("ARMLOAD_TRACE"), "w");
    if (trace == NULL) return 3;
    fprintf(trace, "{\"format\":2,\"clock\":\"CLOCK_MONOTONIC\",\"engine_commit\":\"none\","
        "\"page_bytes\":4096,\"threads\":1,\"start_ns\":%lld,\"khz_cores\":\"\","
        "\"allowed_cores\":\"0-1\"}\n", now());
    step(trace, 0, 18, 0);
    for (int i = 0; i < count; i++) {
        fputs(WORDS[i % 18], stdout);
        fflush(stdout);
        if (i + 1 < count) step(trace, i + 1, 0, 1);
    }
    return 0;
}
"""


def compiled_sleeper(folder: Path) -> Path:
    """Compile it for this machine into ``folder``."""
    source, program = folder / "sleeper.c", folder / "sleeper"
    source.write_text(SOURCE)
    compiler = any_cpu_compiler(machine_architecture())
    words = ["-std=gnu11", f"-DTOKEN_MS={TOKEN_MS}", "-o", str(program), str(source)]
    subprocess.run([*compiler, *words], check=True)
    return program
