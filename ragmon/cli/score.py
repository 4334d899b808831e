"""Commands that score trace files: `replay`, `gate`, `compare` and `baseline`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final

import click
from click.core import ParameterSource

from ragmon.alarms.pipelines import AlarmTransition, as_alert_line
from ragmon.capture.judges import JudgeError, ModelEndpoint, Opinion, RequestTexts, contextual_precision, read_key
from ragmon.cli.commands import COMPAT, COMPAT_HELP, STDIN
from ragmon.cli.main import fail
from ragmon.cli.options import check_inputs, check_max_drop, gate_table, on_terminal, score, settings_and_gold, write
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.config.units import url as parse_url
from ragmon.core.constants import TIMEOUT
from ragmon.core.errors import RagmonError, UnknownNameError, printable, printable_json, printable_line
from ragmon.core.network import shown_url
from ragmon.core.policy import Estimand, Policy, verdict_of
from ragmon.export.comparison import Canary, uncompared_gates
from ragmon.export.report import Report
from ragmon.export.text import incident_summary, render_gates, report_markdown
from ragmon.gates import releases
from ragmon.gates.incidents import IncidentTransition
from ragmon.gates.releases import By, judge, unless_lost
from ragmon.ingest.files import ReadSummary, unreadable
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.tables import TableOptions
from ragmon.monitor.replay import (
    AlarmReplay,
    BaselineRecorder,
    BaselineRun,
    Duplicates,
    ReleaseSplitter,
    Run,
    report_of,
)
from ragmon.scoring.labels import FinalLabels
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.store import JournalReader


def freeze_command(traces: tuple[str, ...], gold: tuple[str, ...], config: str | None, output: str | None) -> int:
    """Write the baselines of TRACES, a run that is known to be good, for `[alarms] baseline = { file = "…" }`."""
    check_inputs(traces, gold)
    settings, gold_sets = settings_and_gold(config, gold)
    recorder = BaselineRecorder(ScorerFactory(settings, gold_sets))
    score(traces, settings, gold_sets, follower=recorder)
    file = recorder.file()
    for name, baselines in file["pipelines"].items():
        for metric, stats in baselines["metrics"].items():
            click.echo(f"{printable(name)}/{metric}: {stats['mean']:.4f} over {stats['n']}", err=True)
    click.echo(f"version {file['version']}", err=True)
    write(printable_json(file, indent=1) + "\n", output)
    return 0


EXIT: Final = {"pass": 0, "fail": 1, "insufficient": 2}


def gate(
    context: click.Context,
    traces: tuple[str, ...],
    gold: tuple[str, ...],
    config: str | None,
    pipeline: str | None,
    estimand: Estimand | None,
    baseline: str | None,
    max_drop: float,
    since_build: str | None,
    on_insufficient: str | None,
    form: str,
    output: str | None,
    jobs: int | None,
    duplicates: Duplicates,
    labels: tuple[str, ...],
    tables: TableOptions,
    no_color: bool,
) -> int:
    """Judge the gates on TRACES."""
    check_max_drop(context)
    if since_build is not None:
        reasons = {
            "baseline": "it holds for one look; `ragmon compare` holds for all looks",
            "duplicates": "it chooses among the answers of all builds",
            "jobs": "one process keeps the requests of a session together",
            "labels": "they arrive too late for a verdict that holds at all looks",
        }
        for name, reason in reasons.items():
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name} does not go with --since-build: {reason}", context)
    check_inputs(traces, gold if baseline is None else (*gold, baseline))
    settings, gold_sets = settings_and_gold(config, gold, tables)
    check_gold(settings.policy(pipeline), gold_sets)
    policy_for = partial(policy_of, settings, pipeline, estimand=estimand, on_insufficient=on_insufficient)

    def score_files(paths: Sequence[str]) -> Run:
        return score(paths, settings, gold_sets, jobs=jobs, duplicates=duplicates, labels=labels, tables=tables)

    baseline_run = None if baseline is None else BaselineRun.read(baseline, score_files)
    if since_build is not None:
        report = _report_since_build(traces, ScorerFactory(settings, gold_sets), policy_for, since_build, tables)
    else:
        run = score_files(traces)
        policy = policy_for(seen=run.pipelines())
        report = report_of(run, policy, baseline_run, max_drop=max_drop, questions=False)
    for note in report.notes if form == "json" else ():
        click.echo(f"note: {printable_line(note)}", err=True)
    needs_gold = report.snapshot.gold_metrics
    without_gold = [outcome.gate.name for outcome in report.outcomes if outcome.gate.metric in needs_gold]
    if without_gold and not gold_sets:
        warn_missing_gold(without_gold)
    if form == "text":
        write(gate_table(report, output, no_color=no_color), output)
    else:
        write(render_gates(report) if form == "md" else report.json() + "\n", output)
    return EXIT[report.verdict]


def _report_since_build(
    traces: Sequence[str],
    plan: ScorerFactory,
    policy_for: Callable[..., Policy],
    build: str,
    tables: TableOptions,
) -> Report:
    _without_baseline_gates(policy_for())  # before any file is read
    releases = ReleaseSplitter(plan, "build", [build], plan.settings.gates())
    run = score(traces, plan.settings, plan.gold, scorer=releases.scorer, tables=tables)
    release, scorer = releases.release(build), run.scorer
    scorer.restore(release.state)
    policy, notes = _without_baseline_gates(policy_for(seen=run.pipelines()))
    outcomes = unless_lost(judge(release, scorer.table, policy, golds=scorer.gold.infos()), run.lost)
    build_notes = [
        f"only records of build {build}; intervals of gates hold at all looks together, those of series at one",
        "a cluster of requests counts as one observation ([metrics] cluster)",
    ]
    report = run.report(policy, questions=False, notes=[*build_notes, *releases.notes(), *notes])
    series = tuple(replace(series, of="") for series in report.snapshot.series)
    snapshot = replace(report.snapshot, series=series)
    return replace(report, snapshot=snapshot, outcomes=outcomes, verdict=verdict_of(outcomes, policy))


def _without_baseline_gates(policy: Policy) -> tuple[Policy, list[str]]:
    # The policy without gates that need a baseline, and a note that names them.
    gates = tuple(gate for gate in policy.gates if gate.kind != "quantile_ratio")
    left_out = [gate.name for gate in policy.gates if gate.kind == "quantile_ratio"]
    if left_out and not gates:
        hint = "without --since-build, with --baseline FILE"
        raise RagmonError(f"no gate can be judged on one build: {', '.join(left_out)}", hint=hint)
    return replace(policy, gates=gates), [f"not judged: {', '.join(left_out)} (no baseline)"] if left_out else []


def policy_of(
    settings: Settings,
    pipeline: str | None,
    *,
    seen: Collection[str] | None = None,
    estimand: Estimand | None = None,
    on_insufficient: str | None = None,
) -> Policy:
    """The configured policy with the changes of the command line; `seen` are the pipelines with records, once known."""
    known = {*settings.expected_pipelines, *(seen or ())}
    if pipeline is not None and seen is not None and pipeline not in known:
        raise UnknownNameError("pipeline", pipeline, known)
    policy = settings.policy(pipeline, seen=seen or ())
    if estimand is not None:
        policy = replace(policy, gates=tuple(replace(gate, estimand=estimand) for gate in policy.gates))
    if on_insufficient is not None:
        policy = replace(policy, on_insufficient="fail" if on_insufficient == "fail" else "pass")
    return policy


def check_gold(policy: Policy, sets: Sequence[GoldSet]) -> None:
    """Reject gates on a gold set that `--gold` has replaced: they would wait for data that cannot arrive."""
    loaded = [gold.name for gold in sets]
    for gate in policy.gates:
        if gate.gold is not None and gate.gold not in loaded:
            raise UnknownNameError(f"gold set of gate {gate.name}", gate.gold, loaded)


def warn_missing_gold(gates: Sequence[str]) -> None:
    """Print to stderr which gates cannot be evaluated without gold."""
    click.echo(f"note: no gold set, and {len(gates)} gates need one: {', '.join(gates)}", err=True)
    click.echo("hint: --gold FILE, or [gold.NAME] in ragmon.toml", err=True)


_COMMON_OPTIONS: Final = frozenset(("traces", "gold", "output", "compat"))  # with and without --compat
_JOURNAL_OPTIONS: Final = frozenset(
    ("journal", "config", "form", "output", "windows", "questions", "alerts_out", "incidents_out", "no_color")
)


def replay(
    context: click.Context,
    /,
    traces: tuple[str, ...],
    gold: tuple[str, ...],
    config: str | None,
    form: str | None,
    output: str | None,
    windows: bool,
    jobs: int | None,
    duplicates: Duplicates,
    labels: tuple[str, ...],
    questions: int | None,
    baseline: str | None,
    max_drop: float,
    alerts_out: str | None,
    incidents_out: str | None,
    compat: str | None,
    journal: str | None,
    tables: TableOptions,
    no_color: bool,
    **published: object,
) -> int:
    """Score traces and report."""
    if compat == COMPAT_HELP:
        write(compat_help(context), output)
        return 0
    _check_options(context, compat, form)
    check_max_drop(context)
    result = _Result(form or ("text" if on_terminal(output) and not windows else "json"), output, questions, no_color)
    if journal is not None:
        return _replay_journal(journal, load(config), result, alerts_out, incidents_out, windows=windows)
    check_inputs(traces, gold if baseline is None else (*gold, baseline))
    if compat:
        from ragmon import compat as scorers  # noqa: PLC0415 - needed only with --compat

        judge_options = {name: published.pop(name) for name in ("judge_url", "model", "judge_key_file", "no_reason")}
        if judge_options["judge_url"] is not None:
            published["ask"] = seed_judge(**judge_options)  # type: ignore[arg-type]
        printed = scorers.run(compat, traces, gold, scorers.Options(**published))  # type: ignore[arg-type]
        if printed.error is not None:  # the published scorer would crash
            error, _, hint = printed.error.partition("\nhint: ")
            fail(error, hint)
        write(printed.text, output)
        return 0
    settings, gold_sets = settings_and_gold(config, gold, tables)
    score_files = partial(
        score, settings=settings, gold=gold_sets, jobs=jobs, duplicates=duplicates, labels=labels, tables=tables
    )
    baseline_run = None if baseline is None else BaselineRun.read(baseline, score_files)
    follows = alerts_out is not None or incidents_out is not None
    alarm_replay = AlarmReplay(ScorerFactory(settings, gold_sets)) if follows else None
    run = score_files(traces, follower=alarm_replay)
    if not run.intake.read:
        raise unreadable(traces, run.intake, tables)
    notes = [] if alarm_replay is None else alarm_replay.notes()
    report = report_of(
        run,
        settings.policy(seen=run.pipelines()),
        baseline_run,
        max_drop=max_drop,
        windows=windows,
        questions=result.lists_questions,
        notes=notes,
    )
    if alarm_replay is not None:
        edges, incidents = ([], []) if incidents_out is None else alarm_replay.incidents()
        _write_edges(alarm_replay.transitions, alerts_out, edges, incidents_out)
        report = replace(report, incidents=incidents)
    for note in report.notes if result.form == "json" else ():
        click.echo(f"note: {printable_line(note)}", err=True)
    result.write(report, run)
    return 0


@dataclass(frozen=True)
class _Result:
    """How and where the report is written."""

    form: str
    output: str | None
    questions: int | None  # rows of the per-question table of `md` and `html`; None for all
    no_color: bool

    @property
    def lists_questions(self) -> bool:
        return self.form in ("md", "html") and self.questions != 0

    def write(self, report: Report, run: Run) -> None:
        if self.form == "text":
            scored = f"{report.scored} of {report.read} records scored"
            write(f"{scored}\n{gate_table(report, self.output, no_color=self.no_color)}", self.output)
        elif self.form == "html":
            write(replace(report, histories=run.history(report)).to_html(self.questions), self.output)
        else:
            write(report.json() + "\n" if self.form == "json" else report_markdown(report, self.questions), self.output)


def _write_edges(
    transitions: Sequence[AlarmTransition],
    alerts_out: str | None,
    incidents: Iterable[IncidentTransition],
    incidents_out: str | None,
) -> None:
    lines = {alerts_out: map(as_alert_line, transitions), incidents_out: map(vars, incidents)}
    for path, edges in lines.items():
        if path is not None:
            write("".join(printable_json(edge) + "\n" for edge in edges), path)


def _replay_journal(
    folder: str,
    settings: Settings,
    result: _Result,
    alerts_out: str | None,
    incidents_out: str | None,
    *,
    windows: bool,
) -> int:
    from ragmon.server.state import replay as score_again  # noqa: PLC0415 - imports the dependencies of the server

    labels = FinalLabels()
    with JournalReader(Path(folder)) as rows:
        server_state = score_again(settings, rows, labels)
    counts, engine, digest = server_state.counts, server_state.engine, server_state.engine.scorer.state.digest()
    unknown = {key.replace("|", ": ", 1): n for key, n in counts.unknown.items()}
    run = Run(engine.scorer, ReadSummary(read=counts.received, rejected=dict(counts.dropped), unknown=unknown))
    if labels:
        run.finalise(labels, lambda pipeline: settings.of(pipeline).proxy)
    policy = settings.policy(live=True, seen=run.pipelines())
    report = run.report(policy, windows=windows, questions=result.lists_questions)
    report = replace(report, digest=digest)  # the server's digest, with labels joined in order of arrival
    told = [incident_summary(incident, engine.last_scored or 0.0) for incident in engine.incidents.incidents]
    report = replace(report, incidents=told)
    _write_edges(engine.transitions, alerts_out, engine.told, incidents_out)
    result.write(report, run)
    return 0


def compat_help(context: click.Context) -> str:
    """The options that serve published scorers, which `--help` leaves out."""
    formatter = context.make_formatter()
    formatter.write_usage("ragmon replay", "--compat SCORER [OPTIONS] TRACES... --gold GOLD")
    formatter.write_paragraph()
    formatter.write_text("SCORER is " + ", ".join(COMPAT) + ". What it prints, ragmon prints, byte for byte.")
    entries = []
    for option in context.command.params:
        if isinstance(option, click.Option) and option.hidden:
            visible = copy(option)
            visible.hidden = False
            entries.append(visible.get_help_record(context) or ("", ""))
    with formatter.section("Options"):
        formatter.write_dl(entries)
    return formatter.getvalue()


def _check_options(context: click.Context, compat: str | None, form: str | None) -> None:
    if not (context.params["traces"] or context.params["journal"]):
        raise click.MissingParameter(ctx=context, param_hint="TRACES", param_type="argument")
    spelling = {option.name: option.opts[0] for option in context.command.params}
    given_options = {
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    compat_options = {name for names in COMPAT.values() for name in names}
    allowed = _COMMON_OPTIONS | {*COMPAT[compat]} if compat else spelling.keys() - compat_options
    mode = f"with --compat {compat}" if compat else "without --compat"
    if "journal" in given_options and not compat:
        allowed, mode = _JOURNAL_OPTIONS, "with --journal"
    for name in sorted(given_options - allowed):
        raise click.UsageError(f"{spelling[name]} does nothing {mode}", context)
    if compat and ("judge_url" in given_options) != ("model" in given_options):
        raise click.UsageError("a judge has an address and a model: --judge-url URL --model NAME", context)
    if "judge_url" not in given_options and given_options & {"judge_key_file", "no_reason"}:
        raise click.UsageError("--judge-key-file and --no-reason go with --judge-url", context)
    if not compat and form in ("md", "text", "html") and "windows" in given_options:
        raise click.UsageError(f"--windows does nothing with --format {form}", context)
    for name in sorted(given_options & {"alerts_out", "incidents_out"}):
        others = {context.params[other] for other in ("output", "alerts_out", "incidents_out") if other != name}
        if context.params[name] in {STDIN, *others}:
            raise click.UsageError(f"{spelling[name]} needs a file of its own: the report goes to --output", context)
        if "duplicates" in given_options:
            raise click.UsageError(f"{spelling[name]} follows every record: leave out --duplicates", context)


CASE_TIMEOUT: Final = 120.0
"""Seconds for one case, retries included."""


def seed_judge(
    judge_url: str, model: str, judge_key_file: str | None = None, *, no_reason: bool = False
) -> Callable[[str, str, Sequence[str]], Mapping[str, Any]]:
    """The judge for `--compat seed-001`: asks a model with an OpenAI-compatible API for verdicts, case by case."""
    try:
        address = parse_url(judge_url)
    except ValueError:
        hint = "such as https://judge.example/v1"
        raise RagmonError(f"--judge-url is not an address: {shown_url(judge_url)}", hint=hint) from None
    key = None if judge_key_file is None else read_key(Path(judge_key_file), "check --judge-key-file")
    endpoint = ModelEndpoint(address, model, key=key)

    async def opinion_on(case: RequestTexts) -> Opinion:
        async with asyncio.timeout(CASE_TIMEOUT), endpoint.session(monotonic() + CASE_TIMEOUT) as session:
            return await contextual_precision(session, case, reasons=not no_reason)

    def ask(question: str, expected: str, contexts: Sequence[str]) -> Mapping[str, Any]:
        started = monotonic()
        try:
            opinion = asyncio.run(opinion_on(RequestTexts(question, tuple(contexts), expected=expected)))
        except JudgeError as failure:
            status = failure.status
            return {"error": {failure.result: str(failure)} if status is None else {"api_error": status}}
        except TimeoutError:
            return {"error": {TIMEOUT: f"no verdicts within {CASE_TIMEOUT:g} seconds"}}
        verdicts = [{"verdict": finding.verdict, "reason": finding.reason} for finding in opinion.findings]
        return {"verdicts": verdicts, "reason": opinion.reason, "latency_ms": round(1000 * (monotonic() - started))}

    return ask


PATH: Final = "/api/compare"
_FORMS: Final[Mapping[str, Callable[[Canary], str]]] = {
    "text": Canary.text,
    "md": Canary.markdown,
    "json": lambda result: result.json() + "\n",
}
COMPARE_TIMEOUT: Final = 600.0
"""Seconds to wait for a monitor that scores the records of a day again."""


def compare(
    context: click.Context,
    traces: tuple[str, ...],
    url: str | None,
    by: By,
    baseline: str,
    candidate: str,
    gold: tuple[str, ...],
    config: str | None,
    pipeline: str | None,
    max_drop: float,
    form: str,
    output: str | None,
) -> int:
    """Compare the candidate's records with the baseline's, on the metrics that have gates."""
    if baseline == candidate:
        raise click.UsageError(f"--baseline and --candidate are the same: {baseline!r}", context)
    if url is None and not traces:
        raise click.UsageError("Missing argument 'TRACES...', or a monitor: --url URL", context)
    if url is not None and traces:
        raise click.UsageError("--url asks a monitor and TRACES are read: give one of them", context)
    if url is not None and context.get_parameter_source("gold") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--gold does not go with --url: the monitor has its own", context)
    intervals, without_gold = form == "html", list[str]()
    if url is not None:
        params = {
            "pipeline": pipeline or load(config).pipeline,
            "by": by,
            "baseline": baseline,
            "candidate": candidate,
            "max_drop": f"{max_drop:.15g}",
            **({"intervals": "true"} if intervals else {}),
        }
        from ragmon.cli.client import get_json, read_back  # noqa: PLC0415 - httpx takes long to load

        result = read_back(get_json(url, PATH, params, timeout=COMPARE_TIMEOUT), Canary, "comparison of releases")
    else:
        check_inputs(traces, gold)
        settings, gold_sets = settings_and_gold(config, gold)
        check_gold(settings.policy(pipeline), gold_sets)
        uncompared_gates(settings.policy(pipeline))  # before any file is read
        splitter = ReleaseSplitter(ScorerFactory(settings, gold_sets), by, [baseline, candidate], settings.gates())
        run = score(traces, settings, gold_sets, scorer=splitter.scorer)
        scorer, pair = run.scorer, (splitter.release(baseline), splitter.release(candidate))
        policy = policy_of(settings, pipeline, seen=run.pipelines())
        notes, golds, metrics = uncompared_gates(policy), scorer.gold.infos(), scorer.table.metrics
        outcomes = releases.compare(*pair, scorer.table, policy, golds=golds, max_drop=max_drop, intervals=intervals)
        outcomes = unless_lost(outcomes, run.lost)
        if not gold_sets:
            without_gold = [found.gate.name for found in outcomes if metrics[found.gate.metric].needs_gold]
        result = Canary.of(by, baseline, candidate, max_drop, outcomes, [*splitter.notes(), *notes])
    if form == "json":
        for note in result.notes:
            click.echo(f"note: {printable_line(note)}", err=True)
    if without_gold:
        warn_missing_gold(without_gold)
    if form == "html":
        from ragmon.export.report_page import comparison_page  # noqa: PLC0415 - templates and charts take long to load

        write(comparison_page(result), output)
    else:
        write(_FORMS[form](result), output)
    return EXIT[result.verdict]
