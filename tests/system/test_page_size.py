"""A kernel with pages of 16 KiB, as on a Raspberry Pi 5 or with Asahi Linux."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest

from armload.analysis.run import Run
from armload.analysis.streaming import streamed_weights
from armload.boards.virtual import image, packages
from armload.boards.virtual.mirrors import PackageArchive, archives
from armload.core.progress import Silent
from armload.models.synth import synthesise
from tests.person import Person
from tests.system.streaming import COVERED, LARGE

PAGE_BYTES = 16 << 10
DEBIAN_KERNEL = "linux-image-arm64-16k"

pytestmark = [
    pytest.mark.build,
    pytest.mark.machine,
    pytest.mark.exhaustive(covers=[*COVERED, "armload/boards/virtual"]),
]


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    if platform.freedesktop_os_release().get("ID") != "debian":
        pytest.skip("only Debian has such a kernel")
    images = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patched:

        def with_larger_pages() -> list[PackageArchive]:
            return [each.model_copy(update={"kernel": DEBIAN_KERNEL}) for each in archives()]

        patched.setattr(packages, "archives", with_larger_pages)
        patched.setattr(image, "cache_folder", lambda: images)
        patched.delenv("ARMLOAD_IMAGES", raising=False)
        made = image.image_for_boards(Silent())
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    person.environment["ARMLOAD_IMAGES"] = str(made.kernel.parent)
    person.add_board("mine", "extends: virtual-dayu200\nreach: {memory: 512 MiB}\n")
    synthesise(LARGE, person.folder / "large.gguf", quantisation="Q8_0", seed=1, progress=Silent())
    yield person
    person.types("board.down", "--board", "mine")


def test_weights_are_mapped_and_streamed_in_such_pages_with_the_same_text(ann: Person) -> None:
    words = ("--model", "large.gguf", "-n", "3")
    mapped = Run.model_validate(ann.benches(*words, "--weights", "mapped"))
    pages = ann.on_board("grep -h KernelPageSize /proc/self/smaps | sort -u")
    assert pages.split() == ["KernelPageSize:", "16", "kB"]
    assert mapped.exit.status == 0

    run = Run.model_validate(ann.benches(*words, "--weights", "streamed", "--resident", "20MB"))
    assert run.text == mapped.text
    weights = streamed_weights(run.trace)
    assert weights is not None
    assert 0 < weights.locked_bytes <= 20_000_000
    assert weights.locked_bytes % PAGE_BYTES == 0
    # A page that two matrices share is neither locked nor read.
    rest_bytes = (run.model.bytes_per_token or 0) - weights.locked_bytes
    assert 0.98 * rest_bytes < weights.streamed_bytes <= rest_bytes
    assert "streaming" not in {finding.name for finding in run.verdict.findings}
