"""Types pages as their readers do, and compares what is printed with what the page says one sees."""

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
        folder: Where it was typed: the copy of the example's folder.
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


class FreePorts:
    """Puts a free port in the place of each port that a page names, and back."""

    def __init__(self):
        self._free = {}

    def move(self, text):
        """A text with the free ports."""
        return PORTS.sub(lambda port: self._free.setdefault(port[0], str(free_port())), text)

    def restore(self, text):
        """A text with the ports of the page."""
        back = {free: port for port, free in self._free.items()}
        return re.sub(r"\b\d+\b", lambda number: back.get(number[0], number[0]), text)


def type_page(name, tmp_path):
    """Type every command of an example's page, in a copy of its folder.

    Args:
        name: The example's folder.
        tmp_path: Where its copy goes.
    """
    ports, folder = FreePorts(), tmp_path / "examples" / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".venv", "__pycache__", "node_modules"))
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    page = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.iterdir():
        path.write_text(ports.move(path.read_text(encoding="utf-8")), encoding="utf-8")
    return type_text(page, tmp_path, ports, folder)


def type_text(page, start, ports=None, folder=None):
    """Type every command of a page; what installs packages is left out, and ports are free ones.

    Args:
        page: The page, or several one after another.
        start: The folder in which the first command is typed.
        ports: The ports that are free.
        folder: The folder that the result names; None for the same.
    """
    ports = ports or FreePorts()
    script = ports.move(INSTALLS.sub("", "\n".join(blocks(page, "bash"))))
    code, output = run_script(script.replace(".venv/bin/", f"{Path(sys.executable).parent}/"), start)
    promised = [line for block in blocks(page, "text") for line in block.splitlines() if line]
    return Typed(folder or start, code, ports.restore(output), promised)


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
