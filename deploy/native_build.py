# ruff: noqa: INP001 - hatchling finds it by its path
"""The build hook of wheels: compiles the native core where cargo is there, and puts its one file into the wheel.

Without cargo the wheel is pure Python and everything works, more slowly. `RAGMON_NATIVE=0` leaves the core out, and
`RAGMON_NATIVE=1` makes its absence an error, for those who publish wheels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILE_NAME = "libragmon_core.dylib" if sys.platform == "darwin" else "libragmon_core.so"


class NativeBuild(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the library to a wheel, or puts it into the checkout of an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the library, and name the platform of the wheel.

        Args:
            version: `standard` or `editable`.
            build_data: What hatchling is told of the wheel.
        """
        crate = Path(self.root) / "ragmon" / "native"
        built, why = _build(crate)
        if built is None:
            if os.environ.get("RAGMON_NATIVE") == "1":
                raise RuntimeError(f"the native core is asked for by RAGMON_NATIVE=1: {why}")
            (crate / "lib" / FILE_NAME).unlink(missing_ok=True)  # one of an earlier installation would be taken along
            self.app.display_info(f"ragmon without its native core, {why}: everything works, replay takes longer")
            return
        (crate / "lib").mkdir(exist_ok=True)
        shutil.copy2(built, crate / "lib" / FILE_NAME)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"
        build_data["artifacts"].append(f"ragmon/native/lib/{FILE_NAME}")


def _build(crate: Path) -> tuple[Path | None, str]:
    """The compiled library, or None and the reason why there is none."""
    if os.environ.get("RAGMON_NATIVE") == "0":
        return None, "switched off by RAGMON_NATIVE=0"
    cargo = shutil.which("cargo")
    if cargo is None:
        return None, "there is no cargo"
    target = crate / "target"
    command = [cargo, "build", "--release", "--offline", "--locked", "--target-dir", str(target)]
    done = subprocess.run(command, cwd=crate, capture_output=True, text=True, check=False)  # noqa: S603 - cargo's own
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"cargo ended with {done.returncode}"]
        return None, f"cargo failed ({lines[-1]})"
    return target / "release" / FILE_NAME, ""


def _platform() -> str:
    """The platform of a wheel that is for this machine alone; auditwheel gives it the name of all that run it."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
