"""The header of a model, without its weights."""

from __future__ import annotations

from pathlib import Path

from armload.models.header import read_header
from armload.models.whole_header import WholeHeader, whole_header
from tests.outside_data import STORIES, needs_stories
from tests.split import in_two_parts

pytestmark = needs_stories


def sparse(found: WholeHeader, folder: Path) -> Path:
    path = folder / "sparse.gguf"
    with path.open("wb") as file:
        file.write(found.content)
        file.truncate(found.file_bytes)
    return path


def test_it_names_every_tensor_and_key_of_the_model(tmp_path: Path) -> None:
    before, after = read_header(STORIES), read_header(sparse(whole_header(STORIES), tmp_path))
    assert after.metadata == before.metadata
    assert [(t.name, t.shape, t.type_name) for t in after.tensors] == [
        (t.name, t.shape, t.type_name) for t in before.tensors
    ]
    assert after.whole_bytes <= after.file_bytes < after.whole_bytes + 32
    assert len(whole_header(STORIES).content) <= min(t.offset_bytes for t in before.tensors)


def test_a_model_in_parts_has_the_header_of_one_file(tmp_path: Path) -> None:
    after = read_header(sparse(whole_header(in_two_parts(STORIES, tmp_path)), tmp_path))
    assert {t.name for t in after.tensors} == {t.name for t in read_header(STORIES).tensors}
    assert after.metadata["split.count"] == 1
    assert after.whole_bytes <= after.file_bytes
