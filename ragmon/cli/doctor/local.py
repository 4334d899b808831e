"""One thing that was tried.

What can be tried in this process: gold, baselines, a call that is captured and scored, and what alarms can find.

What OpenTelemetry's limits on attributes cost: past the number of them, the ones set first are thrown away.

What a configuration's probes will do, in words; nothing is sent.

What the application's own sampler keeps from ragmon.

Which other instrumentations are installed, and what is lost of their spans with this environment.

Sources: opentelemetry-util-genai, `utils.py` (content); openinference-instrumentation, `config.py` (what is hidden);
OpenLLMetry's `opentelemetry.instrumentation.*.utils` (content); opentelemetry-sdk, `sdk.trace.SpanLimits` (limits) and
`sdk.trace.sampling` (samplers).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Final, NamedTuple

import ragmon
from ragmon.alarms.plan import Detectability, duration, reach
from ragmon.cli.client import get_page
from ragmon.config.services import ExportTable
from ragmon.config.settings import PipelineSettings, ProbeSpec, Settings
from ragmon.config.types import Address
from ragmon.core.errors import RagmonError, shorten
from ragmon.gold import GoldSet
from ragmon.monitor import install
from ragmon.monitor.build import build_alarms, load_gold, probe_key
from ragmon.monitor.exporting import nearest_of
from ragmon.monitor.probes.plan import questions
from ragmon.monitor.probes.prober import interval
from ragmon.scoring.score_table import ScoreTable


@dataclass(frozen=True)
class Check:
    """One thing that was tried.

    Attributes:
        name: What.
        ok: Whether it is as it should be.
        told: What was found.
        hint: What would be right, where it is not.
    """

    name: str
    ok: bool
    told: str
    hint: str = ""


RATES: Final = (1.0, 10.0, 100.0)
"""Observations a minute for which it is said what alarms find, where nobody knows the rate."""


def local_checks(settings: Settings) -> Iterator[Check]:
    """Try what needs no server.

    Args:
        settings: The configuration, without problems.
    """
    yield _gold(settings)
    yield from _embeds(settings)
    yield _baselines(settings)
    yield _capture(settings)


def _gold(settings: Settings) -> Check:
    try:
        sets = load_gold(settings.gold)
    except RagmonError as error:
        return Check("gold", ok=False, told=str(error), hint=error.hint)
    found = ", ".join(f"{gold.name} {gold.short_version} with {len(gold)} items" for gold in sets)
    return Check("gold", ok=True, told=found or "none: only label-free metrics are counted")


def _embeds(settings: Settings) -> Iterator[Check]:
    """Whether questions can be matched by meaning, where a gold set asks for it."""
    for spec in settings.gold:
        if spec.embed is None:
            continue
        try:
            found = nearest_of(settings, load_gold([spec]))
        except RagmonError as error:
            yield Check(f"embed {spec.name}", ok=False, told=str(error), hint=error.hint)
            continue
        known = found[0].calibration if found else None
        if known is None or known.threshold is None:
            told = "off: " + ("the embedder failed, as the log says" if known is None else known.reason)
            yield Check(f"embed {spec.name}", ok=False, told=told, hint="write more paraphrases, or leave embed out")
            continue
        told = f"similarity {known.threshold:.3f}, which {known.kept:.0%} of {known.pairs} paraphrases reach"
        yield Check(f"embed {spec.name}", ok=True, told=told)


def _baselines(settings: Settings) -> Check:
    try:
        alarms = build_alarms(settings, ScoreTable(settings.build_metrics()))
        for name in settings.pipelines:
            alarms.of(name)
    except RagmonError as error:
        return Check("baseline", ok=False, told=str(error), hint=error.hint)
    files = sorted({str(one.alarms.baseline.file) for one in settings.pipelines.values() if one.alarms.baseline.file})
    return Check("baseline", ok=True, told=", ".join(files) or "learned from traffic, at least an hour of it")


def _capture(settings: Settings) -> Check:
    """A call of a decorated function, captured and scored in this process, seen on `/metrics`."""
    quiet = replace(
        settings,
        export=ExportTable(),
        common=_kept(settings.common),
        pipelines={name: _kept(one) for name, one in settings.pipelines.items()},
        serve=settings.serve.model_copy(update={"admin": Address("127.0.0.1", 0)}),
    )
    try:
        installed = install.install(quiet)
    except RagmonError as error:
        return Check("capture", ok=False, told=f"not tried: {error}", hint=error.hint)
    try:
        ragmon.trace(name=settings.pipeline)(_answer)("Is anybody there?")
        installed.flush()
        monitor = installed.monitor
        address = None if monitor is None else monitor.address
        if address is None:
            return Check("capture", ok=False, told="nothing is captured", hint="RAGMON_DISABLED is set")
        lines = get_page(f"http://{address}", "/metrics").body.decode().splitlines()
    finally:
        installed.shutdown()
    scored = next((line for line in lines if line.startswith('ragmon_records_scored_total{stage="score"}')), "")
    if scored.rpartition(" ")[2] != "1.0":
        return Check("capture", ok=False, told="a call was made and not scored", hint="report this: it is a bug")
    told = f"a call was captured and scored here, and is one of {len(lines)} lines of /metrics"
    return Check("capture", ok=True, told=told)


def _answer(question: str) -> dict[str, object]:
    return {"answer": question, "citations": ["d1"], "retrieved": ["d1"]}


def _kept(one: PipelineSettings) -> PipelineSettings:
    return replace(one, sampling=one.sampling.model_copy(update={"rate": 1.0}))


def detectability(settings: Settings, per_minute: float) -> list[Detectability]:
    """What the alarms of every pipeline find at a rate of observations."""
    metrics = settings.build_metrics()
    return [
        found
        for one in settings.pipelines.values()
        for found in reach(
            one.gates,
            metrics,
            dict.fromkeys((gate.name for gate in one.gates), per_minute),
            false_pages_per_30d=one.alarms.false_pages_per_30d,
            looks_per_day=one.alarms.looks_per_day,
            pipelines=len(settings.pipelines),
        )
    ]


NUMBER: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
LENGTH: Final = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
"""The variable of spans, and the one that holds where it is not set."""
USUAL: Final = 128
"""Attributes of a span where nobody sets a limit."""
_OF_A_DOCUMENT: Final = 4
"""Attributes of a document in OpenInference: id, content, score, metadata."""
_OF_A_SPAN: Final = 8
"""Attributes of a retriever's span beside its documents, at most."""
_SHORT: Final = 8192
"""Characters below which documents in one attribute are likely to be cut."""


class SettingEffect(NamedTuple):
    """What a setting means for what arrives.

    Attributes:
        lost: What does not arrive, and why; "" where nothing is lost for certain.
        told: What is worth knowing.
        hint: What would be right.
    """

    lost: str = ""
    told: str = ""
    hint: str = ""


def limits(settings: Settings, environ: Mapping[str, str], *, flattened: bool) -> SettingEffect:
    """What the limits in force lose.

    Args:
        settings: The configuration: how deep its metrics look.
        environ: The environment.
        flattened: Documents come as one attribute for each of their fields.
    """
    name, length = _first(environ, LENGTH)
    if length is not None and length < _SHORT:
        lost = f"{name}={length} cuts questions, answers and lists of documents"
        return SettingEffect(lost, hint=f"unset {name}, or {_SHORT} at least")
    name, number = _first(environ, NUMBER)
    if not flattened or (name and number is None):
        return SettingEffect()
    most = USUAL if number is None else number
    documents = max(0, (most - _OF_A_SPAN) // _OF_A_DOCUMENT)
    deepest = max(k for one in (settings.common, *settings.pipelines.values()) for k in one.metrics.k)
    what = f"{name}={most}" if name else f"{NUMBER[0]} is not set, which means {most}"
    told = (
        f"{what}: of more than about {documents} documents the ones ranked first are lost, and the trace is unscorable"
    )
    hint = f"{NUMBER[0]}={_OF_A_SPAN + _OF_A_DOCUMENT * 100} is room for 100 documents"
    return SettingEffect(lost=told, hint=hint) if documents < deepest else SettingEffect(told=told, hint=hint)


def _first(environ: Mapping[str, str], names: tuple[str, str]) -> tuple[str, int | None]:
    """The variable that holds, and its limit; None for no limit, and where it is no number."""
    for name in names:
        if name in environ:
            text = environ[name].strip()
            return name, int(text) if text.isdecimal() else None
    return "", None


NAME = "probe"


def probes(settings: Settings) -> list[Check]:
    """Each probe: whom it asks, how often, and what stands against that.

    Args:
        settings: The configuration.
    """
    try:
        golds = {gold.name: gold for gold in load_gold(settings.gold)}
    except RagmonError:  # another line says so
        return []
    return [_probe(spec, golds[spec.gold], settings) for spec in settings.probes]


def _probe(spec: ProbeSpec, gold: GoldSet, settings: Settings) -> Check:
    try:
        asked, key = len(questions(gold)), probe_key(settings.of(spec.pipeline).capture)
    except RagmonError as error:
        return Check(NAME, ok=False, told=f"{spec.name}: {error}", hint=error.hint)
    every = interval(asked, spec.every, spec.max_per_day, reserve=spec.on_look)
    told = f"{spec.name} asks {spec.asks} the {asked} questions of {gold.name} in {duration(every * asked / 60)}"
    if every * asked > spec.every * 1.001:
        return Check(NAME, ok=True, told=told, hint=f"max_per_day = {spec.max_per_day} allows no more")
    if key is None and spec.target.startswith("http"):
        hint = "a traced application counts these requests as users': `[capture] hash_key_file` there and here"
        return Check(NAME, ok=True, told=told, hint=hint)
    return Check(NAME, ok=True, told=told)


SAMPLER: Final = "OTEL_TRACES_SAMPLER"
RATE: Final = "OTEL_TRACES_SAMPLER_ARG"
_BY_RATIO: Final = ("traceidratio", "parentbased_traceidratio")
_OFF: Final = ("always_off", "parentbased_always_off")


def samplers(settings: Settings, environ: Mapping[str, str]) -> SettingEffect:
    """What share of traces arrives.

    The sampler by ratio and ragmon's own draw read other bits of a trace's id, so they are independent: what passes
    both is the product of their rates.

    Args:
        settings: The configuration: ragmon's own rate.
        environ: The environment.
    """
    sampler = environ.get(SAMPLER, "").strip().lower()
    rate = 0.0 if sampler in _OFF else _rate(environ) if sampler in _BY_RATIO else 1.0
    if rate == 1.0:
        return SettingEffect()
    if not rate:
        lost = f"{SAMPLER}={sampler} keeps none: no trace of an instrumentation is sent; decorated calls are"
        return SettingEffect(lost, hint=f"unset {SAMPLER}, or sample by ratio")
    told = f"{SAMPLER}={sampler} keeps {rate:.3g} of traces: their numbers are of exported traffic"
    own = settings.of(settings.pipeline).sampling.rate
    if own < 1.0 and settings.origins.get("sampling.rate", "default") != "default":
        told += f"; with `[sampling] rate` {own:g} on top {rate * own:.3g} of them are scored"
    return SettingEffect(told=told, hint=f"unset {SAMPLER} and set `[sampling] rate`: ragmon then weighs what it keeps")


def _rate(environ: Mapping[str, str]) -> float:
    """The share that is kept; what is none counts as all, as in the SDK."""
    try:
        found = float(environ.get(RATE, ""))
    except ValueError:
        return 1.0
    return found if 0 <= found <= 1 else 1.0


GENAI: Final = "OpenTelemetry GenAI"
OPENINFERENCE: Final = "OpenInference"
OPENLLMETRY: Final = "OpenLLMetry"
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
"""What each switch hides; base64 images and embeddings are read by no metric."""
_ON_SPANS: Final = ("SPAN_ONLY", "SPAN_AND_EVENT")


@dataclass(frozen=True)
class Instrumentation:
    """An instrumentation, or something that holds for all of them.

    Attributes:
        name: Whose it is.
        packages: What is installed.
        lost: What does not arrive, and why.
        told: What is worth knowing and loses nothing for certain.
        hint: What would be right, where something is lost.
    """

    name: str
    packages: tuple[str, ...] = ()
    lost: str = ""
    told: str = ""
    hint: str = ""


def instrumentations(
    settings: Settings,
    environ: Mapping[str, str] | None = None,
    installed: Iterable[metadata.Distribution] | None = None,
) -> list[Instrumentation]:
    """What is installed beside this ragmon, in this environment; empty where there is nothing.

    Args:
        settings: The configuration.
        environ: The environment; None takes the process's own.
        installed: The packages; None: those that can be imported.
    """
    environ = os.environ if environ is None else environ
    packages = _sorted(metadata.distributions() if installed is None else installed)
    switches = {GENAI: _genai, OPENINFERENCE: _openinference, OPENLLMETRY: _openllmetry}
    found = [switches[name](tuple(sorted(packages[name])), environ) for name in switches if packages[name]]
    if not found:
        return []
    flat = bool(packages[OPENINFERENCE])
    others = (
        ("attribute limits", *limits(settings, environ, flattened=flat)),
        ("sampler", *samplers(settings, environ)),
    )
    return found + [
        Instrumentation(name, lost=lost, told=told, hint=hint) for name, lost, told, hint in others if lost or told
    ]


def _sorted(installed: Iterable[metadata.Distribution]) -> dict[str, set[str]]:
    """The instrumentations by the library they are made with: their names alone do not tell them apart."""
    found: dict[str, set[str]] = {GENAI: set(), OPENINFERENCE: set(), OPENLLMETRY: set()}
    for package in installed:
        name = (package.metadata["Name"] or "").lower().replace("_", "-")
        needs = " ".join(package.requires or ()).lower().replace("_", "-")
        if name.startswith("openinference-instrumentation-"):
            found[OPENINFERENCE].add(name)
        elif "instrumentation" in name and "opentelemetry-util-genai" in needs:
            found[GENAI].add(name)
        elif "instrumentation" in name and "opentelemetry-semantic-conventions-ai" in needs:
            found[OPENLLMETRY].add(name)
    return found


def _genai(packages: tuple[str, ...], environ: Mapping[str, str]) -> Instrumentation:
    mode = environ.get(CAPTURE, "").strip()
    hint = f"{CAPTURE}=SPAN_ONLY {OPT_IN}={EXPERIMENTAL}"
    if mode.upper() not in _ON_SPANS:
        how = f"{CAPTURE}={shorten(mode)} captures nothing on spans" if mode else f"{CAPTURE} is not set"
        return Instrumentation(GENAI, packages, f"{how}: no question, ids or answer arrive: unscorable", hint=hint)
    if EXPERIMENTAL not in (word.strip() for word in environ.get(OPT_IN, "").split(",")):
        told = f"{OPT_IN} lacks {EXPERIMENTAL}: versions that ask for it send no question, ids or answer"
        return Instrumentation(GENAI, packages, told, hint=hint)
    return Instrumentation(GENAI, packages)


def _openinference(packages: tuple[str, ...], environ: Mapping[str, str]) -> Instrumentation:
    on = [switch for switch in HIDDEN if environ.get(switch, "").lower() == "true"]
    lost = "; ".join(f"{switch}=true hides {HIDDEN[switch]}" for switch in on)
    return Instrumentation(OPENINFERENCE, packages, lost, hint=f"unset {' '.join(on)}" if on else "")


def _openllmetry(packages: tuple[str, ...], environ: Mapping[str, str]) -> Instrumentation:
    content = environ.get(TRACE_CONTENT, "")
    if not content or content.lower() == "true":
        return Instrumentation(OPENLLMETRY, packages)
    lost = f"{TRACE_CONTENT}={shorten(content)}: no question, ids or answer arrive: unscorable"
    return Instrumentation(OPENLLMETRY, packages, lost, hint=f"{TRACE_CONTENT}=true, or unset it")
