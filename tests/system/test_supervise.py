"""The program that keeps a service running on its board, with small services of this machine."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from armload.build.helper import SUPERVISE, helper
from armload.build.inspection import inspect
from armload.build.target import machine_architecture
from armload.core.shell import join, render
from tests.faults import small_disk
from tests.supervised import ServiceFolder, is_gone
from tests.waiting import wait_until

NOBODY = 65534
GAVE_UP, HELD, UNUSABLE, NOT_RUNNING = 69, 75, 78, 3
FOREVER = "exec sleep 1000"
SIGNALS = {"READY", "STATUS", "WATCHDOG", "EXTEND_TIMEOUT_USEC", "STOPPING"}


def program() -> str:
    return str(helper(SUPERVISE, architecture=machine_architecture()).path)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceFolder]:
    made = ServiceFolder(tmp_path / "it's $(id)", [program()])
    yield made
    made.close()


def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("takes root")


def test_it_is_static_and_small() -> None:
    found = inspect(helper(SUPERVISE).path)
    assert found.is_static
    assert found.size_bytes < 120_000


def test_a_service_is_ready_when_its_health_is_good(service: ServiceFolder) -> None:
    service.server("a")
    service.use("a")
    (service.folder / "load").touch()
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    process = service.start()
    service.logs("/health 503\n/health 503\n")
    loading = service.state()
    assert (loading["state"], loading["ready_s"]) == ("loading", None)
    (service.folder / "load").unlink()
    ready = service.waits_for(state="ready")
    assert before_s - 0.01 <= ready["started_s"] <= ready["ready_s"]
    assert ready["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (ready["version"], ready["pid"], ready["restarts"]) == ("a", process.pid, 0)
    assert (ready["last_end"], ready["fell_back"], ready["log_dropped_bytes"]) == (None, None, 0)
    assert (service.folder / "current").readlink() == Path("versions/a")
    assert os.getpgid(ready["child"]) == ready["child"]
    assert service.stop() == 0
    assert is_gone(ready["child"])
    stopped = service.state()
    assert (stopped["state"], stopped["child"], stopped["memory_bytes"]) == ("stopped", None, 0)


def test_a_boot_without_an_id_has_none(service: ServiceFolder) -> None:
    as_root()
    inside = 'mount -t tmpfs none /proc/sys/kernel/random && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", inside, "sh", "true"], check=False).returncode:
        pytest.skip("takes a mount namespace")
    service.words = ("unshare", "-m", "sh", "-c", inside, "sh", *service.words)
    service.version("a", FOREVER)
    service.use("a")
    service.start()
    assert service.waits_for(state="loading")["boot_id"] == ""


def test_a_server_that_speaks_no_http_is_ready_when_it_accepts(service: ServiceFolder) -> None:
    code = (
        "import socket\n"
        f"server = socket.create_server(('::1', {service.port}), family=socket.AF_INET6)\n"
        "while True: server.accept()[0].close()\n"
    )
    for health in ("yes", "connect"):
        start = f"exec {join([sys.executable, '-S', '-c', code])}"
        service.version(health, start, address="::1", health=health, load_s=2)
    service.use("connect")
    service.start()
    service.waits_for(state="ready")
    assert service.stop() == 0
    service.use("yes")
    assert service.run()[0] == GAVE_UP
    assert service.state()["last_end"]["what"] == "not ready in time"


def test_a_limit_of_cpu_time_does_not_reach_the_server(tmp_path: Path) -> None:
    # As a command over a connection has it; the server would be killed after so many seconds.
    limited = ["sh", "-c", 'ulimit -S -t 35; exec "$@"', "sh", program()]
    service = ServiceFolder(tmp_path / "limited", limited)
    service.version("a", f"echo soft $(ulimit -S -t) hard $(ulimit -H -t); {FOREVER}")
    service.use("a")
    service.start()
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    words = "unlimited" if most == resource.RLIM_INFINITY else str(most)
    service.logs(f"soft {words} hard {words}")
    service.close()


@pytest.mark.parametrize("most", [4000, 5000, 16_384])
def test_the_log_is_two_files_of_whole_lines(service: ServiceFolder, most: int) -> None:
    service.version("a", f"seq 1 20000; {FOREVER}", log_bytes=most)
    service.use("a")
    service.start()
    service.logs("\n20000\n")
    former, log = ((service.folder / name).read_bytes() for name in ("log.1", "log"))
    written = "".join(f"{number}\n" for number in range(1, 20_001)).encode()
    assert written.endswith(former + log)
    assert most - len("20000\n") < len(former) <= most
    assert former.endswith(b"\n")
    assert 0 < len(log) <= most


def test_a_line_longer_than_the_log_is_cut(service: ServiceFolder) -> None:
    start = f"head -c 12000 /dev/zero | tr '\\0' x; echo end; {FOREVER}"
    service.version("a", start, log_bytes=5000)
    service.use("a")
    service.start()
    service.logs("end\n")
    former, log = ((service.folder / name).read_text() for name in ("log.1", "log"))
    assert 0 < len(former) <= 5000
    assert 0 < len(log) <= 5000
    assert set(former) | set(log.removesuffix("end\n")) == {"x"}


def test_a_log_that_somebody_removes_begins_again(service: ServiceFolder) -> None:
    service.version("a", "while sleep 0.05; do echo line; done")
    service.use("a")
    service.start()
    service.logs("line")
    (service.folder / "log").unlink()
    service.logs("line")
    (service.folder / "log").rename(service.folder / "moved")
    (service.folder / "log").symlink_to(service.folder / "elsewhere")
    wait_until(lambda: "line\nline\n" in (service.folder / "moved").read_text())


def test_a_log_that_is_another_file_s_second_name_is_left_alone(
    service: ServiceFolder, tmp_path: Path
) -> None:
    """The service's user can link a file that root alone may write, on older kernels."""
    other = tmp_path / "other"
    other.write_text("precious\n")
    (service.folder / "log").hardlink_to(other)
    service.version("a", "echo line; exit 3")
    service.use("a")
    service.run()
    assert other.read_text() == "precious\n"
    assert service.state()["log_dropped_bytes"] > 0


def test_full_storage_does_not_stop_a_service(service: ServiceFolder, tmp_path: Path) -> None:
    done = tmp_path / "done"
    script = (
        f"head -c 5000000 /dev/zero; touch {join([str(done)])}; while sleep 0.05; do echo on; done"
    )
    with small_disk(tmp_path / "disk", 1) as folder:
        full = ServiceFolder(folder, [program()])
        try:
            full.version("a", script, log_bytes=10_000_000)
            full.use("a")
            full.start()
            wait_until(done.exists, full.process)
            size = (folder / "log").stat().st_size
            assert 0 < size < 1 << 20
            assert full.state()["log_dropped_bytes"] == 0, "written before"
            (folder / "log").unlink()
            full.logs("on\n")
            # The pipe may have held a part until there was space again.
            least = 5_000_000 - size - (2 << 20)
            wait_until(lambda: full.state()["log_dropped_bytes"] >= least, full.process)
            assert full.state()["restarts"] == 0
            assert (folder / "version").read_text() == "a\n"
            assert not list(folder.glob(".*.new"))
        finally:
            full.close()


def test_it_gives_up_after_so_many_failures(service: ServiceFolder) -> None:
    service.version("a", "echo run; exit 3", failures=4)
    service.use("a")
    status, said = service.run()
    assert status == GAVE_UP
    assert service.log().count("run\n") == 4
    state = service.state()
    assert (state["state"], state["restarts"], state["child"]) == ("failed", 3, None)
    assert state["last_end"]["what"] == "exit 3"
    assert said.count("exit 3; restarting in 0 s") == 3
    assert "giving up after 4 failures in a row" in said


def test_the_pause_grows_up_to_a_minute(service: ServiceFolder) -> None:
    service.version("a", "exit 0", failures=3, pause_s=1)
    service.version("b", "kill -9 $$", failures=9, pause_s=60)
    service.use("a")
    _, said = service.run()
    assert [line.split()[-2] for line in said.splitlines() if "restarting in" in line] == ["1", "2"]
    service.use("b")
    service.start()
    assert service.waits_for(state="pausing")["last_end"]["what"] == "signal 9"
    assert service.stop() == 0
    assert "restarting in 60 s" in service.log()
    assert service.state()["state"] == "stopped"


def test_a_service_that_was_ready_for_long_has_all_its_tries_again(service: ServiceFolder) -> None:
    service.server("a", failures=2, settled_s=0)
    service.use("a")
    service.start()
    for restarts in range(4):
        child = service.waits_for(state="ready", restarts=restarts)["child"]
        os.kill(child, signal.SIGKILL)
    assert service.waits_for(state="ready")["last_end"]["what"] == "signal 9"


def test_a_version_on_trial_that_fails_gives_way_to_the_former(service: ServiceFolder) -> None:
    service.server("old")
    service.version("new", "exit 1", failures=2)
    service.use("new")
    (service.folder / "trial").write_text("old\n")
    service.start()
    state = service.waits_for(state="ready", version="old")
    assert state["fell_back"] == {"from": "new", "why": "exit 1"}
    assert state["restarts"] == 2
    assert (service.folder / "version").read_text() == "old\n"
    assert (service.folder / "current").readlink() == Path("versions/old")
    assert not (service.folder / "trial").exists()


@pytest.mark.parametrize("damaged", ["start", "supervisor"])
def test_a_version_on_trial_that_is_damaged_gives_way_at_once(
    service: ServiceFolder, damaged: str
) -> None:
    service.server("old")
    service.server("new")
    (service.folder / "versions" / "new" / damaged).unlink()
    service.use("new")
    (service.folder / "trial").write_text("old\n")
    service.start()
    state = service.waits_for(state="ready", version="old")
    assert state["fell_back"] == {"from": "new", "why": "unusable version"}


@pytest.mark.parametrize("trial", ["new", "gone", "../versions/old", ""])
def test_without_another_version_it_gives_up(service: ServiceFolder, trial: str) -> None:
    service.version("new", "exit 1")
    service.server("old")
    service.use("new")
    (service.folder / "trial").write_text(trial)
    assert service.run()[0] == GAVE_UP
    assert service.state()["version"] == "new"
    assert (service.folder / "version").read_text() == "new\n"


def test_sighup_switches_to_the_version_in_force(service: ServiceFolder) -> None:
    service.server("a")
    service.server("b")
    service.use("a")
    process = service.start()
    first = service.waits_for(state="ready", version="a")["child"]
    service.use("b")
    process.send_signal(signal.SIGHUP)
    second = service.waits_for(state="ready", version="b")
    assert is_gone(first)
    assert second["restarts"] == 0
    assert second["last_end"] is None
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: service.state()["child"] not in (None, second["child"]), process)
    service.waits_for(state="ready", version="b", restarts=0)


@pytest.mark.parametrize("named", [None, "", "../b", ".b", "a\nb\n", "a b", "x" * 65, "gone", "b"])
def test_a_version_that_cannot_be_used_costs_no_service(
    service: ServiceFolder, named: str | None
) -> None:
    service.server("a")
    service.version("b", FOREVER, colour="red")
    service.use("a")
    process = service.start()
    child = service.waits_for(state="ready")["child"]
    if named is None:
        (service.folder / "version").unlink()
    else:
        (service.folder / "version").write_text(named)
    process.send_signal(signal.SIGHUP)
    service.logs("keeping version a")
    assert service.state()["child"] == child
    assert not is_gone(child)


@pytest.mark.parametrize("named", [None, b"", b"../a", b"a\0", b"a\n\n", b"\xff", b"a" * 9000])
def test_it_does_not_begin_with_a_damaged_version(
    service: ServiceFolder, named: bytes | None
) -> None:
    service.server("a")
    if named is not None:
        (service.folder / "version").write_bytes(named)
    status, said = service.run()
    assert status == UNUSABLE
    assert said.startswith("supervise: cannot read version: ")
    assert service.state()["state"] == "failed"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("port 1\ncolour red\n", "line 2 of its supervisor file: colour is not a known key"),
        ("port 1\nport 1\n", "line 2 of its supervisor file: port is given twice"),
        ("health yes\nhealth yes\nport 1\n", "line 2 of its supervisor file: health is given"),
        ("port\n", "line 1 of its supervisor file must be a key, a space and a value"),
        ("\x1b[2J 1\n", "line 1 of its supervisor file must be"),
        ("port 1\n\n", "line 2 of its supervisor file must be"),
        ("nice 3\n", "has no port"),
        ("", "has no port"),
        ("port 1\nuid 1\n", "both uid and gid"),
        ("port 1\ngid 1\n", "both uid and gid"),
        *(
            (f"{line}\n", "has an invalid value")
            for line in (
                *("port 0", "port 65536", "port -1", "port 1 ", "port 0x1", "port 1.5", "port +1"),
                *("port 99999999999999999999", "port ", "nice 20", "nice -21", "uid -1"),
                *("uid 4294967295", "oom_score_adj 1001", "log_bytes 0", "load_s -1", "health no"),
                *("address localhost", "address 1.2.3", "address ::g", "failures 0", "pause_s 61"),
            )
        ),
        ("#" * 4096, "cannot be read: File too large"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_settings_that_are_not_understood_are_refused(
    service: ServiceFolder, lines: str | None, why: str
) -> None:
    service.version("a", FOREVER)
    settings = service.folder / "versions" / "a" / "supervisor"
    settings.unlink()
    if lines is not None:
        settings.write_text(lines)
    service.use("a")
    status, said = service.run()
    assert status == UNUSABLE
    assert said.startswith("supervise: cannot use version a: ")
    assert why in said
    assert "\x1b" not in said
    state = service.state()
    assert (state["state"], state["version"]) == ("failed", "a")


def test_a_service_that_does_not_end_is_killed(service: ServiceFolder) -> None:
    service.version("a", "trap '' TERM; sleep 1000 & echo go; wait; sleep 1000", stop_s=1)
    service.use("a")
    service.start()
    service.logs("go")
    group = service.state()["child"]
    below = psutil.Process(group).children()
    assert below
    assert service.stop() == 0
    wait_until(lambda: all(is_gone(pid) for pid in (group, *(each.pid for each in below))))


def test_what_a_service_leaves_running_ends_with_it(service: ServiceFolder) -> None:
    service.version("a", "sleep 1000 & echo $!; exit 5")
    service.use("a")
    assert service.run()[0] == GAVE_UP
    left = int(service.log().splitlines()[0])
    wait_until(lambda: is_gone(left))


def test_memory_of_all_its_processes_has_a_limit(service: ServiceFolder, tmp_path: Path) -> None:
    limit = 60 << 20
    held = "import sys, time; held = b'x' * (100 << 20); print('held', flush=True); time.sleep(1e3)"
    mapped = (
        "import mmap, time\n"
        f"file = open({str(tmp_path / 'file')!r}, 'rb')\n"
        "held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        "print(sum(held[::4096]), flush=True)\n"
        "time.sleep(1e3)\n"
    )
    (tmp_path / "file").write_bytes(b"\1" * (100 << 20))
    for name, code in (("held", held), ("mapped", mapped)):
        words = join([sys.executable, "-S", "-c", code])
        service.version(name, f"{words} & wait", memory_limit_bytes=limit)
    service.use("held")
    assert service.run()[0] == GAVE_UP
    assert service.state()["last_end"]["what"] == "memory limit"
    # A file can be read again, so its pages do not count.
    service.use("mapped")
    process = service.start()
    service.logs("25600\n")
    (below,) = psutil.Process(service.state()["child"]).children()
    assert below.memory_info().rss > limit
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: service.log().count("25600\n") == 2, process)
    assert service.state()["last_end"] is None


def test_a_service_that_no_longer_answers_is_ended(service: ServiceFolder) -> None:
    service.server("a", silence_s=1, failures=2, pause_s=60)
    service.use("a")
    service.start()
    service.waits_for(state="ready")
    (service.folder / "hang").touch()
    assert service.waits_for(state="pausing")["last_end"]["what"] == "no answer"
    assert service.state()["ready_s"] is None


def test_a_service_that_is_not_ready_in_time_has_failed(service: ServiceFolder) -> None:
    service.server("a", load_s=1)
    service.use("a")
    (service.folder / "load").touch()
    assert service.run()[0] == GAVE_UP
    assert service.state()["last_end"]["what"] == "not ready in time"


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_told(service: ServiceFolder, tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "s") if kind == "path" else f"@armload-{os.getpid()}"
    service.server("a")
    service.version("b", f"env; {FOREVER}")
    service.use("a")
    (service.folder / "load").touch()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as init:
        init.bind(name.replace("@", "\0"))
        init.settimeout(60)

        def told(until: str) -> list[str]:
            found: list[str] = []
            while not found or not found[-1].startswith(until):
                found += init.recv(4096).decode().splitlines()
            return found

        process = service.start({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"})
        before = [*told("EXTEND_TIMEOUT_USEC="), *told("WATCHDOG=1"), *told("WATCHDOG=1")]
        assert "STATUS=loading, version a" in before
        (service.folder / "load").unlink()
        before += told("READY=1")
        assert before.count("READY=1") == 1
        after = told("WATCHDOG=1")
        service.use("b")
        process.send_signal(signal.SIGHUP)
        service.logs("PWD=")
        for variable in ("NOTIFY_SOCKET", "WATCHDOG_USEC"):
            assert variable not in service.log()
        process.terminate()
        after += told("STATUS=stopped")
        assert after.count("STOPPING=1") == 1
        # Once it was ready, a start takes none of systemd's patience any more.
        assert {line.partition("=")[0] for line in after} == {"STATUS", "WATCHDOG", "STOPPING"}
        assert service.stop() == 0
        other = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}
        service.waits_for(pid=service.start(other).pid, state="loading")
        assert service.stop() == 0
        assert "WATCHDOG=1" not in told("STATUS=stopped")


def test_nobody_to_tell_is_no_fault(service: ServiceFolder, tmp_path: Path) -> None:
    service.server("a")
    service.use("a")
    for name in ("", "relative", str(tmp_path / "no-socket"), "@", "/" + "x" * 300):
        service.start({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "x"})
        service.waits_for(state="ready")
        assert service.stop() == 0


def test_a_folder_is_supervised_once(service: ServiceFolder) -> None:
    service.version("a", FOREVER)
    service.use("a")
    first = service.start()
    child = service.waits_for(state="loading")["child"]
    second = subprocess.run(
        [program(), service.folder], capture_output=True, text=True, check=False
    )
    assert second.returncode == HELD
    assert "already has a supervisor running" in second.stderr
    assert service.state()["pid"] == first.pid
    assert not is_gone(child)
    lock = (service.folder / "lock").stat()
    assert lock.st_mode & 0o077 == 0, "another user of the board could hold it"
    # What it started does not hold the folder.
    first.kill()
    first.communicate()
    service.start()
    wait_until(lambda: service.state()["pid"] != first.pid, service.process)
    assert service.stop() == 0


@pytest.mark.parametrize("words", [(), ("a", "b"), ("/no/such/folder",), ("/dev/null",)])
def test_words_that_name_no_folder(words: tuple[str, ...]) -> None:
    done = subprocess.run([program(), *words], capture_output=True, text=True, check=False)
    assert done.returncode == (UNUSABLE if len(words) == 1 else 2)
    assert done.stderr


TELLING = """
id -u; id -g; id -G
grep NoNewPrivs /proc/self/status
nice
cat /proc/self/oom_score_adj
cat versions/a/secret 2>/dev/null || echo refused
"""


@pytest.fixture
def open_service() -> Iterator[ServiceFolder]:
    """A service in a folder that other users may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copy(program(), folder / "supervise")
    made = ServiceFolder(folder / "service", [str(folder / "supervise")])
    yield made
    made.close()
    shutil.rmtree(folder)


def test_the_service_alone_has_fewer_rights(open_service: ServiceFolder) -> None:
    as_root()
    user = {"uid": NOBODY, "gid": NOBODY}
    open_service.version("a", TELLING, **user, nice=5, oom_score_adj=500)
    secret = open_service.folder / "versions" / "a" / "secret"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    open_service.use("a")
    assert open_service.run()[0] == GAVE_UP
    told = open_service.log().split("refused")[0].split()
    assert told == [*[str(NOBODY)] * 3, "NoNewPrivs:", "1", "5", "500"]
    assert (open_service.folder / "log").stat().st_uid == 0


def test_what_cannot_be_set_is_in_the_log(open_service: ServiceFolder) -> None:
    as_root()
    os.chown(open_service.folder, NOBODY, NOBODY)
    start = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    open_service.words = (*start, *open_service.words)
    open_service.version("a", TELLING, uid=NOBODY, gid=NOBODY, nice=-5, oom_score_adj=-500)
    open_service.version("b", TELLING, uid=1, gid=1)
    open_service.use("a")
    open_service.run()
    log = open_service.log()
    assert "cannot set oom_score_adj: " in log
    assert "cannot set the priority: " in log
    assert str(NOBODY) in log.splitlines()
    open_service.use("b")
    open_service.run()
    assert "cannot switch to user 1 and group 1: " in open_service.log()
    assert open_service.state()["last_end"]["what"] == "exit 126"


def test_it_waits_for_an_address_of_the_network(service: ServiceFolder) -> None:
    as_root()
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed")
    address = "192.0.2.1"
    inside = 'ip link set lo up && exec "$@"'
    service.words = ("unshare", "-n", "sh", "-c", inside, "sh", *service.words)
    service.server("a", address=address)
    service.use("a")
    process = service.start()
    service.logs("waiting until the board has its address")
    assert service.waits_for(state="pausing")["restarts"] == 0
    enter = ["nsenter", f"--net=/proc/{process.pid}/ns/net"]
    subprocess.run([*enter, "ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
    assert service.waits_for(state="ready")["last_end"] is None


def test_a_killed_supervisor_takes_the_service_with_it(service: ServiceFolder) -> None:
    service.version("a", "sleep 1000 & sleep 1000 & echo go; wait")
    service.use("a")
    process = service.start()
    service.logs("go")
    leader = psutil.Process(service.state()["child"])
    started = [leader, *leader.children()]
    assert len(started) == 3
    process.kill()
    process.communicate()
    wait_until(lambda: all(is_gone(each.pid) for each in started))


def begin_trial(service: ServiceFolder) -> None:
    service.use("new")
    (service.folder / "trial").write_text("old\n")
    (service.folder / "state").unlink(missing_ok=True)


def check_whole(service: ServiceFolder) -> None:
    version = (service.folder / "version").read_text()
    assert version in ("old\n", "new\n")
    assert version == "old\n" or (service.folder / "trial").read_text() == "old\n"
    assert service.state().get("version") in ("old", "new", None)


def test_no_kill_leaves_half_a_file(service: ServiceFolder) -> None:
    service.version("old", FOREVER)
    service.version("new", "exit 1", failures=2)
    chance = random.Random(48)
    for _ in range(50):
        begin_trial(service)
        process = service.start()
        time.sleep(chance.uniform(0, 0.06))
        process.kill()
        process.communicate()
        check_whole(service)
    service.start()
    service.waits_for(version="old", state="loading")


def test_killed_at_any_call_that_changes_files_it_leaves_whole_ones(
    service: ServiceFolder,
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    service.version("old", FOREVER)
    service.version("new", "exit 1")
    fell_back = {"version": "old", "state": "loading"}.items()
    kills = Counter[str]()
    for call in ("/^open", "write", "fsync", "/^rename", "/^unlink", "/^symlink"):
        while True:
            kill = f"inject={call}:signal=KILL:when={kills[call] + 1}"
            service.words = ("strace", "-D", "-o", "/dev/null", "-e", kill, program())
            begin_trial(service)
            ended = service.start().poll
            while ended() is None and not fell_back <= service.state().items():
                time.sleep(0.01)
            if service.stop() == 0:
                break
            assert ended() == -signal.SIGKILL
            check_whole(service)
            kills[call] += 1
    assert all(kills[call] >= 4 for call in ("write", "fsync", "/^rename")), kills


def test_its_script_starts_it(service: ServiceFolder, tmp_path: Path) -> None:
    service.server("a")
    service.use("a")
    values: dict[str, Any] = {"name": "a", "supervise": program(), "folder": service.folder}
    run = service.folder / "run"
    run.write_text(render("service/run.sh.j2", values))
    assert run.read_text().startswith("#!/bin/sh\n")
    run.chmod(0o755)
    with subprocess.Popen([run], cwd="/", stderr=subprocess.PIPE) as process:
        assert service.waits_for(state="ready")["pid"] == process.pid
        process.terminate()
    assert process.returncode == 0


def moved(service: ServiceFolder) -> list[str]:
    """Return what a server was asked to do with its slots; forget it."""
    path = service.folder / "slots"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def slot_files(service: ServiceFolder) -> list[str]:
    return sorted(each.name for each in (service.folder / "private").glob("slot-*"))


@pytest.fixture
def with_slots(service: ServiceFolder) -> ServiceFolder:
    (service.folder / "keys").write_text("secret\nanother\n")
    for name, key in (("a", 171), ("b", 171), ("c", 5)):
        service.behind(name, slots=2, slots_key=key)
    service.use("a")
    return service


def test_what_slots_hold_is_kept_over_a_restart_and_a_switch(with_slots: ServiceFolder) -> None:
    service = with_slots
    service.start()
    service.waits_for(state="ready")
    assert service.stop() == 0
    assert moved(service) == [f"a /slots/{n}?action=save Bearer secret" for n in (0, 1)]
    assert slot_files(service) == ["slot-0000000000ab-0", "slot-0000000000ab-1"]
    process = service.start()
    service.waits_for(state="ready", version="a")
    wait_until(lambda: not slot_files(service))
    assert moved(service) == [f"a /slots/{n}?action=restore Bearer secret" for n in (0, 1)]
    for version, actions in (("b", ["save", "save", "restore", "restore"]), ("c", [])):
        service.use(version)
        process.send_signal(signal.SIGHUP)
        service.waits_for(state="ready", version=version)
        wait_until(lambda: not slot_files(service))
        asked = [line.split()[1] for line in moved(service)]
        assert [each.rpartition("=")[2] for each in asked] == actions
    assert service.stop() == 0
    assert slot_files(service) == ["slot-000000000005-0", "slot-000000000005-1"]


def test_slots_that_take_too_long_are_dropped(with_slots: ServiceFolder) -> None:
    service = with_slots
    (service.folder / "hold").touch()
    service.start()
    service.waits_for(state="ready")
    assert service.stop() == 0
    assert slot_files(service) == []


def test_a_server_that_crashes_leaves_no_slots(with_slots: ServiceFolder) -> None:
    service = with_slots
    service.start()
    child = service.waits_for(state="ready")["child"]
    os.kill(child, signal.SIGKILL)
    assert service.process is not None
    assert service.process.wait(30) == GAVE_UP
    assert moved(service) == []


def tells(service: ServiceFolder, word: str) -> tuple[int, str]:
    """Say a word to the supervisor of a folder, and return what comes of it."""
    words = [*service.words, word, str(service.folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout.strip()


@pytest.fixture
def told(service: ServiceFolder) -> Iterator[ServiceFolder]:
    for name in ("a", "b"):
        service.version(name, FOREVER)
    service.use("a")
    yield service
    tells(service, "stop")


def test_words_reach_the_supervisor_of_their_folder(told: ServiceFolder, tmp_path: Path) -> None:
    other = ServiceFolder(tmp_path / "it's $(id)2", told.words)
    other.version("a", FOREVER)
    other.use("a")
    others = other.start()
    other.waits_for(state="loading")
    assert [tells(told, word) for word in ("status", "reload", "stop")] == (
        [(NOT_RUNNING, "stopped"), (NOT_RUNNING, ""), (0, "")]
    )
    for _ in range(2):
        assert tells(told, "start")[0] == 0
    pid = told.waits_for(state="loading")["pid"]
    assert tells(told, "status") == (0, "running")
    assert os.getsid(pid) == pid, "it would end with the connection"
    told.use("b")
    assert tells(told, "reload")[0] == 0
    assert told.waits_for(state="loading", version="b")["pid"] == pid
    assert tells(told, "restart")[0] == 0
    wait_until(lambda: told.state()["pid"] != pid)
    assert is_gone(pid)
    assert tells(told, "stop")[0] == 0
    assert tells(told, "status") == (NOT_RUNNING, "stopped")
    assert told.state()["state"] == "stopped"
    assert others.poll() is None
    assert other.stop() == 0
    assert tells(told, "dance")[0] == 2


def test_what_a_supervisor_has_started_does_not_get_its_hangup(service: ServiceFolder) -> None:
    """It is called as that is until it becomes another program, and would end then."""
    service.behind("a")
    service.use("a")
    process = service.start()
    service.waits_for(state="ready")
    named = [
        each
        for each in psutil.Process(process.pid).children()
        if each.cmdline()[1:] == ([str(service.folder)])
    ]
    assert named
    process.send_signal(signal.SIGSTOP)
    assert tells(service, "reload")[0] == 0
    for each in named:
        status = Path(f"/proc/{each.pid}/status").read_text()
        pending = [int(line.split()[1], 16) for line in status.splitlines() if "Pnd:" in line]
        assert not any(bits & 1 << signal.SIGHUP - 1 for bits in pending)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: "switching from version a to version a" in service.log())
    assert service.stop() == 0


@pytest.mark.exhaustive(covers=["toolchains/board"])
def test_a_supervisor_that_does_not_end_is_killed_with_its_service(told: ServiceFolder) -> None:
    tells(told, "start")
    child = told.waits_for(state="loading")["child"]
    os.kill(told.state()["pid"], signal.SIGSTOP)
    assert tells(told, "stop")[0] == 0
    wait_until(lambda: is_gone(child))
