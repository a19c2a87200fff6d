"""Pages that open anywhere, without a network, and run no script but their own."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files

from armload.core.files import write_whole
from armload.core.values import visible
from armload.core.workspace import cache_folder
from armload.report import formatting as words
from armload.report.drawing import Specification, inline_svg, legible, untitled

SCRIPTS = ("draw.js", "sort.js", "filter.js")


def render(template: str, values: Mapping[str, object], charts: Mapping[str, Specification]) -> str:
    """Return a page as HTML that needs no other file.

    Every text that came from a board or a file is escaped and cannot steer the text around it, and
    the page's policy lets no
    script run but the page's own, and nothing be fetched.

    Args:
        template: the name of a file in this folder, which extends ``base.html.j2``.
        charts: specifications by the names that it gives its charts; titles are left to the page.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("armload.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # What is markup already has been here, or is a library.
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    bare = {name: legible(untitled(chart)) for name, chart in charts.items()}
    script = (libraries() if charts else "") + "".join(map(_own, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = {
        "words": words,
        "charts": bare,
        # Drawn here; text in it is escaped.
        "stills": {name: Markup(inline_svg(chart)) for name, chart in bare.items()},  # noqa: S704
        "script": Markup(script),  # noqa: S704 - ours and the libraries', no text of a run
        "script_digest": digest,
    }
    return environment.get_template(template).render({**page, **values})


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


def _own(name: str) -> str:
    return files("armload.report").joinpath(name).read_text(encoding="utf-8")
