"""What of a record may leave the process: one policy per pipeline, from the configuration."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from ragmon.assembly import load_gold, rules
from ragmon.capture.redact import KEY_BYTES, Redaction
from ragmon.config.sampling import Capture
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.contract import Record
from ragmon.errors import RagmonError
from ragmon.gold import GoldIndex, GoldSet
from ragmon.names import DEFAULT_PIPELINE


class Redactions:
    """Takes out of records what must not leave the process.

    Args:
        settings: The configuration.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: The hash key is missing or cannot be read, or a redactor is not there.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gold = GoldIndex(load_gold(settings.gold))
        self._measured = tuple(metric for metric in settings.build_metrics().values() if metric.measured)
        self._of = {name: self._redaction(settings.of(name)) for name in {*settings.pipelines, settings.pipeline}}

    def __call__(self, record: Record) -> Record:
        """What may leave of a record."""
        pipeline = record.pipeline or DEFAULT_PIPELINE
        redaction = self._of.get(pipeline)
        if redaction is None:
            redaction = self._of[pipeline] = self._redaction(self._settings.of(pipeline))
        return redaction(record)

    @property
    def failed(self) -> int:
        """Records that lost their text because a redactor failed."""
        return sum(redaction.failed for redaction in list(self._of.values()))

    def _redaction(self, pipeline: PipelineSettings) -> Redaction:
        capture, known = pipeline.capture, rules(pipeline)
        return Redaction(
            content=capture.content,
            probe_content=capture.probe_content,
            gold=self._gold if capture.gold is None else GoldIndex(GoldSet.load(capture.gold)),
            facts=known.facts,
            grounded_threshold=known.grounded_threshold,
            measured=self._measured,
            key=None if capture.hash_key_file is None else read_key(capture.hash_key_file),
            redactors=[_function(path) for path in capture.redactors],
        )


def probe_key(capture: Capture) -> bytes | None:
    """What proves that a request is a probe: derived from the configured key, so that neither use tells of the other.

    Args:
        capture: What is configured; without a key, nobody is believed.

    Raises:
        RagmonError: The key cannot be read, or can be guessed.
    """
    path = capture.hash_key_file
    if path is None:
        return None
    key = read_key(path)
    if len(key) < KEY_BYTES:
        hint = f"at least {KEY_BYTES} bytes: `head -c 32 /dev/urandom | base64 > {path.name}`"
        raise RagmonError(f"{path}: the key has {len(key)} bytes and can be guessed", hint=hint)
    return hmac.digest(key, b"ragmon.probe", "sha256")


def read_key(path: Path) -> bytes:
    """The key a file holds.

    Raises:
        RagmonError: It cannot be read.
    """
    try:
        return path.read_bytes().strip()
    except OSError as error:
        hint = "check `[capture] hash_key_file`"
        raise RagmonError(f"{path}: the key cannot be read ({error.strerror})", hint=hint) from error


def _function(path: str) -> Callable[[str], str]:
    """The function a configuration names as `module:function`."""
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise RagmonError(f"capture.redactors: {path} is not there ({error})", hint='"myapp.privacy:clear"') from error
    if not callable(found):
        raise RagmonError(f"capture.redactors: {path} is no function", hint="a callable that takes and returns a text")
    return cast("Callable[[str], str]", found)
