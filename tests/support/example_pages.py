"""Types the page of an example as its reader does, in a copy of its folder, and compares what is printed with it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.collectors import free_port
from tests.support.command_line import environment
from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PORTS = re.compile(r"\b(?:8000|9464|4318|4317|9090|9093|9094)\b")
INSTALLS = re.compile(r"^(?:python3 -m venv|\.venv/bin/pip install|sudo apt-get install) .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """What came of a page.

    Attributes:
        folder: The copy of the example's folder.
        code: The exit code of the last command.
        output: What the commands wrote, with the ports of the page.
        promised: The lines the page says one sees.
    """

    folder: Path
    code: int
    output: str
    promised: list[str]

    @property
    def missing(self):
        """The promised lines that nothing wrote; `…` stands for any text."""
        written = [line.rstrip() for line in self.output.splitlines()]
        patterns = {line: re.compile(".*".join(map(re.escape, line.rstrip().split("…")))) for line in self.promised}
        return [line for line, pattern in patterns.items() if not any(map(pattern.fullmatch, written))]


def blocks(page, language):
    """The fenced blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def type_page(name, tmp_path):
    """Type every command of a page; what installs packages is left out, and ports are free ones.

    Args:
        name: The example's folder.
        tmp_path: Where its copy goes.
    """
    ports = {}

    def moved(text):
        return PORTS.sub(lambda port: ports.setdefault(port[0], str(free_port())), text)

    folder = tmp_path / "examples" / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".venv", "__pycache__", "node_modules"))
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    page = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.iterdir():
        path.write_text(moved(path.read_text(encoding="utf-8")), encoding="utf-8")
    script = moved(INSTALLS.sub("", "\n".join(blocks(page, "bash"))))
    script = script.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    code, output = run_script(script, tmp_path)
    for port, free in ports.items():
        output = re.sub(rf"\b{free}\b", port, output)
    return Typed(folder, code, output, [line for block in blocks(page, "text") for line in block.splitlines() if line])


def run_script(script, folder):
    """The exit code of a script and what it wrote; whatever it leaves running is ended."""
    env = environment(TMPDIR=str(folder), HOME=str(folder))
    with (folder / "typed").open("w+", encoding="utf-8") as written:
        process = subprocess.Popen(
            ["/bin/bash", "-ec", script], cwd=folder, env=env, stdout=written, stderr=written, start_new_session=True
        )
        try:
            code = process.wait(TIMEOUT)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        written.seek(0)
        return code, written.read()
