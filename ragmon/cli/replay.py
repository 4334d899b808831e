"""`ragmon replay`: score trace files or a server's journal and report, or print what a published scorer would print."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final

import click
from click.core import ParameterSource

from ragmon.alarms.pipelines import as_alert_line
from ragmon.capture.judge_prompts import JudgeError, Opinion, RequestTexts, contextual_precision
from ragmon.capture.judges import ModelEndpoint, read_key
from ragmon.cli import fail
from ragmon.cli.commands import COMPAT, COMPAT_HELP, STDIN
from ragmon.cli.common import (
    check_inputs,
    check_max_drop,
    gate_table,
    on_terminal,
    score,
    settings_and_gold,
    write,
)
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.config.units import url as parse_url
from ragmon.core.constants import TIMEOUT
from ragmon.core.errors import RagmonError, printable_json, printable_line
from ragmon.core.http_client import shown_url
from ragmon.export.report import Report
from ragmon.export.report_page import report_page
from ragmon.export.text import report_markdown
from ragmon.ingest.files import ReadSummary, unreadable
from ragmon.ingest.tables import TableOptions
from ragmon.monitor.replay import AlarmReplay, BaselineRun, Duplicates, Run, report_of
from ragmon.scoring.labels import FinalLabels
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.reader import open_readonly

_COMMON_OPTIONS: Final = ("traces", "gold", "output", "compat")
"""Options that are allowed with and without --compat."""
_JOURNAL_OPTIONS: Final = ("journal", "config", "form", "output", "windows", "questions", "alerts_out", "no_color")
"""Options that are allowed with --journal."""


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
        return _replay_journal(journal, load(config), result, alerts_out, windows=windows)
    check_inputs(traces, gold if baseline is None else (*gold, baseline))
    if compat:
        return _run_compat(compat, traces, gold, output, published)
    settings, gold_sets = settings_and_gold(config, gold, tables)
    score_files = partial(
        score, settings=settings, gold=gold_sets, jobs=jobs, duplicates=duplicates, labels=labels, tables=tables
    )
    baseline_run = None if baseline is None else BaselineRun.read(baseline, score_files)
    alarm_replay = None if alerts_out is None else AlarmReplay(ScorerFactory(settings, gold_sets))
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
        write(alarm_replay.lines(), alerts_out)
    for note in report.notes if result.form == "json" else ():
        click.echo(f"note: {printable_line(note)}", err=True)
    result.write(report, run)
    return 0


@dataclass(frozen=True)
class _Result:
    """How and where the report is written.

    Args:
        form: `text`, `json`, `md` or `html`.
        output: The file; None is stdout.
        questions: Rows of the per-question table of `md` and `html`; None for all.
        no_color: The user wants no colour.
    """

    form: str
    output: str | None
    questions: int | None
    no_color: bool

    @property
    def lists_questions(self) -> bool:
        """Whether the result of every gold question is in it."""
        return self.form in ("md", "html") and self.questions != 0

    def write(self, report: Report, run: Run) -> None:
        """Write the report of a run."""
        if self.form == "text":
            scored = f"{report.scored} of {report.read} records scored"
            write(f"{scored}\n{gate_table(report, self.output, no_color=self.no_color)}", self.output)
        elif self.form == "html":
            write(report_page(replace(report, histories=run.history(report)), self.questions), self.output)
        else:
            write(report.json() + "\n" if self.form == "json" else report_markdown(report, self.questions), self.output)


def _replay_journal(folder: str, settings: Settings, result: _Result, alerts_out: str | None, *, windows: bool) -> int:
    """Score the journal of a server again, and report."""
    from ragmon.server.state import replay as score_again  # noqa: PLC0415 - imports the dependencies of the server

    labels = FinalLabels()
    with open_readonly(Path(folder)) as rows:
        server_state = score_again(settings, rows, labels)
    counts, engine, digest = server_state.counts, server_state.engine, server_state.engine.scorer.state.digest()
    unknown = {key.replace("|", ": ", 1): n for key, n in counts.unknown.items()}
    run = Run(engine.scorer, ReadSummary(read=counts.received, rejected=dict(counts.dropped), unknown=unknown))
    if labels:
        run.finalise(labels, lambda pipeline: settings.of(pipeline).proxy)
    policy = settings.policy(live=True, seen=run.pipelines())
    report = run.report(policy, windows=windows, questions=result.lists_questions)
    report = replace(report, digest=digest)  # the server's digest, with labels joined in order of arrival
    if alerts_out is not None:
        write(
            "".join(printable_json(as_alert_line(edge)) + "\n" for edge in engine.transitions),
            alerts_out,
        )
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
    """Reject an option that would have no effect: the user who gave it expects one.

    Raises:
        click.UsageError: There is such an option.
    """
    if not (context.params["traces"] or context.params["journal"]):
        raise click.MissingParameter(ctx=context, param_hint="TRACES", param_type="argument")
    spelling = {option.name: option.opts[0] for option in context.command.params}
    given_options = {
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    compat_options = {name for names in COMPAT.values() for name in names}
    allowed = {*_COMMON_OPTIONS, *COMPAT[compat]} if compat else spelling.keys() - compat_options
    mode = f"with --compat {compat}" if compat else "without --compat"
    if "journal" in given_options and not compat:
        allowed, mode = {*_JOURNAL_OPTIONS}, "with --journal"
    for name in sorted(given_options - allowed):
        raise click.UsageError(f"{spelling[name]} does nothing {mode}", context)
    if compat and ("judge_url" in given_options) != ("model" in given_options):
        raise click.UsageError("a judge has an address and a model: --judge-url URL --model NAME", context)
    if "judge_url" not in given_options and given_options & {"judge_key_file", "no_reason"}:
        raise click.UsageError("--judge-key-file and --no-reason go with --judge-url", context)
    if not compat and form in ("md", "text", "html") and "windows" in given_options:
        raise click.UsageError(f"--windows does nothing with --format {form}", context)
    if "alerts_out" in given_options and context.params["alerts_out"] in (STDIN, context.params["output"]):
        raise click.UsageError("--alerts-out needs a file of its own: the report goes to --output", context)
    if given_options >= {"alerts_out", "duplicates"}:
        raise click.UsageError("--alerts-out follows every record: leave out --duplicates", context)


def _run_compat(
    mode: str, traces: tuple[str, ...], gold: tuple[str, ...], output: str | None, published: dict[str, object]
) -> int:
    """Print what the published scorer prints; if it would crash, print why and exit with 3."""
    from ragmon.compat import Options, run  # noqa: PLC0415 - needed only with --compat

    judge_options = {name: published.pop(name) for name in ("judge_url", "model", "judge_key_file", "no_reason")}
    if judge_options["judge_url"] is not None:
        published["ask"] = seed_judge(**judge_options)  # type: ignore[arg-type]
    result = run(mode, traces, gold, Options(**published))  # type: ignore[arg-type]
    if result.error is not None:
        error, _, hint = result.error.partition("\nhint: ")
        fail(error, hint)
    write(result.text, output)
    return 0


CASE_TIMEOUT: Final = 120.0
"""Seconds for one case, retries included."""


def seed_judge(
    judge_url: str, model: str, judge_key_file: str | None = None, *, no_reason: bool = False
) -> Callable[[str, str, Sequence[str]], Mapping[str, Any]]:
    """The judge for `--compat seed-001`: asks a model, case by case, for verdicts on contextual precision.

    Args:
        judge_url: The address of an OpenAI-compatible API.
        model: The model's name there.
        judge_key_file: The file with its key.
        no_reason: Do not ask for reasons.

    Raises:
        RagmonError: The address is invalid, or the key cannot be read.
    """
    try:
        address = parse_url(judge_url)
    except ValueError:
        hint = "such as https://judge.example/v1"
        raise RagmonError(f"--judge-url is no address: {shown_url(judge_url)}", hint=hint) from None
    key = None if judge_key_file is None else read_key(Path(judge_key_file), "check --judge-key-file")
    endpoint = ModelEndpoint(address, model, key=key)

    def ask(question: str, expected: str, contexts: Sequence[str]) -> Mapping[str, Any]:
        started = monotonic()
        try:
            case = RequestTexts(question, tuple(contexts), expected=expected)
            opinion = asyncio.run(_opinion(endpoint, case, reasons=not no_reason))
        except JudgeError as failure:
            return {
                "error": {failure.result: str(failure)} if failure.status is None else {"api_error": failure.status}
            }
        except TimeoutError:
            return {"error": {TIMEOUT: f"no verdicts within {CASE_TIMEOUT:g} seconds"}}
        verdicts = [{"verdict": finding.verdict, "reason": finding.reason} for finding in opinion.findings]
        return {"verdicts": verdicts, "reason": opinion.reason, "latency_ms": round(1000 * (monotonic() - started))}

    return ask


async def _opinion(endpoint: ModelEndpoint, case: RequestTexts, *, reasons: bool) -> Opinion:
    async with asyncio.timeout(CASE_TIMEOUT), endpoint.session(monotonic() + CASE_TIMEOUT) as session:
        return await contextual_precision(session, case, reasons=reasons)
