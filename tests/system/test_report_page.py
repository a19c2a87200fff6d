"""A run's page in a real browser that can reach no network."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from armload.bench.run import Run
from armload.report.page import write_report
from tests.unit.runs import failed_run, quick_run, storage_run

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")


def _opened(page: Path, profile: Path) -> tuple[str, list[str]]:
    """Return the page's elements after its script ran, and what it wrote on the console."""
    assert BROWSER is not None
    completed = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            f"--user-data-dir={profile}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    console = [line for line in completed.stderr.splitlines() if ":CONSOLE" in line]
    return completed.stdout, console


@pytest.mark.parametrize(
    "run", [quick_run(tokens=128), storage_run()], ids=["in memory", "from storage"]
)
def test_the_chart_is_drawn_without_a_network_or_a_complaint(run: Run, tmp_path: Path) -> None:
    page, _ = write_report(run, tmp_path)
    elements, console = _opened(page, tmp_path / "profile")
    assert console == []
    assert 'class="vega-embed' in elements
    drawn = elements[elements.index('class="vega-embed') :]
    assert drawn.count('aria-roledescription="point"') == len(run.tokens)


def test_a_page_of_a_failed_run_opens_without_a_complaint(tmp_path: Path) -> None:
    page, _ = write_report(failed_run(), tmp_path)
    elements, console = _opened(page, tmp_path / "profile")
    assert console == []
    assert "SIGILL" in elements


def test_the_policy_stops_what_got_into_the_page_all_the_same(tmp_path: Path) -> None:
    page, _ = write_report(quick_run(), tmp_path)
    intruder = '<script>document.title = "taken over"</script><img src="http://example.org/x.png">'
    page.write_text(page.read_text(encoding="utf-8").replace("</h1>", f"</h1>{intruder}"))
    elements, console = _opened(page, tmp_path / "profile")
    assert "<title>taken over" not in elements
    assert len([line for line in console if "Content Security Policy" in line]) == 2
