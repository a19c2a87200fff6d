"""A stand-in for another engine: a small static program that behaves as it is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

from armload.build.helper import any_cpu_compiler
from armload.build.target import machine_architecture

SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const WORDS[] = {"The", " large", " house", " by", " the", " sea", " was",
    " empty", " when", " we", " came", " there", " on", " a", " cold", " day", " in", " late"};

static void token(int number) {
    fputs(WORDS[number % 18], stdout);
    fflush(stdout);
    usleep(2000);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int count = argc > 2 ? atoi(argv[2]) : 5;
    if (!strcmp(mode, "demo")) {
        size_t size = 40 << 20;
        volatile char *weights = malloc(size);
        for (size_t i = 0; i < size; i += 1024) weights[i] = 7;
        printf("config path is %s\n", argc > 3 ? argv[3] : "");
        puts("prompt file is prompt.txt");
        fflush(stdout);
        for (int i = 0; i < count; i++) token(i + weights[size - 1024] - 7);
        puts("");
        fflush(stdout);
        puts("\n#################################");
        printf("prompt tokens num = 15\ndecode tokens num = %d\n", count);
        puts("prefill time = 0.50 s\n decode time = 2.00 s");
        printf("prefill speed = 30.00 tok/s\n decode speed = %.2f tok/s\n", count / 2.0);
        puts("##################################");
        return 0;
    }
    if (!strcmp(mode, "file")) {
        FILE *file = fopen(argv[2], "r");
        if (file == NULL) return 3;
        for (int c; (c = getc(file)) != EOF;) putchar(c);
        return 0;
    }
    if (!strcmp(mode, "asks")) {
        char line[256];
        for (int i = 1; printf("user %d: ", i), fflush(stdout), fgets(line, 256, stdin); i++)
            if (!strcmp(line, "exit\n")) return 0;
            else printf("robot: %s", line);
        return 5;
    }
    if (!strcmp(mode, "dirty")) {
        return write(1, "\0\377\376 so\n\0", 8) + write(1, "\303", 1) + write(1, "\251", 1) != 10;
    }
    if (!strcmp(mode, "much")) {
        for (int i = 0; i < count; i++) putchar('0' + i % 10);
        return 0;
    }
    if (!strcmp(mode, "settings")) {
        printf("%s %s\n", getenv("ARMLOAD_TRACE") ? "trace" : "none",
               getenv("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "-");
        return 0;
    }
    for (int i = 0; i < 3; i++) token(i);
    if (!strcmp(mode, "die")) __builtin_trap();
    if (!strcmp(mode, "ask")) { pause(); }
    if (!strcmp(mode, "hang")) {
        signal(SIGTERM, SIG_IGN);
        if (fork() == 0) { for (;;) pause(); }
        for (;;) pause();
    }
    return 4;
}
"""


def compiled_engine(folder: Path, architecture: str = "") -> Path:
    """Compile it for this machine, or for another, into ``folder``."""
    (folder / "engine.c").write_text(SOURCE)
    program = folder / "engine"
    compiler = any_cpu_compiler(architecture or machine_architecture())
    words = [*compiler, "-std=gnu11", "-Wno-error", "-o", str(program), str(folder / "engine.c")]
    subprocess.run(words, check=True)
    return program
