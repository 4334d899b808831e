"""A command on a terminal of its own: what its screen shows, keys that are typed, and the modes it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
from contextlib import contextmanager

from tests.support.command_line import start
from tests.support.waiting import TIMEOUT, wait_for

_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A command that has a terminal for its three streams, and controls it, so that Ctrl-C and Ctrl-Z reach it.

    Args:
        arguments: What stands after `ragmon`.
        columns, lines: The size of the terminal.
        env: More of the environment.
        streams: Streams that are not the terminal.
    """

    def __init__(self, *arguments, columns=80, lines=24, env=None, **streams):
        self._screen, self._side = pty.openpty()
        self._resize(columns, lines)
        self.modes = self.current_modes()
        self.drawn = b""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), self._side) | streams
        self.process = start(
            *arguments,
            env={"TERM": "xterm-256color", **(env or {})},
            text=False,
            encoding=None,
            preexec_fn=self._control,
            start_new_session=True,
            **streams,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _control(self):
        fcntl.ioctl(self._side, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def _read(self):
        while not self.drawn.endswith(b"\x00"):
            try:
                self.drawn += os.read(self._screen, 65536)
            except OSError:
                return

    def _resize(self, columns, lines):
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns, lines):
        """Give the window another size; the kernel tells the command."""
        self._resize(columns, lines)

    def current_modes(self):
        """The modes of the keyboard, without the characters that stand for something."""
        return termios.tcgetattr(self._side)[:6]

    def type(self, keys):
        """Press keys."""
        os.write(self._screen, keys)

    @property
    def text(self):
        """Everything that was written."""
        return self.drawn.decode(errors="replace")

    @property
    def lines(self):
        """The lines of the latest picture that is complete: every picture begins in the upper left corner."""
        pictures = self.text.split("\x1b[H")
        return [_STYLE.sub("", line).rstrip("\r") for line in pictures[-1].split("\n")] if len(pictures) > 1 else []

    def wait_for(self, condition):
        """Wait until the lines on the screen are as they should be; returns them."""
        return wait_for(lambda: self.lines, condition)

    def wait_for_words(self, words):
        """Wait until some words are on the screen; returns its lines."""
        return self.wait_for(lambda lines: words in "\n".join(lines))

    def code(self):
        """Its exit code."""
        return self.process.wait(timeout=TIMEOUT)

    def close(self):
        """End it, and its terminal."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=TIMEOUT)
        os.write(self._side, b"\x00")  # the reader's end
        self._reader.join(timeout=TIMEOUT)
        os.close(self._side)
        os.close(self._screen)


@contextmanager
def terminal(*arguments, **how):
    """A command on a terminal, ended at the end."""
    running = Terminal(*arguments, **how)
    try:
        yield running
    finally:
        running.close()
