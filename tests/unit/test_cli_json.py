"""``--json``: one document for each verb, whether it fails or not, as its schema says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from pydantic import BaseModel

from armload.analysis.repeats import NothingTimed, Precision
from armload.analysis.run import Run
from armload.boards.board import SshAddress, load_board
from armload.boards.boot import BootFacts
from armload.boards.contradictions import Contradiction
from armload.boards.power import PowerAnswer, PowerReading
from armload.boards.probe import parse_probe
from armload.boards.ssh_connection import ServerKey
from armload.boards.trust import PinnedKey
from armload.build.binary import Binary
from armload.cli.streams import show_document
from armload.cli.verb import VERBS
from armload.core import errors
from armload.core.errors import ArmloadError, BoardError
from armload.core.progress import Silent
from armload.core.values import ValueList, as_json
from armload.deploy.claims import Claim
from armload.deploy.clean import BoardItem, Cleaned
from armload.deploy.holder import this_process
from armload.deploy.rates import Missing
from armload.engines.plan import Plan
from armload.fleet.threads import TaskResult
from armload.models.shape import load_shape
from armload.models.synth import synthesise_like
from armload.report.boards import AddedBoard, ProbedBoard
from armload.report.exchange.document import results_of
from armload.report.exchange.excerpt import excerpt_of
from armload.report.failure import Failure
from armload.report.on_boards import (
    DeployedOnBoards,
    FetchedFromBoards,
    FetchedRuns,
    UnfetchedRun,
)
from armload.report.repeats import RepeatedRun, together_json
from armload.report.result import BoardOutcome
from armload.report.side_by_side import SweptBoards
from armload.report.sweep import SweptCells, cell_results, swept_cells
from armload.report.tuning.result import TunedOnBoards
from armload.runs import store
from armload.runs.fetch import Pulled
from armload.runs.placing import Deployed
from tests.command_line import BIN, failing_at, interrupted_at, typed
from tests.documents import document_of
from tests.unit.builds import unfinished_build
from tests.unit.runs import failed_run, quick_run
from tests.unit.samples import plan_cells, sweep_of
from tests.unit.tables import BINARIES
from tests.unit.test_boards_probe import core, output

ROOT = Path(__file__).parents[2]

EACH_LINE = """
import json, os, sys
from armload.cli.main import main
for line in sys.argv[1:]:
    sys.argv = ["armload", *line.split()]
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    sys.stdout.flush()
    os.write(1, f"\\0{status}\\0".encode())
"""

PRINTED = {
    "board.hardware": "board.hardware",
    "fit --hardware raspberry-pi-5-8gb,rock-5b-8gb --model m.gguf": "fit",
    "show": "show",
    "show latest": "show",
    "show latest-sweep": "show",
    "compare kitchen-a kitchen-b": "compare",
    "export kitchen-a": "export",
    "import results.json": "import",
    "build --list": "build",
    "inspect program": "inspect",
    "model.inspect m.gguf": "model.inspect",
    "model.synth --like stories260k": "model.synth",
    "board.list": "board.list",
    "board.down --board virtual": "board.down",
    "board.release --board here": "board.release",
    "service.list --board here": "service.list",
    "board.clean --board here --yes": "board.clean",
    "pull --board here": "pull",
    "clean --yes": "clean",
    "completion bash": "completion",
}

MISTAKEN = {
    "demo --board nowhere": 2,
    "init --host @ --yes": 2,
    "build --target nothing": 2,
    "trust nowhere": 2,
    "inspect": 2,
    "deploy --board nowhere": 2,
    "bench --n-predict many": 2,
    "watch": 2,
    "chat --board nowhere": 2,
    "fit --context many": 2,
    "fit --hardware nothing": 2,
    "eval --budget few": 2,
    "eval --task logits": 2,
    "tradeoff nothing": 2,
    "load --rate many": 2,
    "tune --for speed": 2,
    "bisect --good b1": 2,
    "serve --slots many": 2,
    "service.list --board nowhere": 2,
    "service.install --board nowhere": 2,
    "service.status --board nowhere": 2,
    "service.logs --board nowhere": 2,
    "service.stop --board here": 2,
    "service.restart --board here": 2,
    "service.update --board nowhere": 2,
    "service.rollback --board here": 2,
    "service.remove --board here": 2,
    "service.keys --board here": 2,
    "pull --board nowhere": 2,
    "show nothing": 2,
    "report nothing": 2,
    "compare nothing nothing": 2,
    "export nothing": 2,
    "import nothing": 2,
    "clean --what nothing": 2,
    "config bensh": 2,
    "completion tcsh": 2,
    "board.probe --board nowhere": 2,
    "board.add here --host a": 2,
    "board.trust": 2,
    "board.up --board here": 2,
    "board.down --board here": 2,
    "board.release": 2,
    "board.clean": 2,
    "model.inspect tasks.py": 3,
    "model.synth": 2,
    "model.quantize m.gguf --type Q4KM": 2,
    "model.convert": 2,
}

SWEEP = sweep_of(*plan_cells(Plan(threads=1)))
ON_BOARD = PurePosixPath("/data/local/tmp/armload/bin/0123456789ab/llama-completion")
FAILED = BoardError("b: no space.", "Free some.")
FAILURE = Failure.of(FAILED)
FAILED_ON_C = TaskResult[str, Any](item="c", board="c", outcome=FAILED)
DEPLOYED = TaskResult[str, Deployed](
    item="b", board="b", outcome=Deployed(program=ON_BOARD, model=ON_BOARD, sent=True)
)
PULLED = TaskResult[str, Pulled](
    item="b", board="b", outcome=Pulled(runs=(quick_run(),), lost={"b": FAILED})
)
KEY = ServerKey(host="b", port=22, line="ssh-ed25519 AAAA", fingerprint="SHA256:AAAA")
CLAIM = Claim(token="t", owner=this_process(), run="", held_s=None, left_s=3)
CONTRADICTION = Contradiction(fact="memory", declared="2.1 GB", found="1.0 GB")
PROBED = ProbedBoard(
    **dict(parse_probe(output(core(0) + core(1)), "b")),
    target_misfit="",
    rates_missing=Missing(memory="not measured", storage="not measured"),
    in_use_by=(CLAIM,),
    contradictions=(CONTRADICTION,),
    power=PowerAnswer(
        reading=PowerReading(watts=2.8, source="shelly at http://plug", sees="wall"), problem=""
    ),
    boot=BootFacts(init="systemd", usable=("systemd",), root="login", systemd_version=257),
)
ENTRY = BoardItem(
    name=PurePosixPath("runs/a"), kind="run", state="collected", size_bytes=None, used_days=None
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("person")
    (folder / "boards").mkdir()
    (folder / "boards" / "here.yaml").write_text(
        "description: 这台机器\ntarget: armv8-generic\nreach: {kind: local}\n"
        f"workdir: {folder / 'work'}\n"
    )
    for name in "ab":
        run = quick_run().model_copy(update={"id": f"20260101T000000Z-kitchen-{name}"})
        store.save(run, folder / "runs" / run.id)
    (folder / "results.json").write_text(as_json(results_of([excerpt_of(quick_run())])))
    (folder / "boards" / "there.yaml").write_text("extends: here\n")
    (folder / "sweeps" / SWEEP.id).mkdir(parents=True)
    (folder / "sweeps" / SWEEP.id / "sweep.json").write_text(as_json(SWEEP))
    (folder / "sweeps" / SWEEP.id / "journal.jsonl").touch()
    shape = load_shape("stories260k")
    synthesise_like(shape, folder / "m.gguf", file_type="Q8_0", seed=1, progress=Silent())
    unfinished_build(folder / "cache")
    shutil.copy(shutil.which("true") or "/bin/true", folder / "program")
    shutil.copy(ROOT / "tasks.py", folder)
    return folder


def swept_boards(errors: dict[str, BoardError | None]) -> SweptBoards:
    swept = swept_cells(SWEEP, cell_results(SWEEP, {0: [quick_run()]}, {}))
    return SweptBoards(
        boards=tuple(
            BoardOutcome[SweptCells].of(board, None if error else swept, error)
            for board, error in errors.items()
        ),
        notes=("b and c are declared identical.",),
    )


def repeated(runs: list[Run]) -> RepeatedRun:
    combined = together_json(SWEEP, runs, Precision(), NothingTimed())
    return RepeatedRun(**dict(runs[-1]), combined=combined)


def printed(folder: Path, *lines: str) -> list[tuple[str, int]]:
    """Give several commands with --json; return what each printed, and its exit status."""
    done = subprocess.run(
        [sys.executable, "-c", EACH_LINE, *(f"{line} --json" for line in lines)],
        cwd=folder,
        env=os.environ | {"ARMLOAD_CACHE": str(folder / "cache")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    *parts, rest = done.stdout.split("\0")
    assert (rest, len(parts)) == ("", 2 * len(lines)), done.stdout + done.stderr
    return [(text, int(status)) for text, status in zip(parts[::2], parts[1::2], strict=True)]


def test_every_document_is_as_its_schema_says(folder: Path) -> None:
    for (line, verb), (text, status) in zip(
        PRINTED.items(), printed(folder, *PRINTED), strict=True
    ):
        assert status == 0, (line, text)
        document_of(verb, text)
        if line == "board.list":
            assert "这台机器" in text


@pytest.mark.parametrize(
    ("verb", "value"),
    [
        *((verb, run) for verb in ("bench", "watch") for run in (quick_run(), failed_run())),
        *(
            (verb, repeated([run]))
            for verb in ("bench", "demo", "init")
            for run in (quick_run(), failed_run())
        ),
        ("bench", swept_cells(SWEEP, cell_results(SWEEP, {0: [quick_run()]}, {}))),
        ("bench", swept_cells(SWEEP, cell_results(SWEEP, {}, {0: "no space"}))),
        ("bench", swept_boards({"b": None, "c": FAILED})),
        ("build", ValueList[Binary](BINARIES)),
        ("deploy", DeployedOnBoards(outcomes=(DEPLOYED,), verified=False).document()),
        ("board.probe", PROBED),
        (
            "board.add",
            AddedBoard(
                board=load_board("dayu200"),
                path=Path("boards/dayu200.yaml"),
                device="",
                contradictions=(CONTRADICTION,),
            ),
        ),
        ("board.trust", PinnedKey(**dict(KEY), replaced_fingerprint=None)),
        ("board.up", SshAddress(host="127.0.0.1", port=2222, user="root", key=Path("key"))),
        ("pull", FetchedRuns(runs=("a",), failed=(UnfetchedRun(run="b", error=FAILURE),))),
        ("pull", FetchedFromBoards(outcomes=(PULLED, FAILED_ON_C)).document()),
        (
            "deploy",
            DeployedOnBoards(outcomes=(DEPLOYED, FAILED_ON_C), verified=False).document(),
        ),
        ("tune", TunedOnBoards(outcomes=(FAILED_ON_C, FAILED_ON_C)).document()),
        (
            "board.clean",
            Cleaned(
                removed=(ENTRY,), kept=(ENTRY.model_copy(update={"used_days": 1.5}),), freed_bytes=1
            ),
        ),
        ("board.release", ValueList[Claim]((CLAIM,))),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_what_a_board_is_needed_for_is_as_its_schema_says(
    verb: str, value: BaseModel, capsys: pytest.CaptureFixture[str]
) -> None:
    show_document(value)
    document_of(verb, capsys.readouterr().out)


def test_each_of_several_boards_that_failed_has_its_error_in_one_document(folder: Path) -> None:
    words = (
        "deploy",
        "--board",
        "here,there",
        "--model",
        "m.gguf",
        "--source",
        "nothing",
        "--json",
    )
    done = typed(folder, *words, cache=folder / "cache")
    assert done.returncode == 2, done.stderr
    told = {each["board"]: each for each in document_of("deploy", done.stdout, status=2)}
    for name in ("here", "there"):
        assert told[name]["result"] is None
        assert told[name]["error"]["kind"] == "usage"
        assert told[name]["error"]["message"] in " ".join(done.stderr.split())


def test_an_error_is_a_document_too_in_every_verb(folder: Path) -> None:
    for (line, expected), (text, status) in zip(
        MISTAKEN.items(), printed(folder, *MISTAKEN), strict=True
    ):
        assert status == expected, (line, text)
        error = document_of(line.split()[0], text, status=status)["error"]
        assert (error["exit_status"], bool(error["message"])) == (expected, True), line


def test_the_errors_above_are_those_of_every_verb_but_one_that_is_interrupted() -> None:
    having = {name for name, verb in VERBS.items() if "as_json" in verb.options.model_fields}
    assert {line.split()[0] for line in MISTAKEN} | {"board.list", "board.hardware"} == having


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "--no-such-option", "--json"], "There is no option '--no-such-option'."),
        (["-j", "bench", "-n"], "There is no option '-j'."),
        (["bench", "-j", "-n"], "--n-predict needs a value."),
        (["no-such-verb", "--json"], "There is no verb 'no-such-verb'."),
    ],
)
def test_a_command_line_that_makes_no_sense_is_answered_with_a_document(
    folder: Path, words: list[str], said: str
) -> None:
    done = typed(folder, *words)
    error = document_of("bench", done.stdout, status=done.returncode)["error"]
    assert (error["message"], error["exit_status"], done.returncode) == (said, 2, 2)
    assert done.stderr.startswith(f"error: {said}\n{error['remedy']}")
    assert typed(folder, "bench", "--no-such-option").stdout == ""


@pytest.mark.parametrize("face", ["armload", "invoke"])
def test_an_interruption_is_a_document(folder: Path, tmp_path: Path, face: str) -> None:
    done = subprocess.run(
        [str(BIN / face), "board.list", "--json"],
        cwd=folder,
        env=os.environ | interrupted_at("armload.report.boards", tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    error = document_of("board.list", done.stdout, status=130)["error"]
    assert error["kind"] == "interrupted"
    assert done.stderr == f"{error['message']}\n"


@pytest.mark.parametrize("face", ["armload", "invoke"])
def test_an_unexpected_exception_is_a_document_and_says_where_it_was_raised(
    folder: Path, tmp_path: Path, face: str
) -> None:
    done = subprocess.run(
        [str(BIN / face), "board.list", "--json"],
        cwd=folder,
        env=os.environ | failing_at("armload.report.boards", tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    error = document_of("board.list", done.stdout, status=1)["error"]
    assert (error["kind"], error["message"]) == ("fault", "Internal error: LookupError: a defect")
    assert done.stderr.startswith("Traceback")
    assert "LookupError: a defect\nerror: Internal error" in done.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("inspect", "program", "--target", "rk3568"), 5),
        (("model.inspect", "cut.gguf"), 3),
        (("clean",), 2),
    ],
)
def test_a_result_is_the_only_document_where_an_error_follows_it(
    folder: Path, tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    cut, cache = folder / "cut.gguf", tmp_path / "cache"
    cut.write_bytes((folder / "m.gguf").read_bytes()[:-1000])
    unfinished_build(cache)
    done = typed(folder, *words, "--json", cache=cache)
    assert done.returncode == status, done.stderr
    assert "error" not in document_of(words[0], done.stdout, status=status)
    assert done.stderr.count("error:") == 1


def test_a_run_that_failed_is_the_document_and_its_error_is_told_beside_it(
    folder: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from armload.cli.execution import run_verb\n"
        "from armload.cli.options import OutputOptions; from armload.cli.verb import verb\n"
        "from armload.report.table import NewRun\n"
        "from armload.runs import store\n"
        "@verb(OutputOptions)\n"
        "def shown(options):\n"
        "    folder = Path(sys.argv[1])\n"
        "    return NewRun(run=store.load(folder), folder=folder)\n"
        "try: run_verb(shown, {'as_json': True})\n"
        "except BaseException as end: sys.exit(end.code)\n"
    )
    run = failed_run()
    store.save(run, tmp_path / run.id)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / run.id)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 9, done.stderr
    assert document_of("bench", done.stdout, status=9)["exit"]["status"] == run.exit.status
    assert done.stderr.startswith(f"error: {run.board.name}: {run.exit.meaning}")


@pytest.mark.parametrize("face", ["armload", "invoke"])
def test_an_error_whose_document_cannot_be_written_keeps_its_status(
    folder: Path, face: str
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(BIN / face), "show", "--run", "nothing", "--json"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "'nothing'" in done.stderr


def test_a_name_that_is_no_utf_8_is_escaped(folder: Path) -> None:
    done = typed(folder, "inspect", os.fsdecode(b"no-\xff"), "--json")
    assert done.stdout.isascii()
    assert json.loads(done.stdout)["error"]["message"] == "There is no program 'no-\udcff'."


def test_every_kind_of_error_says_its_kind_and_keeps_its_status() -> None:
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, ArmloadError) and "kind" in vars(each)
    ]
    assert len({each.kind for each in kinds}) == len(kinds) == 17
    assert (FAILURE.kind, FAILURE.remedy, FAILURE.exit_status) == ("board", "Free some.", 7)
