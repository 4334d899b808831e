"""Types a page of docs/ as its reader does, in an empty folder, and compares what is printed with it."""

from __future__ import annotations

import re
import sys

from tests.support.collectors import free_port
from tests.support.example_pages import INSTALLS, PORTS, ROOT, Typed, blocks, run_script

DOCS = ROOT / "docs"


def type_doc(name, folder):
    """Type every command of a page of docs/; what installs packages is left out, and ports are free ones.

    Args:
        name: The page, such as `how-to/gold.md`.
        folder: An empty folder.
    """
    ports = {}

    def moved(text):
        return PORTS.sub(lambda port: ports.setdefault(port[0], str(free_port())), text)

    page = (DOCS / name).read_text(encoding="utf-8")
    script = moved(INSTALLS.sub("", "\n".join(blocks(page, "bash"))))
    code, output = run_script(script.replace(".venv/bin/", f"{sys.executable.rpartition('/')[0]}/"), folder)
    for port, free in ports.items():
        output = re.sub(rf"\b{free}\b", port, output)
    return Typed(folder, code, output, [line for block in blocks(page, "text") for line in block.splitlines() if line])
