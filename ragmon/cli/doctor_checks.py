"""The checks of `ragmon doctor` that send nothing: gold, baselines, capture in this process, probes, gaps, a stream.

Of other instrumentations it tells what this environment makes their spans lose. Limits on attributes drop those that
were set first, the application's own sampler drops traces, and switches hide content. Sources:
opentelemetry-util-genai, `utils.py` (content); openinference-instrumentation, `config.py` (what is hidden);
OpenLLMetry's `opentelemetry.instrumentation.*.utils` (content); opentelemetry-sdk, `sdk.trace.SpanLimits` (limits) and
`sdk.trace.sampling` (samplers).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from typing import Any, Final

import ragmon
from ragmon.alarms.pipelines import AlarmEngine
from ragmon.alarms.plan import AlarmBudget, Detectability, duration
from ragmon.alarms.plan import detectability as reach
from ragmon.cli.client import get_page
from ragmon.config.services import ExportTable, StreamTable
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core.errors import RagmonError, UnavailableError, shorten
from ragmon.core.network import Address
from ragmon.core.semconv import GENAI, OPENINFERENCE, OPENLLMETRY
from ragmon.export.status import more_places
from ragmon.export.text import shares
from ragmon.gates.coverage import ESSENTIAL, FIELDS, CaptureReport
from ragmon.ingest.gold import load_gold
from ragmon.monitor import install
from ragmon.monitor.capture_settings import probe_key
from ragmon.monitor.exporting import nearest_of
from ragmon.scoring.score_table import ScoreTable
from ragmon.server.probes import interval, questions
from ragmon.stream.chunk import BESIDE, piece_size
from ragmon.stream.kafka import (
    METADATA_TIMEOUT,
    ChunkTail,
    PartitionEnds,
    StreamTopics,
    client,
    client_settings,
    confluent,
    find_topics,
    fnv1a_partition,
)

CAPTURED: Final = "captured"
SHOWN: Final = 50
"""Pipelines and sources that are listed: those with gaps first."""


@dataclass(frozen=True)
class Check:
    """The result of one check, None where it could not be made, with a hint on what to correct or to know."""

    name: str
    ok: bool | None
    finding: str
    hint: str = ""


def captured_checks(reports: Iterable[CaptureReport]) -> Iterator[Check]:
    """What is captured of each pipeline and source; bad where a gate cannot be judged for a gap."""
    listed = sorted(
        reports,
        key=lambda report: (not _blocked(report), report.worst is None, report.pipeline, report.source),
    )
    for report in listed[:SHOWN]:
        essential = (gap for gap in report.gaps if gap.field in ESSENTIAL)
        gap, named = report.worst or next(essential, None), zip(FIELDS, shares(report.fields), strict=True)
        parts = ", ".join(f"{name} {share}" for name, share in named if name in report.fields)
        finding = f"{report.pipeline}, {report.source}, {report.records} records: {parts}"
        if gap is None:
            yield Check(CAPTURED, ok=True, finding=finding)
        else:
            yield Check(CAPTURED, ok=not _blocked(report), finding=f"{finding}; {gap.text}", hint=gap.remedy)
    if len(listed) > SHOWN:
        yield Check(CAPTURED, ok=True, finding=f"and {len(listed) - SHOWN} more pipelines and sources")


def _blocked(report: CaptureReport) -> bool:
    return any(gap.blocked for gap in report.gaps)


def place_checks(needed: int | None) -> Iterator[Check]:
    """Name the setting that gives every pipeline its gates."""
    if needed is not None:
        finding = "pipelines found no room and have no gates: they are counted as __other__"
        hint = f"[serve] {more_places(needed)}, or [pipelines.NAME] for each"
        yield Check("pipelines", ok=False, finding=finding, hint=hint)


RATES: Final = (1.0, 10.0, 100.0)
"""Observations a minute for which detection times are shown, if the user gives no rate."""


def local_checks(settings: Settings) -> Iterator[Check]:
    """Run the checks that need no server."""
    try:
        sets = load_gold(settings.gold)
        summary = ", ".join(f"{gold.name} {gold.short_version} with {len(gold)} items" for gold in sets)
        yield Check("gold", ok=True, finding=summary or "none: only label-free metrics are counted")
    except RagmonError as error:
        yield Check("gold", ok=False, finding=str(error), hint=error.hint)
    for spec in settings.gold:
        if spec.embed is None:
            continue
        name = f"embed {spec.name}"
        try:
            matchers = nearest_of(settings, load_gold([spec]))
        except RagmonError as error:
            yield Check(name, ok=False, finding=str(error), hint=error.hint)
            continue
        calibration = matchers[0].calibration if matchers else None
        if calibration is None or calibration.threshold is None:
            message = "off: " + ("the embedder failed, as the log says" if calibration is None else calibration.reason)
            yield Check(name, ok=False, finding=message, hint="write more paraphrases, or leave embed out")
            continue
        share = f"which {calibration.kept:.0%} of {calibration.pairs} paraphrases reach"
        yield Check(name, ok=True, finding=f"similarity {calibration.threshold:.3f}, {share}")
    try:
        alarms = AlarmEngine(settings, ScoreTable(settings.build_metrics()))
        for name in settings.expected_pipelines:
            alarms.of(name)
        files = {settings.of(name).alarms.baseline.file for name in settings.expected_pipelines}
        named = ", ".join(sorted(str(file) for file in files if file))
        yield Check("baseline", ok=True, finding=named or "learned from traffic, at least an hour of it")
    except RagmonError as error:
        yield Check("baseline", ok=False, finding=str(error), hint=error.hint)
    yield _capture(settings)


def _capture(settings: Settings) -> Check:
    # Call a decorated function, and check that it is captured, scored in this process and shown on `/metrics`.
    isolated = replace(
        settings,
        export=ExportTable(),
        unconfigured=_keep_all(settings.unconfigured),
        pipelines={name: _keep_all(pipeline) for name, pipeline in settings.pipelines.items()},
        serve=settings.serve.model_copy(update={"admin": Address("127.0.0.1", 0)}),
    )
    try:
        installed = install.install(isolated, strict=True)
    except RagmonError as error:
        return Check("capture", ok=False, finding=f"not tried: {error}", hint=error.hint)
    try:
        ragmon.trace(name=settings.pipeline)(_answer)("Is anybody there?")
        installed.flush()
        monitor = installed.monitor
        address = None if monitor is None else monitor.address
        if address is None:
            return Check("capture", ok=False, finding="nothing is captured", hint="RAGMON_DISABLED is set")
        lines = get_page(f"http://{address}", "/metrics").body.decode().splitlines()
    finally:
        installed.shutdown()
    scored = next((line for line in lines if line.startswith('ragmon_records_scored_total{stage="score"}')), "")
    if scored.rpartition(" ")[2] != "1.0":
        return Check("capture", ok=False, finding="a call was made and not scored", hint="report this: it is a bug")
    message = f"a call was captured and scored here, and is one of {len(lines)} lines of /metrics"
    return Check("capture", ok=True, finding=message)


def _answer(question: str) -> dict[str, object]:
    return {"answer": question, "citations": ["d1"], "retrieved": ["d1"]}


def _keep_all(pipeline: PipelineSettings) -> PipelineSettings:
    return pipeline.model_copy(update={"sampling": pipeline.sampling.model_copy(update={"rate": 1.0})})


def detectability(settings: Settings, per_minute: float) -> list[Detectability]:
    """What the alarms of every expected pipeline detect, and how soon, given the observations a minute."""
    metrics = settings.build_metrics()
    return [
        detectable
        for pipeline in map(settings.of, settings.expected_pipelines)
        for detectable in reach(
            pipeline.resolved_gates,
            metrics,
            dict.fromkeys((gate.name for gate in pipeline.resolved_gates), per_minute),
            AlarmBudget.of(pipeline.alarms, len(settings.pipelines), int(not settings.pipelines)),
        )
    ]


LIMITS: Final = "attribute limits"
# The variable for spans, and the variable that applies without it.
NUMBER: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
LENGTH: Final = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
USUAL: Final = 128
"""The default limit of attributes of a span."""
_ATTRIBUTES_PER_DOCUMENT: Final = 4  # in OpenInference: id, content, score, metadata
_OTHER_ATTRIBUTES: Final = 8  # of a retriever's span beside its documents, at most
_MIN_LENGTH: Final = 8192  # characters; a lower limit is likely to cut documents that travel in one attribute


@dataclass(frozen=True)
class Instrumentation:
    """A family of instrumentations with its installed packages, or a setting of them all, and what is lost.

    `note` is worth knowing without a certain loss; `hint` says what to change.
    """

    name: str
    packages: tuple[str, ...] = ()
    loss: str = ""
    note: str = ""
    hint: str = ""


def limits(settings: Settings, environ: Mapping[str, str], *, flattened: bool) -> Instrumentation:
    """The loss to OpenTelemetry's limits; `flattened` documents have an attribute for each of their fields."""
    name, length = _effective_limit(environ, LENGTH)
    if length is not None and length < _MIN_LENGTH:
        lost = f"{name}={length} cuts questions, answers and lists of documents"
        return Instrumentation(LIMITS, loss=lost, hint=f"unset {name}, or {_MIN_LENGTH} at least")
    name, number = _effective_limit(environ, NUMBER)
    if not flattened or (name and number is None):
        return Instrumentation(LIMITS)
    limit = USUAL if number is None else number
    documents = max(0, (limit - _OTHER_ATTRIBUTES) // _ATTRIBUTES_PER_DOCUMENT)
    max_rank = max(k for scope in (settings.unconfigured, *settings.pipelines.values()) for k in scope.metrics.k)
    setting = f"{name}={limit}" if name else f"{NUMBER[0]} is not set, which means {limit}"
    lost = f"of more than about {documents} documents the ones ranked first are lost, and the trace is unscorable"
    message = f"{setting}: {lost}"
    hint = f"{NUMBER[0]}={_OTHER_ATTRIBUTES + _ATTRIBUTES_PER_DOCUMENT * 100} is room for 100 documents"
    if documents < max_rank:
        return Instrumentation(LIMITS, loss=message, hint=hint)
    return Instrumentation(LIMITS, note=message, hint=hint)


def _effective_limit(environ: Mapping[str, str], names: tuple[str, str]) -> tuple[str, int | None]:
    for name in names:
        if name in environ:
            text = environ[name].strip()
            return name, int(text) if text.isdecimal() else None
    return "", None


NAME = "probe"


def probes(settings: Settings) -> list[Check]:
    """Describe each probe: its target, its interval, and what limits it; nothing is sent."""
    try:
        golds = {gold.name: gold for gold in load_gold(settings.gold)}
    except RagmonError:  # the gold check reports it
        return []
    checks = []
    for spec in settings.probes:
        gold = golds[spec.gold]
        try:
            n, key = len(questions(gold)), probe_key(settings.of(spec.pipeline).capture)
        except RagmonError as error:
            checks.append(Check(NAME, ok=False, finding=f"{spec.name}: {error}", hint=error.hint))
            continue
        seconds, hint = interval(n, spec.every, spec.max_per_day, reserve=spec.burst > 0), ""
        if seconds * n > spec.every * 1.001:
            hint = f"max_per_day = {spec.max_per_day} allows no more"
        elif key is None and spec.target.startswith("http"):
            hint = "a traced application counts these requests as users': `[capture] hash_key_file` there and here"
        message = f"{spec.name} asks {spec.asks} the {n} questions of {gold.name} in {duration(seconds * n / 60)}"
        checks.append(Check(NAME, ok=True, finding=message, hint=hint))
    return checks


SAMPLER: Final = "OTEL_TRACES_SAMPLER"
RATE: Final = "OTEL_TRACES_SAMPLER_ARG"
_BY_RATIO: Final = ("traceidratio", "parentbased_traceidratio")
_OFF: Final = ("always_off", "parentbased_always_off")


def samplers(settings: Settings, environ: Mapping[str, str]) -> Instrumentation:
    """The share of traces that arrives.

    The ratio sampler and ragmon's own sampler read different bits of a trace id, so they are independent: the share
    that passes both is the product of their rates.
    """
    sampler = environ.get(SAMPLER, "").strip().lower()
    rate = 0.0 if sampler in _OFF else 1.0
    if sampler in _BY_RATIO:
        with suppress(ValueError):  # an invalid share means 1, as in the SDK
            share = float(environ.get(RATE, ""))
            rate = share if 0 <= share <= 1 else 1.0
    if rate == 1.0:
        return Instrumentation("sampler")
    if not rate:
        lost = f"{SAMPLER}={sampler} keeps none: no trace of an instrumentation is sent; decorated calls are"
        return Instrumentation("sampler", loss=lost, hint=f"unset {SAMPLER}, or sample by ratio")
    message = f"{SAMPLER}={sampler} keeps {rate:.3g} of traces: their numbers are of exported traffic"
    own_rate = settings.of(settings.pipeline).sampling.rate
    if own_rate < 1.0 and settings.origins.get("sampling.rate", "default") != "default":
        message += f"; with `[sampling] rate` {own_rate:g} on top {rate * own_rate:.3g} of them are scored"
    hint = f"unset {SAMPLER} and set `[sampling] rate`: ragmon then weighs what it keeps"
    return Instrumentation("sampler", note=message, hint=hint)


CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
EXPERIMENTAL: Final = "gen_ai_latest_experimental"
TRACE_CONTENT: Final = "TRACELOOP_TRACE_CONTENT"
HIDDEN: Final[Mapping[str, str]] = {
    "OPENINFERENCE_HIDE_INPUTS": "questions",
    "OPENINFERENCE_HIDE_OUTPUTS": "answers, texts of documents, and ids that stand in the output alone, as LangChain's",
    "OPENINFERENCE_HIDE_INPUT_MESSAGES": "questions that stand in messages alone",
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": "answers that stand in messages alone",
    "OPENINFERENCE_HIDE_INPUT_TEXT": "questions that stand in messages alone",
    "OPENINFERENCE_HIDE_OUTPUT_TEXT": "answers that stand in messages alone",
    "OPENINFERENCE_HIDE_PROMPTS": "questions that stand in prompts alone",
    "OPENINFERENCE_HIDE_CHOICES": "answers that stand in completions alone",
    "OPENINFERENCE_HIDE_RETRIEVAL_DOCUMENTS": "texts of documents, and ids where they stand in metadata alone",
}
"""What each switch hides. Switches for base64 images and embeddings are left out: no metric reads those."""
_ON_SPANS: Final = ("SPAN_ONLY", "SPAN_AND_EVENT")


def instrumentations(
    settings: Settings,
    environ: Mapping[str, str] | None = None,
    installed: Iterable[metadata.Distribution] | None = None,
) -> list[Instrumentation]:
    """The instrumentations that are installed (by default in this environment), and what their spans lose."""
    environ = os.environ if environ is None else environ
    # The library that a package depends on tells its family; names are not enough.
    packages: dict[str, set[str]] = {GENAI: set(), OPENINFERENCE: set(), OPENLLMETRY: set()}
    for package in metadata.distributions() if installed is None else installed:
        name = (package.metadata["Name"] or "").lower().replace("_", "-")
        needs = " ".join(package.requires or ()).lower().replace("_", "-")
        if name.startswith("openinference-instrumentation-"):
            packages[OPENINFERENCE].add(name)
        elif "instrumentation" in name and "opentelemetry-util-genai" in needs:
            packages[GENAI].add(name)
        elif "instrumentation" in name and "opentelemetry-semantic-conventions-ai" in needs:
            packages[OPENLLMETRY].add(name)
    switches = {GENAI: _genai, OPENINFERENCE: _openinference, OPENLLMETRY: _openllmetry}
    families = [switches[name](tuple(sorted(packages[name])), environ) for name in switches if packages[name]]
    if not families:
        return []
    of_all = (limits(settings, environ, flattened=bool(packages[OPENINFERENCE])), samplers(settings, environ))
    return families + [setting for setting in of_all if setting.loss or setting.note]


def _genai(packages: tuple[str, ...], environ: Mapping[str, str]) -> Instrumentation:
    mode = environ.get(CAPTURE, "").strip()
    hint = f"{CAPTURE}=SPAN_ONLY {OPT_IN}={EXPERIMENTAL}"
    if mode.upper() not in _ON_SPANS:
        reason = f"{CAPTURE}={shorten(mode)} captures nothing on spans" if mode else f"{CAPTURE} is not set"
        return Instrumentation(GENAI, packages, f"{reason}: no question, ids or answer arrive: unscorable", hint=hint)
    if EXPERIMENTAL not in (word.strip() for word in environ.get(OPT_IN, "").split(",")):
        message = f"{OPT_IN} lacks {EXPERIMENTAL}: versions that ask for it send no question, ids or answer"
        return Instrumentation(GENAI, packages, message, hint=hint)
    return Instrumentation(GENAI, packages)


def _openinference(packages: tuple[str, ...], environ: Mapping[str, str]) -> Instrumentation:
    hiding = [switch for switch in HIDDEN if environ.get(switch, "").lower() == "true"]
    lost = "; ".join(f"{switch}=true hides {HIDDEN[switch]}" for switch in hiding)
    return Instrumentation(OPENINFERENCE, packages, lost, hint=f"unset {' '.join(hiding)}" if hiding else "")


def _openllmetry(packages: tuple[str, ...], environ: Mapping[str, str]) -> Instrumentation:
    content = environ.get(TRACE_CONTENT, "")
    if not content or content.lower() == "true":
        return Instrumentation(OPENLLMETRY, packages)
    lost = f"{TRACE_CONTENT}={shorten(content)}: no question, ids or answer arrive: unscorable"
    return Instrumentation(OPENLLMETRY, packages, lost, hint=f"{TRACE_CONTENT}=true, or unset it")


DAY_MS: Final = 86_400_000
"""The shortest retention of messages and chunks in milliseconds: a night without a worker must lose nothing."""
LOOKED_AT: Final = 50
"""Keyed messages of a partition that are checked."""
_POLL: Final = 2.0


def stream_checks(settings: Settings) -> Iterator[Check]:
    """Check the stream that a configuration names; nothing where it names none."""
    stream = settings.stream
    if stream.brokers is None:
        return
    try:
        kafka = confluent()
        consumer = client(kafka.Consumer, client_settings(stream, group__id=f"{stream.group}-doctor"))
        topics = find_topics(consumer, stream)
    except RagmonError as error:
        yield Check("topics", ok=False, finding=str(error), hint=error.hint)
        return
    try:
        yield _topics(stream, topics)
        administration = import_module("confluent_kafka.admin")  # an extra
        admin, of_topic = client(administration.AdminClient, client_settings(stream)), administration.ResourceType.TOPIC
        resources = [administration.ConfigResource(of_topic, name) for name in (stream.spans, stream.chunks)]
        configs: dict[str, dict[str, str]] = {}  # of the topics, as far as the broker says them
        for resource, described in admin.describe_configs(resources, request_timeout=METADATA_TIMEOUT).items():
            try:
                entries = described.result()
                configs[resource.name] = {name: entry.value for name, entry in entries.items() if entry.value}
            except kafka.KafkaException:
                configs[resource.name] = {}
        yield _clock(stream, configs.get(stream.spans, {}))
        yield _retention(configs)
        yield room(stream, configs.get(stream.chunks, {}))
        yield _keys(kafka, consumer, stream, topics)
        yield _counted(stream, topics)
    except UnavailableError as error:
        yield Check("topics", ok=False, finding=str(error), hint=error.hint)
    finally:
        consumer.close()


def _topics(stream: StreamTable, topics: StreamTopics) -> Check:
    found = {**topics.inputs, stream.chunks: topics.chunks}
    finding = ", ".join(f"{name} with {number} partitions" for name, number in found.items())
    if len({topics.inputs[stream.spans], topics.chunks}) > 1:
        hint = "use the same number for both, so that each worker's chunks have a partition of their own"
        return Check("topics", ok=False, finding=finding, hint=hint)
    hint = "" if stream.metrics in topics.inputs else f"there is no {stream.metrics}: samples are not weighted"
    return Check("topics", ok=True, finding=finding, hint=hint)


def _clock(stream: StreamTable, config: Mapping[str, str]) -> Check:
    kind = config.get("message.timestamp.type")
    if kind is None:
        return Check("clock", ok=True, finding=f"the broker does not say whose clock {stream.spans} has")
    hint = "kafka-configs.sh --alter --add-config message.timestamp.type=LogAppendTime"
    is_broker = kind == "LogAppendTime"
    finding = f"{stream.spans} has the clock of {'the broker' if is_broker else 'its producers'} ({kind})"
    return Check("clock", ok=is_broker, finding=finding, hint="" if is_broker else hint)


def _retention(configs: Mapping[str, Mapping[str, str]]) -> Check:
    kept = {name: int(config["retention.ms"]) for name, config in configs.items() if "retention.ms" in config}
    if not kept:
        return Check("kept", ok=True, finding="the broker does not say how long it keeps messages")
    finding = ", ".join(
        f"{name} {'without end' if ms < 0 else f'{ms / 3_600_000:g} hours'}" for name, ms in sorted(kept.items())
    )
    is_enough = all(ms < 0 or ms >= DAY_MS for ms in kept.values())
    return Check("kept", ok=is_enough, finding=finding, hint="" if is_enough else "retention.ms of a day at least")


def room(stream: StreamTable, config: Mapping[str, str]) -> Check:
    """Check that the topic of chunks takes messages as large as workers write."""
    needed, largest = piece_size(stream.kafka) + BESIDE, config.get("max.message.bytes")
    if largest is None:
        return Check("room", ok=True, finding=f"the broker does not say how large a message of {stream.chunks} may be")
    finding = f"{stream.chunks} takes messages of {int(largest):,} bytes, workers write up to {needed:,}"
    hint = f'raise its max.message.bytes, or "message.max.bytes" = {largest} in `[stream.kafka]` of workers'
    is_enough = int(largest) >= needed
    return Check("room", ok=is_enough, finding=finding, hint="" if is_enough else hint)


def _counted(stream: StreamTable, topics: StreamTopics) -> Check:
    # Each partition must still be the log of which chunks were made, and have all messages that they counted.
    parts = [f"{topic}/{n}" for topic, number in topics.inputs.items() for n in range(number)]
    last, ids = ChunkTail(stream, topics.chunks).last(parts), PartitionEnds(stream).log_ids(list(topics.inputs))
    recreated, same = [], {}
    for part, chunk in last.items():
        topic, _, number = part.rpartition("/")
        if chunk.log and ids.get(topic, chunk.log) != chunk.log:
            recreated.append(part)
        else:
            same[topic, int(number)] = chunk.upto
    cut = [f"{topic}/{n}" for topic, n in sorted(PartitionEnds(stream).beyond(same))]
    if cut:
        finding = f"shorter than what was counted of them: {', '.join(cut)}"
        hint = "docs/runbook.md, RagmonStreamIncomplete: a log cut off"
        return Check("counted", ok=False, finding=finding, hint=hint)
    if recreated:
        finding = f"created again since they were counted last: {', '.join(recreated)}"
        return Check("counted", ok=True, finding=finding, hint="workers count them from their beginning")
    return Check("counted", ok=True, finding=f"{len(last)} of {len(parts)} partitions have been counted")


def _keys(kafka: Any, consumer: Any, stream: StreamTable, topics: StreamTopics) -> Check:
    # The newest keyed messages must lie where the hash of their key says, or traces are torn apart.
    number = topics.inputs[stream.spans]
    offsets = []
    for partition in range(number):
        ends = kafka.TopicPartition(stream.spans, partition)
        low, high = consumer.get_watermark_offsets(ends, timeout=METADATA_TIMEOUT)
        offsets.append(kafka.TopicPartition(stream.spans, partition, max(low, high - LOOKED_AT)))
    consumer.assign(offsets)
    messages = [m for m in consumer.consume(LOOKED_AT * number, _POLL) if m.error() is None and m.key()]
    if not messages:
        return Check("keys", ok=True, finding=f"{stream.spans} holds no message with a key yet")
    if stream.partitioner != "fnv1a":
        return Check("keys", ok=True, finding=f"not tried: they are placed by {stream.partitioner}")
    wrong = [m for m in messages if fnv1a_partition(m.key(), number) != m.partition()]
    if wrong:
        finding = f"{len(wrong)} of {len(messages)} messages of {stream.spans} are not where fnv1a places their key"
        hint = "the spans of a trace are in several partitions; set the same partitioner for every program that writes"
        return Check("keys", ok=False, finding=finding, hint=hint)
    finding = f"{len(messages)} messages of {stream.spans} are where fnv1a places their key"
    return Check("keys", ok=True, finding=finding)
