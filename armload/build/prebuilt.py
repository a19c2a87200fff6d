"""Programs that a release of armload carries compiled, which are looked for before compiling.

They lie under the ids that they would have in the cache, pass the same checks as what was just
compiled, and are copied to the cache. Only a release's wheel has any.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from armload.build.binary import Binary, FeatureUse
from armload.build.inspection import check, inspect
from armload.build.programs import programs_chosen
from armload.build.record import (
    RECORD_NAME,
    BuildRecord,
    Inputs,
    Program,
    read_record,
    write_record,
)
from armload.build.target import Target
from armload.core.errors import ArmloadError, BuildError, DataError, DiskError
from armload.core.files import sha256_of, unreadable, written_whole
from armload.core.places import data_path
from armload.core.progress import Progress

_KIND = "prebuilt"

_DEFECTS = (BuildError, DataError, DiskError)


def prebuilt_targets() -> frozenset[str]:
    """Return the names of the targets for which the release carries programs."""
    try:
        folders = list(data_path(_KIND, "builds").iterdir())
    except OSError:
        return frozenset()
    found = set()
    for folder in folders:
        # What is damaged is reported when it is to be copied.
        with contextlib.suppress(OSError, ValidationError):
            found.add(read_record(folder).inputs.target.name)
    return frozenset(found)


def copy_prebuilt_programs(
    place: Path,
    former: BuildRecord | None,
    inputs: Inputs,
    wanted: Sequence[str],
    progress: Progress,
) -> BuildRecord | None:
    """Copy wanted programs that came with the release to a build that lacks them.

    One that is damaged is reported and left to be compiled. Returns what is recorded of the build
    then.

    Args:
        place: the build's folder.
        former: what is recorded of it; none if it is not there.

    Raises:
        OSError: the cache cannot be written.
    """
    carried = _carried(inputs, progress)
    if carried is None:
        return former
    folder, record = carried
    names = programs_chosen(inputs.source_label, record.offered, wanted)
    kept = [each for each in former.programs if each.is_whole(place)] if former else []
    lacking = set(names) - {program.name for program in kept}
    copied: list[Program] = []
    for program in record.programs:
        if program.name in lacking:
            try:
                _copy(
                    folder / program.name,
                    place / program.name,
                    sha256=program.sha256,
                    target=inputs.target,
                    features=program.features,
                )
            except _DEFECTS as error:
                _report(error, progress)
            else:
                copied.append(program)
    if not copied:
        return former
    programs = tuple(sorted([*kept, *copied], key=lambda program: program.name))
    held = record.model_copy(update={"inputs": inputs, "programs": programs}).with_versions(place)
    write_record(place, held)
    target = inputs.target.name
    progress.say(
        f"{', '.join(program.name for program in copied)} for {target} came prebuilt with "
        f"{copied[0].prebuilt_in}."
    )
    return held


def copy_prebuilt_helper(
    helper_id: str, name: str, target: Target, place: Path, progress: Progress
) -> bool:
    """Copy a helper program that came with the release to ``place``; return whether it did.

    One that is damaged is reported and left to be compiled.
    """
    try:
        source = data_path(_KIND, "helpers", helper_id, name)
    except FileNotFoundError:
        return False
    try:
        sha256 = _sum_file(source).read_text(encoding="ascii", errors="replace").split(" ")[0]
    except OSError as error:
        _report(unreadable(_sum_file(source), error), progress)
        return False
    try:
        _copy(source, place, sha256=sha256, target=target)
    except _DEFECTS as error:
        _report(error, progress)
        return False
    return True


def copy_programs_to_release(
    folder: Path, binaries: Sequence[Binary], *, release: str, built_utc: str
) -> None:
    """Copy programs of one build to what a release carries, in ``folder``.

    Of their record, what differs between machines is left out.

    Args:
        release: such as ``armload 0.1.0``.
        built_utc: the release's time, in ISO 8601.
    """
    source = binaries[0].path.parent
    record = read_record(source)
    names = {binary.program for binary in binaries}
    programs = tuple(
        program.model_copy(
            update={
                "prebuilt_in": release,
                "built_utc": built_utc,
                "built_on": "",
                "seconds": 0.0,
                "tools": {},
                "version": None,
            }
        )
        for program in record.programs
        if program.name in names
    )
    place = folder / "builds" / record.build_id
    place.mkdir(parents=True)
    for program in programs:
        shutil.copyfile(source / program.name, place / program.name)
    write_record(place, record.model_copy(update={"programs": programs}))


def copy_helper_to_release(folder: Path, program: Path) -> None:
    """Copy a helper program, as it lies in the cache, to what a release carries, in ``folder``."""
    place = folder / "helpers" / program.parent.name / program.name
    place.parent.mkdir(parents=True)
    shutil.copyfile(program, place)
    _sum_file(place).write_text(f"{sha256_of(place)}  {place.name}\n", encoding="ascii")


def _sum_file(program: Path) -> Path:
    return program.with_name(f"{program.name}.sha256")


def _carried(inputs: Inputs, progress: Progress) -> tuple[Path, BuildRecord] | None:
    try:
        folder = data_path(_KIND, "builds", inputs.build_id)
    except FileNotFoundError:
        return None
    try:
        return folder, read_record(folder)
    except OSError as error:
        _report(unreadable(folder / RECORD_NAME, error), progress)
    except ValidationError:
        _report(DataError(f"{folder / RECORD_NAME} is damaged."), progress)
    return None


def _report(error: ArmloadError, progress: Progress) -> None:
    progress.say(
        f"{error.message.removesuffix('.')}, so the program is compiled instead. Reinstall "
        "armload to repair it."
    )


def _copy(
    source: Path,
    place: Path,
    *,
    sha256: str,
    target: Target,
    features: Sequence[FeatureUse] | None = None,
) -> None:
    """Copy a program once it has passed what a program passes that was compiled.

    Args:
        features: as its symbols showed them; none for those that the program itself shows.
    """
    try:
        content = source.read_bytes()
    except OSError as error:
        raise unreadable(source, error) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{source} is damaged: its SHA-256 is not the recorded one.")
    with written_whole(place) as beside:
        beside.write_bytes(content)
        inspection = inspect(beside)
        if features is not None:
            inspection = inspection.model_copy(update={"features": tuple(features)})
        check(inspection, target)
    place.chmod(0o755)
