"""Programs in place of adb and hdc, and what a board says of itself."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from armload.boards.adb import AdbHost
from armload.boards.board import AdbReach, Board, HdcReach
from armload.boards.hdc import HdcHost
from armload.boards.local import LocalHost
from armload.boards.probe import parse_probe, probe_script
from armload.boards.sensors import Sensor, hottest, read_sensors
from tests.hostile.meters import LONG
from tests.hostile.tries import Try, mutated


def tools(rng: random.Random, root: Path) -> Iterator[Try]:
    while True:
        frame = rng.choice(("#begin", "#begin\n#out", "#begin\n#out\n#err"))
        status = rng.choice(("abc", "", "9" * 30, "-1", "0 0", "٤"))
        noise = rng.randbytes(rng.randint(1, 3000)).hex()
        lines = [
            *("yes", "cat /dev/zero", "yes '#begin'", "yes '#out'", "yes 'error: x'", "sleep 60"),
            *("true", f"printf '{frame}\\n#exit {status}\\n'", f"printf '#begin\\n{noise}'"),
            *("printf '#begin\\n'; cat /dev/zero", "yes '#folder /'", "yes & sleep 60", "yes >&2"),
            *("printf '#begin\\n#out\\n'; yes YQ==", "cat /dev/urandom", "exec >&-; sleep 60"),
            *("printf '#begin\\n#\\377\\n#exit 0\\n'", "trap '' TERM; while :; do :; done"),
            *("echo '#folder /etc'; echo '#encoder rm'; echo '#end'", "kill -9 $$", "exit 3"),
            *("printf 'a\\tdevice\\nb\\tdevice\\n'", "echo '[Empty]'", "head -c 3000000 /dev/zero"),
            # It seems to work until a command is run.
            _BEGINS_WELL.replace("ANSWER", rng.choice(ANSWERS)),
        ]
        for line in lines:
            kind = rng.choice(("adb", "hdc"))
            yield Try(f"{kind}: {line[:60]}", partial(device, root, kind, line), "refused")


_BEGINS_WELL = """case "$*" in
*umask*) d=${*#*.armload-}; echo "#folder /tmp/.armload-${d%%;*}"; echo '#encoder base64' ;;
*push*) echo pushed ;;
*send*) echo "FileTransfer finish, Size:$(wc -c <"${*: -2:1}"), File count = 1" ;;
*) ANSWER ;;
esac"""

ANSWERS = (
    *(
        "yes",
        "printf '#begin\\n#exit x\\n'",
        "printf '#begin\\n#out\\n'; yes YQ==",
        "cat /dev/zero",
    ),
    *(
        "printf '#begin\\n#files\\n#exit 0\\n'",
        "printf '#begin\\n#out\\n'; sleep 60",
        "yes '#begin'",
    ),
)


def device(root: Path, kind: str, line: str) -> object:
    program = Path(tempfile.mkdtemp(dir=root)) / kind
    program.write_text(f"#!/bin/bash\n{line}\n")
    program.chmod(0o755)
    host: AdbHost | HdcHost
    if kind == "adb":
        host = AdbHost(AdbReach(kind="adb", program=str(program)), "phone")
    else:
        host = HdcHost(HdcReach(kind="hdc", program=str(program)), "phone")
    return host.run("true", timeout_s=2).status


def probes(rng: random.Random, root: Path) -> Iterator[Try]:
    board = Board.model_validate(
        {"name": "b", "target": "rk3568", "reach": {"kind": "local"}, "workdir": str(root / "w")}
    )
    shown = LocalHost("b").run(probe_script(board)).stdout
    while True:
        for _ in range(10):
            spoilt = mutated(shown, rng)
            yield Try("a mutated probe", partial(parse_probe, spoilt, "b"), "any")
        zones = [
            f"{rng.choice(('0', '7', '9' * 30, 'x', '٤'))} "
            f"{rng.choice(('42000', '-', '87', '9' * 400, '-0', '1.5.', 'nan', '4200'))} "
            f"{rng.choice(('soc', 'vbat', 'pm8150b-ibat-lvl0', 'cpu-thermal', LONG, ''))}"
            for _ in range(5)
        ]
        yield Try(f"zones {zones[0][:40]}", partial(warmest, zones), "any")
        percent = f"0 {rng.randint(1, 100)} soc"
        volts = f"1 {rng.randint(3000, 4500)} {rng.choice(('vbat', 'pmi632-vbat-lvl1', 'ibat'))}"
        yield Try(percent, partial(warmest, (percent, volts)), None)


def warmest(lines: Sequence[str]) -> Sensor | None:
    return hottest(read_sensors(lines))
