"""Loads with images: what is sent, what is refused, and the first token by an image's size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from armload.core.errors import DataError, UsageError
from armload.core.progress import Silent
from armload.serving import pictured
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.pictured import MOST_IMAGES, Pictured, read_images
from armload.serving.workload import Listed
from tests.command_line import typed
from tests.stub_service import stub_service


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.new("RGB", (64, 48), "navy").save(folder / "a.png")
    Image.new("RGB", (32, 16), "red").save(folder / "b.JPG", "JPEG")
    (folder / "notes.txt").write_text("no image\n")
    return folder


def test_the_first_token_is_told_by_the_size_of_the_image(tmp_path: Path, folder: Path) -> None:
    words = ("--concurrency", "1", "--requests", "8", "--n-predict", "3", "--prompt-tokens", "4")
    with stub_service(first_s=0.01, cached=0) as service:
        url = ("--url", service.url, "--images", str(folder), "--warmup", "0")
        done = typed(tmp_path, "load", *url, *words, "--json")
    assert done.returncode == 0, done.stderr
    sizes = {(each["width"], each["height"]): each for each in json.loads(done.stdout)["images"]}
    assert list(sizes) == [(32, 16), (64, 48)]
    assert [each["requests"] for each in sizes.values()] == [4, 4]
    for each in sizes.values():
        assert 0 < each["least_s"] <= each["ttft_s"] <= each["most_s"]
    sent = [body["messages"][0]["content"] for _, body in service.bodies if "messages" in body]
    kinds = [parts[0]["image_url"]["url"].partition(";")[0] for parts in sent[-8:]]
    assert sorted(kinds) == ["data:image/jpeg"] * 4 + ["data:image/png"] * 4
    assert all(len(parts[1]["text"].split()) == 4 for parts in sent[-8:])
    shown = typed(tmp_path, "show", "latest-load")
    assert "64 x 48" in shown.stdout


def test_a_folder_of_a_thousand_images_is_refused(tmp_path: Path, folder: Path) -> None:
    content = (folder / "a.png").read_bytes()
    for number in range(1000):
        (folder / f"{number}.png").write_bytes(content)
    words = ("--url", "http://127.0.0.1:9", "--concurrency", "1", "--images", str(folder))
    done = typed(tmp_path, "load", *words)
    assert done.returncode == 2
    assert f"1,002 images; the limit is {MOST_IMAGES} images" in " ".join(done.stderr.split())


def test_files_of_other_kinds_are_left_out_and_their_number_is_bounded(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_images(folder, Silent())
    assert [(each.width, each.height) for each in found] == [(64, 48), (32, 16)]
    monkeypatch.setattr(pictured, "_MOST_ENTRIES", 2)
    with pytest.raises(UsageError, match="too many files"):
        read_images(folder, Silent())
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="there is no image in it"):
        read_images(empty, Silent())
    for missing in (tmp_path / "none", folder / "a.png"):
        with pytest.raises(UsageError, match="there is no folder"):
            read_images(missing, Silent())


def test_images_are_bounded_in_bytes_and_a_damaged_one_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictured, "MOST_BYTES", 100)
    with pytest.raises(DataError, match="larger than 100 bytes"):
        read_images(folder, Silent())
    (folder / "a.png").write_text("a text")
    with pytest.raises(DataError, match=r"a\.png: not an image"):
        read_images(folder, Silent())


def test_a_service_that_takes_no_images_is_not_asked_and_one_that_does_encodes_each_again(
    folder: Path,
) -> None:
    images, work = (
        read_images(folder, Silent()),
        Listed([CompletionRequest(prompt="a", max_tokens=1)], "f"),
    )
    with pytest.raises(UsageError, match="takes no images"):
        Pictured(work, images, folder, takes=False)
    known = Pictured(work, images, folder, takes=True).request(1)
    assert known.extra_body == {"cache_prompt": False}
    assert Pictured(work, images, folder, takes=None).request(1).extra_body == {}
    assert (known.image_width, known.image_height, known.last) == (32, 16, "a")
