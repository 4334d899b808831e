"""What of a record may leave the process: one policy per pipeline, from the configuration."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from ragmon.assembly import function_at, load_gold, read_gold, rules
from ragmon.capture.pii import redact
from ragmon.capture.redaction import Redaction
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.config.tables import Capture
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.private_files import read_key
from ragmon.core.record import Record
from ragmon.gold import GoldIndex, GoldSet

KEY_NAME: Final = "[capture] hash_key_file"


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
        return self._for(record)(record)

    def cleared(self, record: Record) -> Record:
        """What judges may see of a record, who see text that does not leave."""
        return self._for(record).cleared(record)

    def _for(self, record: Record) -> Redaction:
        pipeline = record.pipeline or DEFAULT_PIPELINE
        redaction = self._of.get(pipeline)
        if redaction is None:
            redaction = self._of[pipeline] = self._redaction(self._settings.of(pipeline))
        return redaction

    def comment(self, text: str | None) -> str | None:
        """What may leave of words that somebody said of an answer: as much as of user traffic."""
        content = self._settings.common.capture.content
        if text is None or content in ("none", "hash"):
            return None
        return text if content == "full" else redact(text)

    @property
    def failed(self) -> int:
        """Records that lost their text because a redactor failed."""
        return sum(redaction.failed for redaction in list(self._of.values()))

    def _redaction(self, pipeline: PipelineSettings) -> Redaction:
        capture, known = pipeline.capture, rules(pipeline)
        return Redaction(
            content=capture.content,
            probe_content=capture.probe_content,
            gold=self._gold if capture.gold is None else GoldIndex(self._set_in(capture.gold)),
            facts=known.facts,
            grounded_threshold=known.grounded_threshold,
            measured=self._measured,
            key=None if capture.hash_key_file is None else read_key(capture.hash_key_file, KEY_NAME),
            redactors=[function_at(path, "capture.redactors", '"myapp.privacy:clear"') for path in capture.redactors],
        )

    def _set_in(self, path: Path) -> GoldSet:
        """The gold set in a file: where it is one of the configured ones, what was frozen of that holds here too."""
        spec = next((spec for spec in self._settings.gold if spec.paths == (path,)), None)
        return GoldSet.load(path) if spec is None else read_gold(spec)


def probe_key(capture: Capture) -> bytes | None:
    """What proves that a request is a probe: derived from the configured key, so that neither use tells of the other.

    Args:
        capture: What is configured; without a key, nobody is believed.

    Raises:
        RagmonError: The key cannot be read, or can be guessed.
    """
    path = capture.hash_key_file
    return None if path is None else hmac.digest(read_key(path, KEY_NAME), b"ragmon.probe", "sha256")
