"""The virtual environment the tracers live in, so that none of them is among ragmon's own dependencies."""

from __future__ import annotations

import platform
import subprocess
import venv
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_TOGETHER: Final = 300.0
_ALONE: Final = 60.0
"""Seconds an installation may take, of all tracers at once and of each by itself where that failed."""


def python(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / "bin" / "python"


def prepare(folder: Path, left: Callable[[], float]) -> dict[str, str]:
    """Install ragmon from this checkout, and every tracer that can be installed.

    Args:
        folder: The virtual environment; made where it is not there, left alone where nothing changed.
        left: How many seconds there are left to install.

    Returns:
        What is missing, and why, by package.
    """
    stamp, wanted = folder / ".installed", _fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return {}
    venv.create(folder, with_pip=True)
    (folder / ".gitignore").write_text("*\n")
    print(f"installing tracers into {folder}", flush=True)
    everything = ["--requirement", str(REQUIREMENTS)]
    failed = _install(folder, everything, min(_TOGETHER, left()))
    if failed is None:
        stamp.write_text(wanted)
        return {}
    print(f"not together: {failed}", flush=True)
    limits = ["--constraint", str(REQUIREMENTS)]
    alone = {tracer: _install(folder, [tracer, *limits], min(_ALONE, left())) for tracer in _tracers()}
    return {tracer: why for tracer, why in alone.items() if why is not None}


def _tracers() -> list[str]:
    """The packages in the first block of the requirements."""
    block = REQUIREMENTS.read_text().split("# What they leave open")[0]
    return [line.split(">=")[0] for line in block.splitlines() if line and not line.startswith("#")]


def _fingerprint() -> str:
    """What the environment was made of."""
    told = [path.read_bytes() for path in (REQUIREMENTS, ROOT / "pyproject.toml")]
    return sha256(b"".join([platform.python_version().encode(), *told])).hexdigest()


def _install(folder: Path, what: Sequence[str], seconds: float) -> str | None:
    """Install something beside ragmon; returns why that failed."""
    pip = [str(python(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--editable", str(ROOT), *what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not installed within {seconds:.0f} s"
    errors = (line for line in done.stderr.splitlines() if line.startswith("ERROR"))
    return next(errors, last_line(done.stderr)) if done.returncode else None


def last_line(said: str) -> str:
    """The last thing a program said, which is mostly why it failed."""
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "it did not say why")
