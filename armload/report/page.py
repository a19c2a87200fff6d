"""One run as a page that opens anywhere, without a network."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from armload.bench.run import Run, Step
from armload.core.files import write_whole
from armload.core.workspace import cache_folder
from armload.report import chart, words

PAGE_NAME, PICTURE_NAME = "report.html", "tokens.png"
TEMPLATE_NAME = "page.html.j2"
SLOWEST_SHOWN = 5

_DRAW = """
(() => {
  const holder = document.getElementById("chart");
  const still = holder.innerHTML;
  const specification = JSON.parse(document.getElementById("specification").textContent);
  delete specification.title;
  specification.width = "container";
  if (holder.clientWidth < 480) specification.config.legend.columns = 1;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const draw = () => {
    const ink = dark.matches ? "#c9ccd1" : "#3d4147";
    const line = dark.matches ? "#33373e" : "#e3e5e8";
    const config = {
      background: "transparent",
      font: getComputedStyle(document.body).fontFamily,
      axis: {
        labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line,
      },
      legend: { labelColor: ink },
    };
    vegaEmbed(holder, specification, { config, actions: false, renderer: "svg" }).catch((error) => {
      holder.innerHTML = still;
      console.error(error);
    });
  };
  dark.addEventListener("change", draw);
  draw();
})();
"""


def write_report(run: Run, folder: Path) -> tuple[Path, Path]:
    """Write a run's page and picture into its folder, and return their paths."""
    page, picture = folder / PAGE_NAME, folder / PICTURE_NAME
    specification = chart.token_chart(run)
    write_whole(picture, chart.png(specification))
    raw_files = sorted(
        path.name
        for path in folder.iterdir()
        if path.is_file() and path != page and not path.name.startswith(".")
    )
    write_whole(page, render_page(run, specification, raw_files).encode())
    return page, picture


def render_page(run: Run, specification: chart.Specification, raw_files: Sequence[str]) -> str:
    """Return the page as HTML that needs no other file.

    Every text that came from a board or a file is escaped, and the page's policy lets no
    script run but the page's own, and nothing be fetched.

    Args:
        run: what is shown.
        specification: from ``chart.token_chart``.
        raw_files: names of the files beside the page to link to.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("armload.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = libraries() + _DRAW
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(TEMPLATE_NAME).render(
        run=run,
        words=words,
        slowest=_slowest(run.tokens),
        causes=words.causes_of(run),
        specification=specification,
        still=Markup(chart.svg(specification)),  # noqa: S704 - drawn here; text in it is escaped
        script=Markup(script),  # noqa: S704 - ours and the libraries', no text of a run
        script_digest=digest,
        raw_files=raw_files,
    )


def _slowest(steps: Sequence[Step]) -> list[tuple[int, Step]]:
    numbered: list[tuple[int, Step]] = []
    number = 1
    for step in steps:
        if step.phase == "generate":
            number += step.tokens
            numbered.append((number, step))
    numbered.sort(key=lambda each: each[1].duration_s / each[1].tokens, reverse=True)
    return numbered[:SLOWEST_SHOWN]


def libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script; bundling it takes a second."""
    kept = cache_folder() / "vega" / f"{version('vl-convert-python')}.js"
    with contextlib.suppress(OSError):
        return kept.read_text(encoding="utf-8")
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A page's text ends a script at the first closing tag, and reads every line end as \n.
    script = bundle.replace("</script", r"<\/script").replace("\r\n", "\n").replace("\r", "\n")
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        write_whole(kept, script.encode())
    return script
