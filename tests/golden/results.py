"""What verbs print of what they do on a board, which recorded results stand in for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, TypeVar

from pydantic import TypeAdapter

from armload.analysis.repeats import (
    DisturbedInARow,
    NotFinished,
    NothingTimed,
    NotRepeatable,
    OutOfTime,
    PrecisionReached,
)
from armload.bench.fitting import Fit
from armload.bench.sweep import SweepFolder
from armload.boards.board import SshAddress, load_board
from armload.boards.boot import BootFacts, UnusableInit
from armload.boards.contradictions import Contradiction
from armload.boards.power import PowerAnswer
from armload.boards.probe import Probe
from armload.boards.ssh_connection import ServerKey
from armload.build.binary import Binary
from armload.build.inspection import Inspection
from armload.conversion.checkpoints.converting import Converted
from armload.core.errors import BoardError, RunError
from armload.core.workspace import runs_folder
from armload.deploy.claims import Claim
from armload.deploy.clean import Cleaned
from armload.deploy.rates import Missing
from armload.engines.job import SweepPoint
from armload.evaluation.harness.evaluating import HarnessResult
from armload.evaluation.quantising import QuantisedModel
from armload.fleet.bisect import BisectionFolder
from armload.models.model import Model
from armload.models.model_summary import ModelSummary
from armload.models.projector import Projector
from armload.report.boards import AddedBoard
from armload.report.services import ServedModel
from armload.runs import store
from armload.runs.fetch import Pulled
from armload.runs.placing import Deployed
from armload.services.certificate import Certificate, TlsFiles
from armload.services.listing import ListedService
from armload.services.managing import (
    ChangedService,
    RenewedCertificate,
    ServiceKeys,
    StoppedService,
)
from armload.services.setting_up import InstalledService
from armload.services.status import BoardStatus
from armload.services.switching import RolledBack
from armload.services.updating import UpdatedService
from armload.serving.chat import Reply
from armload.serving.dialects.openai import OpenAiChat
from armload.serving.target import LoadTarget
from armload.tuning.record import TuningFolder
from tests.golden.sandbox import RECORDED

Read = TypeVar("Read")

StandIns = Mapping[str, object]
"""What is done instead of functions, by their dotted names."""

FULL = BoardError("cellar: no space left on the device.", "Free some: armload board.clean")


def value(name: str, kind: type[Read]) -> Read:
    """Return a recorded value."""
    content = (RECORDED / "values" / f"{name}.json").read_bytes()
    return TypeAdapter(kind).validate_json(content)


def returning(result: object) -> Callable[..., object]:
    return lambda *_, **__: result


def reading(name: str, kind: type[Read]) -> Callable[..., object]:
    return lambda *_, **__: value(name, kind)


def failing(error: BaseException) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def _run(name: str) -> Callable[..., object]:
    def ran(*_: object, **__: object) -> tuple[object, Path]:
        run = store.load(store.find(name))
        return run, runs_folder() / run.id

    return ran


def _repeated(
    request: Any, *_: object, stop: object = PrecisionReached(), **more: Any
) -> tuple[object, ...]:
    if request.board == "pair":
        raise FULL
    own = "repeats-cellar-ce11" if request.board == "cellar" else "repeats-kitchen-a11a"
    folder = SweepFolder.find(own)
    runs = folder.results()[0][0]
    if heard := more.get("heard"):
        heard(runs[0].text)
    more.get("begun", returning(None))(folder)
    for number in range(1, len(runs) + 1):
        more["report"](runs[:number])
    return folder, runs, stop


def _swept(_request: object, _cells: object, _progress: object, **more: Any) -> SweepFolder:
    folder = SweepFolder.find("sweep-kitchen-5eed")
    more["begun"](folder)
    for entry in folder.entries:
        place = SweepPoint(sweep=folder.sweep.id, cell=entry.cell, round=entry.round)
        ended = store.load(runs_folder() / entry.run) if entry.run else BoardError(entry.error)
        more["report"](place, ended)
    return folder


def _shared(request: Any, boards: Sequence[str], *_: object, **more: Any) -> tuple[object, object]:
    report = more.pop("report")
    folder = _swept(request, (), (), report=partial(report, boards[0]), begun=more["begun"])
    return folder, {boards[1]: FULL}


def _tuned(request: Any, *_: object, **more: Any) -> TuningFolder:
    names = {"kitchen": "tune-kitchen-ef2d", "cellar": "tune-kitchen-e7f6"}
    tuned = TuningFolder.find(names[request.board])
    more["begun"](tuned)
    for entry in tuned.entries:
        more["report"](entry, SimpleNamespace(leader=None))
    return tuned


def _bisected(*_: object, **more: Any) -> BisectionFolder:
    folder = BisectionFolder.find("bisect-kitchen-ab12")
    more["begun"](folder)
    for judged in folder.header.result.judged:
        more["said"](judged, folder.header.titles[judged.commit])
    return folder


def _reached(**functions: Callable[..., object]) -> Callable[..., object]:
    return lambda *_, **__: nullcontext(SimpleNamespace(**functions))


def _pulled(lost: Mapping[str, BoardError]) -> Callable[..., object]:
    def pull(board: str, *_: object, **__: object) -> Pulled:
        if board == "cellar":
            raise FULL
        runs = tuple(store.load(store.find(name)) for name in ("0001", "0003"))
        return Pulled(runs=runs, lost=lost)

    return pull


def _opened(request: Any, *_: object, **__: object) -> AbstractContextManager[SimpleNamespace]:
    def deploy(*_: object, **__: object) -> Deployed:
        if request.board == "cellar":
            raise FULL
        place = PurePosixPath("/data/armload")
        return Deployed(
            program=place / "bin" / "555555555555" / "llama-completion",
            model=place / "models" / "aaaaaaaaaaaa" / "m.gguf",
            program_link=place / "bin" / "llama-completion",
            model_link=place / "models" / "m.gguf",
            sent=True,
        )

    return nullcontext(SimpleNamespace(deploy=deploy))


def _fitted(request: Any, *_: object, **__: object) -> Fit:
    return value("fit", Fit).model_copy(update={"board": request.board})


def _listed(board: Any, *_: object) -> tuple[ListedService, ...]:
    every = value("listed-services", tuple[ListedService, ...])
    return tuple(each for each in every if each.board == board.name)


def _status(board: Any, *_: object, **__: object) -> BoardStatus:
    every = value("board-status", tuple[BoardStatus, ...])
    return next(each for each in every if each.board == board.name)


def _stopped(kind: Any, name: str, folder: Path | None = None) -> Callable[..., object]:
    return returning(
        StoppedService(board="kitchen", name=name, kind=kind, models="small.gguf", folder=folder)
    )


_CERTIFICATE = Certificate(
    names=("llm.example.org", "192.168.1.20"),
    begins_utc="2026-11-01T00:00:00+00:00",
    ends_utc="2027-01-30T00:00:00+00:00",
    sha256="5e" * 32,
)
_TLS = {
    "armload.services.certificate.read_tls_files": returning(
        TlsFiles(certificate=_CERTIFICATE, pem="")
    )
}


def _installed_with_tls(*_: object, **__: object) -> InstalledService:
    done = value("installed", InstalledService)
    listening = done.record.listening.model_copy(update={"port": 8443, "with_tls": True})
    record = done.record.model_copy(update={"listening": listening})
    return done.model_copy(update={"record": record, "certificate": _CERTIFICATE})


def _changed(done: Any) -> Callable[..., object]:
    return returning(ChangedService(board="kitchen", name="tutor", done=done, version="v"))


def _cleaned(*_: object, agreed: Callable[..., bool], **__: object) -> Cleaned:
    done = value("cleaned", Cleaned)
    agreed(done.removed)
    return done


STOPS = (
    NotRepeatable(reason="The text ends in a loop."),
    NotFinished(reason="interrupted: the board restarted during the run"),
    NothingTimed(),
    DisturbedInARow(runs=3, reason="Throttled."),
    OutOfTime(
        more_runs=5,
        run_s=12.5,
        allowed_s=60.0,
        needed_s=140,
        runs=6,
        disturbed=1,
        reason="Throttled.",
        is_storage_limited=False,
        within=0.08,
    ),
)
KEY = ServerKey(host="kitchen.example", port=22, line="ssh-ed25519 AAAA", fingerprint="SHA256:AAAA")
CONTRADICTION = Contradiction(fact="memory", declared="2.1 GB", found="1.0 GB")
HOST = SimpleNamespace(close=returning(None))
CLOSED = {"armload.boards.connect.connect": returning(HOST)}
ANY_MODEL = {"armload.models.find.model_called": reading("model", Model)}
PROBED = {
    **CLOSED,
    "armload.boards.probe.probe": reading("probe", Probe),
    "armload.boards.boot.boot_facts": returning(BootFacts(init="tini")),
    "armload.boards.power.try_read_power": reading("power", PowerAnswer),
}
BOOT = BootFacts(
    init="systemd",
    usable=("systemd-user", "cron"),
    unusable=(UnusableInit(name="systemd", reason="this login is not root", remedy=""),),
    systemd_version=257,
    lingering=True,
)


def _added(*_: object) -> AddedBoard:
    return AddedBoard(
        board=load_board("kitchen"),
        path=Path("boards/kitchen.yaml"),
        device="Rock 5B",
        contradictions=(CONTRADICTION,),
    )


@contextmanager
def _served(*_: object, **__: object) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(
        url="http://127.0.0.1:8080", api_key="", model="llama-3.2-1b-q4_0.gguf", kept=None
    )


def _talking(error: RunError | None) -> StandIns:
    reply = Reply(
        answer="Air scatters blue light most.",
        thoughts="Rayleigh.",
        outcome="dropped" if error else "ok",
        error="the connection ended" if error else "",
        finish_reason="" if error else "stop",
        prompt_tokens=24,
        cached_tokens=0,
        generated_tokens=9,
        context_tokens=2048,
        ttft_s=0.81,
        decode_tps=12.3,
    )

    def ask(_question: object, hear: Callable[[bool, str], None]) -> tuple[Reply, object]:
        for is_thought, text in ((True, reply.thoughts), (False, reply.answer)):
            hear(is_thought, text)
        return reply, error

    known = LoadTarget(
        url="http://127.0.0.1:8080",
        api_key="",
        model="llama-3.2-1b-q4_0.gguf",
        dialect=OpenAiChat(),
        board="kitchen",
    )
    partner = SimpleNamespace(target=known, place="kitchen")
    return {
        "armload.cli.verbs.chat._read_question": returning("Why is the sky blue?"),
        "armload.cli.verbs.chat._partner": returning(nullcontext(partner)),
        "armload.serving.chat.Chat": returning(SimpleNamespace(partner=partner, ask=ask)),
    }


QUANTISED = {
    **ANY_MODEL,
    "armload.evaluation.quantising.quantise": lambda *_, **__: [
        SimpleNamespace(path=Path(each.path), each=each)
        for each in value("quantised", tuple[QuantisedModel, ...])
    ],
    "armload.evaluation.quantising._divergences": returning({}),
    "armload.evaluation.quantising._described": lambda found, *_: found.each,
    "armload.evaluation.quantising.fit": returning(SimpleNamespace(models=(None, None))),
}
BENCHED = {
    "armload.cli.verbs.bench.models_in": returning([]),
    "armload.bench.sweeping.combinations": returning([None]),
    "armload.bench.board.repeat_until_known": _repeated,
    "armload.bench.sweeping.run_sweep": _swept,
    "armload.fleet.sharing.share_sweep": _shared,
}
LOGITS = {
    **ANY_MODEL,
    "armload.evaluation.logits.computing.compute_logits": lambda *_, **__: Path("logits/a"),
    "armload.evaluation.logits.rows.logits_called": lambda _: _logits("logits/b"),
}


def _similarity(*_: object, **__: object) -> object:
    from armload.evaluation.similarity import JudgedPair, Similarity, read_pairs, spearman

    pairs = tuple(
        JudgedPair(**dict(pair), similarity=0.4 + 0.1 * (pair.score or 0) + number / 1000)
        for number, pair in enumerate(read_pairs("")[::4])
    )
    return Similarity(
        run="20261120T101500Z-kitchen-m-0001",
        model="m.gguf",
        dimensions=384,
        spearman=spearman(pairs),
        pairs=pairs,
    )


def _logits(folder: str) -> object:
    from armload.evaluation.logits.rows import logits_of_run

    return logits_of_run(Path(folder))


DONE: Mapping[str, StandIns] = {
    **{
        f"bench --board kitchen --repeats 1 --engine-args {run}": {
            **BENCHED,
            "armload.bench.board.run_once": _run(run),
        }
        for run in ("0001", "0002", "0003", "0004", "0009", "000b", "000e", "0011", "5bf8")
    },
    **{
        f"bench --board kitchen --precision {number}%": {
            **BENCHED,
            "armload.bench.board.repeat_until_known": partial(_repeated, stop=stop),
        }
        for number, stop in enumerate(STOPS, start=1)
    },
    "bench --board kitchen": BENCHED,
    "bench --board kitchen --threads 1,2,4": BENCHED,
    "bench --board kitchen,cellar": BENCHED,
    "bench --board kitchen,cellar --threads 1,2,4": BENCHED,
    "bench --board kitchen,cellar --threads 1,2,4 --share": BENCHED,
    "demo --board kitchen": {
        **BENCHED,
        **ANY_MODEL,
        "armload.bench.combination.combination": returning(
            SimpleNamespace(plan=SimpleNamespace(prompt="Once"))
        ),
    },
    "tune --board kitchen": {"armload.tuning.tune.tune": _tuned, **ANY_MODEL},
    "tune --board kitchen,cellar": {"armload.tuning.tune.tune": _tuned, **ANY_MODEL},
    "bisect --board kitchen --good 0 --bad 16": {"armload.fleet.bisect.bisect": _bisected},
    "eval --board kitchen --model m.gguf --task logits --data prompts.txt": LOGITS,
    "eval --board kitchen --model m.gguf --task logits --data prompts.txt --reference b": LOGITS,
    "eval --board kitchen --model m.gguf --task logits --data prompts.txt --reference b "
    "--fail-unless-close": LOGITS,
    "eval --board kitchen --model m.gguf --task similarity": {
        **ANY_MODEL,
        "armload.evaluation.similarity.judge_similarity": _similarity,
    },
    "eval --board kitchen --model m.gguf --task lm-eval:piqa,lambada": {
        **ANY_MODEL,
        "armload.evaluation.harness.evaluating.evaluate_with_harness": reading(
            "harness", HarnessResult
        ),
    },
    "eval --regrade eval-sums-6b86 --grader number": {},
    "eval --regrade eval-sums-6b86 --grader boxed,number": {},
    "model.quantize m.gguf --type Q4_K_M,Q2_K": QUANTISED,
    "model.quantize m.gguf --type Q4_K_M,Q2_K --board kitchen": QUANTISED,
    "model.inspect m.gguf": {
        "armload.models.find.resolve": returning(Path("m.gguf")),
        "armload.models.gguf.read_model_summary": reading("summary", ModelSummary),
        "armload.models.header.check_whole": returning(None),
    },
    "model.inspect mmproj-m.gguf": {
        "armload.models.find.resolve": returning(Path("mmproj-m.gguf")),
        "armload.models.projector.is_projector_file": returning(object()),
        "armload.models.projector.read_projector": reading("projector", Projector),
        "armload.models.header.check_whole": returning(None),
    },
    "model.synth --like stories260k --type Q8_0": {
        "armload.models.synth.synthesise_like": returning(None),
        "armload.models.gguf.read_model_summary": reading("summary", ModelSummary),
    },
    "model.convert tiny": {
        "armload.cli.verbs.model._found": returning(SimpleNamespace(name="tiny", dtype="bfloat16")),
        "armload.conversion.checkpoints.converting.convert": reading("converted", Converted),
    },
    "model.convert seeing": {
        "armload.cli.verbs.model._found": returning(SimpleNamespace(name="seeing", dtype="F32")),
        "armload.conversion.checkpoints.converting.convert": reading("converted-seeing", Converted),
    },
    "build --target rk3568": {
        "armload.build.builder.build": reading("binaries", list[Binary]),
        "armload.build.source.choose": returning(None),
        "armload.buildhost.remote.build_backend": returning(nullcontext()),
    },
    "inspect llama-completion": {
        "armload.build.inspection.inspect": reading("inspection", Inspection),
        "armload.build.record.with_build_record": lambda found: found,
    },
    "inspect llama-completion --target rk3568": {
        "armload.build.inspection.inspect": reading("inspection", Inspection),
        "armload.build.record.with_build_record": lambda found: found,
    },
    "deploy --board kitchen --model m.gguf": {
        **ANY_MODEL,
        "armload.fleet.reach.boards_reached": _reached(open=_opened),
    },
    "deploy --board kitchen,cellar --model m.gguf": {
        **ANY_MODEL,
        "armload.fleet.reach.boards_reached": _reached(open=_opened),
    },
    "pull --board kitchen": {
        "armload.fleet.reach.boards_reached": _reached(pull=_pulled({"20261121T0-kitchen": FULL}))
    },
    "pull --board kitchen,cellar": {
        "armload.fleet.reach.boards_reached": _reached(pull=_pulled({}))
    },
    "fit --board kitchen": {"armload.bench.fitting.fit": _fitted},
    "fit --board kitchen --model small.gguf": {"armload.bench.fitting.fit": _fitted},
    "fit --board kitchen,cellar --model small.gguf": {"armload.bench.fitting.fit": _fitted},
    "serve --board kitchen --detach": {
        "armload.serving.starting.served": _served,
        "armload.report.services.ServedModel": SimpleNamespace(of=reading("served", ServedModel)),
        "armload.serving.tokenizer.ServiceApi": lambda *_: SimpleNamespace(
            lacks_chat_template=returning(1)
        ),
    },
    "chat --board kitchen": _talking(None),
    "chat --board kitchen --system cut": _talking(
        RunError("kitchen did not finish its answer: the connection ended.", "Ask again.")
    ),
    "service.install --board kitchen --model small.gguf --name tutor": {
        "armload.services.setting_up.install": reading("installed", InstalledService),
    },
    "service.install --board kitchen --model small.gguf --name tutor --listen eth0:8443 "
    "--tls-certificate chain.pem --tls-key private.key": {
        **_TLS,
        "armload.services.setting_up.install": _installed_with_tls,
    },
    "service.list --board kitchen,cellar": {"armload.services.listing.services_of": _listed},
    "service.list --board kitchen": {"armload.services.listing.services_of": returning(())},
    "service.status --board kitchen,cellar": {"armload.services.status.board_status": _status},
    "service.logs --board kitchen": {
        "armload.services.managing.recent_log": returning(("model loaded\nlistening\n", "tutor"))
    },
    "service.stop --board kitchen": {
        "armload.services.managing.stop_any": _stopped("command", "0001", Path("runs/0001"))
    },
    "service.stop --board kitchen --name tutor": {
        "armload.services.managing.stop_any": _stopped("installed", "tutor")
    },
    "service.restart --board kitchen": {"armload.services.managing.restart": _changed("restarted")},
    "service.update --board kitchen --slots 2": {
        "armload.services.updating.update": reading("updated", UpdatedService),
    },
    "service.update --board kitchen --tls-certificate chain.pem --tls-key private.key": {
        **_TLS,
        "armload.services.managing.renew_certificate": returning(
            RenewedCertificate(
                board="kitchen",
                name="tutor",
                url="https://192.168.1.20:8443",
                certificate=_CERTIFICATE,
                notes=("The certificate is self-signed.",),
            )
        ),
    },
    "service.rollback --board kitchen": {
        "armload.services.switching.roll_back": returning(
            RolledBack(
                board="kitchen",
                name="tutor",
                version="20261128T101500Z-1a2b",
                former="20261129T002757Z-0948",
                models="small",
                silent_s=3.21,
            )
        )
    },
    "service.remove --board kitchen": {"armload.services.managing.remove": _changed("removed")},
    "service.keys --board kitchen --add laptop": {
        "armload.services.managing.change_keys": returning(
            ServiceKeys(board="kitchen", name="tutor", names=("first", "laptop"), added="k3y")
        )
    },
    "board.probe --board kitchen": {
        **PROBED,
        "armload.deploy.claims.claims": lambda *_: (value("claim", Claim),),
    },
    "board.probe --board cellar": {
        **PROBED,
        "armload.boards.boot.boot_facts": returning(BOOT),
        "armload.deploy.claims.claims": returning(()),
        "armload.deploy.rates.measure": lambda _host, _board, found, *_: (
            found.rates,
            Missing.of(found.rates, FULL.message.rstrip(".")),
        ),
    },
    "board.trust --board kitchen": {
        "armload.cli.verbs.board.pin_host_key": lambda *_, **__: (Path("known"), KEY, None)
    },
    "board.add attic --host attic.example": {"armload.cli.new_board.add_board": _added},
    "board.up --board kitchen": {
        "armload.boards.connect.start": returning(
            SshAddress(host="127.0.0.1", port=2222, user="root", key=Path("key"))
        )
    },
    "board.down --board virtual --yes": {"armload.boards.connect.stop": returning(1)},
    "board.down --board virtual": {
        "armload.boards.connect.stop": returning(0),
        "armload.boards.connect.running_hosts": returning(()),
    },
    "board.release --board kitchen": {
        **CLOSED,
        "armload.boards.connect.is_off": returning(0),
        "armload.deploy.claims.release": lambda *_, **__: (value("claim", Claim),),
    },
    "board.release --board cellar": {"armload.boards.connect.is_off": returning(1)},
    "board.clean --board kitchen": {"armload.deploy.clean.clean": _cleaned},
    "board.clean --board kitchen --yes": {"armload.deploy.clean.clean": _cleaned},
}
"""Commands, and what stands in for the board."""
