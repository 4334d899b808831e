"""ragmon.toml as one pydantic model, `ConfigDocument`; and `Settings`, the whole configuration that others read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema, NullableSchema, WithDefaultSchema

from ragmon.config.services import (
    ExportTable,
    JudgeTable,
    LabelsTable,
    LinksTable,
    ProbeTable,
    RulesTable,
    ServeTable,
    StreamTable,
)
from ragmon.config.units import (
    Count,
    Duration,
    File,
    Files,
    Function,
    IdForms,
    JudgeName,
    Many,
    Name,
    Number,
    Positive,
    Seconds,
    Share,
    Table,
    Text,
    duration,
    non_empty,
    plain,
    unique,
    value_error,
)
from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS, FOLDED_SECONDS, HOUR, JUDGE_PREFIX, REFUSAL_TOKEN
from ragmon.core.errors import ConfigError
from ragmon.core.gold_item import Match
from ragmon.core.json_schema import Schema, identifier, summary
from ragmon.core.policy import MIN_SAMPLES, Estimand, Gate, Kind, Mode, Policy
from ragmon.core.refusals import RefusalRule, explodes
from ragmon.core.text import fold_characters
from ragmon.metrics import Metric, base, build
from ragmon.metrics.base import DEPTH_HINT, judged
from ragmon.metrics.builtin import DEFAULT_THRESHOLD, Groundedness
from ragmon.metrics.facts import DEPTH

Content = Literal["none", "hash", "redacted", "full"]
Source = Literal["probe", "match", "label", "live", "replay"]
OnInsufficient = Literal["hold", "pass", "fail"]
RESERVED: Final = ("preset", "verdict", "on_insufficient")
"""The keys of [gates] that are no gates."""


class GoldTable(Table):
    """A gold set.

    Attributes:
        path: Its files.
        pipeline: The pipeline it belongs to; None for all.
        use: The sources of records that may match it.
        tags: Tags that every item has.
        match: How gold texts are compared with contexts.
        ids: What an id may differ in from a gold id and still be that id: `casefold` (case, Unicode forms, white space,
            leading zeros), `prefix` (one id begins the other: file suffix, chunk), `path` (folders, the host of a URL).
            `exact` says that other ids are other documents; without the key, an id of another form is unknown.
        embed: The function that embeds texts for matching by meaning; None: questions are matched by wording only.
        frozen: The file written by `ragmon gold freeze`; gold files that differ from it are rejected.
        key_file: The key of its signature.
    """

    path: Files = Field(examples=["gold.jsonl"])
    pipeline: Name | None = None
    use: Annotated[Many[Literal["probe", "match"]], AfterValidator(unique)] = ("probe", "match")
    tags: dict[str, str] = Field(default_factory=dict)
    match: Match = "exact"
    ids: IdForms = ()
    embed: Function | None = None
    frozen: File | None = None
    key_file: File | None = None

    @model_validator(mode="after")
    def _key_file_needs_frozen(self) -> GoldTable:
        if self.key_file is not None and self.frozen is None:
            raise value_error("has a key_file and nothing frozen", 'frozen = "gold.frozen.json", or leave key_file out')
        return self


class GateTable(Table):
    """A gate as written in the file; it is resolved into a `ragmon.core.policy.Gate`.

    Attributes:
        metric: The metric; none takes the gate's name. `latency` and `index_hash` belong to the other kinds.
        at_least: The floor.
        at_most: The ceiling; a gate has one of the two.
        source: The records it judges: users' (`live`), probes, user questions found in gold (`match`),
            people's labels, or a replay. None: users'; of a metric on gold the first of `probe`, `match`, `replay` and
            `label` that ever had data; of `answer_correct` labels.
        gold: The gold set, where there are several.
        slice: One tag and its value, `{ lang = "de" }`: the gate judges only these records.
        window: A name of `windows`; none takes `1h`.
        estimand: What a number over gold stands for: this gold set, or questions like these.
        min_samples: Requests below which the verdict is insufficient.
        page_below: The level worth a page of a floor; none takes 0.10 beyond the threshold.
        page_above: The level worth a page of a ceiling.
        severity: The severity of its alarm.
        kind: A threshold on a share, a quantile against its baseline, or the number of distinct values.
    """

    metric: Text | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    source: Source | None = None
    gold: Text | None = None
    slice: dict[str, str] = Field(default_factory=dict)
    window: Text | None = None
    estimand: Estimand | None = None
    min_samples: Count = MIN_SAMPLES
    page_below: Number | None = None
    page_above: Number | None = None
    severity: Literal["page", "ticket"] = "page"
    kind: Kind = "threshold"

    @model_validator(mode="after")
    def _one_bound(self) -> GateTable:
        if self.at_least is not None and self.at_most is not None:
            raise value_error("has both at_least and at_most", "keep one: a gate is a floor or a ceiling")
        if self.at_least is None and self.at_most is None:
            raise value_error("has no threshold", "at_least = 0.80 for a floor, at_most = 0.05 for a ceiling")
        return self

    @property
    def direction(self) -> Literal["at_least", "at_most"]:
        """Which of the two bounds is set."""
        return "at_most" if self.at_least is None else "at_least"

    @property
    def threshold(self) -> float:
        """The bound that is set."""
        bounds = (self.at_least, self.at_most)
        return next(bound for bound in bounds if bound is not None)


class GatesTable(Table):
    """How verdicts are computed, and the gates: every other key is one.

    Attributes:
        preset: A named set of gates to start from.
        verdict: `interval` compares the confidence interval with the threshold, `point` the value alone.
        on_insufficient: The effect of insufficient gates on the overall verdict.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, GateTable] = Field(init=False)

    preset: str | None = None
    verdict: Mode = "interval"
    on_insufficient: OnInsufficient = "hold"

    @property
    def own(self) -> dict[str, GateTable]:
        """The gates written in this table, by name."""
        return dict(self.__pydantic_extra__)


def _ranks_kept(ks: tuple[int, ...]) -> tuple[int, ...]:
    if max(ks, default=0) > DEPTH:
        raise value_error(f"has k = {max(ks)}, beyond the ranks that are kept", DEPTH_HINT)
    return ks


class MetricsTable(Table):
    """Parameters of the metrics.

    Attributes:
        k: The values of k of ranked metrics such as recall@k, at most 1,000.
        answered_within: The latency bound of the metric `answered_within`; None: it is not assessed.
        grounded_threshold: The least groundedness of an answer that counts as grounded.
        cluster: The fields by which requests are clustered, for intervals, except of errors and latencies, and for
            alarms, which count a session once.
        citations_required: Whether an answer without a list of citations cites nothing; otherwise its citations count
            as not captured. Default: only with a `wfgy` preset, whose template asks for the list.
    """

    k: Annotated[Many[Count], AfterValidator(unique), AfterValidator(_ranks_kept)] = (1, 3, 5, 10)
    answered_within: Duration | None = None
    grounded_threshold: Share = DEFAULT_THRESHOLD
    cluster: Annotated[Many[Literal["session", "question"]], AfterValidator(unique)] = ("session", "question")
    citations_required: bool | None = None

    @property
    def answered_within_ms(self) -> float | None:
        """The bound in milliseconds, the unit of recorded latencies."""
        return None if self.answered_within is None else float(self.answered_within) * 1000


class BaselineTable(Table):
    """The source of the alarms' baseline: learned for some time, or read from a frozen file.

    Attributes:
        learn: How long the alarms learn what is normal before they judge against it.
        file: What `ragmon baseline freeze` wrote.
    """

    learn: Duration | None = None
    file: File | None = None

    @model_validator(mode="after")
    def _learn_or_file(self) -> BaselineTable:
        if (self.learn is None) == (self.file is None):
            raise value_error("needs either learn or file", '{ learn = "1h" } or { file = "baseline.json" }')
        return self


class AlarmsTable(Table):
    """The baseline, and the false-alarm budgets over all detectors of a tier.

    Attributes:
        false_pages_per_30d: False pages in 30 days, over all page alarms of all configured pipelines.
        looks_per_day: False tickets and looks a day, over all other alarms.
        baseline: Where the baseline comes from.
    """

    false_pages_per_30d: Positive = 1.0
    looks_per_day: Positive = 4.0
    baseline: BaselineTable = BaselineTable(learn=Seconds(3600))


class ErrorsTable(Table):
    """What does not count as an error of the pipeline.

    A caller who leaves, a cancelled task, an interrupt and a status below 500 that the web framework raises to its own
    client do not count by default.

    Attributes:
        ignore: Further exceptions that do not count, by the name of their class or of a base, with or without its
            module; `*` stands for any characters.
    """

    ignore: Many[Text] = ()


class KeepTable(Table):
    """Sampling rates of the outcome strata, in addition to the audit sample.

    Without this table 1 for errors, 0.2 for refusals and 1 for slow calls; a stratum that the table leaves out is 0.

    Attributes:
        error: Of calls that raise.
        refusal: Of calls that refuse.
        slow: Of calls slower than `slow_above`.
    """

    error: Share = 0.0
    refusal: Share = 0.0
    slow: Share = 0.0


class SamplingTable(Table):
    """Which calls become records.

    Attributes:
        rate: The rate of the audit sample, uniform over all calls.
        keep: The rates of the outcome strata.
        slow_above: The total latency above which a call is slow.
        detail: Whether calls kept for their outcome retain what was recorded inside the call.
        latency: Whether `all` calls are timed, or only the `kept` ones; keeping refusals or slow calls times all.
        parent: `respect` samples only calls whose parent span the application's tracer sampled.
    """

    rate: Share = 0.05
    keep: KeepTable = KeepTable(error=1.0, refusal=0.2, slow=1.0)
    slow_above: Duration = Seconds(8)
    detail: bool = False
    latency: Literal["all", "kept"] = "all"
    parent: Literal["ignore", "respect"] = "ignore"


class CaptureTable(Table):
    """Which parts of a sampled call leave the application.

    Attributes:
        content: How the text of user traffic is treated.
        probe_content: The same for gold questions, which are not user data.
        id_from: The field that holds a document's id; None tries the usual fields.
        retrievers: Tools, tasks, functions and spans of other instrumentations that retrieve, by their names, whatever
            they return; `*` stands for any characters. A tool that returns a list of documents with ids
            needs no entry.
        reasoning: What models call their thoughts, beside the usual names (`think`, `thinking`, `reasoning` ...): text
            between `<NAME>` and `</NAME>`, or `[NAME]` and `[/NAME]`, is not part of an answer.
        merge: How several retrievals of a request are merged, if spans of other instrumentations report them: the last
            list, all lists concatenated, or their reciprocal rank fusion.
        pipeline: What names the pipeline of spans of other instrumentations: the service (`service.name`), or the name
            of the workflow where there is one (`gen_ai.workflow.name`, `traceloop.workflow.name`, the name of a
            trace in Langfuse or MLflow).
        gold: A gold file with which claim metrics are computed in the application if no text leaves it.
        redactors: Additional redaction functions of the application, `module:function`.
        hash_key_file: The HMAC key of question hashes.
    """

    content: Content = "none"
    probe_content: Content = "full"
    id_from: Text | None = None
    retrievers: Many[Text] = ()
    reasoning: Many[Text] = ()
    merge: Literal["concat", "last", "rrf"] = "concat"
    pipeline: Literal["service", "workflow"] = "service"
    gold: File | None = None
    redactors: Many[Function] = ()
    hash_key_file: File | None = None


# What is no text to find in a regular expression: escapes, names of groups, comments, flags.
_SYNTAX: Final = re.compile(r"(\\N\{[^}]{1,99}\}|\\.|\(\?(?:P[<=]\w*|#[^)]*|\(\w*|[aiLmsux-]*))", re.DOTALL)


def _pattern(value: str) -> str:
    if value == "default":
        raise value_error("is not a pattern", "leave it out: the shipped wordings count beside the list")
    try:
        re.compile(value)
    except re.error as error:
        message = f"is not a usable regular expression ({error})"
        raise value_error(message, "Python's re syntax; answers are case-folded first, so no (?i) is needed") from None
    folded = "".join(part if _SYNTAX.fullmatch(part) else fold_characters(part) for part in _SYNTAX.split(value))
    if folded != value and not re.search(r"\(\?[aLmsux]*i", value):
        raise value_error("has capital letters or other characters that no folded answer has", f"write {folded!r}")
    if explodes(value):
        raise value_error("takes too long on some texts", "one way to match a text: no (a+)+, (a|aa)* or (.*a){20}")
    return value


def _patterns(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        return value
    if value != "default":
        raise value_error('must be "default" or a list', "a list of regular expressions that count, too")
    if info.data.get("replace"):
        raise value_error('is "default" beside replace = true', "a list that replaces the shipped wordings")
    return ()


class RefusalTable(Table):
    """What counts as a refusal: the tokens, the wordings in 29 languages that ship with ragmon, and own patterns.

    Attributes:
        tokens: Answers that are a refusal as a whole, whatever their case and surrounding space.
        replace: Whether `patterns` replace the shipped wordings; `[]` then switches the matcher off.
        patterns: Regular expressions of wordings that look like a refusal, beside the shipped ones. Answers are folded
            first (NFKC, casefold), so patterns are in small letters. `"default"` is the same as `[]`.
        window: Characters from the start of an answer in which the patterns are searched.
        matcher_counts: Whether an answer that matches a pattern counts as refused; else it counts for
            `refusal_like_rate` alone. False where `[gates] preset` is one of `wfgy-*` and this key is not written.
    """

    tokens: Annotated[Many[Text], non_empty] = (REFUSAL_TOKEN,)
    replace: bool = False
    patterns: Annotated[
        Many[Annotated[str, AfterValidator(_pattern)]],
        BeforeValidator(_patterns, json_schema_input_type=Many[str] | Literal["default"]),
    ] = ()
    window: Count = 120
    matcher_counts: bool = True

    def rule(self) -> RefusalRule:
        """The rule that the facts are computed with."""
        return RefusalRule(self.tokens, self.patterns, self.window, self.matcher_counts, self.replace)


class CitationsTable(Table):
    """How the answers cite.

    Attributes:
        base: What citations mean that are not retrieved ids: 0 or 1, the first rank of numbers such as `[1]`;
            "ids", they are ids as they are written; "titles", they name documents otherwise and are not assessed.
            Without it numbers are ranks from 1; from 0 where at least 2 % of the answers with numbers have a 0 and none
            the number of its documents; names are not assessed where nine in ten answers cite nothing that looks like
            an id.
    """

    base: Literal[0, 1, "ids", "titles"] | None = None


KEYED: Final = ("gold", "gates", "probe", "judges")
"""Tables whose keys are names and whose values are tables."""


class PipelineTable(Table):
    """The short form for a single pipeline.

    Attributes:
        name: The pipeline of calls that name none.
    """

    name: Name = constants.DEFAULT_PIPELINE


class ScopedTable(Table):
    """The tables that may appear at the top level, or inside a pipeline and apply to it only.

    Attributes:
        slices: Tags and those of their values that are counted apart, `lang = ["de", "en"]`.
    """

    sampling: SamplingTable = SamplingTable()
    capture: CaptureTable = CaptureTable()
    errors: ErrorsTable = ErrorsTable()
    refusal: RefusalTable = RefusalTable()
    citations: CitationsTable = CitationsTable()
    slices: dict[Name, Annotated[Many[str], AfterValidator(unique)]] = Field(default_factory=dict)
    gold: dict[Name, GoldTable] = Field(default_factory=dict)
    gates: GatesTable = GatesTable()
    metrics: MetricsTable = MetricsTable()
    alarms: AlarmsTable = AlarmsTable()
    probe: dict[Name, ProbeTable] = Field(default_factory=dict)
    judges: dict[JudgeName, JudgeTable] = Field(default_factory=dict)
    labels: LabelsTable = LabelsTable()
    links: LinksTable = LinksTable()
    export: ExportTable = ExportTable()


def _window(value: str) -> str:
    seconds = duration(value)
    step = BUCKET_SECONDS if seconds <= HOUR else FOLDED_SECONDS
    if seconds % step:
        message = f"must be a multiple of {step} seconds"
        raise value_error(message, f"rows are {BUCKET_SECONDS} seconds long for an hour, then {FOLDED_SECONDS} seconds")
    return value


class ConfigDocument(ScopedTable):
    """All tables and keys of ragmon.toml.

    Attributes:
        extend: Another ragmon.toml, relative to this one; keys here win over keys there.
        windows: The spans of the windows, also their names; up to an hour a multiple of 10 seconds,
            beyond of 5 minutes.
        plugins: Modules that are imported first; they register metrics and judges.
    """

    extend: Text | None = None
    windows: Annotated[
        tuple[Annotated[str, AfterValidator(_window)], ...],
        Field(strict=False),
        non_empty,
        AfterValidator(lambda windows: unique(tuple(str(duration(window)) for window in windows)) and windows),
    ] = ("5m", "1h", "24h")
    plugins: Many[Text] = ()
    pipeline: PipelineTable = PipelineTable()
    pipelines: dict[Name, ScopedTable] = Field(default_factory=dict)
    serve: ServeTable = ServeTable()
    stream: StreamTable = StreamTable()
    rules: RulesTable = RulesTable()


def is_merged(path: Sequence[str | int]) -> bool:
    """Whether a table at this key is merged key by key if two files (or a pipeline and the top level) both have it.

    Deeper tables (`keep`, `headers`, `tags` ...) are values: the later one replaces the earlier, so that
    `keep = {}` can switch off what an extended file keeps.
    """
    if path[0] == "pipelines":
        path = path[2:]
    return len(path) <= 1 or (len(path) == 2 and path[0] in KEYED)


def table_at(path: Sequence[str | int], model: type[Table] = ConfigDocument) -> type[Table] | None:
    """The model of the table at a key; None if there is no such table."""
    if not path:
        return model
    if issubclass(model, GatesTable) and path[0] not in model.model_fields:
        return table_at(path[1:], GateTable)
    field = model.model_fields.get(str(path[0]))
    entry_model = next(_tables(field.annotation), None) if field is not None else None
    is_keyed = field is not None and get_origin(field.annotation) is dict
    if entry_model is None or (is_keyed and len(path) == 1):
        return None
    return table_at(path[2 if is_keyed else 1 :], entry_model)


def _tables(annotation: Any) -> Iterator[type[Table]]:
    if inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, Table):
        yield annotation
    for part in get_args(annotation):
        yield from _tables(part)


def flatten(tables: Table, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value with its key: `("sampling", "rate"), 0.05`; without gates, which depend on presets and metrics."""
    for key, value in tables:
        path = (*prefix, key)
        if isinstance(value, Mapping) and (is_merged((*path, "")) or key == "slices"):
            for name, entry in value.items():
                yield from flatten(entry, (*path, name)) if isinstance(entry, Table) else [((*path, name), entry)]
        elif isinstance(value, Table) and len(path) == 1:
            gate_names = set(value.own) if isinstance(value, GatesTable) else set()
            yield from (((*path, name), entry) for name, entry in value if name not in gate_names)
        else:
            yield path, value


class _SchemaWriter(GenerateJsonSchema):
    # TOML has no null; and a table need not be complete, because another file may extend it.

    def nullable_schema(self, schema: NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        inner, default = self.generate_inner(schema["schema"]), plain(schema.get("default"))
        return inner if default is None or "$ref" in inner else {**inner, "default": default}

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        model, written = schema["cls"], super().model_schema(schema)
        notes = model.notes()
        for name, value in written["properties"].items():
            value.pop("title", None)
            written["properties"][name] = ({"description": notes[name]} if name in notes else {}) | value
        kept = ("type", "properties", "additionalProperties")
        return {"description": summary(model.__doc__ or ""), **{key: written[key] for key in kept}}


def config_schema() -> Schema:
    """The JSON Schema of ragmon.toml for editors, of draft 7, with the sentences and defaults of the models.

    What needs more than one key or file, `ragmon config check` says.
    """
    written = ConfigDocument.model_json_schema(schema_generator=_SchemaWriter, ref_template="#/definitions/{model}")
    tables = written.pop("$defs")
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": identifier("config", 1),
        "title": "ragmon.toml",
        **written,
        "definitions": tables,
    }


class GoldSpec(GoldTable):
    """A gold set to load: its table, whose `pipeline` is set where the table stands inside a pipeline.

    Attributes:
        name: Its name in gates and series.
    """

    name: str


class ProbeSpec(ProbeTable):
    """Gold questions to send: the table of a probe.

    Attributes:
        name: Its name.
        pipeline: The pipeline it asks.
        gold: The gold set.
    """

    name: str
    pipeline: str
    gold: str

    @property
    def asks(self) -> str:
        """The target for display: credentials and the query string are removed, because they may hold secrets."""
        scheme, slashes, rest = self.target.partition("?")[0].rpartition("//")
        return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


class PipelineSettings(ScopedTable):
    """The settings of one pipeline: its tables, merged over those of the top level.

    Attributes:
        name: The pipeline.
        resolved_gates: In the order of the report; a gate without a source uses the first source that has data.
        has_probe: Whether gold questions are sent through it.
    """

    name: str
    resolved_gates: tuple[Gate, ...]
    has_probe: bool = False

    @property
    def proxy(self) -> str:
        """The score of all answers that narrows estimates from labels (prediction-powered inference)."""
        return self.labels.proxy or (f"{JUDGE_PREFIX}{min(self.judges)}" if self.judges else Groundedness.name)


@dataclass(frozen=True)
class Settings:
    """The whole configuration, from ragmon.toml, the environment and the defaults.

    Attributes:
        path: The main file; None for the built-in defaults.
        build: The application's build; "" if it is not set.
        service: Its OpenTelemetry service name; "" if it is not set.
        disabled: Whether capture is switched off.
        windows: Window lengths in seconds by name.
        pipeline: The default pipeline, of calls that name none.
        pipelines: The configured pipelines by name; none where the configuration names none.
        unconfigured: The settings of all other pipelines: those of the top level of the file.
        gold: The gold sets; those of one pipeline come before those for all.
        probes: The probes.
        serve: The table of the server.
        stream: How a log is divided into chunks.
        rules: The table of generated rules.
        export: Where this process exports records.
        values: Every value by its dotted key.
        origins: The origin of each of `values`: `default`, `ragmon.toml:12`, `environment RAGMON_SAMPLE`.
    """

    path: Path | None
    build: str
    service: str
    disabled: bool
    windows: Mapping[str, int]
    pipeline: str
    pipelines: Mapping[str, PipelineSettings]
    unconfigured: PipelineSettings
    gold: tuple[GoldSpec, ...]
    probes: tuple[ProbeSpec, ...]
    serve: ServeTable
    stream: StreamTable
    rules: RulesTable
    export: ExportTable
    values: Mapping[str, object] = field(repr=False)
    origins: Mapping[str, str] = field(repr=False)

    @property
    def expected_pipelines(self) -> tuple[str, ...]:
        """The pipelines to expect before any record came: the configured ones, else the default pipeline."""
        return tuple(self.pipelines) or (self.pipeline,)

    def of(self, pipeline: str) -> PipelineSettings:
        """The settings of a pipeline; an unconfigured pipeline has those of the top level of the file."""
        configured = self.pipelines.get(pipeline)
        if configured is not None:
            return configured
        gates = tuple(replace(gate, pipeline=pipeline) for gate in self.unconfigured.resolved_gates)
        return self.unconfigured.model_copy(update={"name": pipeline, "resolved_gates": gates})

    def gates(self) -> tuple[Gate, ...]:
        """The gates of the top level and of every configured pipeline."""
        return tuple(gate for scope in (self.unconfigured, *self.pipelines.values()) for gate in scope.resolved_gates)

    def policy(self, pipeline: str | None = None, *, live: bool = False, seen: Iterable[str] = ()) -> Policy:
        """The gates as a policy.

        Args:
            pipeline: Only the gates of this pipeline; None for all configured pipelines and those that have records.
            live: Gates without gold that name no source judge users' requests. All others that name none, and those of
                files, whose records may name none, use the first source that has data.
            seen: Pipelines that have records; without any, and where none is configured, the default pipeline is
                judged, so that a run of nothing does not pass.

        Raises:
            ConfigError: The pipelines differ in how verdicts are computed, so there is no joint verdict.
        """
        names = [pipeline] if pipeline is not None else list(dict.fromkeys((*self.pipelines, *seen)))
        pipelines = [self.of(name) for name in names or [self.pipeline]]
        verdict_settings = {(settings.gates.verdict, settings.gates.on_insufficient) for settings in pipelines}
        if len(verdict_settings) > 1:
            raise ConfigError(
                "the pipelines differ in gates.verdict or gates.on_insufficient",
                path=str(self.path or ""),
                hint=f"judge one at a time: {', '.join(names)}",
            )
        mode, on_insufficient = verdict_settings.pop()
        gates = [
            judged_live(gate, probed=settings.has_probe) if live else gate
            for settings in pipelines
            for gate in settings.resolved_gates
        ]
        return Policy(
            tuple(gates),
            mode=mode,
            on_insufficient=on_insufficient,
            windows=self.windows,
            false_pages_per_30d=self.unconfigured.alarms.false_pages_per_30d,
            looks_per_day=self.unconfigured.alarms.looks_per_day,
            configured=tuple(self.pipelines),
            published=frozenset(settings.name for settings in pipelines if settings.metrics.citations_required),
        )

    def build_metrics(self) -> dict[str, Metric]:
        """All metrics by key: the registered ones at the configured values of k, those of judges and those of gates."""
        scopes = (self.unconfigured, *self.pipelines.values())
        gates = (gate for gate in self.gates() if gate.kind == "threshold")
        ks = sorted({k for scope in scopes for k in scope.metrics.k})
        judges = (judged(name)() for name in sorted({name for scope in scopes for name in scope.judges}))
        scores = {metric.key: metric for metric in judges}
        return {**build(ks), **scores, **{gate.metric: base.parse(gate.metric) for gate in gates}}


def judged_live(gate: Gate, *, probed: bool) -> Gate:
    """A gate as it is judged live: one that names no source has its source, or on gold the one it waits for."""
    if gate.source is not None:
        return gate
    metric = base.parse(gate.metric) if gate.kind == "threshold" else None
    if metric is not None and metric.labelled:
        return replace(gate, source=constants.LABEL)
    if metric is not None and (metric.needs_gold or gate.gold is not None):
        return replace(gate, awaits=constants.PROBE if probed else constants.MATCH)
    return replace(gate, source=constants.LIVE)
