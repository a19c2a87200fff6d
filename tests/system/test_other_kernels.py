"""Kernels and programs of boards that are unlike the usual 64-bit ones with pages of 4 KiB."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.analysis.run import Run
from armload.analysis.streaming import streamed_weights
from armload.boards.virtual import image
from armload.core import packages
from armload.core.mirrors import PackageArchive, archives
from armload.core.packages import Apt, Package, updated_apt
from armload.core.progress import Progress, Silent
from armload.models.synth import synthesise
from tests.person import Person
from tests.system.streaming import COVERED, LARGE

PAGE_BYTES = 16 << 10

pytestmark = [
    pytest.mark.build,
    pytest.mark.machine,
    pytest.mark.exhaustive(covers=[*COVERED, "armload/boards/virtual", "deploy/board"]),
    pytest.mark.skipif(
        platform.freedesktop_os_release().get("ID") != "debian",
        reason="their packages are Debian's",
    ),
]


class _ThirtyTwoBits:
    """An apt that gives 32-bit programs beside a 64-bit kernel."""

    def __init__(self, programs: Apt, kernel: Apt) -> None:
        self._programs, self._kernel = programs, kernel
        self.archive, self.dependencies, self.alone = (
            kernel.archive,
            kernel.dependencies,
            kernel.alone,
        )
        self._names: set[str] = set()

    def closure(self, names: Sequence[str]) -> list[Package]:
        found = self._programs.closure(names)
        self._names = {each.name for each in found}
        return found

    def unpack(
        self, wanted: Sequence[Package], into: Path, progress: Progress, *, purpose: str
    ) -> None:
        programs = [each for each in wanted if each.name in self._names]
        self._programs.unpack(programs, into, progress, purpose=purpose)
        others = [each for each in wanted if each not in programs]
        self._kernel.unpack(others, into, progress, purpose=purpose)


@contextmanager
def _thirty_two_bits(
    architecture: str, progress: Progress, *, purpose: str
) -> Iterator[_ThirtyTwoBits]:
    with (
        updated_apt("armhf", progress, purpose=purpose) as programs,
        updated_apt(architecture, progress, purpose=purpose) as kernel,
    ):
        yield _ThirtyTwoBits(programs, kernel)


def _larger_pages() -> list[PackageArchive]:
    kernel = "linux-image-arm64-16k"
    return [each.model_copy(update={"kernel": kernel}) for each in archives()]


@pytest.fixture
def ann(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Person]:
    """A person whose board has the image that the parameter names."""
    if request.param == "pages of 16 KiB":
        monkeypatch.setattr(packages, "archives", _larger_pages)
    else:
        monkeypatch.setattr(image, "updated_apt", _thirty_two_bits)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(image, "cache_folder", lambda: tmp_path)
        elsewhere.delenv("ARMLOAD_IMAGES", raising=False)
        made = image.image_for_boards(Silent())
    person = Person(tmp_path / "ann")
    person.environment["ARMLOAD_IMAGES"] = str(made.kernel.parent)
    person.add_board("mine", "extends: virtual-dayu200\nreach: {memory: 512 MiB}\n")
    synthesise(LARGE, person.folder / "large.gguf", quantisation="Q8_0", seed=1, progress=Silent())
    yield person
    person.types("board.down", "--board", "mine", "--yes")


@pytest.mark.parametrize("ann", ["pages of 16 KiB"], indirect=True)
def test_weights_are_mapped_and_streamed_in_large_pages_with_the_same_text(ann: Person) -> None:
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


@pytest.mark.parametrize("ann", ["32-bit programs"], indirect=True)
def test_a_board_with_32_bit_programs_runs_the_64_bit_engine(ann: Person) -> None:
    shell = ann.on_board("od -An -t x1 -j 4 -N 1 /usr/bin/mksh")
    assert shell.split() == ["01"]  # the class of an ELF file of 32 bits
    run = Run.model_validate(ann.benches("--model", "large.gguf", "-n", "3"))
    assert run.exit.status == 0
    assert run.text
    assert (run.model.size_bytes or 0) > 160_000_000
