"""`ragmon replay`: score trace files or a server's journal and report, or print what a published scorer would print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

import click
from click.core import ParameterSource

from ragmon.alarms import as_alert_line
from ragmon.capture.judges.endpoint import ModelEndpoint, read_key
from ragmon.capture.judges.prompts import RequestTexts, contextual_precision
from ragmon.capture.judges.results import JudgeError, Opinion
from ragmon.cli import fail
from ragmon.cli.common import (
    STDIN,
    check_inputs,
    config_option,
    duplicates_option,
    jobs_option,
    labels_option,
    output_option,
    score,
    settings_and_gold,
    writable,
    write,
)
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.config.types import url as parse_url
from ragmon.core.constants import TIMEOUT
from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable_json, printable_line
from ragmon.core.net import shown_url
from ragmon.export.markdown import render
from ragmon.ingest.files import ReadSummary
from ragmon.monitor.build import ScorerFactory
from ragmon.monitor.offline import AlarmReplay
from ragmon.monitor.replay import Duplicates, Run
from ragmon.scoring.labels import FinalLabels
from ragmon.server.journal import open_readonly

COMPAT: Final[dict[str, tuple[str, ...]]] = {
    "seed-000": ("k", "gates"),
    "seed-001": ("threshold", "strict", "judge_url", "model", "judge_key_file", "no_reason"),
    "seed-002": (),
    "seed-003": (),
    "seed-004": ("max_queries", "skip_generation", "include_details", "threshold"),
}
"""The options of each published scorer."""
_COMMON_OPTIONS: Final = ("traces", "gold", "output", "compat")
"""Options that are allowed with and without --compat."""
_JOURNAL_OPTIONS: Final = ("journal", "config", "form", "output", "windows", "questions", "alerts_out")
"""Options that are allowed with --journal."""


def _parse_questions(_: click.Context, __: click.Parameter, value: str) -> int | None:
    if value == "all":
        return None
    if value.isdecimal():
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a number nor `all`")


@click.command()
@click.argument("traces", nargs=-1)
@click.option("--journal", metavar="DIR", help="The state folder of a server, in place of TRACES: as it was scored.")
@click.option(
    "--gold", "-g", metavar="FILE", multiple=True, help="Gold, or seed-004's folder. Default: [gold.*] of the config."
)
@config_option
@click.option(
    "--format", "form", type=click.Choice(["json", "md"]), default="json", show_default=True, help="What to write."
)
@output_option
@click.option("--windows", is_flag=True, help="Add every window span at every 5-minute step (JSON).")
@jobs_option
@duplicates_option
@labels_option
@click.option(
    "--questions",
    metavar="N|all",
    callback=_parse_questions,
    default="200",
    show_default=True,
    help="Rows of the per-question table (Markdown).",
)
@click.option(
    "--alerts-out", metavar="FILE", callback=writable, help="Run the alarms over the traces; write a line per edge."
)
@click.option("--compat", type=click.Choice(list(COMPAT)), help="Print what this published scorer prints.")
@click.option("--k", type=click.IntRange(1), help="seed-000: the cut of recall@k. Default: 5.")
@click.option("--gates", metavar="LIST", help="seed-000. Default: precision=0.80,chr=0.75,under=0.05,over=0.10")
@click.option("--max-queries", "-n", type=click.IntRange(0), default=0, help="seed-004: so many queries; 0 for all.")
@click.option("--skip-generation", is_flag=True, help="seed-004: retrieval metrics only.")
@click.option("--include-details", is_flag=True, help="seed-004: results per query.")
@click.option("--threshold", type=float, help="seed-001: of success. seed-004: of a grounded answer.")
@click.option("--strict", is_flag=True, help="seed-001: only a perfect ranking passes.")
@click.option("--judge-url", metavar="URL", help="seed-001: an OpenAI-compatible API; asked where no verdicts are.")
@click.option("--model", metavar="NAME", help="seed-001: the judge's model there.")
@click.option("--judge-key-file", metavar="FILE", help="seed-001: holds its key.")
@click.option("--no-reason", is_flag=True, help="seed-001: ask the judge for no reasons.")
@click.pass_context
def replay(
    context: click.Context,
    /,
    traces: tuple[str, ...],
    gold: tuple[str, ...],
    config: str | None,
    form: str,
    output: str | None,
    windows: bool,
    jobs: int,
    duplicates: Duplicates,
    labels: tuple[str, ...],
    questions: int | None,
    alerts_out: str | None,
    compat: str | None,
    journal: str | None,
    **published: object,
) -> int:
    """Score TRACES (.jsonl, .gz, .zst, OTLP-JSON lines, TREC runs, `-` for stdin) and report.

    The same scorer and gates as live traffic, on a whole run: a value over a gold set is exact.

    Exit codes: 0, 3 bad input or configuration. `ragmon gate` is the command whose exit code is the verdict.
    """
    _check_options(context, compat, form)
    if journal is not None:
        return _replay_journal(journal, load(config), form, output, alerts_out, windows=windows, questions=questions)
    check_inputs(traces, gold)
    if compat:
        return _run_compat(compat, traces, gold, output, published)
    settings, gold_sets = settings_and_gold(config, gold)
    alarm_replay = None if alerts_out is None else AlarmReplay(ScorerFactory(settings, gold_sets))
    scorer, follow = (None, None) if alarm_replay is None else (alarm_replay.scorer, alarm_replay.follow)
    run = score(
        traces, settings, gold_sets, jobs=jobs, duplicates=duplicates, scorer=scorer, follow=follow, labels=labels
    )
    notes = [] if alarm_replay is None else alarm_replay.notes()
    report = run.report(settings.policy(), windows=windows, questions=form == "md" and questions != 0, notes=notes)
    if alarm_replay is not None:
        write(alarm_replay.lines(), alerts_out)
    for note in notes if form == "json" else ():
        click.echo(f"note: {printable_line(note)}", err=True)
    write(report.json() + "\n" if form == "json" else render(report, questions), output)
    return 0


def _replay_journal(
    folder: str,
    settings: Settings,
    form: str,
    output: str | None,
    alerts_out: str | None,
    *,
    windows: bool,
    questions: int | None,
) -> int:
    """Score the journal of a server again, and report."""
    from ragmon.server.pipeline.recovery import replay as score_again  # noqa: PLC0415 - imports the dependencies of the server

    labels = FinalLabels()
    with open_readonly(Path(folder)) as rows:
        server_state = score_again(settings, rows, labels)
    counts, engine, digest = server_state.counts, server_state.engine, server_state.engine.scorer.state.digest()
    unknown = {key.replace("|", ": ", 1): n for key, n in counts.unknown.items()}
    run = Run(engine.scorer, ReadSummary(read=counts.received, rejected=dict(counts.dropped), unknown=unknown))
    if labels:
        run.finalise(labels, lambda pipeline: settings.of(pipeline).proxy)
    report = run.report(settings.policy(live=True), windows=windows, questions=form == "md" and questions != 0)
    report = replace(report, digest=digest)  # the server's digest, with labels joined in order of arrival
    if alerts_out is not None:
        write(
            "".join(
                printable_json(json.dumps(as_alert_line(edge), ensure_ascii=False)) + "\n"
                for edge in engine.transitions
            ),
            alerts_out,
        )
    write(report.json() + "\n" if form == "json" else render(report, questions), output)
    return 0


def _check_options(context: click.Context, compat: str | None, form: str) -> None:
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
    if not compat and form == "md" and "windows" in given_options:
        raise click.UsageError("--windows does nothing with --format md", context)
    if "alerts_out" in given_options and context.params["alerts_out"] in (STDIN, context.params["output"]):
        raise click.UsageError("--alerts-out needs a file of its own: the report goes to --output", context)
    if "alerts_out" in given_options and given_options & {"jobs", "duplicates"}:
        raise click.UsageError("--alerts-out follows the traces one by one: leave out --jobs and --duplicates", context)


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
        RagmonError: The address is invalid, the key cannot be read, or httpx is not installed.
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
