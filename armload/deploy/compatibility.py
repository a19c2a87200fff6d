"""Whether a board suits: its kind of machine, its CPU's features, and its work folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from armload.boards.board import Board
from armload.boards.folder import example_beside
from armload.boards.probe import Probe
from armload.build.binary import Binary, FeatureUse
from armload.build.prebuilt import prebuilt_targets
from armload.build.target import load_target
from armload.build.vulkan import GLIBC
from armload.core.errors import ArmloadError, BoardError
from armload.core.trust import describing
from armload.core.workspace import data_names


def check_fit(board: Board, binary: Binary, found: Probe) -> None:
    """Refuse a board that cannot run a program."""
    lack = _lack(board, found, binary.architecture, used_features(binary.features))
    if lack.machine:
        raise BoardError(
            f"{board.name}: its kernel is {found.machine}, and {binary.program} built for "
            f"{binary.target} needs {binary.architecture}.",
            f"Change the board's target: 'target' in boards/{board.name}.yaml. A 32-bit kernel "
            "cannot run 64-bit programs, even on a 64-bit CPU.",
        )
    if binary.needed:
        check_vulkan(board, found, binary.glibc)
    if lack.features:
        raise BoardError(
            f"{board.name}: its CPU lacks {', '.join(lack.features)}, which {binary.program} "
            f"built for {binary.target} uses.",
            f"Choose a target without {lack.features[0]}: 'target' in boards/{board.name}.yaml.",
        )


def check_vulkan(board: Board, found: Probe, glibc: str = GLIBC) -> None:
    """Refuse a board on which programs that compute on GPUs do not run.

    Under a launcher it is not known what they find.

    Args:
        glibc: the version that they need.
    """
    obstacle = None if board.launcher else found.vulkan.obstacle(glibc)
    if obstacle is not None:
        reason, remedy = obstacle
        raise BoardError(f"{board.name}: {reason}.", remedy)


def target_mismatch(board: Board, found: Probe) -> str:
    """Say why programs for a board's target would not run there; nothing where they would."""
    try:
        target = load_target(board.target)
    except ArmloadError as error:
        return error.message
    lack = _lack(board, found, target.architecture, target.features)
    if lack.machine:
        return (
            f"The kernel is {found.machine}, but programs for target {target.name} need "
            f"{target.architecture}."
        )
    if lack.features:
        return f"The CPU lacks {', '.join(lack.features)}, which target {target.name} requires."
    return ""


def targets_that_suit(board: Board, found: Probe) -> list[str]:
    """Return the targets whose programs would run on a board, the best first.

    Those for a CPU that it has come first, then those with most features, and of equal ones
    those for which the release carries programs.
    """
    with describing():  # only their names are returned
        suiting = [
            load_target(name)
            for name in data_names("toolchains")
            if not target_mismatch(board.model_copy(update={"target": name}), found)
        ]
    kinds = {cluster.name.lower() for cluster in found.clusters}
    prebuilt = prebuilt_targets()
    suiting.sort(
        key=lambda each: (each.cpu not in kinds, -len(each.features), each.name not in prebuilt)
    )
    return [each.name for each in suiting]


def is_cpu_unknown(board: Board, found: Probe) -> bool:
    """Return whether programs run under an emulator that does not say which CPU it emulates."""
    return bool(board.launcher) and not found.cpu_features


def used_features(uses: Iterable[FeatureUse]) -> tuple[str, ...]:
    """Return the CPU features that a program uses unasked."""
    return tuple(use.feature for use in uses if not use.guarded)


def check_folder(board: Board, found: Probe) -> None:
    """Refuse a work folder that cannot be used."""
    if found.workdir_writable and found.workdir_executable:
        return
    obstacle = found.workdir_obstacle
    lack = "programs in it cannot be executed" if found.workdir_writable else "it is not writable"
    raise BoardError(
        f"{board.name}: {board.workdir}: {lack}{f': {obstacle.words}' if obstacle else ''}.",
        obstacle.remedy(board.name)
        if obstacle
        else f"Choose another folder as 'workdir' in boards/{board.name}.yaml"
        f"{example_beside(board.workdir)}.",
    )


@dataclass(frozen=True, kw_only=True)
class _Lack:
    """What a board lacks for programs: their kind of machine, or features of its CPU."""

    machine: bool = False
    features: tuple[str, ...] = ()


def _lack(board: Board, found: Probe, architecture: str, features: Iterable[str]) -> _Lack:
    if is_cpu_unknown(board, found):
        return _Lack()
    if found.machine != architecture:
        return _Lack(machine=True)
    return _Lack(features=tuple(name for name in features if name not in found.cpu_features))
