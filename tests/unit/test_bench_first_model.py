"""Which model ``init`` proposes for a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.bench.first_model import first_models
from armload.boards.board import Board, SshReach, load_board
from armload.boards.specs import DeclaredSpecs
from armload.cli.verbs.init import InitOptions
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.find import header_of, published, resolve
from armload.models.outline import listed_models
from armload.models.published import PUBLISHED

REACH = SshReach(host="kitchen")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def offered(board: Board) -> list[str]:
    return [each.model for each in first_models(board, Plan())]


def test_every_published_model_is_one_that_fit_lists() -> None:
    listed = {name for name, _, _ in listed_models()}
    for name, (_, file_types) in PUBLISHED.items():
        assert {f"{name}:{each}" for each in file_types} <= listed


def test_a_model_that_fit_lists_is_called_by_that_name(tmp_path: Path) -> None:
    assert published("smollm2-135m:q4_1") == "smollm2"
    assert published("qwen2.5-0.5b:q4_0") == "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_0"
    assert header_of("qwen2.5-0.5b:Q4_0", Silent()) == header_of("like:qwen2.5-0.5b:Q4_0", Silent())
    with pytest.raises(UsageError, match="does not know where to download") as found:
        resolve("qwen2.5-7b:Q4_0", Silent())
    assert "like:qwen2.5-7b:Q4_0" in found.value.remedy
    with pytest.raises(UsageError, match="where to download") as found:
        resolve("gemma-3-1b:Q4_0", Silent())
    assert "Q4_K_M, Q8_0" in found.value.remedy
    assert "like:" not in found.value.remedy, "of which none can be made"
    (tmp_path / "qwen2.5-7b:Q4_0").write_bytes(b"")
    assert resolve("qwen2.5-7b:Q4_0", Silent()) == Path("qwen2.5-7b:Q4_0")


def test_what_fits_is_proposed_the_fastest_first() -> None:
    small = Board(name="small", hardware="raspberry-pi-4-1gb", reach=REACH)
    large = Board(name="large", hardware="raspberry-pi-5-8gb", reach=REACH)
    assert offered(small)[0] == "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_0"
    assert set(offered(small)) < set(offered(large))
    assert "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M" in offered(large)
    times = [each.prediction.token_s for each in first_models(large, Plan())]
    values = [each.value for each in times if each is not None]
    assert len(values) == len(times)
    assert values == sorted(values)


def test_a_board_whose_speed_is_unknown_is_proposed_the_smallest_first() -> None:
    board = Board(name="b", target="rk3568", reach=REACH, facts=DeclaredSpecs(memory=8 << 30))
    sizes = [each.size_bytes for each in first_models(board, Plan())]
    assert len(sizes) > 1
    assert sizes == sorted(sizes)


def test_nothing_is_proposed_for_an_emulated_board_or_one_too_small() -> None:
    assert offered(load_board("virtual")) == []
    tiny = Board(name="b", target="rk3568", reach=REACH, facts=DeclaredSpecs(memory=256 << 20))
    assert offered(tiny) == []


def test_a_user_may_come_before_the_host() -> None:
    reach = InitOptions(host="pi@kitchen").reach()
    assert (reach.user, reach.host) == ("pi", "kitchen")
    assert InitOptions(host="pi@kitchen", user="root").reach().user == "root"
    assert InitOptions(host="kitchen").reach().user is None
    with pytest.raises(UsageError, match="names no host"):
        InitOptions(host="pi@").reach()
