"""What has to be in order before a release is made."""

from __future__ import annotations

import pytest

from release import make
from release.make import NotReadyError, check_changelog, version_of
from tests.command_line import ROOT

CHANGES = "# Changes\n\n## {}\n\n### Building\n\n- More.\n\n## 0.0.9 (2026-01-01)\n\n- First.\n"


def test_this_tree_can_be_dry_run() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    check_changelog(text, version_of(ROOT), may_be_unreleased=True)


@pytest.mark.parametrize(
    ("heading", "may_be_unreleased", "is_ready"),
    [
        ("0.1.0 (2026-11-26)", False, True),
        ("0.1.0 (2026-11-26)", True, True),
        ("Unreleased", True, True),
        ("Unreleased", False, False),
        ("0.1.0", False, False),
        ("0.1.1 (2026-11-26)", True, False),
        ("0x1x0 (2026-11-26)", False, False),
    ],
)
def test_the_changelog_begins_with_the_version(
    heading: str, *, may_be_unreleased: bool, is_ready: bool
) -> None:
    text = CHANGES.format(heading)
    if is_ready:
        check_changelog(text, "0.1.0", may_be_unreleased=may_be_unreleased)
    else:
        with pytest.raises(NotReadyError, match=r"CHANGELOG\.md begins with"):
            check_changelog(text, "0.1.0", may_be_unreleased=may_be_unreleased)


def test_a_version_without_changes_is_not_released() -> None:
    text = CHANGES.format("0.1.0 (2026-11-26)").replace("- More.", "")
    with pytest.raises(NotReadyError, match="lists no changes"):
        check_changelog(text, "0.1.0", may_be_unreleased=False)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"status": " M README.md\n"}, "not committed"),
        ({"tag": "v0.1.0\n"}, "There is a tag v0.1.0 already"),
    ],
)
def test_a_version_is_released_once_and_from_a_commit(
    said: dict[str, str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "_git", lambda *words: said.get(words[0], ""))
    with pytest.raises(NotReadyError, match=complaint):
        make.check_tree("0.1.0")
    monkeypatch.setattr(make, "_git", lambda *_: "")
    make.check_tree("0.1.0")
