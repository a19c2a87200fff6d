"""From what a person says of a projector to its file."""

from __future__ import annotations

from pathlib import Path

from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.workspace import data_names
from armload.models import hub
from armload.models.find import LIKE, is_listed, is_published, published, spelled
from armload.models.header import Header, read_header
from armload.models.hub_reference import is_reference
from armload.models.metadata import Metadata
from armload.models.outline import OUTLINES, load_outline, outlined_projector
from armload.models.projector import Projector, projector_of_header, read_whole_projector
from armload.models.projector_choice import check_belongs, projectors_beside

AUTO, NONE = "auto", "none"
"""In place of a projector: the one of the model's folder or repository; text alone."""


def find_projector(
    named: str, reference: str, path: Path, header: Header, progress: Progress
) -> Projector | None:
    """Return the projector of a model, with its checksum; none for text alone.

    Args:
        named: a file, or the name of one or of its repository on a hub; ``auto`` for the one that
            lies beside the model or in its repository, ``none`` for text alone.
        reference: what the model was called, where it may have come from a hub.
        path, header: of the model.

    Raises:
        UsageError: there is none, or it is for another model.
        DataError: it is no projector, or damaged.
        ArmloadError: as for ``hub.fetch``.
    """
    if named.casefold() == NONE:
        return None
    found = _place(named, reference, path, header, progress)
    if found is None:
        raise _missing(named, reference, path)
    projector = read_whole_projector(found, progress)
    check_belongs(projector, path.stem, Metadata(path, header).input_width)
    return projector


def find_projector_header(
    named: str, reference: str, path: Path, header: Header, progress: Progress
) -> tuple[Projector, Header] | None:
    """Do the same by headers alone, so that nothing large is downloaded.

    Where ``named`` is empty, a model without a projector is one of text alone.
    """
    if named.casefold() == NONE:
        return None
    if named.casefold() in ("", AUTO) and (
        is_listed(reference) or spelled(reference).startswith(LIKE)
    ):
        known = _listed(reference)
        if known is None and named:
            raise _missing(named, reference, path)
        return known
    found = _place(named, reference, path, header, progress, header_only=True)
    if found is None:
        if named:
            raise _missing(named, reference, path)
        return None
    its = read_header(found)
    projector, width = projector_of_header(found, its), Metadata(path, header).input_width
    if not named and projector.embedding_width != width:
        return None
    check_belongs(projector, reference, width)
    return projector, its


def _listed(reference: str) -> tuple[Projector, Header] | None:
    name = spelled(reference).removeprefix(LIKE).partition(":")[0]
    return outlined_projector(load_outline(name)) if name in data_names(OUTLINES) else None


def _place(
    named: str,
    reference: str,
    path: Path,
    header: Header,
    progress: Progress,
    *,
    header_only: bool = False,
) -> Path | None:
    if named and named.casefold() != AUTO and not is_reference(named):
        return Path(named).expanduser()
    name = spelled(reference)
    if named and named.casefold() != AUTO:
        name = named
    elif is_published(name):
        name = published(name)
    if is_reference(name):
        return hub.fetch_projector(name, progress, header_only=header_only)
    beside = list(projectors_beside(path, Metadata(path, header).input_width))
    own = [each for each in beside if each.belongs] or beside
    return path.with_name(own[0].file) if own else None


def _missing(named: str, reference: str, path: Path) -> UsageError:
    where = str(path.parent.absolute())
    if is_reference(named) or is_reference(spelled(reference)):
        where = named if is_reference(named) else reference
    return UsageError(
        f"{path.stem}: no projector, without which a model sees and hears nothing; looked for "
        f"*mmproj*.gguf in {where}.",
        "Name its file with --mmproj, or use a model with vision or hearing, such as "
        "--model hf:ggml-org/SmolVLM-256M-Instruct-GGUF:Q8_0",
    )
