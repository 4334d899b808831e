"""The configuration, read again when it changes: a broken one leaves the old one in force, and says so."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from os import stat_result
from pathlib import Path
from typing import Final

from ragmon.alarms import AlarmRule
from ragmon.config.load import load
from ragmon.config.services import ServeTable
from ragmon.config.settings import Settings
from ragmon.config.sources import chain
from ragmon.core.errors import GoldError, RagmonError
from ragmon.monitor.engine import Engine
from ragmon.monitor.log import complain
from ragmon.server.journal import RetentionLimits
from ragmon.server.pipeline.state import ServerState
from ragmon.server.pipeline.writer import JournalWriter
from ragmon.server.probes import ProbeSupervisor

FIXED: Final = ("otlp", "grpc", "admin", "hosts", "token_file", "tls", "state_dir")
"""Keys of `[serve]` that hold until the server is started again."""
_log = logging.getLogger("ragmon.server")

Signature = dict[Path, tuple[str, int, int, int] | None]


class ConfigReloader:
    """Keeps the configuration in force in step with the one on disk.

    Files are told apart by what their names lead to, so that a swapped symbolic link counts as a change: that is how
    Kubernetes writes a ConfigMap.

    Args:
        settings: The configuration in force.
        writer: Whose it is.
        probing: Runs its probes.

    Attributes:
        probing: As given.
        broken: Why the configuration on disk is not the one in force, without a word of the gold; "" where it is.
        since: Since when it is not, seconds since the epoch; None where it is.
        hint: What would be right.
    """

    def __init__(self, settings: Settings, writer: JournalWriter, probing: ProbeSupervisor) -> None:
        self.broken = self.hint = ""
        self.since: float | None = None
        self._settings = self._read = settings
        self._writer = writer
        self.probing = probing
        self._seen = self._still = self._before = self._signature()

    def look(self) -> bool:
        """Read the configuration again if a file changed and is not being written; returns whether it did so.

        What changed since the look before is left for the next one: half a file may be good enough to be believed.
        """
        found = self._signature()
        still, self._still = self._still, found
        if found == self._seen or found != still:
            return False
        self.reload()
        return True

    def reload(self) -> bool:
        """Read the configuration again; returns whether it is in force now."""
        self._before = self._signature()
        try:
            return self._reload()
        finally:
            self._seen = {path: self._before.get(path, found) for path, found in self._signature().items()}

    def _reload(self) -> bool:
        try:
            settings = self._read = load(self._settings.path)
            self._before = {**self._signature(), **self._before}  # before the gold it names is read, which may come now
            server_state = ServerState(settings)
            self._writer.errand(lambda: self._go_on_with(server_state)).result()
            self.probing.configure(settings)
        except RagmonError as error:
            self._refuse(error)
            return False
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin is foreign code and may do anything
            complain("the configuration cannot be put in force", error)
            self._refuse(RagmonError(f"{type(error).__name__}", hint="the log says where"))
            return False
        for key in FIXED:
            if getattr(settings.serve, key) != getattr(self._settings.serve, key):
                _log.warning("`[serve] %s` changed; it takes effect when the server is started again", key)
        self.broken, self.since, self.hint = "", None, ""
        self._settings = settings
        _log.info("the configuration was read again")
        return True

    def _refuse(self, error: RagmonError) -> None:
        """Keep what is in force, and say why."""
        told = _of_gold(error) if isinstance(error, GoldError) else str(error)
        self.broken, self.hint = f"the configuration on disk is not in force: {told}", error.hint
        self.since = self.since or self._writer.clock.now()
        _log.error("the configuration on disk is not in force: %s (%s)", error, error.hint)

    def _go_on_with(self, server_state: ServerState) -> None:
        """Put a configuration in force between two rows."""
        writer = self._writer
        with writer.lock:
            before = writer.server_state.engine
            writer.go_on_with(server_state)
            writer.journal.limits = limits(server_state.engine.settings.serve)
            reset_alarms(before, server_state.engine)

    def _signature(self) -> Signature:
        return {path: _of(path) for path in (*_files(self._settings), *_files(self._read))}


def _of_gold(error: GoldError) -> str:
    """What is said of a broken gold file where no text of it may be shown."""
    place = error.path if error.line is None else f"{error.path}:{error.line}"
    return f"{place}: the gold file is refused, the log says why"


def limits(serve: ServeTable) -> RetentionLimits:
    """How much a journal holds."""
    return RetentionLimits(retention=float(serve.retention), size=int(serve.max_size))


def reset_alarms(before: Engine, now: Engine) -> None:
    """Silence the alarms that guard something else than they did: what they saw so far proves nothing of it.

    Args:
        before: What was in force.
        now: What is, with the same counts.
    """
    for name, pipeline in now.alarms.pipelines.items():
        old = before.alarms.pipelines[name].alarms
        for alert, alarm in pipeline.alarms.items():
            if alert in old and _guarded(alarm.watch) != _guarded(old[alert].watch):
                now.acknowledge(name, alert, "it guards something else now")


def _guarded(watch: AlarmRule) -> AlarmRule:
    """What an alarm is about; how urgent it is and how much proof it takes may change while it fires."""
    return replace(watch, severity="", threshold=0.0)


def _files(settings: Settings) -> Iterator[Path]:
    """What a configuration is read from: its files, gold, what was frozen, keys."""
    if settings.path is not None:
        yield from _chain(settings.path)
    for gold in settings.gold:
        for path in gold.paths:
            yield path
            yield from _inside(path)
        yield from (path for path in (gold.frozen, gold.key_file) if path is not None)
    shared = (settings.common, *settings.pipelines.values())
    yield from sorted({file for one in shared if (file := one.alarms.baseline.file) is not None})
    yield from sorted({file for one in shared if (file := one.capture.hash_key_file) is not None})


def _chain(path: Path) -> list[Path]:
    """A file and those it extends; the file alone where it says something no file can."""
    try:
        return chain(path)
    except (RuntimeError, ValueError):  # too deep, or the home of nobody
        return [path]


def _inside(folder: Path) -> Iterable[Path]:
    """The files of a gold set that is a folder."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()


def _of(path: Path) -> tuple[str, int, int, int] | None:
    """What tells this file from an older one of its name; None where it is missing."""
    try:
        real = path.resolve()
        found: stat_result = real.stat()
    except (OSError, RuntimeError, ValueError):
        return None
    return str(real), found.st_ino, found.st_mtime_ns, found.st_size
