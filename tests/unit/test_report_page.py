"""The chart and the page as text; what a browser makes of them is a system test."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from armload.analysis.run import Run
from armload.report.figures.over_time import (
    FROM_STORAGE,
    IN_MEMORY,
    LOOKS,
    PROMPT,
    tokens,
)
from armload.report.table import NewRun
from tests.command_line import share_charts
from tests.unit.pages import HOSTILE, Page
from tests.unit.runs import failed_run, quick_run, storage_run


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    cache = tmp_path_factory.mktemp("workspace") / "cache"
    share_charts(cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARMLOAD_CACHE", str(cache))
        yield


def _page(run: Run, folder: Path) -> str:
    return NewRun(run=run, folder=folder).files["page"].read_text(encoding="utf-8")


def _chart(run: Run) -> dict[str, Any]:
    figure = tokens(run)
    assert figure is not None
    return figure.specification


def _rows(run: Run) -> list[dict[str, object]]:
    rows = _chart(run)["datasets"]["steps"]
    assert isinstance(rows, list)
    return rows


def test_the_chart_holds_every_step_at_its_token() -> None:
    run = quick_run(tokens=5)
    rows = _rows(run)
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["kind"] for row in rows] == [PROMPT, *[IN_MEMORY] * 4]
    assert rows[0]["ms"] == pytest.approx(330 / 8)
    assert rows[1]["ms"] == pytest.approx(run.steps[1].duration_s * 1000)


def test_tokens_that_read_storage_are_told_apart() -> None:
    assert {row["kind"] for row in _rows(storage_run())} == {PROMPT, FROM_STORAGE}
    assert len(set(LOOKS.values())) == len(LOOKS)


def test_a_picture_lies_beside_the_page_of_a_run_with_tokens(tmp_path: Path) -> None:
    picture = NewRun(run=quick_run(), folder=tmp_path).files["picture"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_that_decoded_nothing_has_a_page_and_no_picture(tmp_path: Path) -> None:
    (tmp_path / "tokens.png").write_bytes(b"of an older armload: axes without a point")
    files = NewRun(run=failed_run(), folder=tmp_path).files
    assert [*files] == ["page"]
    text = files["page"].read_text(encoding="utf-8")
    assert "SIGILL" in text
    assert "tokens.png" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_picture_of_a_model_without_a_name_does_not_begin_with_a_comma() -> None:
    run = quick_run()
    nameless = run.model.model_copy(update={"name": "", "quantisation": ""})
    title = _chart(run.model_copy(update={"model": nameless}))["title"]
    assert title["subtitle"] == ["2026-11-21 02:15:00 UTC. Dashed: the median."]


def test_the_page_asks_for_nothing_but_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "odd name#1").write_text("")
    parsed = Page(_page(quick_run(), tmp_path))
    assert set(parsed.links) == {"./run.json", "./odd%20name%231", "./tokens.png"}


def test_the_command_copied_from_the_page_runs_the_same(tmp_path: Path) -> None:
    words = ["two  words", "it's", "$(false)", "a\nb", "", "<b>&amp;</b>", "\\"]
    run = quick_run().model_copy(update={"command": ("printf", "%s\\0", *words)})
    copied = Page(_page(run, tmp_path)).code
    said = subprocess.run(["sh", "-c", copied], capture_output=True, text=True, check=True).stdout
    assert said.split("\0") == [*words, ""]


def test_text_that_a_model_wrote_stays_text(tmp_path: Path) -> None:
    run = quick_run(text=HOSTILE, prompt=HOSTILE[::-1] + "<b>")
    run = run.model_copy(
        update={
            "command": (HOSTILE,),
            "model": run.model.model_copy(update={"name": HOSTILE}),
            "board": run.board.model_copy(update={"description": HOSTILE}),
        }
    )
    parsed = Page(_page(run, tmp_path))
    assert parsed.tags.count("script") == 2
    assert "img" not in parsed.tags
    assert "b" not in parsed.tags
    assert HOSTILE in "".join(parsed.words)
    assert shlex.split(parsed.code) == [HOSTILE]


def test_the_policy_lets_only_the_page_s_own_script_run(tmp_path: Path) -> None:
    text = _page(quick_run(), tmp_path)
    data, script = Page(text).scripts
    json.loads(data)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert f"script-src 'sha256-{digest}';" in policy[1].replace("&#39;", "'")


def test_writing_a_report_again_gives_the_same_page(tmp_path: Path) -> None:
    assert _page(quick_run(), tmp_path) == _page(quick_run(), tmp_path)


def test_a_kernel_s_version_may_break_at_its_plus_sign_and_steers_no_markup() -> None:
    from armload.report.pages import _breakable

    assert str(_breakable("6.12.117+deb13-cloud-arm64")) == "6.12.117+<wbr>deb13-cloud-arm64"
    assert str(_breakable("<b>1+1</b>")) == "&lt;b&gt;1+<wbr>1&lt;/b&gt;"
    assert str(_breakable("g++ 14, +5")) == "g++ 14, +5"
