"""Endings are told from what a run left."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.deploy.exit_reason import explain
from armload.deploy.exit_record import Cut, Peaks, read_peaks


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 1000 999 {} 100% /d\n"
THERE = "#program there\n#program executable\n"


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ({}, "restart", "interrupted"),
        ({"exit": ""}, "restart", "interrupted"),
        ({"exit": "0\n"}, "done", "done"),
        ({"exit": "0\n" + DF.format(0)}, "done", "done"),
        ({"exit": "137\n", "oom": ""}, "out of memory", "ran out of memory"),
        (
            {"exit": "137\n[ 12.3] Out of memory: Killed process 12 (llama) total-vm:1kB\n"},
            "out of memory",
            "ran out of memory",
        ),
        (
            {"exit": "137\n", "memory": "3000000 1500000 40000\n"},
            "out of memory",
            (
                "most likely by the out-of-memory killer: only 41.0 MB of 2.0 GB were left; it was "
                "using 1.5 GB"
            ),
        ),
        ({"exit": "137\n", "memory": "3000 1500 900000\n"}, "killed", "killed from outside"),
        ({"exit": "137\n"}, "killed", "killed from outside"),
        ({"exit": "124\n", "limit": ""}, "time limit", "time limit"),
        ({"exit": "124\n"}, "exit status", "exit 124"),
        ({"exit": "143\n", "stopped": ""}, "stopped", "on request"),
        ({"exit": "143\n"}, "signal", "SIGTERM"),
        ({"exit": "75\n", "unleased": ""}, "no lease", "another user has the board"),
        ({"exit": "1\n", "unleased": ""}, "exit status", "no reason"),
        (
            {"exit": "1\n", "stderr": "a\n\nfailed to load\nb\n"},
            "exit status",
            "a / failed to load",
        ),
        ({"exit": "1\n"}, "exit status", "no reason"),
        ({"exit": "0\n" + DF.format(12)}, "done", "done"),
        ({"exit": "1\n" + DF.format(12)}, "no space", "storage is full (12.3 kB free)"),
        ({"exit": "1\n" + DF.format(50_000)}, "exit status", "no reason"),
        ({"exit": "1\n", "stderr": "x: No space left on device\n"}, "no space", "storage is full"),
        ({"exit": "250\n"}, "signal", "signal 122"),
        ({"exit": "134\n", "stderr": "GGML_ASSERT(x)\n"}, "abort", "SIGABRT): GGML_ASSERT(x)"),
        ({"exit": "139\n", "stderr": "last words\n"}, "crash", "SIGSEGV): last words"),
        ({"exit": "135\n"}, "storage error", "was truncated, or the storage reported an error"),
        (
            {"exit": "135\n<3>[  118.63] I/O error, dev vda, sector 3896480 op 0x0:(READ)\n"},
            "storage error",
            "was read: I/O error, dev vda, sector 3896480 op 0x0:(READ)",
        ),
        (
            {"exit": "74\n", "stderr": "\narmload: the model cannot be read: the storage rep\n"},
            "storage error",
            "was truncated, or the storage reported an error",
        ),
        ({"exit": "74\n", "stderr": "x: bad\n"}, "exit status", "exit 74: x: bad"),
        ({"exit": "127\n", "stderr": "sh: x: not found\n"}, "not found", "was not found"),
        ({"exit": "127\n" + THERE, "stderr": "sh: x: not found\n"}, "no loader", "loader"),
        (
            {
                "exit": "1\n",
                "stderr": 'error while handling argument "--device": invalid device: Vulkan0\n\n'
                "usage:\n-dev,  --device <dev1,dev2,..>\n\nto show complete usage, run with -h\n",
            },
            "no device",
            "no such GPU",
        ),
        (
            {"exit": "126\n" + THERE, "stderr": "x: No such file or directory"},
            "no loader",
            "loader",
        ),
        (
            {"exit": "127\n", "stderr": "x: error while loading shared libraries: libm.so"},
            "no loader",
            "libm.so",
        ),
        ({"exit": "126\n" + THERE, "stderr": "x: Permission denied"}, "not permitted", "denied"),
        ({"exit": "126\n#program there\n"}, "not permitted", "is not executable"),
        ({"exit": "126\n" + THERE, "stderr": "x: Exec format error"}, "wrong format", "machine"),
        ({"exit": "2\n" + THERE, "stderr": "x: 1: \x7fELF: not found"}, "wrong format", "machine"),
    ],
)
def test_an_ending_is_put_in_words(
    tmp_path: Path, files: dict[str, str], kind: str, words: str
) -> None:
    ending = explain(folder(tmp_path, **files), memory_total_bytes=2_000_000_000)
    assert ending.kind == kind
    assert words in ending.meaning


def test_what_ext4_keeps_for_itself_does_not_count_as_free_at_the_end(tmp_path: Path) -> None:
    full = folder(tmp_path, exit="1\nFilesystem\n/dev/loop0 888472 872088 16384 99% /d\n")
    ending = explain(full, board="b", filesystem="ext4")
    assert ending.kind == "no space"
    assert ending.remedy.endswith("armload board.clean --board b")
    assert explain(full, filesystem="xfs").kind == "exit status"


@pytest.mark.parametrize(
    ("cut", "kind", "words"),
    [("restart", "restart", "restarted during the run"), ("lost", "lost", "script that monitors")],
)
def test_what_cut_a_run_short_is_told(tmp_path: Path, cut: Cut, kind: str, words: str) -> None:
    ending = explain(tmp_path, cut=cut)
    assert (ending.kind, ending.status) == (kind, None)
    assert words in ending.meaning


def test_an_illegal_instruction_names_what_the_cpu_lacks(tmp_path: Path) -> None:
    ending = explain(folder(tmp_path, exit="132\n"), lacking=["i8mm", "sve"])
    assert "(i8mm, sve)" in ending.meaning
    assert "target" in ending.remedy


def test_peak_memory_is_read_and_missing_when_nothing_was_seen(tmp_path: Path) -> None:
    assert read_peaks(tmp_path) is None
    assert read_peaks(folder(tmp_path, memory="2000 1000\n")) == Peaks(
        resident_bytes=1024_000, virtual_bytes=2048_000, least_available_bytes=None
    )
    assert read_peaks(folder(tmp_path, memory="2000 ")) is None


def test_the_first_error_in_the_log_of_llama_cpp_is_part_of_the_reason(tmp_path: Path) -> None:
    log = (
        "0.00.009.012 I load: done\n"
        "0.00.009.012 E llama_init_from_model: quantized V cache requires flash_attn\n"
        "0.00.009.327 E common_fit_params: failed to create llama_context from model\n"
        "0.00.065.373 E llama_init_from_model: quantized V cache requires flash_attn\n"
        "0.00.065.389 E cmn  common_init_: failed to create context\n"
        "0.00.065.392 E llama_completion: error: unable to create context\n"
    )
    (tmp_path / "exit").write_text("1\n")
    (tmp_path / "stderr").write_text(log)
    meaning = explain(tmp_path).meaning
    assert meaning.startswith("exit 1: llama_init_from_model: quantized V cache requires")
    assert meaning.endswith("llama_completion: error: unable to create context")
    assert "0.00" not in meaning


ASSERTED = "llama.cpp/src/llama-model.cpp:1362: GGML_ASSERT(used <= hparams.n_expert) failed\n"
DEBUGGER = (
    "[New LWP 1519]\n[Thread debugging using libthread_db enabled]\n"
    'Using host libthread_db library "/lib/libthread_db.so.1".\n'
    "0x000056147237b536 in safe_syscall_base ()\n#0  0x000056147237b536 in safe_syscall ()\n"
    "#1  0x0000000001896985 in ?? ()\n[Inferior 1 (process 1517) detached]\n"
)
FRAMES = "./llama-cli(+0x1f2a) [0x55d0a1]\n/lib/libc.so.6(abort+0xd3)[0x7f3a]\n"


@pytest.mark.parametrize("backtrace", ["", DEBUGGER, FRAMES])
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (f"loading\n{ASSERTED}", "", ASSERTED.strip()),
        (
            f"0.00.009.012 E load: first\n0.00.009.013 E load: last\nmore\n{ASSERTED}",
            "qemu: uncaught target signal 6 (Aborted) - core dumped\n",
            f"load: last / {ASSERTED.strip()}",
        ),
        ("", "terminate called\n  what():  bad_alloc\n", "terminate called / what():  bad_alloc"),
    ],
)
def test_an_abort_is_told_by_its_reason_and_not_by_a_backtrace(
    tmp_path: Path, before: str, backtrace: str, after: str, reason: str
) -> None:
    aborted = folder(tmp_path, exit="134\n", stderr=before + backtrace + after)
    assert explain(aborted).meaning == f"the program aborted (SIGABRT): {reason}"


INFORMS = (
    "0.02.799.899 I sampler params: \n\trepeat_last_n = 64\n\ttop_k = 40\n"
    "0.02.800.453 I generate: n_predict = 40\n0.02.800.684 I \n"
)


@pytest.mark.parametrize(
    ("status", "more", "meaning"),
    [
        (134, "", "the program aborted (SIGABRT)"),
        (1, "", "exit 1: it gave no reason"),
        (
            134,
            "terminate called\n  what():  bad_alloc\n",
            "the program aborted (SIGABRT): terminate called / what():  bad_alloc",
        ),
        (
            1,
            "0.02.900.001 W cache: small\n0.02.900.002 E load: no\n\tsuch key\n",
            "exit 1: load: no / cache: small / such key",
        ),
    ],
)
def test_what_the_log_of_llama_cpp_informs_of_is_no_reason(
    tmp_path: Path, status: int, more: str, meaning: str
) -> None:
    ended = folder(tmp_path, exit=f"{status}\n{THERE}", stderr=INFORMS + more + INFORMS)
    assert explain(ended).meaning == meaning
