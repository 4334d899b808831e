"""Hot reload of the configuration; a broken configuration leaves the previous one in force and is reported."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from os import stat_result
from pathlib import Path
from typing import Final

from ragmon.alarms.plan import AlarmRule
from ragmon.config.load import chain, load
from ragmon.config.services import ServeTable
from ragmon.config.settings import Settings
from ragmon.core.errors import GoldError, RagmonError, log_error
from ragmon.monitor.engine import Engine
from ragmon.server.journal import RetentionLimits
from ragmon.server.probes import ProbeSupervisor
from ragmon.server.state import ServerState
from ragmon.server.writer import JournalWriter

FIXED: Final = ("otlp", "grpc", "admin", "hosts", "token_file", "tls", "state_dir", "from")
"""Keys of `[serve]` that take effect only when the server is restarted."""
_TIMES: Final = 100
"""Reloads whose time is kept."""
_log = logging.getLogger("ragmon.server")

Signature = dict[Path, tuple[str, int, int, int] | None]


class ConfigReloader:
    """Reloads the configuration when one of its files changes.

    A file's signature includes the path that its name resolves to, so a swapped symbolic link counts as a change:
    Kubernetes updates a ConfigMap that way.

    Attributes:
        broken: Why the configuration on disk is not in force, without any text of the gold; "" where it is in force.
        since: Since when it is not in force, seconds since the epoch; None where it is.
        hint: How to correct it.
        times: When another configuration came into force, seconds since the epoch; the latest ones.
    """

    def __init__(self, settings: Settings, writer: JournalWriter, probing: ProbeSupervisor) -> None:
        self.broken = self.hint = ""
        self.since: float | None = None
        self._settings = self._last_read = settings
        self._writer = writer
        self.probing = probing
        self.times: deque[float] = deque(maxlen=_TIMES)
        self._loaded = self._last_polled = self._before = self._signature()

    def poll(self) -> bool:
        """Reload the configuration if a file changed and is no longer being written; returns whether it reloaded.

        A change since the previous poll waits for the next poll: half a written file may be valid and would be
        accepted.
        """
        signature = self._signature()
        previous, self._last_polled = self._last_polled, signature
        if signature == self._loaded or signature != previous:
            return False
        self.reload()
        return True

    def reload(self) -> bool:
        """Reload the configuration; returns whether it is in force now."""
        self._before = self._signature()
        try:
            try:
                settings = self._last_read = load(self._settings.path)
                self._before = self._signature() | self._before  # before the gold is read: it may change
                server_state = ServerState(self._with_fixed_source(settings))
                self._writer.run_between_rows(lambda: self._apply(server_state)).result()
                self.probing.configure(settings)
            except RagmonError as error:
                self._refuse(error)
                return False
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin is third-party code and may raise anything
                log_error("the configuration cannot be put in force", error)
                self._refuse(RagmonError(f"{type(error).__name__}", hint="the log says where"))
                return False
            for key in FIXED:
                if getattr(settings.serve, key) != getattr(self._settings.serve, key):
                    _log.warning("`[serve] %s` changed; it takes effect when the server is started again", key)
            self.broken, self.since, self.hint = "", None, ""
            self._settings = self._with_fixed_source(settings)
            self.times.append(self._writer.clock.now())
            _log.info("the configuration was read again")
            return True
        finally:
            self._loaded = {path: self._before.get(path, signature) for path, signature in self._signature().items()}

    def _with_fixed_source(self, settings: Settings) -> Settings:
        """The settings with what this server counts as it was at the start: its reader is that of then."""
        kept = {"from": getattr(self._settings.serve, "from")}
        return replace(settings, serve=settings.serve.model_copy(update=kept))

    def _refuse(self, error: RagmonError) -> None:
        message = str(error)
        if isinstance(error, GoldError):  # its own message has text of the gold
            location = error.path if error.line is None else f"{error.path}:{error.line}"
            message = f"{location}: the gold file is refused, the log says why"
        self.broken, self.hint = f"the configuration on disk is not in force: {message}", error.hint
        self.since = self.since or self._writer.clock.now()
        _log.error("the configuration on disk is not in force: %s (%s)", error, error.hint)

    def _apply(self, server_state: ServerState) -> None:
        writer = self._writer
        with writer.lock:
            old_engine = writer.server_state.engine
            writer.replace_state(server_state)
            writer.journal.limits = limits(server_state.engine.settings.serve)
            reset_alarms(old_engine, server_state.engine)

    def _signature(self) -> Signature:
        return {path: _file_signature(path) for path in (*_files(self._settings), *_files(self._last_read))}


def limits(serve: ServeTable) -> RetentionLimits:
    """The retention limits of the journal."""
    return RetentionLimits(retention=float(serve.retention), size=int(serve.max_size))


def reset_alarms(before: Engine, now: Engine) -> None:
    """Silence the alarms whose rule changed: the evidence gathered so far says nothing about the new rule."""
    for name, pipeline in now.alarms.pipelines.items():
        old_rules = before.alarms.pipelines[name].rules
        for alert, rule in pipeline.rules.items():
            if alert in old_rules and _rule_identity(rule) != _rule_identity(old_rules[alert]):
                now.restart_alarm(name, alert, "it guards something else now")


def _rule_identity(rule: AlarmRule) -> AlarmRule:
    """What an alarm watches; severity and threshold may change while it fires."""
    return replace(rule, severity="", threshold=0.0)


def _files(settings: Settings) -> Iterator[Path]:
    if settings.path is not None:
        try:
            yield from chain(settings.path)
        except (RuntimeError, ValueError):  # the chain is too deep, or `~user` names no user
            yield settings.path
    for gold in settings.gold:
        for path in gold.path:
            yield path
            with suppress(OSError):  # it is a file, or is not there
                yield from sorted(path.iterdir())
        yield from (path for path in (gold.frozen, gold.key_file) if path is not None)
    shared = (settings.unconfigured, *settings.pipelines.values())
    yield from sorted({file for pipeline in shared if (file := pipeline.alarms.baseline.file) is not None})
    yield from sorted({file for pipeline in shared if (file := pipeline.capture.hash_key_file) is not None})


def _file_signature(path: Path) -> tuple[str, int, int, int] | None:
    try:
        real = path.resolve()
        info: stat_result = real.stat()
    except (OSError, RuntimeError, ValueError):
        return None
    return str(real), info.st_ino, info.st_mtime_ns, info.st_size
