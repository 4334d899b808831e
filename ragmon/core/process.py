"""The process and its machine: garbage collection, forks, folders, keys, functions named in settings, CPU time."""

from __future__ import annotations

import gc
import hmac
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from shlex import quote
from time import monotonic, thread_time
from typing import Any, Final, cast

from ragmon.core.errors import RagmonError, warn_once


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch garbage collection off for a while, in the whole process.

    Where very many objects are made at once and no cycle among them, the collector would look at all of them again and
    again while their number grows: a third of the time that a large gold set takes.

    >>> with without_collector():
    ...     gc.isenabled()
    False
    """
    gc_was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if gc_was_enabled:
            gc.enable()


importing: Final = threading.RLock()
"""Held while a thread imports modules: a child forked meanwhile would wait for ever for the end of that import."""
os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)

# Keeps the events, and so the greenlets that wait for them: a collected greenlet would run its `finally` clauses.
_sleeping: Final[list[threading.Event]] = []


def sleep_if_inherited(process: int) -> None:
    """Let the current thread sleep for ever if it runs in another process than the process that started it.

    A fork copies no threads, but gevent makes greenlets of threads, and these go on in the child. There the greenlet
    would finish what the parent finishes as well: deliver a record again, or answer a request that came to the parent.
    Python has forgotten it as a thread, so its end would be an error too.


    Source: gevent's documentation of `gevent.os.fork`.
    """
    if os.getpid() != process:
        never = threading.Event()  # made here: the module may be imported before gevent replaces the class
        _sleeping.append(never)
        while True:
            never.wait()


def default_folder(identity: str) -> Path | None:
    """The folder for the shared files of processes without a configured folder; None without a temporary directory."""
    try:
        return Path(tempfile.gettempdir()) / f"ragmon-{os.getuid()}" / identity
    except FileNotFoundError:
        return None


def allocate(file: int, size: int) -> None:
    """Give a file its blocks on the disk, so that a store into its memory map cannot end the process on a full disk.

    macOS has no `posix_fallocate`; zeros are written there.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    present = os.fstat(file).st_size
    os.pwrite(file, bytes(max(size - present, 0)), present)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for this user alone, whatever the umask is."""
    for level in (*reversed(folder.parents), folder):
        level.mkdir(mode=0o700, exist_ok=True)


def make_state_folder(folder: Path) -> None:
    """Make a state folder; a folder that exists may be open to its owner, and with a warning to its group."""
    make_folder(folder)
    mode = folder.stat().st_mode
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        is_shared = mode & stat.S_ISVTX  # as /tmp is, which must stay so
        hint = f"a folder in it: {folder / 'ragmon-state'}" if is_shared else f"chmod o-rwx {quote(str(folder))}"
        raise RagmonError(f"{folder}: every user may read or change the state in it ({stat.filemode(mode)})", hint=hint)
    if mode & (stat.S_IRGRP | stat.S_IWGRP):
        warn_once(f"{folder}: its group may read or change the state in it ({stat.filemode(mode)})")


def make_private(folder: Path) -> None:
    """Make a folder and its parent, writable by this user alone."""
    for level in (folder.parent, folder):
        with suppress(FileExistsError):
            level.mkdir(mode=0o700)
        if not is_private(level):
            raise PermissionError(f"{level} is not this user's alone")


def is_private(folder: Path) -> bool:
    """Whether a folder belongs to this user, and no other user may write to it."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


KEY_BYTES: Final = 16
"""A shorter key or token can be guessed."""
_PRINTABLE: Final = re.compile(r"[!-~]+")


def keyed_hash(key: bytes, text: str) -> str:
    """HMAC-SHA256 of a text in hex; a reader without the key learns only whether two texts are equal.

    >>> keyed_hash(b"sixteen bytes...", "where is it") == keyed_hash(b"sixteen bytes...", "where is it")
    True
    """
    return hmac.digest(key, text.encode(), "sha256").hex()


def read_key(path: Path, setting: str) -> bytes:
    """Read a key from a file, without the white space around it."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise RagmonError(f"{path}: the key cannot be read ({error.strerror})", hint=f"check {setting}") from error
    if len(key) < KEY_BYTES:
        hint = f"let {setting} name a file of at least {KEY_BYTES} random bytes"
        raise RagmonError(f"{path}: the key is too short: {len(key)} bytes", hint=hint)
    return key


def read_token(path: Path | None) -> str | None:
    """The bearer token in the file of `[serve] token_file`, without the white space around it; None without a file."""
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RagmonError(f"{path}: the token cannot be read ({error})", hint="check `[serve] token_file`") from error
    if not _PRINTABLE.fullmatch(token):
        problem = "is empty" if not token else "cannot be sent in a header"
    elif len(token) < KEY_BYTES:
        problem = f"is too short: {len(token)} bytes"
    else:
        return token
    hint = f"one line of at least {KEY_BYTES} printable characters without spaces: openssl rand -hex 16 > {path}"
    raise RagmonError(f"{path}: the token {problem}", hint=hint)


def import_name(path: str) -> Any:
    """The object a configuration names as `module:name`; the name may have dots.

    >>> import_name("math:pi")
    3.141592653589793
    """
    module, _, name = path.partition(":")
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def function_at(path: str, setting: str, example: str) -> Callable[..., Any]:
    """The function a configuration names as `module:function`."""
    try:
        function = import_name(path)
    except (ImportError, AttributeError) as error:
        raise RagmonError(f"{setting}: {path} is not there ({error})", hint=example) from error
    if not callable(function):
        raise RagmonError(f"{setting}: {path} is not a function", hint=example)
    return cast("Callable[..., Any]", function)


@cache
def current_version() -> str:
    """The installed version; `0+unknown` where the package was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - takes longer than click

    try:
        return version("ragmon")
    except PackageNotFoundError:
        return "0+unknown"


class Deadline:
    """A deadline in CPU time of the current thread."""

    def __init__(self, seconds: float) -> None:
        self._cpu = thread_time() + seconds
        self._wall = monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed; the cheap wall clock is read first, which can never pass later."""
        now = monotonic()
        if now < self._wall:
            return False
        left = self._cpu - thread_time()
        # The thread needs at least that long for what is left.
        self._wall = now + left
        return left <= 0
