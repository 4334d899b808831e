"""The probes of a server: started with it, changed with its configuration, swept when an alarm asks for a look."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Final, NamedTuple

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.config.settings import PipelineSettings, ProbeSpec, Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError, log_error
from ragmon.core.http_client import DailyQuota
from ragmon.core.record import Record
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.probes.client import ProbeCapture, ProbeClient
from ragmon.monitor.probes.plan import key_of, questions, quota_in
from ragmon.monitor.probes.prober import Prober, SweepTrigger
from ragmon.monitor.probes.question import InFlight, ProbeCounts
from ragmon.monitor.probes.runner import GRACE
from ragmon.server.pipeline.probe_replies import WAIT
from ragmon.server.pipeline.writer import JournalWriter

LOOK: Final = 1.0
"""Seconds between two polls of the alarms."""
JOIN_TIMEOUT: Final = 5.0
"""Seconds the server waits at shutdown for a target that is being loaded."""
_log = logging.getLogger("ragmon.server")


class _Basis(NamedTuple):
    """What a prober depends on; the prober is replaced when any of it changes."""

    spec: ProbeSpec
    gold: str
    pipeline: PipelineSettings


class ProbeSupervisor:
    """Runs the probes of a configuration in a thread of its own: targets are third-party code and may be slow.

    Args:
        writer: The writer that takes the records and has the alarms.
        folder: The folder of the daily quota files.
        wait: Seconds that a reply waits for the application's own record.

    Attributes:
        troubles: Why a probe does not run, by the probe's name.
    """

    def __init__(self, writer: JournalWriter, folder: Path, *, wait: float = WAIT) -> None:
        self.troubles: dict[str, RagmonError] = {}
        self._writer = writer
        self._folder = folder
        self._wait = wait
        self._counts = ProbeCounts()
        self._quotas: dict[str, DailyQuota] = {}
        self._running: dict[str, tuple[_Basis, Prober]] = {}
        self._capture: ProbeCapture | None = None
        self._pending_settings: SimpleQueue[Settings | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="ragmon-probing", daemon=True)

    def start(self) -> None:
        """Start probing."""
        self.configure(self._writer.server_state.engine.settings)
        self._thread.start()

    def configure(self, settings: Settings) -> None:
        """Switch to the probes of a configuration; unchanged probes are not interrupted."""
        self._pending_settings.put(settings)

    def stop(self) -> None:
        """Stop probing, without waiting for questions in flight."""
        self._pending_settings.put(None)
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many questions were due, by probe and outcome."""
        return self._counts.read()

    def judged(self) -> Mapping[tuple[str, str], int]:
        """Judgements of probe replies, by judge and result."""
        return {} if self._capture is None else self._capture.judged()

    def _work(self) -> None:
        sweeps = SweepTrigger(self._transitions())
        while True:
            try:
                for settings in self._next():
                    if settings is None:
                        return self._finish()
                    self._apply(settings)
                self._send(sweeps.see(self._transitions(), monotonic()))
            except Exception as error:  # noqa: BLE001 - the next poll may succeed
                log_error("probes could not be looked after", error)

    def _finish(self) -> None:
        self._end(self._running)
        if self._capture is not None:
            self._capture.close()

    def _next(self) -> list[Settings | None]:
        """The newest pending configuration, if there is one; a list of None where the server stops."""
        try:
            settings = self._pending_settings.get(timeout=LOOK)
            while settings is not None and not self._pending_settings.empty():
                settings = self._pending_settings.get()
        except Empty:
            return []
        return [settings]

    def _apply(self, settings: Settings) -> None:
        """Run the probes of a configuration; an error in one probe does not affect the others."""
        self._end([name for name in self._running if name not in {spec.name for spec in settings.probes}])
        troubles: dict[str, RagmonError] = {}
        if settings.probes:
            try:
                self._run_all(settings, troubles)
            except RagmonError as error:
                troubles = dict.fromkeys([spec.name for spec in settings.probes], error)
        for name, trouble in troubles.items():
            _log.error("probe %s does not run: %s (%s)", name, trouble, trouble.hint)
        self.troubles = troubles

    def _run_all(self, settings: Settings, troubles: dict[str, RagmonError]) -> None:
        redact = Redactions(settings)
        if self._capture is None:
            self._capture = ProbeCapture(settings)
        else:
            self._capture.go_on_with(settings)
        golds = {gold.name: gold for gold in self._writer.server_state.engine.scorer.gold.sets}
        for spec in settings.probes:
            basis = _Basis(spec, golds[spec.gold].version, settings.of(spec.pipeline))
            if spec.name in self._running:
                if self._running[spec.name][0] == basis:
                    continue
                self._end([spec.name])
            try:
                prober = self._prober(spec, golds[spec.gold], settings, redact, self._capture)
            except RagmonError as error:
                troubles[spec.name] = error
                continue
            prober.start()
            self._running[spec.name] = (basis, prober)
            _log.info("probe %s asks %s, a question every %.3g s", spec.name, spec.asks, prober.interval)

    def _prober(
        self, spec: ProbeSpec, gold: GoldSet, settings: Settings, redact: Redactions, capture: ProbeCapture
    ) -> Prober:
        client = ProbeClient.of(spec, capture, key=key_of(settings, spec.pipeline), begun=partial(self._expect, spec))
        quota = self._quotas.setdefault(spec.name, quota_in(self._folder, spec))
        quota.per_day = spec.max_per_day
        take = partial(self._take, redact, self._wait if client.far else 0.0)
        return Prober(spec, questions(gold), client, take, counts=self._counts, quota=quota)

    def _take(self, redact: Redactions, wait: float, record: Record) -> bool:
        return self._writer.reply(redact(record), wait)

    def _expect(self, spec: ProbeSpec, in_flight: InFlight) -> None:
        """Announce a question before it is sent: the application's own record may arrive first."""
        expected = Record(
            trace_id=in_flight.trace_id, pipeline=spec.pipeline, source=constants.PROBE, qid=in_flight.qid
        )
        self._writer.reply(expected, spec.timeout + GRACE + self._wait, arrived=False)

    def _end(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._running.pop(name)[1].stop()

    def _transitions(self) -> list[AlarmTransition]:
        with self._writer.lock:
            return list(self._writer.server_state.engine.transitions)

    def _send(self, pipelines: Container[str]) -> None:
        """Send the whole gold set to the pipelines whose alarms ask for a look."""
        for basis, prober in list(self._running.values()):
            if basis.spec.pipeline in pipelines and basis.spec.on_look and prober.sweep():
                _log.info("probe %s sends its whole set: an alarm asks for a look", basis.spec.name)
