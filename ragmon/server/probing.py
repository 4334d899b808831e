"""The probes of a server: started with it, changed with its configuration, told when an alarm asks for a look."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, NamedTuple

from ragmon import names
from ragmon.config.settings import PipelineSettings, ProbeSpec, Settings
from ragmon.contract import Record
from ragmon.errors import RagmonError
from ragmon.gold import GoldSet
from ragmon.privacy import Redactions
from ragmon.probes.asking import Asker, Capture
from ragmon.probes.counting import Counts
from ragmon.probes.crew import GRACE
from ragmon.probes.looks import Looks
from ragmon.probes.pacing import Budget
from ragmon.probes.plan import key_of, questions
from ragmon.probes.prober import Prober
from ragmon.probes.question import Sending
from ragmon.server.complaints import complain
from ragmon.server.keeping.keeper import Keeper
from ragmon.server.keeping.replies import WAIT

LOOK: Final = 1.0
"""Seconds between two looks at the alarms."""
_log = logging.getLogger("ragmon.server")


class _Basis(NamedTuple):
    """What a prober stands on: while it stays what it is, so does the prober."""

    spec: ProbeSpec
    gold: str
    pipeline: PipelineSettings


class Probing:
    """Runs the probes of a configuration.

    Args:
        keeper: Where their records are handed in, and alarms are read.
        wait: Seconds an answer waits for the application's own record.

    Attributes:
        troubles: Why a probe does not run, by its name.
    """

    def __init__(self, keeper: Keeper, *, wait: float = WAIT) -> None:
        self.troubles: dict[str, RagmonError] = {}
        self._keeper = keeper
        self._wait = wait
        self._counts = Counts()
        self._budgets: dict[str, Budget] = {}
        self._running: dict[str, tuple[_Basis, Prober]] = {}
        self._capture: Capture | None = None
        self._at_work = Lock()
        self._ended = Event()
        self._looking = Thread(target=self._look, name="ragmon-looks", daemon=True)

    def start(self) -> None:
        """Begin to probe."""
        self.configure(self._keeper.ledger.live.settings)
        self._looking.start()

    def stop(self) -> None:
        """Probe no more; what is under way is not waited for."""
        self._ended.set()
        if self._looking.is_alive():
            self._looking.join()
        with self._at_work:
            self._end(self._running)
            if self._capture is not None:
                self._capture.close()
                self._capture = None

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many questions were due, by probe and what became of them."""
        return self._counts.read()

    def configure(self, settings: Settings) -> None:
        """Run the probes of a configuration; those that stay as they were go on. Whatever is wrong harms no other."""
        with self._at_work:
            self._end([name for name in self._running if name not in {spec.name for spec in settings.probes}])
            self.troubles = {}
            if not settings.probes or self._ended.is_set():
                return
            try:
                redact = Redactions(settings)
                if self._capture is None:
                    self._capture = Capture(settings)
                else:
                    self._capture.go_on_with(settings)
            except RagmonError as error:
                self.troubles = dict.fromkeys([spec.name for spec in settings.probes], error)
                _log.error("no probe runs: %s (%s)", error, error.hint)
                return
            golds = {gold.name: gold for gold in self._keeper.ledger.live.scorer.gold.sets}
            for spec in settings.probes:
                self._run(spec, golds[spec.gold], settings, redact, self._capture)

    def _run(self, spec: ProbeSpec, gold: GoldSet, settings: Settings, redact: Redactions, capture: Capture) -> None:
        basis = _Basis(spec, gold.version, settings.of(spec.pipeline))
        if spec.name in self._running:
            if self._running[spec.name][0] == basis:
                return
            self._end([spec.name])
        try:
            asker = Asker.of(spec, capture, key=key_of(settings, spec.pipeline), begun=partial(self._expect, spec))
            budget = self._budgets.setdefault(spec.name, Budget(spec.max_per_day))
            budget.most = spec.max_per_day
            take = partial(self._take, redact, self._wait if asker.far else 0.0)
            prober = Prober(spec, questions(gold), asker, take, counts=self._counts, budget=budget)
        except RagmonError as error:
            self.troubles[spec.name] = error
            _log.error("probe %s does not run: %s (%s)", spec.name, error, error.hint)
            return
        prober.start()
        self._running[spec.name] = (basis, prober)
        _log.info("probe %s asks %s, a question every %.3g s", spec.name, spec.target, prober.interval)

    def _take(self, redact: Redactions, wait: float, record: Record) -> None:
        self._keeper.reply(redact(record), wait)

    def _expect(self, spec: ProbeSpec, sending: Sending) -> None:
        """Say that a question is under way, before it is: the application may tell of it first."""
        begun = Record(trace_id=sending.trace_id, pipeline=spec.pipeline, source=names.PROBE, qid=sending.qid)
        self._keeper.reply(begun, spec.timeout + GRACE + self._wait, came=False)

    def _end(self, which: Any) -> None:
        for name in list(which):
            self._running.pop(name)[1].stop()

    def _look(self) -> None:
        """Send whole sets when alarms ask for a look."""
        looks = Looks(self._edges())
        while not self._ended.wait(LOOK):
            try:
                self._send(looks.see(self._edges(), monotonic()))
            except Exception as error:  # noqa: BLE001 - a look that fails harms no later one
                complain("alarms could not be looked at", error)

    def _edges(self) -> list[Any]:
        with self._keeper.lock:
            return list(self._keeper.ledger.live.edges)

    def _send(self, pipelines: set[str]) -> None:
        with self._at_work:
            for basis, prober in self._running.values():
                if basis.spec.pipeline in pipelines and basis.spec.on_look and prober.sweep():
                    _log.info("probe %s sends its whole set: an alarm asks for a look", basis.spec.name)
