"""The tables of what runs beside scoring: probes, judges, labels, links, rules, the server and the export.

`[export] endpoint = "otel"` takes OpenTelemetry's standard variables of exporters, all of them (`otel_receiver`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, NamedTuple, get_args
from urllib.parse import unquote

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    FiniteFloat,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from ragmon.config.units import (
    FUNCTION,
    Bytes,
    Count,
    Duration,
    Few,
    File,
    Listen,
    Many,
    Seconds,
    Share,
    Size,
    Table,
    Text,
    Url,
    checked,
    file,
    url,
    value_error,
)
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.errors import nearest
from ragmon.core.network import Address, shown_url, split_url
from ragmon.metrics.builtin import Groundedness

OTEL: Final = "otel"
"""The endpoint that stands for OpenTelemetry's variables."""
Signal = Literal["traces", "metrics"]
SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")
HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.6.2)."""
HEADER_VALUE: Final = re.compile(r"[\t -~]*")
OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding"}
)
"""Headers that say what a request is, in lower case; the sender of the request writes them."""
GRPC: Final = "ragmon exports over HTTP: name the receiver's HTTP port, usually 4318"
COMPRESSIONS: Final = ("none", "gzip", "deflate")
_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_ENDPOINT: Final = "http://localhost:4318"
_TIMEOUT: Final = 10.0


class WrongVariable(NamedTuple):
    """A variable of OpenTelemetry's that cannot be used."""

    name: str
    message: str
    hint: str
    value: str | None = None


@dataclass(frozen=True)
class OtelReceiver:
    """Where OpenTelemetry's variables send a signal."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    variable: str  # that has the headers
    certificate: str | None
    client_certificate: tuple[str, str | None] | None  # its key is None where it is in the same file
    compression: str
    timeout: float


def otel_receiver(environ: Mapping[str, str], signal: Signal, report: Callable[[WrongVariable], None]) -> OtelReceiver:
    """Where the variables of an environment send a signal; wrong variables are reported.

    Source: OpenTelemetry specification, protocol/exporter. A timeout is in seconds, as OpenTelemetry for Python has it.
    """

    def found(name: str) -> tuple[str, str]:
        variables = (f"{_PREFIX}{signal.upper()}_{name}", f"{_PREFIX}{name}")
        values = ((variable, environ.get(variable, "").strip()) for variable in variables)
        return next((pair for pair in values if pair[1]), (variables[1], ""))

    variable, protocol = found("PROTOCOL")
    if protocol.lower() not in ("", "http/protobuf"):
        hint = GRPC if protocol.lower() == "grpc" else "http/protobuf is what ragmon sends"
        report(WrongVariable(variable, "names a protocol that ragmon does not export with", hint, protocol))
    variable, url = found("ENDPOINT")
    try:
        split_url(url or _ENDPOINT)
    except ValueError:
        report(WrongVariable(variable, f"is not an address: {shown_url(url)}", f"such as {_ENDPOINT}"))
    if variable == f"{_PREFIX}ENDPOINT":
        url = f"{(url or _ENDPOINT).rstrip('/')}/v1/{signal}"
    headers_variable, headers = found("HEADERS")
    sent = header_pairs(headers)
    if (why := header_problem(sent)) is not None:
        report(WrongVariable(headers_variable, why, "name=value,name=value, percent-encoded"))
        sent = {}
    variable, timeout = found("TIMEOUT")
    seconds = float(timeout) if re.fullmatch(r"\d{1,9}(\.\d+)?", timeout) else 0.0
    if timeout and not seconds:
        report(WrongVariable(variable, "is not a time", "seconds, such as 10", timeout))
    variable, name = found("COMPRESSION")
    compression = name.lower() or "none"
    if compression not in COMPRESSIONS:
        report(WrongVariable(variable, "names an unknown compression", " or ".join(COMPRESSIONS), name))
        compression = "none"
    (_, certificate), (_, client), (_, key) = found("CERTIFICATE"), found("CLIENT_CERTIFICATE"), found("CLIENT_KEY")
    return OtelReceiver(
        url,
        sent,
        headers_variable,
        certificate or None,
        (client, key or None) if client else None,
        compression,
        seconds or _TIMEOUT,
    )


def address_of(endpoint: str | None, environ: Mapping[str, str]) -> str | None:
    """The base address of an endpoint, which may be that of the variables."""
    if endpoint != OTEL:
        return endpoint
    return otel_receiver(environ, "traces", lambda _: None).url.removesuffix("/v1/traces")


def header_pairs(text: str) -> dict[str, str]:
    """The headers in a variable: name=value, separated by commas, percent-encoded; a name without `=` becomes "".

    >>> header_pairs("api-key=a%20b, x=1")
    {'api-key': 'a b', 'x': '1'}
    """
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    return {unquote(name).strip() if equals else "": unquote(value).strip() for name, equals, value in pairs}


def header_problem(headers: Mapping[str, str]) -> str | None:
    """Why headers cannot be sent, without any of their values; None if they can."""
    for name, value in headers.items():
        if not HEADER.fullmatch(name):
            return "has what is not a header"
        if name.lower() in OWN_HEADERS:
            return f"has the header {name}, which belongs to the request itself"
        if not HEADER_VALUE.fullmatch(value):
            return f"has a header {name} that is not printable ASCII"
    return None


RECORD_FIELDS: Final = (
    *("claim", "citations", "retrieved", "candidates", "index_hash", "build", "session", "model", "user", "tags"),
)
"""The fields that can be read from a reply; `ragmon.record` takes the same names."""


# The validators of values stand before the tables that have the values.
def _target(value: str) -> str:
    if value.startswith(("http://", "https://")):
        return url(value)
    if not FUNCTION.fullmatch(value):
        raise value_error("must be a function or an address", '"myapp.rag:answer" or "https://rag.example/answer"')
    return value


def _known_fields(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if name not in RECORD_FIELDS:
            raise value_error(f"maps an unknown field {name!r}", nearest(name, RECORD_FIELDS))
    return value


class ProbeTable(Table):
    """Gold questions sent through the live pipeline.

    Attributes:
        target: `module:function`, or an http(s) address.
        gold: The gold set; None for the only one.
        every: The time in which all questions are sent once.
        max_per_day: The greatest number of requests a day.
        concurrency: The number of concurrent requests.
        timeout: The timeout of one request.
        headers: HTTP headers of each request.
        body: The body of each request; `{question}` is replaced.
        answer: The paths of the record's fields in the reply; empty tries every known format.
        burst: The gold questions that an incident asks within a minute, to prove that it is true or over; 0 asks none.
        bursts_per_day: The greatest number of bursts a day; days begin at midnight UTC.
    """

    target: Annotated[str, AfterValidator(_target)] = Field(examples=["myapp.rag:answer"])
    gold: Text | None = None
    every: Duration = Seconds(3600)
    max_per_day: Count = 2000
    concurrency: Count = 2
    timeout: Duration = Seconds(30)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    body: str = '{"question": "{question}"}'
    answer: Annotated[
        dict[str, Text],
        BeforeValidator(
            lambda value: {"claim": value} if isinstance(value, str) else value,
            json_schema_input_type=dict[str, Text] | Text,
        ),
        AfterValidator(_known_fields),
    ] = Field(default_factory=dict)
    burst: Count = 40
    bursts_per_day: Count = 12

    @model_validator(mode="after")
    def _body_has_question(self) -> ProbeTable:
        if self.target.startswith("http") and "{question}" not in self.body:
            raise value_error("has a body without the question", "write {question} where the question belongs")
        return self


JudgeKind = Literal["contextual_precision", "faithfulness"]


def _scale(value: tuple[float, ...]) -> tuple[float, ...]:
    if len(value) != 2 or value[0] == value[1]:
        raise value_error("is not a scale", "the worst score, then the best: range = [1, 5]")
    return value


class JudgeTable(Table):
    """A judge: a model at an address, or a function registered with `@ragmon.judge`. No gate is on its score alone.

    Attributes:
        url: The address of an OpenAI-compatible API; None if the judge is a function.
        model: The model's name there.
        kind: What the model evaluates; None for the table's name.
        api_key_file: The file with the key, which is sent to this address only.
        sample: The share of records it scores.
        max_per_day: The greatest number of requests a day, including retries; days begin at midnight UTC.
        threshold: The least score of a success.
        range: The worst and the best score on the scale of another tool, whose scores are on spans
            (`gen_ai.evaluation.result`, OpenInference's annotations): they are brought to [0, 1].
        include_reason: Ask for reasons.
        strict: Only a perfect score counts; every other score becomes 0.
        version: The version of its scores, where you name it; None for a hash of what decides them.
        timeout: The timeout of one judgement, including retries.
        concurrency: The number of concurrent judgements.
    """

    url: Url | None = None
    model: Text | None = None
    kind: JudgeKind | None = None
    api_key_file: File | None = None
    sample: Share = 0.01
    max_per_day: Count = 500
    threshold: Share = 0.5
    range: Annotated[Many[FiniteFloat], AfterValidator(_scale)] = (0.0, 1.0)
    include_reason: bool = True
    strict: bool = False
    version: Text | None = None
    timeout: Duration = Seconds(30)
    concurrency: Count = 2

    def asks(self, name: str) -> JudgeKind | None:
        """The kind of the judge of this name; None if it is a function, or if the kind is not known."""
        if self.url is None:
            return None
        return self.kind or next((kind for kind in get_args(JudgeKind) if kind == name), None)

    @model_validator(mode="after")
    def _model_and_address(self) -> JudgeTable:
        if self.url is not None and self.model is None:
            raise value_error("has an address without a model", 'model = "the model\'s name"')
        model_keys = [key for key in ("model", "kind", "api_key_file") if getattr(self, key) is not None]
        if self.url is None and model_keys:
            raise value_error(f"has {model_keys[0]} without an address", 'url = "https://judge.example/v1"')
        return self


class ColumnsTable(Table):
    """The column of a label file for each field.

    Attributes:
        trace_id: The column of the request's trace id.
        correct: The column that says whether the answer is right.
        answerable: The column that says whether the question can be answered at all.
        relevant_ids: The column of the ids of the documents that answer it.
        rater: The column of who rates.
        ts: The column of when they rated, seconds since the epoch or ISO 8601.
        comment: The column of a free text.
    """

    trace_id: Text = "trace_id"
    correct: Text = "correct"
    answerable: Text = "answerable"
    relevant_ids: Text = "relevant_ids"
    rater: Text = "rater"
    ts: Text = "ts"
    comment: Text = "comment"


class LabelValuesTable(Table):
    """Words that stand for true and false.

    Attributes:
        true: Words that mean yes, in any case.
        false: Words that mean no.
    """

    true: Many[Text] = ("yes", "true", "1")
    false: Many[Text] = ("no", "false", "0")

    @model_validator(mode="after")
    def _disjoint(self) -> LabelValuesTable:
        shared = {word.casefold() for word in self.true} & {word.casefold() for word in self.false}
        if shared:
            raise value_error(f"has {min(shared)!r} for both true and false", "a word means either true or false")
        return self


class LabelsTable(Table):
    """How label files are read, and the proxy score for estimates from labels.

    Attributes:
        column: The column of a file for each field.
        values: Words that stand for true and false.
        proxy: The score that all answers have, while only some have labels: `judge_…` or `groundedness`. None for the
            first judge, or groundedness if there is none.
    """

    column: ColumnsTable = ColumnsTable()
    values: LabelValuesTable = LabelValuesTable()
    proxy: (
        Annotated[
            Text,
            checked(
                lambda value: value == Groundedness.name or value.startswith(JUDGE_PREFIX),
                "is not a score that every answer has",
                f'"{JUDGE_PREFIX}…" for a judge, or "{Groundedness.name}"',
            ),
        ]
        | None
    ) = None


class LinksTable(Table):
    """Addresses that alarms and HTML pages link to.

    Attributes:
        trace: The address of a trace; `{trace_id}` is replaced.
        status: The address at which people open the status page; alerts link to the runbook there.
        runbook: The address of a runbook of your own; `{alert}` is replaced by the alert's name in lower case.
        dashboard: The address of the Grafana with the dashboards.
    """

    trace: (
        Annotated[
            Url,
            checked(
                lambda value: "{trace_id}" in value,
                "has no place for the trace id",
                "write {trace_id} where it belongs",
            ),
        ]
        | None
    ) = None
    status: Url | None = None
    runbook: Url | None = None
    dashboard: Url | None = None


_LabelName = Annotated[
    str,
    checked(
        re.compile("[a-zA-Z_][a-zA-Z0-9_]*").fullmatch,
        "must be the name of a Prometheus label",
        'for example "namespace"',
    ),
]


class RulesTable(Table):
    """What `ragmon generate rules` writes.

    Attributes:
        by: Labels that tell deployments of ragmon in one Prometheus apart: every rule keeps those that are present.
    """

    by: Many[_LabelName] = ("namespace", "env", "cluster")


class TlsTable(Table):
    """The server's certificate and its key.

    Attributes:
        cert: The certificate chain, PEM.
        key: Its private key, PEM.
    """

    cert: File
    key: File


def _tls(value: object) -> Literal["off", "upstream"] | TlsTable:
    if value == "off" or value == "upstream":  # noqa: PLR1714 - mypy narrows a comparison, not membership
        return value
    try:
        return TlsTable.model_validate(value)
    except ValidationError:
        hint = '{ cert = "server.pem", key = "server.key" }, or "upstream" where a proxy ends TLS'
        raise value_error('must be "off", "upstream" or a certificate', hint) from None


def _host(value: str) -> str:
    name = value.lower().removesuffix(".")
    if not re.fullmatch(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", name):
        raise value_error("must be a host name without a port", 'such as "ragmon" or "ragmon.example"')
    return name


_Period = Annotated[
    Duration,
    checked(
        (10.0, 20.0, 30.0, 60.0).__contains__,
        "must divide a minute into steps of 10 seconds",
        "10s, 20s, 30s or 60s",
    ),
]


# The key `from` is a word of Python's, so it cannot be written as a field.
_From = create_model("_From", __base__=Table, **{"from": (Literal["producers", "stream"], "producers")})  # type: ignore[call-overload]


class ServeTable(_From):  # type: ignore[misc, valid-type]
    """The server.

    Attributes:
        otlp, grpc: The OTLP receivers over HTTP and gRPC; `otlp` also accepts labels and acknowledgements.
        admin: The admin port, which shows and changes nothing; also that of a monitor in an application.
        hosts: Host names allowed in requests, beside IP addresses, localhost and the names of the machine.
        token_file: The file with the bearer token of the write ports, of at least 16 bytes: `openssl rand -hex 16`.
        tls: `off`, `upstream` (a proxy terminates TLS) or a certificate.
        state_dir: The folder of the journal and the checkpoints; one that every user may read is refused.
        retention: How long the journal keeps rows.
        max_size: The greatest size of the journal.
        max_series: The greatest number of Prometheus series; unconfigured pipelines share what the configured ones
            leave.
        from: What it counts: what `producers` send it, or what the workers of `[stream]` counted.
    """

    otlp: Listen = Address("127.0.0.1", 4318)
    grpc: Listen = Address("127.0.0.1", 4317)
    admin: Listen = Address("127.0.0.1", 9464)
    hosts: Many[Annotated[Text, AfterValidator(_host)]] = ()
    token_file: File | None = None
    tls: Annotated[
        Literal["off", "upstream"] | TlsTable,
        PlainValidator(_tls, json_schema_input_type=Literal["off", "upstream"] | TlsTable),
    ] = "off"
    state_dir: File = file("ragmon-state")
    retention: Duration = Seconds(7 * 86_400)
    max_size: Size = Bytes(5 * 2**30)
    max_series: Count = 10_000

    @property
    def reads_stream(self) -> bool:
        """Whether it adds up what the workers of `[stream]` counted."""
        return bool(getattr(self, "from") == "stream")


class StreamTable(Table):
    """How a log is divided into chunks, where several processes count it and one adds up; and where it is in Kafka.

    Attributes:
        brokers: Where Kafka is, `host:port`, several with commas between; None without Kafka.
        spans: The topic of the requests, keyed by trace id.
        encoding: What a message of it is: `otlp_proto`, as the collector writes it, or `records`, lines of a trace log.
        metrics: The topic of the totals that producers report.
        chunks: The topic of what workers counted.
        group: The consumer group of the workers.
        partitioner: How other programs that write to the topic of requests place a key: librdkafka's `partitioner`.
        period: How much time of arrival a chunk holds.
        memory: How long a message is remembered at least, so that one that comes again is a duplicate.
        samples: How many whole records a chunk of Kafka holds beside its counts; besides, 8 that fail, for each gate.
            With 0 it holds none.
        patience: How long alarms wait for a part that is silent; None: until it reports again.
        kafka: Settings that are passed to librdkafka as they are; of `NAME_file`, what is in the file.
    """

    brokers: Text | None = None
    spans: Text = "otlp_spans"
    encoding: Literal["otlp_proto", "records"] = "otlp_proto"
    metrics: Text = "otlp_metrics"
    chunks: Text = "ragmon.chunks"
    group: Text = "ragmon"
    partitioner: Literal["fnv1a", "murmur2_random", "consistent_random"] = "fnv1a"
    period: _Period = Seconds(10)
    memory: Duration = Seconds(600)
    samples: Few = 8
    patience: Duration | None = None
    kafka: dict[str, str | int | float | bool] = Field(default_factory=dict)


def _http_only(value: object) -> object:
    if value == "grpc":
        raise value_error("must be http/protobuf", GRPC)
    return value


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    if (why := header_problem(headers)) is not None:
        raise value_error(why, '{ authorization = "Bearer ...", x-tenant = "docs" }')
    return headers


class ExportTable(Table):
    """Where capture exports records; if neither `endpoint` nor `jsonl` is set, a monitor runs in the process.

    Attributes:
        endpoint: The address of an OTLP receiver; `otel` takes OpenTelemetry's standard variables, all of them.
        protocol: The protocol: `http/protobuf`.
        headers: Headers of each request, such as the token of another receiver than `ragmon serve`.
        certificate: A PEM file of the certificates to trust; None: those of the system.
        client_certificate: A PEM file of this client's certificate and its key.
        compression: How requests are compressed; None: with gzip, and not at all where the receiver is on this machine.
        timeout: How long one batch may take, further attempts included.
        jsonl: The trace log to write.
        rotate_size: The size at which the log is rotated.
        rotate_every: The age at which it is rotated.
        fsync: When lines of the log are synced to disk.
        scores: The application's own tracing backend; it receives the scores of the traces it keeps, over OTLP.
        score_spans: Send the scores as OpenInference EVALUATOR spans as well.
    """

    endpoint: (
        Annotated[
            str,
            PlainValidator(lambda value: OTEL if value == OTEL else url(value)),
            WithJsonSchema({"type": "string", "pattern": f"^([Hh][Tt][Tt][Pp][Ss]?://|{OTEL}$)"}),
        ]
        | None
    ) = None
    protocol: Annotated[Literal["http/protobuf"], BeforeValidator(_http_only)] = "http/protobuf"
    headers: Annotated[dict[str, str], AfterValidator(_sendable)] = Field(default_factory=dict, repr=False)
    certificate: File | None = None
    client_certificate: File | None = None
    compression: Literal["gzip", "none"] | None = None
    timeout: Duration = Seconds(10)
    jsonl: File | None = None
    rotate_size: Size | None = None
    rotate_every: Duration | None = None
    fsync: Literal["never", "second", "record"] = "never"
    scores: Url | None = None
    score_spans: bool = False

    @model_validator(mode="after")
    def _one_exporter(self) -> ExportTable:
        if self.endpoint is not None and self.jsonl is not None:
            raise value_error("has both endpoint and jsonl", "keep one: a server or a file")
        return self
