"""Types the `bash` blocks of a documentation page, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import environment
from tests.support.waiting import TIMEOUT


def blocks(path, language):
    """The fenced blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def typed(path, folder):
    """The finished process that ran all `bash` blocks of a page, one after another; the first error ends it."""
    script = "\n".join(blocks(path, "bash")).replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    return subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=environment(TMPDIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
