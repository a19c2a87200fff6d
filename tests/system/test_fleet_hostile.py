"""Nothing that a scheduler or a gateway sends runs here, or takes a command's memory and time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from armload.core.errors import ArmloadError, TransferError
from armload.core.progress import Silent
from armload.fleet import gateways
from armload.fleet.gateway import Gateway
from armload.fleet.gateways import Gateways
from armload.fleet.scheduler import scheduler_address
from tests.hostile_scheduler import PLACES, forms
from tests.hostile_worker import ATTACKS
from tests.labs import Lab

ROOT = Path(__file__).parents[2]
MOST_GROWTH_MB = 700
FORMS = tuple(forms(""))


@contextmanager
def serving(*words: str) -> Iterator[str]:
    """Start a module of the tests, and yield its first line."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def marker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marker") / "unpickled"


@pytest.fixture(scope="module")
def ports(marker: Path) -> Iterator[Mapping[str, int]]:
    with serving("tests.hostile_scheduler", str(marker)) as line:
        yield json.loads(line)


@pytest.fixture
def _brief(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gateways, "RETRY_FOR_S", 1.0)
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "one.yaml").write_text("extends: this-machine\n")
    monkeypatch.chdir(tmp_path)


def used(port: int) -> object:
    """Do what commands do with a scheduler; return the answer, or the error."""
    with closing(Gateways(scheduler_address(f"tcp://127.0.0.1:{port}"), Silent())) as there:
        try:
            worker = there.of("one", Silent(), within_s=0.3)
            with there.holding(["one"], Silent()):
                return there.call(worker.address, Gateway.begun, "one", "none")
        except ArmloadError as error:
            return error


def all_used(ports: Mapping[str, int], attacks: Sequence[str]) -> dict[str, object]:
    """Return what came of each attack; most of the time is spent waiting."""
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(used, [ports[attack] for attack in attacks])
        return dict(zip(attacks, answers, strict=True))


def check(answer: object, marker: Path, attack: str) -> None:
    assert not marker.exists(), f"{attack}: {marker.read_text()}"
    if isinstance(answer, ArmloadError):
        assert "\n" not in answer.message, attack
        assert len(answer.message) < 500, attack
    else:
        assert answer == "fine", attack


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.usefixtures("_brief")
def test_no_pickle_of_a_scheduler_is_read(ports: Mapping[str, int], marker: Path) -> None:
    once = {f"{place}: {FORMS[n % len(FORMS)]}" for n, place in enumerate(PLACES)}
    each = {f"{place}: {form}" for place in ("gather data", "event content") for form in FORMS}
    attacks = [*sorted(once | each), "honest"]
    answers = all_used(ports, attacks)
    for attack, answer in answers.items():
        check(answer, marker, attack)
    assert answers["honest"] == "fine"


@pytest.mark.exhaustive(covers=["armload/fleet"])
@pytest.mark.usefixtures("_brief")
@pytest.mark.parametrize("place", PLACES)
def test_no_pickle_in_any_form_and_place_is_read(
    place: str, ports: Mapping[str, int], marker: Path
) -> None:
    for attack, answer in all_used(ports, [f"{place}: {form}" for form in FORMS]).items():
        check(answer, marker, attack)


@pytest.mark.usefixtures("_brief")
def test_what_is_no_message_or_too_large_ends_the_connection(
    ports: Mapping[str, int], marker: Path
) -> None:
    before_mb = peak_mb()
    attacks = [name for name in ports if name.startswith(("at first", "as an answer"))]
    assert len(attacks) > 40
    for attack, answer in all_used(ports, attacks).items():
        assert isinstance(answer, ArmloadError), attack
        check(answer, marker, attack)
    assert peak_mb() - before_mb < MOST_GROWTH_MB


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("attack", ["greeting value: pickled", "worker: pickle family"])
@pytest.mark.exhaustive(covers=["armload/fleet", "tests/hostile_scheduler.py"])
def test_the_attacks_work_on_dasks_own_client(attack: str, tmp_path: Path) -> None:
    unpickled = tmp_path / "unpickled"
    with serving("tests.hostile_scheduler", str(unpickled)) as line:
        code = (
            "import sys; from distributed import Client\n"
            "client = Client(sys.argv[1], timeout=5)\nclient.scheduler_info()"
        )
        address = f"tcp://127.0.0.1:{json.loads(line)[attack]}"
        words = [sys.executable, "-c", code, address]
        subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert unpickled.exists()


@pytest.fixture
def lab(tmp_path: Path, marker: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "lab", {"hall": ("one",)})
    made.start_scheduler()
    try:
        with serving("tests.hostile_worker", made.address, str(marker)) as line:
            assert line == "offering\n"
            yield made
    finally:
        made.stop()


@pytest.mark.usefixtures("_brief")
def test_no_pickle_of_a_gateway_is_read(
    lab: Lab, marker: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers: dict[str, Any] = {}
    with closing(Gateways(scheduler_address(lab.address), Silent())) as there:
        worker = there.of("one", Silent())
        for attack in ATTACKS:
            try:
                answers[attack] = there.call(worker.address, Gateway.begun, attack)
            except ArmloadError as error:
                answers[attack] = error
            if attack == "returns 100 MB":  # which ends the connection for good
                there.close()
                there._refusals.clear()
    for attack, answer in answers.items():
        check(answer, marker, attack)
        if attack.startswith(("raises", "returns")):
            assert isinstance(answer, ArmloadError), attack
    assert isinstance(answers["raises"], TransferError)
    assert "printed" not in capfd.readouterr().out


def test_a_task_that_fails_is_an_error_in_one_line(lab: Lab, marker: Path) -> None:
    words = ("pull", "--board", "one", "--scheduler", lab.address)
    failed = lab.ann.types(*words, status=TransferError.exit_status)
    assert "which is never read here" in failed.stderr
    assert not marker.exists()
