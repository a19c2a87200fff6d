"""Pages that messages name are there for users of the package, too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from armload.core.places import data_path

ROOT = Path(__file__).parents[2]
POINTER = re.compile(r"""data_path\(["']docs["'], ["']([\w-]+\.md)["']\)""")


def test_a_page_that_a_message_names_is_in_the_package() -> None:
    sources = {path: path.read_text() for path in sorted((ROOT / "armload").rglob("*.py"))}
    pages = {page for text in sources.values() for page in POINTER.findall(text)}
    assert {"boards.md", "fleet.md"} <= pages
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    packaged = hatch["build"]["targets"]["wheel"]["force-include"]
    for page in pages:
        assert packaged[f"docs/{page}"] == f"armload/data/docs/{page}"
        assert data_path("docs", page).is_file()


def test_no_text_that_a_user_sees_names_a_page_by_a_path_of_the_repository() -> None:
    for path in sorted((ROOT / "armload").rglob("*.py")):
        # Docstrings are read beside the documentation.
        for line in re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL).splitlines():
            said = re.findall(r'"[^"]*docs/[\w-]+\.md[^"]*"', line)
            assert not [each for each in said if "http" not in each], f"{path}: {line}"
