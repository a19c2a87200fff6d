"""Models and data sets from both hubs, fetched from a local server that answers as they do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.core.errors import ArmloadError, ConnectError, DataError, TransferError, UsageError
from armload.core.progress import ProgressStep, Silent
from armload.models.find_projector import find_projector, find_projector_header
from armload.models.gguf import read_model, read_outline
from armload.models.hub import fetch, fetch_data, fetch_header
from armload.models.hub_reference import NoSuchModelError
from armload.models.shape import load_shape
from armload.models.synth import header_like, synthesise
from tests.hubs import COMMIT, EXPIRED, SMALL_BYTES, TOKEN, HubStandIn
from tests.split import in_two_parts
from tests.unit.projectors import Keys, written_projector

TINY = load_shape("stories260k").model_copy(update={"feed_forward": 192})
REPO = "armload/tiny-GGUF"
HUBS = ("hf:", "ms:")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    synthesise(TINY, path, quantisation="Q8_0", seed=1, progress=Silent())
    content = path.read_bytes()
    assert len(content) > SMALL_BYTES
    return content


@pytest.fixture
def hub(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    for name in os.environ:
        if name.startswith(("HF_", "HUGGING", "MODELSCOPE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("armload.core.download._FIRST_PAUSE_S", 0.01)
    with HubStandIn().running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", running.address)
        running.repositories[REPO] = {
            "README.md": b"tiny",
            "q/tiny-Q4_K_M.gguf": model,
            "q/tiny-Q8_0.gguf": model,
            "mmproj-Q4_K_M.gguf": model,
        }
        yield running


class _Recorder:
    """Remembers what was shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bytes: list[float] = []

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        yield self

    def update(self, completed: float, **_more: object) -> None:
        self.bytes.append(completed)

    def say(self, text: str) -> None:
        self.lines.append(text)


def _kept_parts(tmp_path: Path) -> list[Path]:
    return [each for each in tmp_path.rglob("*.part") if each.is_file()]


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize(
    ("named", "file"),
    [
        ("", "tiny-Q4_K_M.gguf"),
        (":q8_0", "tiny-Q8_0.gguf"),
        ("/q/tiny-Q8_0.gguf", "tiny-Q8_0.gguf"),
        ("@v2:Q8_0", "tiny-Q8_0.gguf"),
    ],
)
def test_a_model_arrives_whole_under_its_name_and_its_progress_is_seen(
    hub: HubStandIn, model: bytes, prefix: str, named: str, file: str
) -> None:
    seen = _Recorder()
    path = fetch(f"{prefix}{REPO}{named}", seen)
    assert path.name == file
    assert path.read_bytes() == model
    assert seen.bytes[-1] == len(model)
    assert any(file in line for line in seen.lines)
    hub.starts.clear()
    assert fetch(f"{prefix}{REPO}{named}", Silent()) == path
    assert hub.starts == []


@pytest.mark.parametrize("prefix", HUBS)
def test_of_a_repositorys_projector_fit_takes_the_header_and_bench_the_file(
    hub: HubStandIn, tmp_path: Path, prefix: str
) -> None:
    files = hub.repositories[REPO]
    del files["mmproj-Q4_K_M.gguf"]
    reference = f"{prefix}{REPO}:Q8_0"
    header_path = fetch_header(reference, Silent())
    _, header = read_outline(header_path)
    assert find_projector_header("", reference, header_path, header, Silent()) is None
    width: Keys = {"vision.projection_dim": TINY.width}
    for name, changes in (
        ("mmproj-tiny-F16.gguf", {**width, "projector_type": "other"}),
        ("mmproj-tiny-Q8_0.gguf", {**width, "projector_type": "another"}),
    ):
        files[name] = written_projector(tmp_path / name, changes=changes).read_bytes()
    found = find_projector_header("", reference, header_path, header, Silent())
    assert found is not None
    assert (found[0].kind, found[0].sha256) == ("another", "")
    whole = find_projector("auto", reference, header_path, header, Silent())
    assert whole is not None
    assert (whole.path.name, whole.kind) == ("mmproj-tiny-Q8_0.gguf", "another")
    named = f"{prefix}{REPO}/mmproj-tiny-F16.gguf"
    other = find_projector(named, reference, header_path, header, Silent())
    assert other is not None
    assert (other.path.name, len(other.sha256)) == ("mmproj-tiny-F16.gguf", 64)


@pytest.mark.parametrize("prefix", HUBS)
def test_without_a_type_q8_0_stands_in_for_a_missing_q4_k_m_and_then_the_first(
    hub: HubStandIn, prefix: str, model: bytes
) -> None:
    files = hub.repositories[REPO]
    del files["q/tiny-Q4_K_M.gguf"]
    files["a-IQ2_M.gguf"] = model
    assert fetch(f"{prefix}{REPO}", Silent()).name == "tiny-Q8_0.gguf"
    del files["q/tiny-Q8_0.gguf"]
    assert fetch(f"{prefix}{REPO}", Silent()).name == "a-IQ2_M.gguf"


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize("named", [":Q5_K_M", "/tiny-Q5.gguf"])
def test_a_miss_lists_the_models_with_their_sizes(
    hub: HubStandIn, prefix: str, named: str, model: bytes
) -> None:
    with pytest.raises(NoSuchModelError) as caught:
        fetch(f"{prefix}{REPO}{named}", Silent())
    assert [each.path for each in caught.value.models] == ["q/tiny-Q4_K_M.gguf", "q/tiny-Q8_0.gguf"]
    assert caught.value.models[0].size_bytes == len(model)
    assert "q/tiny-Q8_0.gguf (" in caught.value.remedy
    assert "kB)" in caught.value.remedy or "MB)" in caught.value.remedy


@pytest.mark.parametrize("prefix", HUBS)
def test_a_checkpoint_is_named_as_one(hub: HubStandIn, prefix: str) -> None:
    hub.repositories[REPO] = {"config.json": b"{}", "model.safetensors": b"x"}
    with pytest.raises(NoSuchModelError, match=f"model.convert {prefix}{REPO}"):
        fetch(f"{prefix}{REPO}", Silent())


@pytest.mark.parametrize("prefix", HUBS)
def test_pieces_that_need_cat_are_refused_before_they_are_downloaded(
    hub: HubStandIn, prefix: str, model: bytes
) -> None:
    hub.repositories[REPO] = {f"big.gguf.part{number}of2": model for number in (1, 2)}
    with pytest.raises(UsageError) as caught:
        fetch(f"{prefix}{REPO}/big.gguf.part1of2", Silent())
    assert "cat big.gguf.part1of2 big.gguf.part2of2 > big.gguf" in caught.value.remedy
    with pytest.raises(NoSuchModelError, match="cat"):
        fetch(f"{prefix}{REPO}", Silent())
    assert hub.starts == []


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize("named", ["", ":Q8_0", "/q/parts-Q8_0-00001-of-00002.gguf"])
def test_all_parts_of_a_model_in_several_files_arrive(
    hub: HubStandIn, tmp_path: Path, prefix: str, named: str
) -> None:
    whole = tmp_path / "whole.gguf"
    synthesise(TINY, whole, quantisation="Q8_0", seed=1, progress=Silent())
    first = in_two_parts(whole, tmp_path)
    parts = sorted(tmp_path.glob("parts-*.gguf"))
    hub.repositories[REPO] = {
        f"q/{part.name.replace('parts', 'parts-Q8_0')}": part.read_bytes() for part in parts
    }
    outlined, _ = read_outline(fetch_header(f"{prefix}{REPO}{named}", Silent()))
    model = read_model(fetch(f"{prefix}{REPO}{named}", Silent()))
    assert len(model.parts) == 2
    assert model.sha256 == read_model(first).sha256
    assert outlined.size_bytes == model.size_bytes


@pytest.mark.parametrize("prefix", HUBS)
def test_only_the_header_of_a_large_model_is_downloaded_and_only_once(
    hub: HubStandIn, tmp_path: Path, prefix: str
) -> None:
    header = tmp_path / "header.gguf"
    header_like(load_shape("llama-3.1-8b"), header, file_type="Q2_K")
    hub.repositories[REPO] = {"large-Q2_K.gguf": header.read_bytes() + bytes(64_000_000)}
    path = fetch_header(f"{prefix}{REPO}:Q2_K", Silent())
    model, _ = read_outline(path)
    assert model.size_bytes > 3_000_000_000
    assert path.stat().st_size < 32_000_000
    hub.starts.clear()
    assert fetch_header(f"{prefix}{REPO}:Q2_K", Silent()) == path
    assert hub.starts == []


@pytest.mark.parametrize("prefix", HUBS)
def test_what_is_no_language_model_is_refused_by_its_header(
    hub: HubStandIn, tmp_path: Path, prefix: str
) -> None:
    hub.repositories[REPO] = {"large-Q4_K_M.gguf": b"PK" + bytes(8_000_000)}
    with pytest.raises(DataError, match=f"{REPO}/large-Q4_K_M.gguf: this is not a GGUF file"):
        fetch(f"{prefix}{REPO}", Silent())
    assert list(tmp_path.rglob("blobs/*")) == []


@pytest.mark.parametrize("prefix", HUBS)
def test_a_dropped_connection_is_resumed_where_it_dropped(
    hub: HubStandIn, model: bytes, prefix: str
) -> None:
    hub.faults = ["", "cut", "cut"]  # the first is the header
    assert fetch(f"{prefix}{REPO}", Silent()).read_bytes() == model
    of_header, first, second, third = hub.starts
    assert of_header == first == 0
    assert len(model) // 2 - (1 << 16) < second < third < len(model)


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize("fault", ["", "whole"])
def test_an_interrupted_command_is_resumed_by_the_next(
    hub: HubStandIn, model: bytes, prefix: str, tmp_path: Path, fault: str
) -> None:
    fetch_header(f"{prefix}{REPO}", Silent())
    hub.faults = ["cut", *["html"] * 9]
    with pytest.raises(ConnectError, match="web page"):
        fetch(f"{prefix}{REPO}", Silent())
    (begun,) = _kept_parts(tmp_path)
    have = begun.stat().st_size
    assert len(model) // 2 - (1 << 16) < have < len(model)
    hub.faults = [fault]
    assert fetch(f"{prefix}{REPO}", Silent()).read_bytes() == model
    assert hub.starts[-1] == have
    assert _kept_parts(tmp_path) == []


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("html", ConnectError, "answered with a web page instead of the file"),
        ("short", TransferError, "bytes, but"),
        ("damaged", TransferError, "has the checksum"),
    ],
)
def test_what_is_not_the_file_is_refused_and_leaves_nothing(
    hub: HubStandIn, prefix: str, fault: str, kind: type[ArmloadError], said: str, tmp_path: Path
) -> None:
    fetch_header(f"{prefix}{REPO}", Silent())
    hub.faults = [fault]
    with pytest.raises(kind, match=said) as caught:
        fetch(f"{prefix}{REPO}", Silent())
    assert f"{REPO}/q/tiny-Q4_K_M.gguf" in caught.value.message
    assert caught.value.remedy
    assert [each for each in tmp_path.rglob("blobs/*") if each.is_file()] == []


@pytest.mark.parametrize("prefix", HUBS)
def test_a_busy_hub_is_asked_again_after_the_time_that_it_says(
    hub: HubStandIn, prefix: str
) -> None:
    hub.busy, hub.retry_after = [429, 503], "0"
    seen = _Recorder()
    fetch_header(f"{prefix}{REPO}", seen)
    assert sum("is busy: trying again in 0 s" in line for line in seen.lines) == 2


@pytest.mark.parametrize("prefix", HUBS)
def test_a_hub_that_stays_busy_says_when_to_come_back(hub: HubStandIn, prefix: str) -> None:
    hub.busy, hub.retry_after = [429], "3600"
    with pytest.raises(ConnectError, match="refuses further requests for now") as caught:
        fetch_header(f"{prefix}{REPO}", Silent())
    assert "in 3600 s" in caught.value.remedy


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize("name", ["../../evil.gguf", "/etc/evil.gguf", "a/../b.gguf", "a\nb.gguf"])
def test_a_file_name_that_leads_elsewhere_ends_the_download(
    hub: HubStandIn, model: bytes, prefix: str, name: str, tmp_path: Path
) -> None:
    hub.repositories[REPO] = {name: model}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="is not a valid path in a repository"):
        fetch(f"{prefix}{REPO}", Silent())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize("listing", [b"<html>", b"[]", b'{"siblings": 1, "Data": null}', b"{}"])
def test_an_answer_that_is_no_list_is_named(hub: HubStandIn, prefix: str, listing: bytes) -> None:
    hub.listing = listing
    with pytest.raises(ConnectError, match="did not answer with a list of the files"):
        fetch(f"{prefix}{REPO}", Silent())


@pytest.mark.parametrize(
    ("prefix", "variable"), [("hf:", "HF_TOKEN"), ("ms:", "MODELSCOPE_API_TOKEN")]
)
def test_a_gated_repository_needs_a_token_which_no_other_server_sees(
    hub: HubStandIn, prefix: str, variable: str, monkeypatch: pytest.MonkeyPatch, model: bytes
) -> None:
    hub.gated.add(REPO)
    with pytest.raises(UsageError, match=f"Access to {REPO} on .* is restricted") as caught:
        fetch(f"{prefix}{REPO}", Silent())
    assert variable in caught.value.remedy
    monkeypatch.setenv(variable, TOKEN)
    assert fetch(f"{prefix}{REPO}", Silent()).read_bytes() == model
    assert hub.leaked == []


@pytest.mark.parametrize(
    ("prefix", "variable"), [("hf:", "HF_TOKEN"), ("ms:", "MODELSCOPE_API_TOKEN")]
)
def test_a_public_repository_is_read_without_a_token_that_has_expired(
    hub: HubStandIn, prefix: str, variable: str, monkeypatch: pytest.MonkeyPatch, model: bytes
) -> None:
    monkeypatch.setattr("armload.models.hub_refusals._refused", set())
    monkeypatch.setenv(variable, EXPIRED)
    shown = _Recorder()
    assert fetch(f"{prefix}{REPO}", shown).read_bytes() == model
    said = [line for line in shown.lines if "does not accept the token" in line]
    assert len(said) == 1
    assert variable in said[0]
    assert EXPIRED not in said[0]


@pytest.mark.parametrize("named", ["armload/nothing", REPO])
def test_an_expired_token_is_named_where_the_repository_may_need_one(
    hub: HubStandIn, named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("armload.models.hub_refusals._refused", set())
    hub.gated.add(REPO)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text(EXPIRED)
    with pytest.raises(UsageError) as caught:
        fetch(f"hf:{named}", Silent())
    if named == REPO:
        assert "restricted" in caught.value.message
    else:
        assert "token does" not in caught.value.message
        assert f"does not accept the token in {tmp_path}" in caught.value.remedy
        assert "hf auth login" in caught.value.remedy


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize("status", [401, 403, 407, 451])
def test_a_filter_on_the_way_is_not_taken_for_the_hub(
    hub: HubStandIn, prefix: str, status: int
) -> None:
    hub.filtered = status
    with pytest.raises(ConnectError, match=rf"127\.0\.0\.1 answers HTTP {status}") as caught:
        fetch(f"{prefix}{REPO}", Silent())
    assert "squid/6.6" in caught.value.message
    assert "proxy or firewall" in caught.value.message
    assert "restricted" not in caught.value.message


def test_the_hubs_own_reason_is_passed_on(hub: HubStandIn) -> None:
    hub.disabled.add(REPO)
    with pytest.raises(UsageError, match=r"refuses access to .*: Disabled by its owner"):
        fetch(f"hf:{REPO}", Silent())


def test_the_token_of_the_hubs_own_login_is_used(
    hub: HubStandIn, model: bytes, tmp_path: Path
) -> None:
    hub.gated.add(REPO)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text(f"{TOKEN}\n")
    assert fetch(f"hf:{REPO}", Silent()).read_bytes() == model


@pytest.mark.parametrize(
    ("prefix", "variable"), [("hf:", "HF_TOKEN"), ("ms:", "MODELSCOPE_API_TOKEN")]
)
def test_a_token_that_cannot_be_one_is_not_shown(
    hub: HubStandIn, prefix: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "secret\nX-Header: 1")
    with pytest.raises(UsageError, match="The token for the hub") as caught:
        fetch(f"{prefix}{REPO}", Silent())
    assert "secret" not in str(caught.value)
    assert hub.asked == []


@pytest.mark.parametrize("address", ["http://[", "ftp://mirror", "http://user:secret@["])
def test_a_malformed_address_of_a_mirror_is_named(
    hub: HubStandIn, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(ConnectError, match="address is malformed") as caught:
        fetch(f"hf:{REPO}", Silent())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("prefix", HUBS)
@pytest.mark.parametrize(
    ("named", "part"),
    [
        ("armload/nothing", "no repository armload/nothing"),
        (f"{REPO}@nowhere", "revision 'nowhere'"),
    ],
)
def test_what_the_hub_lacks_is_a_usage_error(
    hub: HubStandIn, prefix: str, named: str, part: str
) -> None:
    with pytest.raises(UsageError, match=part):
        fetch(f"{prefix}{named}", Silent())


def test_a_model_that_the_hubs_own_library_downloaded_is_not_downloaded_again(
    hub: HubStandIn, model: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "hub" / "models--armload--tiny-GGUF"
    place = folder / "snapshots" / COMMIT / "q" / "tiny-Q4_K_M.gguf"
    place.parent.mkdir(parents=True)
    place.write_bytes(model)
    assert fetch(f"hf:{REPO}", Silent()) == place
    assert hub.starts == []


def test_a_file_of_a_data_set_arrives_whole(hub: HubStandIn) -> None:
    hub.repositories[REPO]["data/test.jsonl"] = bytes(SMALL_BYTES * 2)
    path = fetch_data(f"hf:{REPO}/data/test.jsonl", Silent())
    assert path.read_bytes() == bytes(SMALL_BYTES * 2)
    with pytest.raises(UsageError, match=r"has no file absent\.jsonl"):
        fetch_data(f"hf:{REPO}/absent.jsonl", Silent())


@pytest.mark.parametrize("prefix", HUBS)
def test_a_downloaded_model_needs_no_network(
    hub: HubStandIn, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch(f"{prefix}{REPO}", Silent())
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    assert fetch(f"{prefix}{REPO}", Silent()) == path
    with pytest.raises(ConnectError, match=r"Cannot reach 127\.0\.0\.1:9 .*[Cc]onnection refused"):
        fetch(f"{prefix}{REPO}:Q8_0", Silent())


def test_offline_means_that_nobody_is_asked(
    hub: HubStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch(f"hf:{REPO}", Silent())
    hub.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch(f"hf:{REPO}", Silent()) == path
    with pytest.raises(ConnectError, match="HF_HUB_OFFLINE"):
        fetch("hf:armload/other", Silent())
    assert hub.asked == []


ON_A_FULL_DISK = 'mount -t tmpfs -o size=100k none "$HF_HOME" && exec "$@"'
PROGRAM = """
import json, sys
from armload.core.errors import ArmloadError
from armload.core.progress import Silent
from armload.models.hub import fetch_data

try:
    fetch_data(sys.argv[1], Silent())
except ArmloadError as error:
    print(json.dumps({"kind": type(error).__name__, "message": error.message}))
"""


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    asked = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _may_mount(), reason="no disk of its own can be mounted for the test")
def test_a_full_disk_is_named_before_anything_is_downloaded(
    hub: HubStandIn, tmp_path: Path
) -> None:
    hub.repositories[REPO]["data.bin"] = bytes(300_000)
    (tmp_path / "home").mkdir()
    mounted = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", ON_A_FULL_DISK, "-")
    done = subprocess.run(
        [*mounted, sys.executable, "-c", PROGRAM, f"hf:{REPO}/data.bin"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert answer["kind"] == "DiskError"
    assert "300.0 kB must be downloaded" in answer["message"]
    assert hub.starts == []


def test_a_small_file_is_kept_under_gits_name_of_it(hub: HubStandIn) -> None:
    content = b"tiny"
    path = fetch_data(f"hf:{REPO}/README.md", Silent())
    name = hashlib.sha1(b"blob 4\0" + content, usedforsecurity=False).hexdigest()
    assert path.resolve().name == name
