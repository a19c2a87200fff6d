"""The drawings of the task ``drawings``: what is to be seen in each is certain.

``python -m tests.drawings`` draws them anew, with their questions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from PIL import Image
from PIL.ImageDraw import Draw, ImageDraw

from armload.core.places import data_path

SIDE = 256
BACKGROUND, BLACK = (255, 255, 255), (0, 0, 0)
RED, GREEN, BLUE, YELLOW = (214, 39, 40), (44, 160, 44), (31, 119, 180), (255, 215, 0)
FOLDER = data_path("tasks", "drawings")


class Drawing(NamedTuple):
    """A drawing, what is asked about it, and the letter of the right answer."""

    name: str
    draw: Callable[[ImageDraw], None]
    question: str
    choices: tuple[str, ...]
    answer: str


def _circle(on: ImageDraw, x: int, y: int, radius: int, colour: tuple[int, int, int]) -> None:
    on.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _polygon(on: ImageDraw, corners: int, colour: tuple[int, int, int]) -> None:
    middle, radius = SIDE / 2, SIDE * 0.4
    angles = [math.tau * corner / corners - math.pi / 2 for corner in range(corners)]
    points = [(middle + radius * math.cos(a), middle + radius * math.sin(a)) for a in angles]
    on.polygon([(round(x), round(y)) for x, y in points], fill=colour)


def _red_circle(on: ImageDraw) -> None:
    _circle(on, 128, 128, 90, RED)


def _three_squares(on: ImageDraw) -> None:
    for left in (20, 98, 176):
        on.rectangle((left, 98, left + 60, 158), fill=BLUE)


def _triangle(on: ImageDraw) -> None:
    _polygon(on, 3, GREEN)


def _left_and_right(on: ImageDraw) -> None:
    _circle(on, 64, 128, 44, YELLOW)
    on.rectangle((152, 88, 232, 168), fill=BLUE)


def _one_inside(on: ImageDraw) -> None:
    on.rectangle((28, 28, 228, 228), outline=BLACK, width=6)
    _circle(on, 128, 128, 50, GREEN)


def _largest(on: ImageDraw) -> None:
    _circle(on, 50, 180, 24, RED)
    _circle(on, 150, 110, 76, GREEN)
    _circle(on, 224, 200, 20, BLUE)


def _seven(on: ImageDraw) -> None:
    on.line((70, 56, 186, 56), fill=BLACK, width=24)
    on.line((180, 56, 110, 212), fill=BLACK, width=24)


def _bars(on: ImageDraw) -> None:
    bars = ((60, RED), (190, BLUE), (110, GREEN), (30, BLACK))
    for left, (height, colour) in zip(range(28, SIDE, 60), bars, strict=True):
        on.rectangle((left, 236 - height, left + 36, 236), fill=colour)


def _arrow(on: ImageDraw) -> None:
    on.rectangle((36, 112, 156, 144), fill=BLACK)
    on.polygon([(156, 72), (226, 128), (156, 184)], fill=BLACK)


def _five_dots(on: ImageDraw) -> None:
    for x, y in ((64, 64), (192, 64), (128, 128), (64, 192), (192, 192)):
        _circle(on, x, y, 24, BLACK)


COLOURS = ("red", "green", "blue", "yellow")
DRAWINGS = (
    Drawing("circle", _red_circle, "Which colour is the circle?", COLOURS, "A"),
    Drawing("squares", _three_squares, "How many squares are there?", ("2", "3", "4", "5"), "B"),
    Drawing(
        *("triangle", _triangle, "Which shape is it?"),
        ("circle", "square", "star", "triangle"),
        "D",
    ),
    Drawing("sides", _left_and_right, "Which colour is the shape on the right?", COLOURS, "C"),
    Drawing(
        *("inside", _one_inside, "Which shape is inside the square?"),
        *(("circle", "triangle", "star", "cross"), "A"),
    ),
    Drawing("sizes", _largest, "Which colour is the largest circle?", COLOURS, "B"),
    Drawing("digit", _seven, "Which digit is it?", ("1", "4", "7", "9"), "C"),
    Drawing(
        "bars", _bars, "Which colour is the tallest bar?", ("red", "green", "blue", "black"), "C"
    ),
    Drawing(
        *("arrow", _arrow, "Where does the arrow point?"), ("left", "up", "down", "right"), "D"
    ),
    Drawing("dots", _five_dots, "How many dots are there?", ("3", "4", "5", "6"), "C"),
)


def drawn() -> Iterator[tuple[Drawing, Image.Image]]:
    """Yield each drawing with its picture, which is the same everywhere: nothing is smoothed."""
    for each in DRAWINGS:
        picture = Image.new("RGB", (SIDE, SIDE), BACKGROUND)
        each.draw(Draw(picture))
        yield each, picture


def questions() -> str:
    """Return the task's data."""
    lines = [
        {
            "image": f"{each.name}.png",
            "question": each.question,
            "choices": each.choices,
            "answer": each.answer,
        }
        for each in DRAWINGS
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each, picture in drawn():
        picture.save(FOLDER / f"{each.name}.png", optimize=True)
    (FOLDER / "questions.jsonl").write_text(questions())
