"""The page on installing is typed in a clone, and a wheel has everything that an installed ragmon reads."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import environment
from tests.support.typed_pages import blocks
from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "install.md"
BUILT = ("pyproject.toml", "README.md", "LICENSE", "ragmon")
"""What a wheel is built from."""
pytest.importorskip("hatchling")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with an environment that sees the packages of this one, so that no index is asked."""
    folder = tmp_path_factory.mktemp("ragmon")
    for name in BUILT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(source, folder / name)
    venv.create(folder / ".venv", with_pip=True)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / ".venv" / "lib" / python / "site-packages"
    (packages / "seen.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def typed(clone):
    """What came of the page's commands; the environment is there already, and pip takes nothing from an index."""
    script = re.sub(r"^ *python3 -m venv .*\n", "", "\n".join(bash_blocks()), flags=re.MULTILINE)
    offline = {
        "PYTHONPATH": "",  # what is typed runs what was installed
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", script],
        cwd=clone,
        env=environment(**offline),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def bash_blocks():
    """The commands of the page, those in its numbered steps too."""
    text = re.sub(r"^    ", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_page_can_be_typed_line_by_line(typed):
    assert typed.returncode == 0, typed.stderr
    promised = [line for line in "".join(blocks(PAGE, "text")).splitlines() if line]
    written = typed.stdout.splitlines()
    assert promised
    assert [line for line in promised if not fnmatch.filter(written, line.replace("…", "*"))] == []


@pytest.mark.slow
def test_what_is_installed_is_the_clone(typed, clone):
    assert typed.returncode == 0, typed.stderr
    told = subprocess.run(
        [clone / ".venv" / "bin" / "python", "-c", "import ragmon; print(ragmon.__file__)"],
        cwd=clone.parent,
        env=environment(PYTHONPATH=""),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(told.stdout.strip()).is_relative_to(clone / ".venv")


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package_and_nothing_else(typed, clone):
    """Templates, style sheets, the runbook, the demo's corpus: what is read from the package is in it."""
    assert typed.returncode == 0, typed.stderr
    (wheel,) = (clone / "dist").iterdir()
    with zipfile.ZipFile(wheel) as opened:
        inside = {name for name in opened.namelist() if ".dist-info/" not in name}
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ragmon").rglob("*") if path.is_file()}
    assert wheel.name.endswith("-py3-none-any.whl")
    assert inside == {path for path in package if "__pycache__" not in path}
    for pattern in (
        "core/refusals.toml",
        "export/templates/*.jinja",
        "export/static/*.css",
        "export/runbook.html",
        "demo/*.jsonl",
        "py.typed",
    ):
        assert fnmatch.filter(inside, f"ragmon/{pattern}"), pattern


def test_every_extra_has_a_row_and_every_row_an_extra():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^\[project\.optional-dependencies\]\n(.*?)^\[", project, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))
