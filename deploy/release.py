# ruff: noqa: INP001 - a program, not a package
"""Prepares a release: `python3 deploy/release.py VERSION`. It needs Python alone, and changes files alone.

* puts the date into the heading `## VERSION (unreleased)` of CHANGELOG.md, whose section a person has written
* writes the version into pyproject.toml and into the files that name it

Read the difference, commit it, tag the commit `vVERSION` and push the tag: deploy/github-actions/release.yml does the
rest. `--check` changes nothing. It says whether the files are those of the release VERSION, and prints its part of
CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
NAMED: Final = {
    "pyproject.toml": ('version = "{}"',),
    "deploy/github-actions/rag-quality.yml": ('"ragmon=={}"',),
    "deploy/chart/Chart.yaml": ("version: {}", "appVersion: {}"),
    "deploy/kubernetes/base/statefulset.yaml": ("ragmon:{}",),
    "deploy/kubernetes/kustomization.yaml": ("newTag: {}",),
    "deploy/kubernetes/stream/kustomization.yaml": ("newTag: {}",),
    "deploy/kubernetes/stream/work.yaml": ("ragmon:{}",),
    "docs/how-to/install.md": ("ragmon-{}-py3", "=={}'"),
    "examples/github-actions/rag-gate.yml": ('"ragmon=={}"',),
}
"""The files that name the version, and how they write it."""
_VERSION: Final = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_UNRELEASED: Final = "\n## {} (unreleased)\n"
_CURRENT: Final = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)


class ReleaseError(Exception):
    """The release cannot be prepared; the message says why and what would be right."""


def prepare(root: Path, version: str, day: date) -> None:
    """Make the files those of a release. Nothing is written if anything is wrong."""
    before = _current(root)
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    _check_follows(version, before, text)
    heading = _UNRELEASED.format(version)
    written = {changelog: text.replace(heading, heading.replace("unreleased", day.isoformat()))}
    for name, places in NAMED.items():
        written[root / name] = _renamed(root / name, places, before, version)
    for path, content in written.items():
        path.write_text(content, encoding="utf-8")


def check(root: Path, version: str) -> str:
    """The part of the changelog about a release whose files these are."""
    current = _current(root)
    if current != version:
        raise ReleaseError(f"pyproject.toml has the version {current}, not {version}: tag the commit v{current}")
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)} \(\d.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no date for {version}: run deploy/release.py {version}, and commit")
    return found[0]


def _current(root: Path) -> str:
    found = _CURRENT.search((root / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise ReleaseError('pyproject.toml has no line `version = "X.Y.Z"`')
    return found[1]


def _check_follows(version: str, before: str, changelog: str) -> None:
    """Check that a version may come after the present one; the first release has the version that is there."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is no version: write MAJOR.MINOR.PATCH, such as 0.2.0")
    if _numbers(version) < _numbers(before):
        raise ReleaseError(f"{version} is before {before}, the version of pyproject.toml")
    heading = _UNRELEASED.format(version)
    if heading in changelog:
        return
    if f"\n## {version} (" in changelog:
        raise ReleaseError(f"CHANGELOG.md has a date for {version} already: a version is released once")
    raise ReleaseError(f"CHANGELOG.md has no section {heading.strip()!r}: write what users see in this version")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _renamed(path: Path, places: tuple[str, ...], before: str, version: str) -> str:
    """A file that names another version."""
    text = path.read_text(encoding="utf-8")
    for place in places:
        if place.format(before) not in text:
            raise ReleaseError(f"{path} does not have {place.format(before)!r}: mend it, or NAMED in deploy/release.py")
        text = text.replace(place.format(before), place.format(version))
    return text


def main() -> int:
    """The program; returns its exit code: 0 done, 1 refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="MAJOR.MINOR.PATCH")
    parser.add_argument("--date", type=date.fromisoformat, default=datetime.now(UTC).date(), help="default: today, UTC")
    parser.add_argument("--check", action="store_true", help="change nothing; print the section of the changelog")
    asked = parser.parse_args()
    try:
        if asked.check:
            sys.stdout.write(check(ROOT, asked.version))
        else:
            prepare(ROOT, asked.version, asked.date)
    except ReleaseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
