"""Every command as a user types it: its options and its help. What a command does is imported when it runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click

from ragmon.cli.main import Commands
from ragmon.core.constants import EMPTY_REFERENCE
from ragmon.core.errors import InputError
from ragmon.core.process import without_collector

STDIN: Final = "-"
WAIT: Final = 15.0
"""Seconds within which a trace must arrive; a collector sends its batch every few seconds."""
EVERY: Final = 2.0
"""Seconds between two readings of a monitor by default."""
COMPAT: Final[dict[str, tuple[str, ...]]] = {
    "seed-000": ("k", "gates"),
    "seed-001": ("threshold", "strict", "judge_url", "model", "judge_key_file", "no_reason"),
    "seed-002": (),
    "seed-003": (),
    "seed-004": ("max_queries", "skip_generation", "include_details", "threshold"),
}
"""The options of each published scorer."""
COMPAT_HELP: Final = "help"
"""In place of a published scorer: print the options of all of them."""
_Command = TypeVar("_Command", bound=Callable[..., Any])
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t"}


def table_options(kind: Literal["TRACE", "GOLD"], *, of: str) -> Callable[[_Command], Callable[..., Any]]:
    """Add `--map` of the fields of a kind and of tags, `--encoding`, `--list-separator`, `--sheet`, `--time-format`.

    The command gets `tables`; the help text calls the input `of`. The modules that read tables are loaded where a
    command runs: help needs none of them.
    """

    def parse(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        columns: dict[str, str] = {}
        for text in values:
            tables = import_module("ragmon.ingest.tables")
            pairs = tables.parse_map(text, getattr(tables, kind))
            if twice := columns.keys() & pairs.keys():
                raise InputError("a field is mapped twice", value=min(twice), hint="give it one column")
            columns |= pairs
        return columns

    def time_format(_: click.Context, __: click.Parameter, form: str | None) -> str | None:
        if form is not None:
            written = datetime(2025, 11, 30, 9, tzinfo=UTC).strftime(form)
            if not import_module("ragmon.ingest.values").formatted_time(written, form):
                raise click.BadParameter(f"{form!r} is not a format of dates, such as '%d/%m/%Y %H:%M'")
        return form

    def add(command: _Command) -> Callable[..., Any]:
        @wraps(command)
        def with_tables(
            *args: Any,
            mapping: dict[str, str],
            encoding: str | None,
            list_separator: str | None,
            sheet: str | None,
            time_format: str | None,
            **rest: Any,
        ) -> Any:
            for escape, char in _ESCAPES.items():
                list_separator = list_separator and list_separator.replace(escape, char)
            options = import_module("ragmon.ingest.tables").TableOptions
            tables = options(mapping, encoding, list_separator, sheet, time_format=time_format)
            return command(*args, tables=tables, **rest)

        mapped = f"The columns or JSON members of {of}, where their names are not usual ones. Repeatable."
        for option in (
            click.option(
                "--time-format",
                metavar="FORMAT",
                callback=time_format,
                help="How times are written, such as `%d/%m/%Y %H:%M`. Default: what the column shows.",
            ),
            click.option("--sheet", metavar="NAME", help="The sheet of a workbook. Default: the first."),
            click.option(
                "--list-separator",
                metavar="TEXT",
                help="What separates the entries of a list in one cell, such as `,` or `\\n`.",
            ),
            click.option("--encoding", metavar="NAME", help="The encoding of CSV and TSV. Default: UTF-8."),
            click.option("--map", "mapping", metavar="FIELD=COLUMN,…", multiple=True, callback=parse, help=mapped),
        ):
            option(with_tables)
        return with_tables

    return add


def runs(path: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Let a function of `ragmon.cli`, such as `gold.lint_command`, run a declared command with its options."""
    module, function = path.split(".")

    def declare(declared: Callable[[], None]) -> Callable[..., Any]:
        @wraps(declared)
        def run(*args: Any, **given: Any) -> Any:
            with without_collector():  # imported modules stay: a search for garbage in them takes a tenth of the time
                work = getattr(import_module(f"ragmon.cli.{module}"), function)
            return work(*args, **given)

        return run

    return declare


def writable(_: click.Context, __: click.Parameter, output: str | None) -> str | None:
    """Reject an output file that cannot be written, before hours of work rather than after them."""
    if output is not None and output != STDIN:
        path = Path(output)
        if path.is_dir():
            raise click.BadParameter(f"{output} is a folder, not a file")
        if not path.parent.is_dir():
            raise click.BadParameter(f"there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise click.BadParameter(f"{output} cannot be written: permission denied")
    return output


traces_argument = click.argument("traces", nargs=-1, required=True)
config_option = click.option(
    "--config", "-c", metavar="FILE", help="ragmon.toml. Default: RAGMON_CONFIG, then ./ragmon.toml."
)
gold_option = click.option(
    "--gold", "-g", metavar="FILE", multiple=True, help="A gold file. Default: [gold.*] of the config."
)
url_option = click.option("--url", metavar="URL", help="The monitor. Default: `[serve] admin` of the config.")


def form_option(*forms: str, text: str = "What to write.") -> Callable[[_Command], _Command]:
    """Add `--format`; the first form is the default."""
    return click.option("--format", "form", type=click.Choice(forms), default=forms[0], show_default=True, help=text)


output_option = click.option("--output", "-o", metavar="FILE", callback=writable, help="Write here instead of stdout.")
jobs_option = click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1),
    help="How many processes score. Default: the free cores for more than 64 MiB of files, else 1.",
)
no_color_option = click.option("--no-color", is_flag=True, help="No colour on a terminal; NO_COLOR=1 does the same.")
labels_option = click.option(
    "--labels", metavar="FILE", multiple=True, help="People's labels of the answers: CSV or JSON Lines. Repeatable."
)
duplicates_option = click.option(
    "--duplicates",
    type=click.Choice(["all", "last", "first"]),
    default="all",
    show_default=True,
    help="Which record of a gold question counts. `last` and `first` score in one process.",
)


def reject_nan(explanation: str, _: click.Context, __: click.Parameter, value: float) -> float:
    """Reject NaN, which every range of click lets pass."""
    if math.isnan(value):
        raise click.BadParameter(f"{value} is not a number{explanation}")
    return value


_drop_number = partial(reject_nan, ". 0.02 is 2 points")
baseline_option = click.option(
    "--baseline", metavar="FILE", help="An earlier report (JSON) or earlier traces to compare with."
)
max_drop_option = click.option(
    "--max-drop",
    type=click.FloatRange(0, 1),
    callback=_drop_number,
    default=0.02,
    show_default=True,
    help="How much worse than the baseline a gated metric may be.",
)


@click.command()
@click.argument("alarm", metavar="[PIPELINE/]ALARM")
@click.option("--reason", required=True, metavar="TEXT", help="What you found; it is shown beside the acknowledgement.")
@click.option("--by", metavar="NAME", help="Who acknowledges. Default: the name of your login.")
@click.option("--url", metavar="URL", help="The monitor. Default: the server of the config, else the one in the app.")
@config_option
@runs("query.ack")
def ack() -> None:
    """Silence an alarm, or every alarm of an incident, and reset it; it fires again if the fault persists.

    The page and /api/status show for a week who acknowledged it, when and why.

    Exit codes: 0 done, 3 there is no such alarm, or no monitor.
    """


@click.command()
@click.argument("gate", metavar="PIPELINE|INCIDENT|[PIPELINE/]ALARM")
@click.option(
    "--since", metavar="TIME", help="How far to look back: 2h, or `2026-11-28 00:12`. Default: 2h before the alarm."
)
@url_option
@form_option("text", "json")
@config_option
@runs("query.why")
def why() -> None:
    """Say what broke: since when, how much worse, what came with it, and which traces to open. Times are UTC.

    Name a pipeline (its newest incident), an incident, a gate, or another alarm: `hit_rate:baseline`,
    `top_score:drift`.

    Exit codes: 0 done, 3 there is no such alarm, or no monitor.
    """


@click.group(cls=Commands)
def baseline() -> None:
    """Save what is normal, so that alarms can compare with it."""


@baseline.command("freeze")
@traces_argument
@gold_option
@config_option
@output_option
@runs("score.freeze_command")
def baseline_freeze() -> None:
    """Write the baselines of TRACES, a run known to be good, for `[alarms] baseline = { file = "…" }`.

    The file holds every metric that alarms compare with its own past, the p95 of the latency, and how each gold item
    was answered.

    Exit codes: 0 done, 3 bad input or configuration.
    """


@click.command()
@click.argument("traces", nargs=-1)
@click.option("--url", metavar="URL", help="The admin port of a monitor, in place of TRACES: its last day is compared.")
@click.option(
    "--by", type=click.Choice(["build", "index_hash"]), required=True, help="What tells the two releases apart."
)
@click.option("--baseline", metavar="NAME", required=True, help="The release you know.")
@click.option("--candidate", metavar="NAME", required=True, help="The release in question.")
@gold_option
@config_option
@click.option("--pipeline", metavar="NAME", help="Compare only the gates of this pipeline.")
@click.option(
    "--max-drop",
    type=click.FloatRange(0, 1, max_open=True),
    callback=_drop_number,
    default=0.02,
    show_default=True,
    help="How much worse a gated metric may be.",
)
@form_option(
    *("text", "md", "json", "html"),
    text="What to write. `html` is a page in one file, with intervals and the gold items that flipped.",
)
@output_option
@click.pass_context
@runs("score.compare")
def compare() -> None:
    """Compare two releases on every metric that has a gate, from TRACES or from a monitor.

    Gold questions are paired item by item; runs through a gold set are compared when at most 2 % of its items have no
    trace in either. Other requests are two samples; requests of a session, else of a question, count as one
    observation ([metrics] cluster). Ask as often as you like while traces come in: the verdict stays valid.

    A monitor compares one pipeline with its own gates and gold: the configured one unless --pipeline names another.

    Exit codes: 0 not worse, 1 worse, 2 undecided, 3 bad input or configuration, or no monitor.
    """


_print_form = form_option("text", "json", text="What to print.")
_config_path = click.option(
    "--config", "-c", "path", metavar="FILE", help="ragmon.toml. Default: RAGMON_CONFIG, then ./ragmon.toml."
)


@click.group(cls=Commands)
def config() -> None:
    """Check ragmon.toml, and show which values are in force."""


@config.command("check")
@_config_path
@click.pass_context
@runs("config.check_command")
def config_check() -> None:
    """Name every problem with its line and what would be right.

    Gold files are read as well. Warnings name what is valid but probably a mistake: a gate that can never fail with
    this gold, an environment variable that is almost one of ragmon's.

    Exit codes: 0 clean, or only warnings, 1 problems, 3 the file cannot be read.
    """


@config.command("show")
@_config_path
@_print_form
@click.pass_context
@runs("config.show_command")
def config_show() -> None:
    """Print every value with its origin: default, file and line, or the environment. Secrets are masked.

    Exit codes: 0 done, 1 the file has problems, 3 it cannot be read.
    """


@click.command()
@config_option
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Observations per minute, to say how soon alarms find a fault.",
)
@click.option("--admin-url", metavar="URL", help="The server's admin port. Default: `[serve] admin` of the config.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 3600),
    default=WAIT,
    show_default=True,
    help="Seconds in which a trace must arrive at the server.",
)
@click.pass_context
@runs("doctor.doctor")
def doctor() -> None:
    """Test every step from a call to /metrics, and say how soon alarms find a fault.

    doctor makes a call and scores it in this process. Where `[export] endpoint` is set, it sends one trace there as the
    application does, looks for it at the server's admin port, and names the first step that fails. The trace belongs
    to the pipeline `ragmon-doctor`, which is in no metric, gate or alarm, and holds no text of users;
    `ragmon forget --tag ragmon=doctor` deletes such traces from the journal.

    It shows what a running monitor captures of each pipeline, with the worst gap and the setting that closes it. A gap
    that keeps a gate from being judged is a fault.

    It also says what other instrumentations leave out of their spans in this environment; that is no fault.

    Exit codes: 0 all is well, 1 something is wrong, 3 the configuration cannot be read.
    """


@click.command()
@click.option("--trace", metavar="ID", help="The trace: 32 hex digits.")
@click.option("--tag", metavar="NAME=VALUE", help="All records with this tag, and what belongs to their traces.")
@click.option(
    "--user", metavar="NAME", help="All records of this user, named as in the records, and what belongs to them."
)
@click.option(
    "--state-dir", metavar="DIR", help="The folder of the journal. Default: `[serve] state_dir` of the config."
)
@config_option
@runs("query.forget")
def forget() -> None:
    """Delete a trace, or all records with a tag or of a user, from a server's journal and from the disk.

    Deletes records, labels, pending spans and failures, also from saved states. Counts stay: they hold no text. Keys
    and ids of traces stay until they expire, so that a producer that sends again brings nothing back.

    The server may be running, on this machine: its folder is read and written. Other copies of the data (trace logs,
    backups, other backends) are not touched.

    Exit codes: 0 also where nothing was found, 3 no journal, or it cannot be written.
    """


@click.command()
@traces_argument
@gold_option
@config_option
@click.option("--pipeline", metavar="NAME", help="Judge only the gates of this pipeline.")
@click.option(
    "--estimand",
    type=click.Choice(["gold_set", "questions_like_these"]),
    help="What a gold number stands for. Default: gold_set, the exact value over this set.",
)
@baseline_option
@max_drop_option
@click.option("--since-build", metavar="BUILD", help="Judge only the records of this build, as often as you like.")
@click.option(
    "--on-insufficient", type=click.Choice(["fail", "pass"]), help="Count insufficient as this. Default: exit 2."
)
@form_option("text", "md", "json")
@output_option
@jobs_option
@duplicates_option
@labels_option
@table_options("TRACE", of="traces")
@no_color_option
@click.pass_context
@runs("score.gate")
def gate() -> None:
    """Judge the gates on TRACES.

    With --since-build the verdict is valid however often you ask while traces come in; it needs about three times as
    many requests as a one-off verdict. Requests of a session, else of a question, count as one observation
    ([metrics] cluster), so one process reads the traces. A run through a gold set is judged when at most 2 % of its
    items have no trace. Gates on latency are left out: a build alone has no baseline.

    Exit codes: 0 pass, 1 fail, 2 insufficient, 3 bad input or configuration.
    """


@click.group(cls=Commands)
def generate() -> None:
    """Write Prometheus rules or Grafana dashboards from ragmon.toml."""


@generate.command("dashboard")
@config_option
@click.option("--output", "-o", metavar="DIR", help="Write all five as UID.json into this folder.")
@click.option("--name", metavar="NAME", help="Write this one to stdout. Default: overview.")
@click.option("--check", is_flag=True, help="Write nothing: name the files of --output that are out of date.")
@runs("generate.dashboard")
def generate_dashboard() -> None:
    """Write Grafana dashboards of the gates, metrics and judges of ragmon.toml.

    Overview, retrieval, answers, traffic, health; for Grafana 11.6 and later, on the series of /metrics. Generate them
    again when you add gates or judges; thresholds are read from series and follow by themselves.

    Exit codes: 0 done, 1 with --check where files differ, 3 bad configuration or usage.
    """


@generate.command("rules")
@config_option
@output_option
@click.option("--check", is_flag=True, help="Write nothing: say whether --output is up to date.")
@form_option(
    *("prometheus", "kubernetes"), text="A file for rule_files, or a PrometheusRule of the Prometheus operator."
)
@click.option(
    "--configured-only",
    is_flag=True,
    help="Only for the pipelines that ragmon.toml names: where another ragmon's are in the same Prometheus.",
)
@click.option(
    "--selector",
    default="",
    metavar="MATCHERS",
    help="Matchers of the deployments that the rules are for, as PromQL: 'env=\"prod\"'.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="LABEL",
    help="A label that tells deployments apart, in place of [rules] by. Repeatable. RagmonDown then also names a "
    "deployment that Prometheus knew within the last day and no longer knows.",
)
@runs("generate.rules")
def generate_rules() -> None:
    """Write recording rules and alerts, for the pipelines of ragmon.toml and for all that are not named there.

    Exit codes: 0 done, 1 --check found a difference, 3 bad configuration.
    """


_paths = click.argument("paths", nargs=-1, required=True)
_key = click.option("--key-file", metavar="FILE", help="The secret with which frozen sets are signed.")


@click.group(cls=Commands)
def gold() -> None:
    """Check, count, compare and freeze gold files.

    A gold file is JSON Lines, a JSON array, a table (.csv, .tsv, .parquet, .xlsx), TREC qrels, or a directory with
    queries.json, qrels.json and answers.json; plain or gzip; - is standard input. Several files make one set.
    """


@gold.command("lint")
@_paths
@_print_form
@config_option
@click.pass_context
@runs("gold.lint_command")
def gold_lint() -> None:
    """Report errors and risks in a gold set.

    Each set that ragmon.toml names is a set here, and files that it does not name are one. A set is too small if no run
    through it could decide one of the configured gates.

    Exit code: 0 clean or warnings only, 1 with errors, 3 if a file is broken.
    """


@gold.command("stats")
@_paths
@_print_form
@runs("gold.stats_command")
def gold_stats() -> None:
    """Count what a gold set holds.

    Exit code: 0, or 3 if a file is broken.
    """


@gold.command("freeze")
@_paths
@_key
@output_option
@click.option("--check", "frozen", metavar="FILE", help="Write nothing: compare with the fingerprint in FILE.")
@click.pass_context
@runs("gold.freeze_command")
def gold_freeze() -> None:
    """Write the fingerprint of a gold set, for `[gold.NAME] frozen = "…"`: other files are refused from then on.

    With --key-file it is signed (HMAC-SHA256), and nobody without the key can freeze another set. Without a key it only
    detects accidental changes. The file holds no text of the set.

    Exit code: 0; with --check 1 if the set differs; 3 if a file is broken or was changed after it was frozen.
    """


@gold.command("diff")
@click.argument("old")
@click.argument("new")
@_key
@_print_form
@click.pass_context
@runs("gold.diff_command")
def gold_diff() -> None:
    """List what changed between two versions of a gold set, each a gold file or a fingerprint.

    Exit code: 0 the same, 1 different, 3 if a file is broken.
    """


@gold.command("from-table")
@click.argument("path", metavar="FILE")
@table_options("GOLD", of="FILE")
@click.option(
    "--empty-reference",
    type=click.Choice(EMPTY_REFERENCE),
    help="What a row without a reference answer is: an unanswerable question, or a row to skip. Default: an error.",
)
@output_option
@runs("gold.from_table_command")
def gold_from_table() -> None:
    """Write a gold file from a table (CSV, TSV, Parquet, XLSX, JSON) of questions and right answers.

    Says which metrics the result can judge. A question without qid gets one that depends only on its text.

    Exit code: 0, or 3 if the table is broken or has no right answers.
    """


@click.command()
@click.argument("traces", nargs=-1)
@click.option("--url", metavar="URL", help="The admin port of a monitor, in place of TRACES: what it has seen is used.")
@click.option("--gold", "-g", metavar="FILE", multiple=True, help="Gold to name in the file, and to judge TRACES by.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    callback=writable,
    default="ragmon.toml",
    show_default=True,
    help="The file to write; `-` is stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@table_options("TRACE", of="TRACES")
@click.pass_context
@runs("init.init")
def init() -> None:
    """Write ragmon.toml from TRACES (any file that `ragmon replay` reads), or from what a monitor has seen.

    It names the pipelines, the gold, how ids and citations are written, refusals that are given word for word, and the
    gates that can be judged, with thresholds of the preset `default`. Each has a comment that says what was seen. A
    gate that cannot be judged is written as a comment, with the reason.

    Exit codes: 0 written, 3 bad input, or the file exists.
    """


@click.group(cls=Commands)
def label() -> None:
    """Import people's labels of answers, or list the answers most worth labelling."""


@label.command("import")
@click.argument("files", nargs=-1, required=True)
@click.option("--rater", metavar="NAME", help="Who gave the labels of rows that name no rater.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--url", metavar="URL", help="The server's write port. Default: [export] endpoint, else [serve] otlp.")
@output_option
@config_option
@runs("query.import_command")
def label_import() -> None:
    """Send the labels in FILES (CSV, JSON Lines) to a server; each file is accepted whole or refused whole.

    [labels] says which column is which, and which words mean true and false. Importing a file again changes nothing.
    With --output the labels are written as lines for `replay` and `gate` instead.

    Exit codes: 0 done, 3 a file is broken, or no server takes the labels.
    """


@label.command("queue")
@click.argument("traces", nargs=-1)
@click.option("--state-dir", metavar="DIR", help="The folder of a server's journal. Default: [serve] state_dir.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many answers.")
@click.option("--text", is_flag=True, help="Show question and answer, as far as they were captured.")
@form_option("csv", "jsonl")
@output_option
@config_option
@runs("query.queue_command")
def label_queue() -> None:
    """List answers worth labelling, as a sheet for `ragmon label import`: from TRACES, else from a server's journal.

    First comes a random sample, shuffled, so you may stop anywhere; then the answers whose scores are least certain.

    Exit codes: 0 done, 3 there is nothing to label.
    """


@click.command()
@gold_option
@click.option("--target", "-t", metavar="TARGET", help="module:function, or an http(s) address. Default: [probe.*].")
@config_option
@click.option("--name", metavar="NAME", help="Which probe, where the configuration has several.")
@click.option("--once", "one_round", is_flag=True, help="Ask each question once, in order, then stop.")
@click.option(
    "--output", "-o", metavar="FILE", callback=writable, help="Write traces here (`-`: stdout) in place of [export]."
)
@click.option("--gate", "judged", is_flag=True, help="Judge the gates on the round; the exit code is the verdict.")
@form_option("text", "md", "json")
@click.pass_context
@runs("serve.probe")
def probe() -> None:
    """Ask the live pipeline gold questions: a function of the application, or its HTTP address.

    Without --once it keeps asking at the configured rate, and sends the answers to `[export] endpoint`, or writes them
    to --output.

    Exit codes: 0 done, 3 bad input or configuration, or the pipeline does not answer; with --gate those of
    `ragmon gate`.
    """


def _parse_questions(_: click.Context, __: click.Parameter, value: str) -> int | None:
    if value == "all":
        return None
    if value.isdecimal():
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a number nor `all`")


_published = partial(click.option, hidden=True)
"""An option of a published scorer: `--compat help` shows it, `--help` does not."""


@click.command()
@click.argument("traces", nargs=-1)
@click.option(
    "--journal", metavar="DIR", help="The state folder of a server, in place of TRACES: scored as the server did."
)
@click.option(
    "--gold", "-g", metavar="FILE", multiple=True, help="Gold, or seed-004's folder. Default: [gold.*] of the config."
)
@config_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "md", "html"]),
    help="What to write. Default: text (the gates) on a terminal, else json.",
)
@output_option
@click.option("--windows", is_flag=True, help="Add the metrics of every window, at every 5-minute step (JSON).")
@jobs_option
@duplicates_option
@labels_option
@click.option(
    "--questions",
    metavar="N|all",
    callback=_parse_questions,
    default="200",
    show_default=True,
    help="Rows of the per-question table (Markdown, HTML).",
)
@baseline_option
@max_drop_option
@click.option(
    "--alerts-out",
    metavar="FILE",
    callback=writable,
    help="Run the alarms over the traces; write a line each time an alarm starts or ends.",
)
@click.option(
    "--incidents-out", metavar="FILE", callback=writable, help="The same for incidents: alarms that fire together."
)
@table_options("TRACE", of="traces")
@no_color_option
@click.option(
    "--compat",
    type=click.Choice([*COMPAT, COMPAT_HELP]),
    help="Print what this published scorer prints; `help` lists the options of each.",
)
@_published("--k", type=click.IntRange(1), help="seed-000: the cut of recall@k. Default: 5.")
@_published("--gates", metavar="LIST", help="seed-000. Default: precision=0.80,chr=0.75,under=0.05,over=0.10")
@_published("--max-queries", "-n", type=click.IntRange(0), default=0, help="seed-004: so many queries; 0 for all.")
@_published("--skip-generation", is_flag=True, help="seed-004: retrieval metrics only.")
@_published("--include-details", is_flag=True, help="seed-004: results per query.")
@_published("--threshold", type=float, help="seed-001: of success. seed-004: of a grounded answer.")
@_published("--strict", is_flag=True, help="seed-001: only a perfect ranking passes.")
@_published("--judge-url", metavar="URL", help="seed-001: an OpenAI-compatible API; asked where no verdicts are.")
@_published("--model", metavar="NAME", help="seed-001: the judge's model there.")
@_published("--judge-key-file", metavar="FILE", help="seed-001: holds its key.")
@_published("--no-reason", is_flag=True, help="seed-001: ask the judge for no reasons.")
@click.pass_context
@runs("score.replay")
def replay() -> None:
    """Score TRACES (.jsonl, .json, .csv, .tsv, .parquet, .xlsx, OTLP-JSON lines, TREC runs, `-` for stdin) and report.

    The scorer and the gates are those of live traffic; over a whole run, a value over a gold set is exact.

    With --baseline, a gated metric that dropped too far fails its gate. Gold items that flipped are listed if the
    baseline is traces; a report has values only.

    Exit codes: 0 done, 3 bad input or configuration. `ragmon gate` is the command whose exit code is the verdict.
    """


@click.command()
@click.argument("name", metavar="NAME", type=click.Choice(["trace", "gold", "report", "config"]))
@runs("generate.schema")
def schema() -> None:
    """Print a JSON Schema (draft 2020-12; of config draft 7, which editors of TOML read).

    trace: one line of a trace log. gold: one row of a gold file. report: what `ragmon replay --format json` writes.
    config: ragmon.toml.

    Exit codes: 0 done, 3 there is no such schema.
    """


@click.command()
@config_option
@click.option("--insecure", is_flag=True, help="Only warn where anybody on the network could write.")
@runs("serve.serve")
def serve() -> None:
    """Receive OTLP from any number of producers, journal and score it, and show the results.

    Exit codes: 0 stopped by a signal, and everything accepted is on disk; 3 bad configuration; 75 the disk is full, no
    file can be opened, a port or the state folder is taken, or a request takes too long: restarting later may help. A
    frozen process is killed with SIGPROF; restart it. A request that froze it twice is set aside.
    """


@click.command()
@click.argument("trace")
@click.argument("files", nargs=-1)
@click.option("--url", metavar="URL", help="Ask the server whose admin port this is.")
@click.option("--state-dir", metavar="DIR", help="Read the journal in this folder.")
@click.option("--full", is_flag=True, help="Show long texts in full.")
@form_option("text", "json")
@gold_option
@config_option
@runs("query.show")
def show() -> None:
    """Show one request: question, answer, retrieved documents, and every score with its reason.

    TRACE is a trace id, or the first 8 or more of its digits. It is looked up in FILES; else in the journal of
    `[serve] state_dir` where there is one on this machine; else at `[serve] admin`. Over HTTP, content is shown with
    the token of `[serve] token_file`. Times are UTC.

    Exit codes: 0 done, 3 there is no record of TRACE, or no monitor.
    """


@click.command()
@url_option
@click.option(
    "--every",
    type=click.FloatRange(0.5, 3600),
    default=EVERY,
    show_default=True,
    metavar="SECONDS",
    callback=partial(reject_nan, f" of seconds, such as {EVERY:g}"),
    help="Time between two readings.",
)
@click.option("--once", is_flag=True, help="Print the state once, and exit.")
@no_color_option
@config_option
@runs("top.top")
def top() -> None:
    """Show incidents and every gate of a monitor, live: of `ragmon serve`, or of one in an application.

    q and Ctrl-C quit; the arrow keys scroll. A monitor that stops answering is shown as stale until it answers again.
    If stdout is no terminal, the state is printed once. Times are UTC.

    Exit codes: 0 done, 3 no monitor answers.
    """


@click.command()
@click.option("--url", metavar="URL", help="Ask the server whose admin port this is.")
@click.option("--state-dir", metavar="DIR", help="Read the journal in this folder, with or without its server.")
@click.option("--deep/--no-deep", default=None, help="Replay all rows of a journal. Default: up to 200,000 lines.")
@config_option
@runs("verify.verify")
def verify() -> None:
    """Say whether every record is accounted for.

    received = scored + ignored + dropped + duplicate + pending, stage by stage. Without --url and --state-dir the
    server on `[serve] admin` is asked; if none answers, the journal in `[serve] state_dir` is read.

    A journal is checked further: every row can be read, none is missing, and the newest checkpoint with the rows after
    it gives what a replay of all rows gives, under the same configuration.

    Exit codes: 0 every record is, 1 some are not, 3 no server, no journal or bad configuration.
    """


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="JOURNAL|TRACES...|REPORT")
@click.option("--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Port 0 is any free one.")
@config_option
@runs("serve.view")
def view() -> None:
    """Open the pages of a monitor on what was recorded: gates, charts, metrics, and where every record went.

    JOURNAL is the state folder of a server, shown as it was at its last row; a server may be running on it. TRACES are
    trace files, shown as they were at the time of the newest record. REPORT is what `ragmon replay`, `gate` or
    `compare` wrote, as JSON or HTML; JSON has no results of single questions and no charts over time. Nothing is
    written. Ctrl-C ends it.

    Exit codes: 0 done, 3 there is nothing to show, or it cannot be read.
    """


@click.command()
@config_option
@runs("serve.work")
def work() -> None:
    """Count the partitions of `[stream] spans` that the consumer group gives this process, and write chunks of counts.

    A worker has no disk: start as many as there is work for, at most one a partition, and end them as you like. A
    `ragmon serve` with `[serve] from = "stream"` adds up what they count, and judges gates and alarms.

    Exit codes: 0 stopped by a signal; 3 bad configuration, or a topic is missing; 75 no broker answers, or chunks
    cannot be written: restarting later may help.
    """
