"""Meters of power that show something else: plugs, programs, and sensors of a board."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from armload.boards.host import Completed
from armload.boards.local import LocalHost
from armload.boards.power import PowerMeter, try_read_power
from armload.core.errors import ConnectError
from tests.hostile.servers import Script, http_attacks, http_forms, sends, serving, whole
from tests.hostile.tries import Try
from tests.power_plugs import shelly, tasmota
from tests.sysfs import write_tree

NO_WATTS = (
    *("true", "false", "null", '"12"', '" 5_0 "', "[]", "{}", "[5]", "1e300", "-1e-9", "-3.5"),
    *("NaN", "Infinity", "-Infinity", "9" * 400, "9" * 5000, "1e999", "0x10", "1_0", "+5", "05"),
    *("100000.5", '{"w": 5}', "[" * 100_000, '"' + "x" * 70_000 + '"', "1." + "3" * 70_000),
)


def meter(**values: object) -> PowerMeter:
    found: PowerMeter = TypeAdapter(PowerMeter).validate_python(values)
    return found


def watts_of(chosen: PowerMeter, host: LocalHost | None = None) -> object:
    try:
        answer = try_read_power(chosen, host or LocalHost("kitchen"))
    except ConnectError:
        return "refused"
    if answer.reading is None:
        assert answer.problem
        assert "\n" not in answer.problem, answer.problem
        return "refused"
    return answer.reading.watts


def plugs(rng: random.Random, _root: Path) -> Iterator[Try]:
    while True:
        kind = rng.choice(("shelly", "tasmota"))
        make = shelly if kind == "shelly" else tasmota
        watts = round(rng.uniform(0, 50), rng.randint(0, 4))
        body = make(watts)

        def ask(script: Script, kind: str = kind) -> object:
            with serving(script) as url:
                return watts_of(meter(kind=kind, url=url))

        for name, script in http_forms(body, rng):
            yield Try(f"{kind}, {name}", partial(ask, script), watts)
        for name, script in http_attacks(body, rng):
            yield Try(f"{kind}, {name}", partial(ask, script), "refused")
        for value in rng.sample(NO_WATTS, 8):
            text = make("@").replace(b'"@"', value.encode())
            right: object = 5.0 if (kind, value) == ("tasmota", "[5]") else "refused"
            yield Try(f"{kind}, {value[:20]}", partial(ask, sends(whole(text))), right)
        several = [round(rng.uniform(0, 9), 2) for _ in range(rng.randint(2, 4))]
        text = tasmota(several)
        channel = rng.choice((None, 1, len(several), len(several) + 1, "sum"))

        def ask_one(text: bytes = text, channel: object = channel) -> object:
            with serving(sends(whole(text))) as url:
                return watts_of(meter(kind="tasmota", url=url, channel=channel))

        of_channel = {1: several[0], len(several): several[-1], "sum": sum(several)}
        yield Try(f"channel {channel} of {several}", ask_one, of_channel.get(channel, "refused"))


def commands(rng: random.Random, _root: Path) -> Iterator[Try]:
    while True:
        watts = round(rng.uniform(0, 90), 3)
        good: tuple[str, ...] = (
            f"echo {watts}",
            f"printf ' {watts}\\n\\n'",
            f"echo noise >&2; echo {watts}",
        )
        good += (f"sleep 30 & echo {watts}",)
        for line in good:
            yield Try(line, partial(command, line), watts)
        noise = rng.randbytes(40).hex()
        bad = [
            *("yes", "yes >&2", "cat /dev/zero", "while :; do echo 1; done", "sleep 60", "true"),
            *(
                "trap '' TERM; while :; do sleep 1; done",
                f"echo {watts}; exit {rng.randint(1, 255)}",
            ),
            *(f"echo {watts}; kill -9 $$", f"echo {watts} watts", f"echo {watts}; echo {watts}"),
            *(
                f"printf '{watts}\\0'",
                f"echo {noise}",
                "head -c 10000000 /dev/urandom",
                "yes & yes",
            ),
            *(
                "(yes &) ; sleep 60",
                "echo é",
                "echo ٤",
                "echo 5,5",
                "echo 1e",
                "echo .",
                "echo --5",
            ),
        ]
        for line in bad:
            yield Try(line, partial(command, line), "refused")
        for value in rng.sample(
            [v for v in NO_WATTS if len(v) < 9000 and v not in {"+5", "05"}], 8
        ):
            yield Try(f"prints {value[:20]}", partial(command, f"echo '{value}'"), "refused")


def command(line: str) -> object:
    return watts_of(meter(kind="command", command=["sh", "-c", line]))


class TreeHost(LocalHost):
    """This machine's shell, with a folder in place of the kernel's files, and programs of ours."""

    def __init__(self, root: Path) -> None:
        super().__init__("kitchen")
        self._root = root

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        shown = command.replace("/sys/", f"{self._root}/sys/")
        path = f"PATH={self._root}/bin:$PATH; export PATH\n"
        return super().run(path + shown, stdin=stdin, timeout_s=timeout_s)


def tree(root: Path, files: dict[str, object]) -> TreeHost:
    folder = Path(tempfile.mkdtemp(dir=root))
    write_tree(folder, {f"sys/class/hwmon/{name}": content for name, content in files.items()})
    return TreeHost(folder)


def watts_in(root: Path, files: dict[str, object], chosen: PowerMeter) -> object:
    return watts_of(chosen, tree(root, files))


LONG = "x" * 1_000_000
NO_NUMBERS = ("", "-", "1.5", "0x10", "9" * 30, "-5", "true", "nan", "1 2", "٤", "1_0", LONG)


def sensors(rng: random.Random, root: Path) -> Iterator[Try]:
    while True:
        microwatts, volts, amperes = (rng.randint(0, 9_000_000), rng.randint(0, 20_000), 1500)
        one: dict[str, object] = {"hwmon0/name": "ina226", "hwmon0/power1_input": microwatts}
        product: dict[str, object] = {
            "hwmon0/name": "ina3221",
            "hwmon0/in1_input": volts,
            "hwmon0/curr1_input": amperes,
            "hwmon0/in1_label": "VDD",
            "hwmon0/curr1_label": "VDD",
        }
        other = {name.replace("hwmon0", "hwmon1"): content for name, content in one.items()}
        plain = meter(kind="hwmon", chip="ina226")
        labelled = meter(kind="hwmon", chip="ina3221", label="VDD")
        right: list[tuple[str, dict[str, object], PowerMeter, object]] = [
            ("a power", one, plain, microwatts / 1e6),
            ("a product", product, labelled, volts * amperes / 1e6),
            ("two chips of a name", one | other, plain, "refused"),
            (
                "volts of one, amperes of another",
                {
                    "hwmon0/name": "ina226",
                    "hwmon0/in1_input": volts,
                    "hwmon1/name": "ina226",
                    "hwmon1/curr1_input": amperes,
                },
                plain,
                "refused",
            ),
            (
                "two equal labels",
                product | {"hwmon0/in2_label": "VDD", "hwmon0/in2_input": 5},
                labelled,
                "refused",
            ),
            ("no such label", product, meter(kind="hwmon", chip="ina3221", label="VIN"), "refused"),
            (
                "one of two by its device",
                one | other,
                meter(kind="hwmon", chip="ina226", device="hwmon1"),
                microwatts / 1e6,
            ),
            (
                "the sum of both",
                one | other,
                meter(
                    kind="hwmon",
                    chip="ina226",
                    device="hwmon0",
                    plus=[{"chip": "ina226", "device": "hwmon1"}],
                ),
                2 * microwatts / 1e6,
            ),
            ("a name of 1 MB", {"hwmon0/name": LONG}, plain, "refused"),
            (
                "a chip's name with a star",
                {"hwmon0/name": "*", "hwmon0/power1_input": 5},
                plain,
                "refused",
            ),
            (
                "a folder in place of a file",
                {"hwmon0/name": "ina226", "hwmon0/power1_input/x": 5},
                plain,
                "refused",
            ),
        ]
        for value in NO_NUMBERS:
            changed = one | {"hwmon0/power1_input": value}
            right.append((f"a power of {value[:12]!r}", changed, plain, "refused"))
        for name, files, chosen, watts in right:
            yield Try(name, partial(watts_in, root, files, chosen), watts)
        yield from pmic(rng, root)


def pmic(rng: random.Random, root: Path) -> Iterator[Try]:
    rails = {f"RAIL{n}": (rng.uniform(0, 3), rng.uniform(0.5, 5)) for n in range(3)}
    currents = [f"  {n}_A current({i})={a:.8f}A\n" for i, (n, (a, _)) in enumerate(rails.items())]
    volts = [f"  {n}_V volt({i + 8})={v:.8f}V\n" for i, (n, (_, v)) in enumerate(rails.items())]
    text = "".join([*currents, *volts, "  EXT5V_V volt(24)=5.1V\n"])
    right = sum(round(a, 8) * round(v, 8) for a, v in rails.values())
    needed = len("".join([*currents, *volts])) - 1

    def ask(script: str) -> object:
        host = tree(root, {})
        write_tree(host._root, {"bin/vcgencmd": script})
        (host._root / "bin" / "vcgencmd").chmod(0o755)
        watts = watts_of(meter(kind="rpi-pmic"), host)
        return round(watts, 6) if isinstance(watts, float) else watts

    def printed(words: str) -> str:
        return f"#!/bin/sh\ncat <<'EOF'\n{words}\nEOF"

    yield Try("the rails", partial(ask, printed(text)), round(right, 6))
    for _ in range(6):
        cut = rng.randint(1, len(text) - 1)
        wanted: object = round(right, 6) if cut >= needed else "refused"
        yield Try(f"rails cut at {cut}", partial(ask, printed(text[:cut])), wanted)
    spoilt = (
        *(text + text, text.replace("A\n", "\n"), text.replace("=0", "=-0").replace("=1", "=-1")),
        *(text.replace(".", "..", 1), LONG, "error=2", "", rng.randbytes(500).hex()),
    )
    for words in spoilt:
        yield Try(f"rails {words[:20]!r}", partial(ask, printed(words)), "any")
    for line in ("yes", "cat /dev/zero", "sleep 60", "exit 3", "while :; do :; done"):
        yield Try(f"vcgencmd: {line}", partial(ask, f"#!/bin/sh\n{line}"), "refused")
