"""`ragmon top` on a terminal: keys, signals, sizes, and a monitor that stops answering and comes back."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from ragmon.config.load import load
from ragmon.monitor.embedded import Monitor
from tests.support.serving import asked, configuration, process
from tests.support.terminal import terminal
from tests.support.waiting import wait_for

GATES = '[pipelines.support]\n[gates.errors]\nmetric = "error_rate"\nat_most = 0.1\n'
LEFT = "\x1b[?1049l\x1b[?25h"
"""What gives the screen and the cursor back."""


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "ragmon.toml"
    path.write_text(GATES + "".join(f'[gates.zz{n:02}]\nmetric = "error_rate"\nat_most = 0.5\n' for n in range(40)))
    return load(path, environ={})


def counted(settings):
    """A monitor that has counted forty requests, of which every fourth is an error."""
    monitor = Monitor(settings)
    for n in range(40):
        monitor.submit(asked(n, ts=time.time() - 1, error="E" if n % 4 == 0 else None))
    return monitor


@pytest.fixture
def monitor(settings):
    with counted(settings).start("127.0.0.1:0") as monitor:
        yield monitor


def shown(monitor, **how):
    """`ragmon top` on a terminal, asking that monitor."""
    return terminal("top", "--url", monitor.address, "--every", "0.5", **how)


def is_left(screen):
    """Whether the terminal is as it was found."""
    return screen.text.endswith(LEFT) and screen.current_modes() == screen.modes


@pytest.mark.slow
@pytest.mark.parametrize("keys", [b"q", b"Q", b"\x03", b"jjkq"])
def test_q_and_ctrl_c_leave_and_restore_the_terminal(monitor, keys):
    with shown(monitor) as screen:
        screen.wait_for_words("errors")
        assert screen.current_modes() != screen.modes
        screen.type(keys)
        assert screen.code() == 0
        assert wait_for(lambda: is_left(screen))


@pytest.mark.slow
def test_ctrl_c_leaves_while_the_first_answer_is_awaited():
    """The system accepts the connection, and nobody answers."""
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, terminal("top", "--url", f"127.0.0.1:{silent.getsockname()[1]}") as screen:
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(100).startswith(b"GET ")
            screen.type(b"\x03")
            assert screen.code() == 0
            assert "Traceback" not in screen.text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_that_end_it_restore_the_terminal(monitor, number):
    with shown(monitor) as screen:
        screen.wait_for_words("errors")
        screen.process.send_signal(number)
        assert screen.code() == 0
        assert wait_for(lambda: is_left(screen))


def test_it_is_current(monitor):
    """Forty more errors are seen without a key."""
    with shown(monitor) as screen:
        assert "0.250" in screen.wait_for_words("errors  ")[1 + _line(screen, "support")]
        for n in range(40, 80):
            monitor.submit(asked(n, ts=time.time() - 1, error="E"))
        screen.wait_for(lambda lines: any(line.startswith("errors ") and "0.625" in line for line in lines))


def _line(screen, name):
    return next(number for number, line in enumerate(screen.lines) if line.strip() == name)


def test_the_picture_follows_the_size_of_the_window(monitor):
    with shown(monitor, columns=80, lines=24) as screen:
        screen.wait_for(lambda lines: len(lines) == 24 and {len(line) for line in lines} == {80})
        for columns, lines in ((132, 40), (40, 12), (20, 5), (3, 1), (80, 24)):
            screen.resize(columns, lines)
            screen.wait_for(lambda seen: len(seen) == lines and {len(line) for line in seen} == {columns})  # noqa: B023
        screen.type(b"q")
        assert screen.code() == 0


def test_more_gates_than_lines_are_scrolled(monitor):
    with shown(monitor, lines=16) as screen:
        first = screen.wait_for_words("errors  ")
        assert any(re.match(r"lines 1 to \d+ of 42: ", line) for line in first)
        assert not any("zz39" in line for line in first)
        for keys, word in (
            (b"G", "zz39"),
            (b"g", "errors  "),
            (b"\x1b[6~\x1b[6~\x1b[B", "zz17"),
            (b"\x1b[H", "errors  "),
        ):
            screen.type(keys)
            screen.wait_for(lambda lines: any(line.startswith(word) for line in lines))  # noqa: B023
        screen.type(b"\x1b[15~q")  # a key that means nothing, and does not end in a command
        assert screen.code() == 0


def _stale(lines):
    """Since when the picture is stale, how long that is, and why; None where it is current."""
    found = re.search(r"stale: no answer since (\S+ UTC) \((.+?) ago\): (.*)", " ".join(" ".join(lines).split()))
    return found and found.groups()


@pytest.mark.slow
def test_a_monitor_that_goes_is_stale_since_its_last_answer_and_recovers(monitor, settings):
    with shown(monitor) as screen:
        screen.wait_for_words("errors  ")
        address = monitor.address
        monitor.stop()
        lines = screen.wait_for(_stale)
        since, age, reason = _stale(lines)
        assert reason.startswith("no answer from")
        assert any(line.startswith("errors ") and "0.250" in line for line in lines)
        later = screen.wait_for(lambda lines: _stale(lines) and _stale(lines)[1] != age)
        assert _stale(later)[0] == since
        with counted(settings).start(address):
            screen.wait_for(lambda lines: lines and not _stale(lines))
            screen.type(b"q")
            assert screen.code() == 0


@pytest.mark.slow
def test_a_server_that_freezes_is_stale_keys_are_read_and_it_recovers(tmp_path):
    configuration(tmp_path, GATES)
    with process(tmp_path) as server, terminal("top", "--url", server.admin, "--every", "0.5") as screen:
        screen.wait_for_words("support")
        server.send(signal.SIGSTOP)
        screen.wait_for(_stale)
        server.send(signal.SIGCONT)
        screen.wait_for(lambda lines: lines and not _stale(lines))
        server.send(signal.SIGSTOP)
        screen.wait_for(_stale)
        screen.type(b"q")  # while a request waits for its answer
        assert screen.code() == 0
        server.send(signal.SIGCONT)


def test_a_suspended_command_gives_the_terminal_back_and_draws_anew(monitor):
    with shown(monitor) as screen:
        screen.wait_for_words("errors  ")
        screen.type(b"\x1a")
        assert os.waitid(os.P_PID, screen.process.pid, os.WSTOPPED).si_status == signal.SIGSTOP
        assert wait_for(lambda: is_left(screen))
        screen.process.send_signal(signal.SIGCONT)
        wait_for(lambda: screen.text.count("\x1b[?1049h") == 2)
        screen.wait_for_words("errors  ")
        screen.type(b"q")
        assert screen.code() == 0


def test_colour_is_left_out_where_the_user_wants_none(monitor):
    with shown(monitor, env={"NO_COLOR": "1"}) as screen:
        screen.wait_for_words("fail ")
        screen.type(b"q")
        assert screen.code() == 0
        assert not re.search(r"\x1b\[[0-9;]*\b3[0-7]m", screen.text)


def test_without_a_keyboard_signals_end_it(monitor):
    """Stdin may be no terminal, and may be at its end."""
    with Path(os.devnull).open() as nothing, shown(monitor, stdin=nothing) as screen:
        screen.wait_for_words("errors  ")
        screen.wait_for_words("errors  ")
        assert screen.process.poll() is None
        screen.type(b"\x03")
        assert screen.code() == 0
