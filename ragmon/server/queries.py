"""What an admin port answers from a journal: which requests fail a gate, what broke, whether a release is worse.

An alarm on a metric's past is written as a gate on that metric whose threshold is the level of the baseline, so that it
is explained from the same counts in the same way.

The content of requests is in the answers to `trace` and `trace_page` and on the page of an incident alone, and only
with a token: any program of the machine may ask a loopback port, and a page or a model may make one ask.

A query parameter that is unknown, repeated or malformed is answered with an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ragmon.config.settings import Settings
from ragmon.config.units import duration
from ragmon.core import constants
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.errors import RagmonError, UnavailableError, UnknownNameError, nearest, shorten
from ragmon.core.http_server import UNKNOWN_PATH, HTTPError
from ragmon.core.policy import Outcome
from ragmon.core.record import FAILING_ENTRY, Line, Record
from ragmon.export import pages
from ragmon.export.comparison import Canary, uncompared_gates
from ragmon.export.families import label
from ragmon.export.pages import GateFindings, RequestSearch
from ragmon.export.status import MonitorSnapshot, ServerFindings, status
from ragmon.gates.change import Why
from ragmon.gates.releases import By, compare
from ragmon.gates.request import RequestReport, report, without_content
from ragmon.gates.suspects import TRAITS as TRAIT_NAMES
from ragmon.gates.suspects import traits_of
from ragmon.ingest.receiver import authorise
from ragmon.monitor.admin import AdminView, JournalQueries, JsonResponse, html, is_local, moment
from ragmon.monitor.embedded import split
from ragmon.monitor.engine import LATE, Engine, MonitorHistory
from ragmon.monitor.replay import ReleaseSplitter
from ragmon.scoring.scorer import Scorer, ScorerFactory
from ragmon.server.state import Clock, ServerState, entries, recover
from ragmon.server.store import FOREVER, LATENCY_MS, TRAITS, Failure, FailureQuery, JournalReader, journal_file
from ragmon.stats.histograms import MICRO

if TYPE_CHECKING:
    from ragmon.server.writer import JournalWriter

SHORTEST: Final = 8
"""The fewest hex digits by which a trace is searched."""
PATIENCE: Final = 20.0
"""Seconds in which a journal is searched for the beginning of an id."""
MAX_RECORDS: Final = 100
"""Records of one trace that are shown."""
ID_DIGITS: Final = 32
"""Hex digits of a whole trace id."""
_MANY: Final = 5
_BEGINNING: Final = re.compile(r"[0-9a-f]{8,31}", re.ASCII)
TO_OPEN: Final = 10
"""Failing traces that are listed with a diagnosis."""
ON_PAGE: Final = 20
"""Failing requests on the page of a gate."""
MAX_ASSESSED: Final = 20_000
"""Records that are looked at for requests that score badly in a metric without a gate."""
COMPARED: Final = 86_400.0
"""Seconds of records that two releases are compared on."""
MAX_DROP: Final = 0.02
"""How much worse a metric of a release may be."""
OUTCOME: Final = "fail"
"""The only outcome that records can be queried by: requests that keep their gates are in no index."""
LIMIT: Final = 50
_RECORDS: Final = ("pipeline", "source", "gate", "metric", "outcome", "build", "index_hash", "since", "limit", "cursor")
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_HEX: Final = re.compile(r"[0-9a-f]*", re.ASCII)
_PLACE: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
_COUNT: Final = re.compile(r"0*[1-9][0-9]{0,5}")
_SHARE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?(e-[0-9]{1,3})?")
_CHALLENGE: Final = 'Basic realm="the token of the write ports is the password", charset="UTF-8"'
_OTHERS: Final = "the admin port shows content only with the token of `[serve] token_file`"
_NOBODY: Final = (
    "the admin port shows no content, because the server has no `[serve] token_file`; "
    "`ragmon show TRACE --state-dir DIR` reads the journal on its machine"
)


class UnknownTraceError(RagmonError):
    """There is no record of a trace; the hint says what is kept, and where else to look."""


def in_journal(journal: JournalReader, asked: str, settings: Settings) -> list[Record]:
    """The records of a trace in a journal; requests that share a trace are a record each."""
    trace_id = asked.strip().lower()
    if len(trace_id) != ID_DIGITS and not _BEGINNING.fullmatch(trace_id):
        hint = f"32 hex digits, or the first {SHORTEST} and more of them"
        raise RagmonError(f"{shorten(asked)} is not a trace id", hint=hint)
    if len(trace_id) < ID_DIGITS:
        trace_id = _only(trace_id, _ids_in(journal, trace_id)) or trace_id
    records = journal.records_of(trace_id, MAX_RECORDS)
    if not records:
        oldest = journal.oldest()
        since = "" if oldest is None else f" since {datetime.fromtimestamp(oldest, UTC):%Y-%m-%d %H:%M} UTC"
        days = float(settings.serve.retention) / 86_400
        rate = settings.unconfigured.sampling.rate
        kept = (
            f"the journal has the records{since} (retention {days:g} days, at most `[serve] max_size`); applications "
            f"keep the share `[sampling] rate` of their calls ({rate:g} here), and a trace becomes a record when its "
            "spans have arrived"
        )
        raise _unknown(asked, settings, kept)
    return records


def in_files(lines: Iterable[Line], asked: str, settings: Settings) -> list[Record]:
    """The records of a trace in trace files, whose ids may be any text."""
    found: dict[str, list[Record]] = {}
    n = 0
    for line in lines:
        if isinstance(line, Record):
            n += 1
            name = line.trace_id or line.qid or ""
            if name == asked or (len(asked) >= SHORTEST and name.lower().startswith(asked.lower())):
                found.setdefault(name, []).append(line)
    name = asked if asked in found else _only(asked, found) or ""
    if name not in found:
        raise _unknown(asked, settings, f"{n} records were read, and none has this id")
    return found[name][-MAX_RECORDS:]


def described(record: Record, scorer: Scorer, settings: Settings, *, from_file: bool = False) -> RequestReport:
    """The report of a request."""
    pipeline = settings.of(record.pipeline or constants.DEFAULT_PIPELINE)
    capture = pipeline.capture
    content = capture.probe_content if record.source == constants.PROBE else capture.content
    return report(
        record,
        scorer.assess(record),
        scorer.table.metrics,
        settings.policy(record.pipeline or constants.DEFAULT_PIPELINE, live=not from_file).gates,
        content="" if from_file else content,
        within_ms=pipeline.metrics.answered_within_ms,
        link=None if pipeline.links.trace is None else str(pipeline.links.trace),
    )


def _ids_in(journal: JournalReader, beginning: str) -> Iterator[str]:
    """The trace ids of a journal's records that begin so."""
    pattern = re.compile(rb'"trace_id":"(%b[0-9a-f]*)"' % beginning.encode())
    ends = monotonic() + PATIENCE
    for row in journal.rows():
        for match in pattern.finditer(row.lines):
            yield match[1].decode()
        if monotonic() > ends:
            hint = "give all 32 digits: they are found at once"
            raise RagmonError(f"the journal is too large to search for {beginning}", hint=hint)


def _only(asked: str, names: Iterable[str]) -> str | None:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) > _MANY:
            break
    if len(found) > 1:
        some = ", ".join([*list(found)[:_MANY], *(["…"] if len(found) > _MANY else [])])
        raise RagmonError(f"several traces begin with {shorten(asked)}", hint=f"one of: {some}")
    return next(iter(found), None)


def _unknown(asked: str, settings: Settings, kept: str) -> UnknownTraceError:
    link = settings.unconfigured.links.trace
    where = f"; the tracing backend may have it: {str(link).replace('{trace_id}', asked)}" if link else ""
    return UnknownTraceError(f"there is no record of trace {shorten(asked)}", hint=f"{kept}{where}")


class QueryService:
    """Answers the paths that need a journal; `token` opens the content of requests."""

    def __init__(self, counted: JournalWriter | JournalView, folder: Path, token: str | None = None) -> None:
        self._counted = counted
        self._folder = folder
        self._token = token
        self._comparing, self._searching = Lock(), Lock()

    def paths(self) -> JournalQueries:
        """What answers each path."""
        return JournalQueries(self.records, self.why, self.compare, self.trace, self.trace_page, self.requests)

    @contextmanager
    def locked(self) -> Iterator[tuple[Engine, float]]:
        """The engine and the time, while nothing is counted."""
        with self._counted.lock:
            yield self._counted.server_state.engine, self._counted.clock.now()

    @property
    def _settings(self) -> Settings:
        return self._counted.server_state.engine.settings

    def _pipeline_name(self, pipeline: str) -> str:
        """The name of a pipeline that is configured or has records; the argument is its name or its series label."""
        pipelines = self._pipelines()
        match = next((name for name in pipelines if pipeline in (name, label(name))), None)
        if match is None:
            raise UnknownNameError("pipeline", pipeline, pipelines)
        return match

    def _gate(self, params: dict[str, str]) -> tuple[str, str]:
        """The pipeline and the gate; `support/precision` names both."""
        gate, pipeline = split(_required(params, "gate"), params.get("pipeline", self._settings.pipeline))
        if pipeline != params.get("pipeline", pipeline):
            message = f"gate names the pipeline {shorten(pipeline)}, and pipeline {shorten(params['pipeline'])}"
            raise RagmonError(message, hint="name it once")
        return pipeline, gate

    def records(self, request: Request) -> Response:
        """A page of the requests that fail a gate, newest first."""
        params = _params(request, *_RECORDS)
        if params.get("outcome", OUTCOME) != OUTCOME:
            hint = f"{OUTCOME}: the index holds only requests that fail a gate by themselves"
            raise RagmonError(f"outcome is {shorten(params['outcome'])}", hint=hint)
        source, metric = params.get("source"), params.get("metric")
        if source is not None and source not in constants.SOURCES:
            raise UnknownNameError("source", source, constants.SOURCES)
        pipeline = self._pipeline_name(params["pipeline"]) if "pipeline" in params else None
        metrics = self._counted.server_state.engine.scorer.table.metrics
        if metric is not None and metric not in metrics:
            raise UnknownNameError("metric", metric, metrics)
        failing = FailureQuery(pipeline=pipeline, metric=metric)
        if "gate" in params:
            pipeline, gate = self._gate(params)
            failing = self._failing(pipeline, gate)
            if metric not in (None, failing.metric):
                raise RagmonError(f"gate {gate} judges {failing.metric}, not {metric}", hint="give one of them")
        since, limit = _seconds(params), params.get("limit", str(LIMIT))
        if not _COUNT.fullmatch(limit):
            hint = "a number of records, at least 1; a page has 1000 at most"
            raise RagmonError(f"limit is {shorten(limit)}", hint=hint)
        query = replace(
            failing,
            source=source,
            build=params.get("build"),
            index_hash=params.get("index_hash"),
            since=0.0 if since is None else self._counted.clock.now() - since,
            limit=int(limit),
            cursor=params.get("cursor"),
        )
        return JsonResponse(self._page(query))

    def _page(self, query: FailureQuery) -> dict[str, Any]:
        with JournalReader(self._folder) as journal:
            page = journal.failures(query)
        return {"records": [self._failure(failure) for failure in page.failures], "cursor": page.cursor}

    def _failure(self, failure: Failure) -> dict[str, Any]:
        link = self._settings.of(failure.pipeline).links.trace
        fields = ("ts", "pipeline", "source", "trace_id", "build", "index_hash")
        record = {name: getattr(failure, name) for name in fields}
        record["scores"], record[TRAITS] = dict(failure.scores), list(failure.facts.get(TRAITS, ()))
        record[LATENCY_MS] = failure.facts.get(LATENCY_MS)
        if link is not None and failure.trace_id:
            record["link"] = str(link).replace("{trace_id}", failure.trace_id)
        return record

    def _failing(self, pipeline: str, gate: str) -> FailureQuery:
        """The query for the requests that fail a gate."""
        pipeline = self._pipeline_name(pipeline)
        gates = {candidate.name: candidate for candidate in self._settings.of(pipeline).resolved_gates}
        if gate not in gates:
            raise UnknownNameError("gate", gate, gates)
        if gates[gate].kind != "threshold":
            message = f"no single request can fail {gate}"
            raise RagmonError(message, hint=f"it judges {gates[gate].metric} over a whole window: /api/why says more")
        target = gates[gate]
        return FailureQuery(
            pipeline=pipeline, metric=target.metric, sources=_sources(target.source), where=target.where
        )

    def why(self, request: Request) -> Response:
        """The diagnosis of a gate or of another alarm, now or at a time, with a few failing traces."""
        params = _params(request, "gate", "pipeline", "since", "at")
        at = moment(params["at"], "at") if "at" in params else None
        diagnosis, traces = self._diagnosis(*self._gate(params), _seconds(params), at)
        return JsonResponse({**to_builtins(diagnosis), "traces": traces})

    def _diagnosis(
        self, pipeline: str, gate: str, since: float | None, now: float | None = None
    ) -> tuple[Why, list[dict[str, Any]]]:
        counted, pipeline = self._counted, self._pipeline_name(pipeline)
        with counted.lock:
            gates = counted.server_state.engine.gates
            alarm, diagnosis = gates.explain(counted.clock.now() if now is None else now, pipeline, gate, since)
            gated = {entry.metric for entry in gates.policy(pipeline).gates if entry.kind == "threshold"}
        outcome = alarm.outcome
        begin = diagnosis.begin if diagnosis.change.began is None else diagnosis.change.began
        if alarm.derived and outcome.gate.metric not in gated:  # the index holds what fails a gate
            return diagnosis, self._worst(outcome, begin, diagnosis.end)
        query = FailureQuery(
            pipeline=pipeline,
            metric=outcome.gate.metric,
            sources=_sources(outcome.source),
            where=outcome.gate.where,
            since=begin,
            until=diagnosis.end,
            limit=TO_OPEN,
        )
        return diagnosis, self._page(query)["records"]

    def diagnose(self, pipeline: str, gate: str, is_broken: bool) -> GateFindings:
        """What the page of a gate says of why it is broken, and the newest requests that fail it."""
        why, note, requests = None, "", None
        try:
            if is_broken:
                why, _ = self._diagnosis(pipeline, gate, None)
            requests = self._page(replace(self._failing(pipeline, gate), limit=ON_PAGE))["records"]
        except RagmonError as error:
            note = f"{error}. {error.hint}."
        return GateFindings(why, requests, note)

    def explain(self, pipeline: str, alarm: str, now: float | None, request: Request) -> GateFindings:
        """What the page of an incident says of an alarm at a time, and requests that fail; None for now."""
        withheld = self._withheld(request)
        try:
            why, traces = self._diagnosis(pipeline, alarm, None, now)
        except RagmonError as error:
            return GateFindings(note=f"{error}. {error.hint}.")
        if not withheld:
            with JournalReader(self._folder) as journal:
                records = journal.records_of_traces({trace["trace_id"] for trace in traces if trace["trace_id"]})
            with self._counted.lock:
                scorer = self._counted.server_state.engine.scorer
                shown = {name: described(record, scorer, self._settings) for name, record in records.items()}
            for trace in traces:
                if report := shown.get(trace["trace_id"]):
                    trace |= {"question": report.question.text, "answer": report.answer.text}
        return GateFindings(why, traces, may_ask=self._may_ask(request))

    def requests(self, request: Request) -> Response:
        """The page of recent requests, or of those that fail a gate or have a trait, the newest first."""
        given = _params(request, *RequestSearch._fields)
        wanted = RequestSearch(**{name: value.strip() for name, value in given.items()})
        if re.fullmatch(f"[0-9a-f]{{{ID_DIGITS}}}", wanted.trace.lower()):
            return RedirectResponse(f"t/{wanted.trace.lower()}", 303)
        pipeline = self._pipeline_name(wanted.pipeline) if wanted.pipeline else ""
        wanted = wanted._replace(trace=wanted.trace.lower(), pipeline=pipeline)
        _check_search(wanted)
        found, cursor = self._failed(wanted) if wanted.of_failing else self._recent(wanted)
        pipelines = self._pipelines()
        gates = [
            f"{pipeline}/{gate.name}"
            for pipeline in pipelines
            for gate in self._settings.of(pipeline).resolved_gates
            if gate.kind == "threshold"
        ]
        choices = {"pipeline": pipelines, "gate": gates, "trait": list(TRAIT_NAMES)}
        return html(pages.requests_page(found, wanted, cursor, choices=choices, now=self._counted.clock.now()))

    def _failed(self, wanted: RequestSearch) -> tuple[list[dict[str, Any]], str]:
        """Requests of the index of failing ones, and the next cursor."""
        failing = FailureQuery(pipeline=wanted.pipeline or None)
        if wanted.gate:
            failing = self._failing(
                *self._gate({name: getattr(wanted, name) for name in ("gate", "pipeline") if getattr(wanted, name)})
            )
        query = replace(
            failing,
            build=wanted.build or None,
            index_hash=wanted.index_hash or None,
            where=wanted.where or failing.where,
            trait=wanted.trait,
            session=wanted.session,
            trace=wanted.trace,
            since=moment(wanted.since, "since") if wanted.since else 0.0,
            until=moment(wanted.until, "until") if wanted.until else inf,
            limit=LIMIT,
            cursor=wanted.cursor or None,
        )
        page = self._page(query)
        return page["records"], page["cursor"] or ""

    def _recent(self, wanted: RequestSearch) -> tuple[list[dict[str, Any]], str]:
        """The newest requests among so many records of the journal, and the next cursor."""
        found, before = list[dict[str, Any]](), None
        since = moment(wanted.since, "since") if wanted.since else 0.0
        until = moment(wanted.until, "until") if wanted.until else inf
        if wanted.cursor:
            if not (match := _PLACE.fullmatch(wanted.cursor)):
                raise RagmonError(
                    f"this is not a cursor: {shorten(wanted.cursor)}", hint="use the cursor that the page before gives"
                )
            before = int(match[1]), int(match[2])
        with JournalReader(self._folder) as journal:
            if before is None and wanted.until:
                before = journal.last_before(until + LATE), FOREVER
            oldest = journal.last_before(since - LATE)
            for n, (row, line, record) in enumerate(journal.newest(before), 1):
                if row <= oldest:
                    break
                if _is_like(record, wanted) and since <= (record.ts or 0.0) < until:
                    failure = journal.failure(row, line)
                    source = record.source or constants.REPLAY
                    found.append(self._failure(failure or Failure.of(record, source, {}, ())))
                if len(found) == LIMIT or n == MAX_ASSESSED:
                    return found, f"{row}.{line}"
        return found, ""

    def _pipelines(self) -> list[str]:
        """The pipelines that are configured, then others that have records."""
        with self._counted.lock:
            engine = self._counted.server_state.engine
            with_records = {key.pipeline for key in engine.scorer.state.series} - {constants.DROPPED_PIPELINES}
            return list(dict.fromkeys((*engine.settings.pipelines, *sorted(with_records))))

    def _worst(self, outcome: Outcome, begin: float, end: float) -> list[dict[str, Any]]:
        """The first requests since a time that score badly in a metric without a gate."""
        gate, found = outcome.gate, list[dict[str, Any]]()
        scorer = self._counted.server_state.engine.scorer
        if gate.kind != "threshold" or gate.metric not in scorer.table.metrics:
            return found
        sources = _sources(constants.LIVE if outcome.source == constants.MATCH else outcome.source)
        for record in islice(self._records_since(gate.pipeline, begin), MAX_ASSESSED):
            if not begin <= (record.ts or 0.0) < end or (sources and record.source not in sources):
                continue
            with self._counted.lock:
                assessed = scorer.assess(record)
            score = assessed.scores[gate.metric]
            if isinstance(score, int) and not gate.holds(score / MICRO):
                source = record.source or constants.REPLAY
                scores, traits = {gate.metric: score / MICRO}, traits_of(assessed.facts)
                found.append(self._failure(Failure.of(record, source, scores, traits)))
            if len(found) == TO_OPEN:
                break
        return found

    def trace(self, request: Request) -> Response:
        """The requests of a trace; their content only where the request has the token of the write ports."""
        _params(request)
        return JsonResponse({"requests": to_builtins(self._reports(request))})

    def _reports(self, request: Request) -> list[RequestReport]:
        withheld, asked = self._withheld(request), _asked(request)
        busy = nullcontext() if len(asked) == ID_DIGITS else self._exclusive(self._searching, "search for a trace")
        try:
            with busy, JournalReader(self._folder) as journal:
                records = in_journal(journal, asked, self._settings)
        except UnknownTraceError as error:
            raise HTTPError(404, UNKNOWN_PATH, str(error), hint=error.hint) from None
        with self._counted.lock:
            scorer, settings = self._counted.server_state.engine.scorer, self._settings
            reports = [described(record, scorer, settings) for record in records]
        return [without_content(entry, withheld) for entry in reports] if withheld else reports

    def _withheld(self, request: Request) -> str:
        """Why a request is not shown the content of others; "" where it has the token."""
        given = request.headers.get("authorization", "")
        if self._token is not None and given:
            authorise(given.encode("latin-1"), self._token)
        return _NOBODY if self._token is None else "" if given else _OTHERS

    def _may_ask(self, request: Request) -> bool:
        return self._token is not None and is_local(request) and not request.headers.get("authorization")

    def challenge(self, request: Request) -> Response | None:
        """With `text=1` a browser asks for the token, as the password of Basic (RFC 7617); None where it need not.

        The password is asked for over a connection from this machine alone: no other machine can read it there.
        """
        if "text" in _params(request, "text") and self._token is not None and is_local(request):
            try:
                authorise(request.headers.get("authorization", "").encode("latin-1"), self._token)
            except HTTPError as error:
                return PlainTextResponse(f"{error}\n", 401, {"WWW-Authenticate": _CHALLENGE})
        return None

    def trace_page(self, request: Request) -> Response:
        """The page of a trace."""
        if (challenge := self.challenge(request)) is not None:
            return challenge
        reports, pipelines, now = self._reports(request), self._pipelines(), self._counted.clock.now()
        may_ask = self._may_ask(request)
        return html(pages.trace_page(_asked(request), reports, pipelines=pipelines, now=now, may_ask=may_ask))

    def compare(self, request: Request) -> Response:
        """Compare two releases on the records of the last day."""
        params = _params(request, "pipeline", "by", "baseline", "candidate", "max_drop", "intervals")
        by: By = "index_hash" if params.get("by") == "index_hash" else "build"
        if params.get("by", by) != by:
            raise RagmonError(f"by is {shorten(params['by'])}", hint=nearest(params["by"], ("build", "index_hash")))
        pair = baseline, candidate = _required(params, "baseline"), _required(params, "candidate")
        share = params.get("max_drop", str(MAX_DROP))
        if not _SHARE.fullmatch(share) or float(share) >= 1:
            raise RagmonError(f"max_drop is {shorten(share)}", hint="a share below 1: 0.02 is 2 points")
        max_drop, intervals = float(share), params.get("intervals", "false")
        if intervals not in ("true", "false"):
            raise RagmonError(f"intervals is {shorten(intervals)}", hint="true or false")
        if baseline == candidate:
            raise RagmonError(f"baseline and candidate are the same: {baseline!r}", hint="name two releases")
        engine = self._counted.server_state.engine
        pipeline = self._pipeline_name(params.get("pipeline", self._settings.pipeline))
        policy = engine.settings.policy(pipeline)
        # Use the gold in force: its files may have changed since, and be broken.
        releases = ReleaseSplitter(ScorerFactory(engine.settings, engine.scorer.gold.sets), by, pair, policy.gates)
        with self._exclusive(self._comparing, "comparison"):
            for record in self._records_since(pipeline, self._counted.clock.now() - COMPARED):
                if record.kind != FAILING_ENTRY:  # kept for its score, where others are drawn
                    releases.scorer.observe(record)
        scorer = releases.scorer
        comparison = compare(
            releases.release(baseline),
            releases.release(candidate),
            scorer.table,
            policy,
            golds=scorer.gold.infos(),
            max_drop=max_drop,
            intervals=intervals == "true",
        )
        notes = [*releases.notes(), *uncompared_gates(policy)]
        return JsonResponse(to_builtins(Canary.of(by, baseline, candidate, max_drop, comparison, notes)))

    @contextmanager
    def _exclusive(self, lock: Lock, what: str) -> Iterator[None]:
        """Allow one comparison, or one search of the whole journal, at a time: each takes a core."""
        if not lock.acquire(blocking=False):
            raise UnavailableError(f"another {what} is being made", hint="ask again when it is done")
        try:
            yield
        finally:
            lock.release()

    def _records_since(self, pipeline: str, since: float) -> Iterator[Record]:
        with JournalReader(self._folder) as journal:
            for row in journal.rows(after=journal.last_before(since)):
                for entry in entries(row.lines):
                    if isinstance(entry, Record) and (entry.pipeline or DEFAULT_PIPELINE) == pipeline:
                        yield entry


def _check_search(wanted: RequestSearch) -> None:
    """Refuse a search that no request can answer."""
    if wanted.trait and wanted.trait not in TRAIT_NAMES:
        raise RagmonError(f"trait is {shorten(wanted.trait)}", hint=nearest(wanted.trait, TRAIT_NAMES))
    if wanted.where and wanted.where.find("=") < 1:
        raise RagmonError(f"where is {shorten(wanted.where)}", hint="a slice, tag=value: tenant=acme")
    if not _HEX.fullmatch(wanted.trace):
        raise RagmonError(f"trace is {shorten(wanted.trace)}", hint="the beginning of a trace id: hex digits")
    times = [moment(text, name) for name in ("since", "until") if (text := getattr(wanted, name))]
    if len(times) == 2 and times[0] >= times[1]:
        raise RagmonError(f"since is {shorten(wanted.since)}, and until {shorten(wanted.until)}", hint="swap them")


def _is_like(record: Record, wanted: RequestSearch) -> bool:
    """Whether a record is one that is looked for, by what a record says itself."""
    name, _, value = wanted.where.partition("=")
    return (
        wanted.pipeline in ("", record.pipeline or DEFAULT_PIPELINE)
        and wanted.build in ("", record.build)
        and wanted.index_hash in ("", record.index_hash)
        and wanted.session in ("", record.session)
        and (not wanted.where or (record.tags or {}).get(name) == value)
        and (record.trace_id or "").startswith(wanted.trace)
    )


def _sources(source: str | None) -> tuple[str, ...]:
    """The sources under which the requests that a gate judges are listed; an empty tuple stands for all."""
    if not source:
        return ()
    # A live request whose question is in the gold is listed as a match, and is judged as live traffic as well.
    return (constants.LIVE, constants.MATCH) if source == constants.LIVE else (source,)


def _params(request: Request, *allowed: str) -> dict[str, str]:
    given = request.query_params
    names = [name for name, _ in given.multi_items()]
    for name in names:
        if name not in allowed:
            raise RagmonError(f"there is no parameter {shorten(name)}", hint=nearest(name, allowed))
        if names.count(name) > 1:
            raise RagmonError(f"the parameter {name} is given twice", hint="once")
    return dict(given)


def _required(params: dict[str, str], name: str) -> str:
    if not params.get(name):
        raise RagmonError(f"the parameter {name} is missing", hint=f"?{name}=…")
    return params[name]


def _seconds(params: dict[str, str]) -> float | None:
    text = params.get("since")
    if text is None:
        return None
    try:
        seconds = float(text) if _SECONDS.fullmatch(text) else float(duration(text))
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise RagmonError(f"since is {shorten(text)}", hint="a span of time: 30m, 2h, or seconds")
    return seconds


def _asked(request: Request) -> str:
    """The trace that the path of a request names."""
    return str(request.scope["path"]).rpartition("/")[2]


class JournalView:
    """The state of a journal at its last row."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        with JournalReader(folder) as journal:
            self.server_state: ServerState = recover(settings, journal)
            (row, newest), oldest = journal.last(), journal.oldest()
        if oldest is None:
            hint = "the state folder of a `ragmon serve` that received data"
            raise RagmonError(f"{folder} holds no row yet", hint=hint)
        self.folder, self.lock = folder, Lock()
        self.clock = Clock(wall=lambda: newest, passed=lambda: 0.0)
        self.queries = QueryService(self, folder)
        self._oldest, self._row = oldest, row
        self.server_state.advance(newest)

    def snapshot(self) -> MonitorSnapshot:
        """The state for exporters."""
        with self.lock:
            return self.server_state.monitor_snapshot(self.clock.now(), 0)

    def status(self, current: MonitorSnapshot) -> dict[str, Any]:
        """The data of `/api/status`."""
        settings, size = self.server_state.engine.settings, journal_file(self.folder).stat().st_size
        journal = {
            "bytes": size,
            "limit": int(settings.serve.max_size),
            "row": self._row,
            "oldest": self._oldest,
            "newest": self.clock.now(),
            "checkpoint": None,
            "resets": 0,
        }
        return status(current, settings, self._oldest, ServerFindings(journal=journal))

    def view(self) -> AdminView:
        """What an admin port shows of it."""
        settings = self.server_state.engine.settings
        return AdminView(
            self.snapshot,
            lambda: None,
            self.status,
            MonitorHistory(self.queries.locked),
            lambda: settings,
            diagnose=self.queries.diagnose,
            explain=self.queries.explain,
            challenge=self.queries.challenge,
        )
