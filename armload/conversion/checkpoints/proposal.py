"""What a person is asked to agree to before the converters are installed."""

from __future__ import annotations

from pathlib import Path

from armload.conversion.checkpoints.downloads import Download
from armload.core.values import Value, format_bytes

_ASSUMED_BYTES_PER_S = 10e6
_LARGEST_SHOWN = 3


class Proposal(Value):
    """What an environment would take.

    Attributes:
        place: its folder.
        downloads: every package.
    """

    place: Path
    downloads: tuple[Download, ...]

    @property
    def size_bytes(self) -> int:
        """To download."""
        return sum(each.size_bytes for each in self.downloads)

    @property
    def unpacked_bytes(self) -> int:
        """On the disk."""
        return sum(each.unpacked_bytes for each in self.downloads)

    @property
    def accelerator_bytes(self) -> int:
        """To download of libraries that only a graphics card uses."""
        return sum(
            each.size_bytes
            for each in self.downloads
            if each.name.startswith(("nvidia-", "cuda-")) or each.name == "triton"
        )

    @property
    def lines(self) -> list[str]:
        """What a person has to know before agreeing."""
        by_size = sorted(self.downloads, key=lambda each: each.size_bytes, reverse=True)
        largest = (
            f"{each.name} {format_bytes(each.size_bytes)}" for each in by_size[:_LARGEST_SHOWN]
        )
        minutes = max(1.0, self.size_bytes / _ASSUMED_BYTES_PER_S / 60)
        what = (
            f"The converters are {len(self.downloads)} packages that are not installed "
            f"({', '.join(largest)}, …)."
        )
        takes = (
            f"Download: {format_bytes(self.size_bytes)}, about {minutes:.0f} min at "
            f"{format_bytes(_ASSUMED_BYTES_PER_S)}/s. On the disk: "
            f"{format_bytes(self.unpacked_bytes)}, in {self.place}, until "
            "`armload clean --what converters`."
        )
        if not self.accelerator_bytes:
            return [what, takes]
        smaller = (
            f"{format_bytes(self.accelerator_bytes)} of the download are CUDA libraries, which "
            "converting does not use, but without which this build of torch does not start. "
            "To get a build without them, set PIP_EXTRA_INDEX_URL to PyTorch's own index of builds "
            "for CPU, as its installation page gives it, and repeat the command."
        )
        return [what, takes, smaller]
