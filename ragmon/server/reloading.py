"""The configuration, read again when it changes: a broken one leaves the old one in force, and says so."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from os import stat_result
from pathlib import Path
from typing import Final

from ragmon.config.files import chain
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.errors import RagmonError
from ragmon.server.keeper import Keeper
from ragmon.server.standing import Standing

FIXED: Final = ("otlp", "grpc", "admin", "token_file", "tls", "state_dir")
"""Keys of `[serve]` that hold until the server is started again."""
_log = logging.getLogger("ragmon.server")

Signature = tuple[tuple[str, int, int, int] | None, ...]


class Reloading:
    """Keeps the configuration in force in step with the one on disk.

    Files are told apart by what their names lead to, so that a swapped symbolic link counts as a change: that is how
    Kubernetes writes a ConfigMap.

    Args:
        settings: The configuration in force.
        keeper: Whose it is.

    Attributes:
        broken: Why the configuration on disk is not the one in force; "" where it is.
    """

    def __init__(self, settings: Settings, keeper: Keeper) -> None:
        self.broken = ""
        self._settings = settings
        self._keeper = keeper
        self._seen = self._signature()

    def look(self) -> bool:
        """Read the configuration again if a file changed; returns whether one did."""
        found = self._signature()
        if found == self._seen:
            return False
        self.reload()
        return True

    def reload(self) -> bool:
        """Read the configuration again; returns whether it is in force now."""
        self._seen = self._signature()
        try:
            settings = load(self._settings.path)
            standing = Standing(settings)
            self._keeper.errand(lambda: self._keeper.go_on_with(standing)).result()
        except RagmonError as error:
            self.broken = f"the configuration on disk is not in force: {error}"
            _log.error("%s (%s)", self.broken, error.hint)
            return False
        for key in FIXED:
            if getattr(settings.serve, key) != getattr(self._settings.serve, key):
                _log.warning("`[serve] %s` changed; it takes effect when the server is started again", key)
        self.broken = ""
        self._settings = settings
        _log.info("the configuration was read again")
        return True

    def _signature(self) -> Signature:
        return tuple(_of(path) for path in _files(self._settings))


def _files(settings: Settings) -> Iterable[Path]:
    """What a configuration is read from: its files, gold, frozen baselines."""
    if settings.path is not None:
        yield from chain(settings.path)
    for gold in settings.gold:
        yield from gold.paths
    shared = (settings.common, *settings.pipelines.values())
    yield from sorted({path for one in shared if (path := one.alarms.baseline.file) is not None})


def _of(path: Path) -> tuple[str, int, int, int] | None:
    """What tells this file from an older one of its name; None where it is missing."""
    try:
        real = path.resolve()
        found: stat_result = real.stat()
    except (OSError, RuntimeError):
        return None
    return str(real), found.st_ino, found.st_mtime_ns, found.st_size
