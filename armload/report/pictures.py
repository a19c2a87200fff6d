"""Figures as files: for slides, and for editing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from armload.core.files import write_whole
from armload.report.drawing import png, svg
from armload.report.figures.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure that was written."""

    figure: Figure
    png: Path
    svg: Path


def pictured(figure: Figure, folder: Path) -> Picture:
    """Write a figure into a folder."""
    picture = Picture(
        figure=figure, png=folder / f"{figure.name}.png", svg=folder / f"{figure.name}.svg"
    )
    write_whole(picture.png, png(figure.specification))
    write_whole(picture.svg, svg(figure.specification).encode())
    return picture
