"""Makes a release of the commit that is checked out: wheel, sdist with manual pages, SBOM.

.venv/bin/python -m release.make             # into dist/
.venv/bin/python -m release.make --dry-run   # the same checks of the tree as it is, and no files
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from armload.build.environment import bare_environment
from armload.core.errors import ArmloadError
from release.prebuilt import Carried, carry, is_compiled_here

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_LICENSE = re.compile(r'^license = ".+"$', re.MULTILINE)
_ALLOWED = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


class NotReadyError(Exception):
    """What has to change before a release."""


def version_of(root: Path) -> str:
    """Return the version that the package declares.

    Raises:
        NotReadyError: it is no version of a release.
    """
    found = _VERSION.search((root / "armload" / "__init__.py").read_text(encoding="utf-8"))
    version = found[1] if found else ""
    if not _ALLOWED.fullmatch(version):
        raise NotReadyError(
            f"armload/__init__.py: {version!r} is not a version such as 1.2.3 or 1.2.3rc1."
        )
    return version


def check_changelog(text: str, version: str, *, may_be_unreleased: bool) -> None:
    """Check that a changelog begins with the changes of a version.

    Raises:
        NotReadyError: it begins with others, or has none.
    """
    _, heading, changes, *_ = [*_SECTION.split(text), "", ""]
    is_this = re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading)
    if not is_this and not (may_be_unreleased and heading == "Unreleased"):
        raise NotReadyError(
            f"CHANGELOG.md begins with {heading!r}. For this release it has to be "
            f"'## {version} (YEAR-MONTH-DAY)'."
        )
    if "\n- " not in changes:
        raise NotReadyError(f"CHANGELOG.md: {heading!r} lists no changes.")


def check_tree(version: str) -> None:
    """Check that all changes are committed, and that the version is new.

    Raises:
        NotReadyError: they are not, or the version has a tag.
    """
    if _git("status", "--porcelain"):
        raise NotReadyError("There are changes that are not committed: see git status.")
    if _git("tag", "--list", f"v{version}"):
        raise NotReadyError(
            f"There is a tag v{version} already. Raise __version__ in armload/__init__.py."
        )


def export(folder: Path) -> None:
    """Copy what belongs to the project, and nothing that git ignores."""
    names = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, folder / name
        if source.is_file():  # one that was deleted may still be listed
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


def build(project: Path, epoch: str, carried: Carried | None) -> list[Path]:
    """Build the sdist with its manual pages, and the wheel from that sdist.

    Args:
        carried: the compiled programs that the wheel carries, and a source must not; none for a
            wheel without.
    """
    reproducible = {"SOURCE_DATE_EPOCH": epoch}
    pages, built, unpacked = project / "man", project / "dist", project / "unpacked"
    pages.mkdir()
    _module("armload.cli.manual", pages, cwd=project, environment=reproducible)
    words = ("--no-isolation", "--outdir", built)
    _module("build", "--sdist", *words, project, cwd=project, environment=reproducible)
    (sdist,) = built.iterdir()
    _module("tarfile", "--extract", sdist, unpacked)
    (source,) = unpacked.iterdir()
    if carried is not None:
        shutil.copytree(carried.folder, source / "armload" / "data" / "prebuilt")
        _declare_license(source / "pyproject.toml", carried.license)
    _module("build", "--wheel", *words, source, cwd=project, environment=reproducible)
    return sorted(built.iterdir())


def _declare_license(file: Path, expression: str) -> None:
    text, count = _LICENSE.subn(f'license = "{expression}"', file.read_text(encoding="utf-8"))
    if count != 1:
        raise NotReadyError(f"{file.name} does not declare one license.")
    file.write_text(text, encoding="utf-8")


def bill_of_materials(version: str, carried: Carried | None) -> str:
    """Return, as CycloneDX, the packages that armload needs, in the versions that are installed.

    The tests run with these. The programs that the wheel carries compiled, and the libraries in
    them, follow.
    """
    # Checking against the schema takes ten seconds, and more is changed below.
    words = ("environment", "--no-validate", "--output-reproducible", "--of", "JSON")
    said = _module("cyclonedx_py", *words, "--pyproject", ROOT / "pyproject.toml")
    bill: dict[str, Any] = json.loads(said)
    root = bill["metadata"]["component"]
    root["version"] = version
    # The tool lists all that is installed, and takes an extra's packages for needed ones.
    needed = _needed()
    bill["components"] = [
        each for each in bill["components"] if canonicalize_name(each["name"]) in needed
    ]
    refs = {root["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    bill["dependencies"] = [
        each | {"dependsOn": [ref for ref in each.get("dependsOn", ()) if ref in refs]}
        for each in bill["dependencies"]
        if each["ref"] in refs
    ]
    if carried is not None:
        bill["components"] += carried.components
        (needs,) = (each for each in bill["dependencies"] if each["ref"] == root["bom-ref"])
        needs["dependsOn"] += carried.libraries_of
        bill["dependencies"] += [
            {"ref": ref, "dependsOn": libraries} for ref, libraries in carried.libraries_of.items()
        ]
    return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"


def _needed() -> set[str]:
    """Return the packages that an installation without extras brings along, here."""
    found: set[tuple[str, str]] = set()
    waiting = [("armload", "")]
    while waiting:
        name, extra = waiting.pop()
        for line in importlib.metadata.requires(name) or ():
            each = Requirement(line)
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                needs = {(canonicalize_name(each.name), part) for part in ("", *each.extras)}
                waiting += needs - found
                found |= needs
    return {name for name, _ in found}


def main() -> None:
    """Check and build; write to ``dist/`` unless this is a dry run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="check and build, keep nothing")
    is_dry = parser.parse_args().dry_run
    try:
        version = version_of(ROOT)
        changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        check_changelog(changes, version, may_be_unreleased=is_dry)
        if not is_dry:
            check_tree(version)
        with tempfile.TemporaryDirectory(prefix="armload-release-") as folder:
            files = _made(Path(folder), version, is_dry=is_dry)
            if not is_dry:
                _keep(files)
    except (NotReadyError, ArmloadError) as error:
        sys.exit(f"release: {error}")
    if is_dry:
        print(f"release: {version} can be built; nothing was written.")
        return
    print(f"release: {version} is in {DIST}. Next:")
    print(f"  git tag v{version} && git push --tags")
    print(f"  twine upload dist/armload-{version}*.whl dist/armload-{version}.tar.gz")


def _made(folder: Path, version: str, *, is_dry: bool) -> list[Path]:
    """Build everything twice, compare, and check what was built; compile what is missing once."""
    epoch = _git("log", "-1", "--format=%ct").strip()
    carried = None
    if is_dry and not is_compiled_here():
        print("release: the demo's engine is not in the cache; checking the wheel without it.")
    else:
        carried = carry(folder / "prebuilt", version, epoch)
    both = []
    for name in ("first", "second"):
        export(folder / name)
        both.append(build(folder / name, epoch, carried))
    for one, other in zip(*both, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            raise NotReadyError(f"{one.name} differs between two builds of the same files.")
    files = both[0]
    _module("twine", "check", "--strict", *files)
    wheels = [each for each in files if each.suffix == ".whl"]
    _module("check_wheel_contents", *wheels)
    bill = folder / f"armload-{version}.cdx.json"
    bill.write_text(bill_of_materials(version, carried), encoding="utf-8")
    sums = folder / "SHA256SUMS"
    lines = [
        f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}" for each in (*files, bill)
    ]
    sums.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return [*files, bill, sums]


def _keep(files: Sequence[Path]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for each in files:
        shutil.copy(each, DIST)


def _git(*words: str) -> str:
    return _run("git", *words, environment={"HOME": str(Path.home())})


def _module(
    name: str,
    *words: str | Path,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> str:
    return _run(sys.executable, "-m", name, *words, cwd=cwd, environment=environment)


def _run(
    *words: str | Path,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program in an environment of its own, and return what it printed.

    Raises:
        NotReadyError: it failed; with what it said.
    """
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**bare_environment(), "PATH": os.environ["PATH"], **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = "\n".join(filter(None, [done.stdout.strip(), done.stderr.strip()]))
        raise NotReadyError(f"{' '.join(map(str, words))} failed:\n{said}")
    return done.stdout


if __name__ == "__main__":
    main()
