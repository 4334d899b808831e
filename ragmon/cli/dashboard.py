"""`ragmon generate dashboard`: Grafana dashboards of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ragmon.cli.generated import compare
from ragmon.cli.runs import config_option
from ragmon.config.load import load
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.escaping import printable_line

SDK: Final = "grafana_foundation_sdk"
FIRST: Final = "overview"


@click.command("dashboard")
@config_option
@click.option("--output", "-o", metavar="DIR", help="Write all five as UID.json into this folder.")
@click.option("--name", metavar="NAME", help="Write this one to stdout. Default: overview.")
@click.option("--check", is_flag=True, help="Write nothing: say which files of --output are not what would be written.")
def dashboard(config: str | None, output: str | None, name: str | None, check: bool) -> int:
    """Write Grafana dashboards of the gates, metrics and judges of ragmon.toml.

    Overview, retrieval, answers, traffic, health; for Grafana 11.6 and later, on the series of /metrics. Generate them
    anew when gates or judges change: thresholds are read from series, and need nothing.

    Exit codes: 0, 1 with --check where files differ, 3 bad configuration or usage.
    """
    if check and output is None:
        raise click.UsageError("--check compares with files: name their folder with --output DIR")
    if output is not None and name is not None:
        raise click.UsageError("--name is for stdout, --output writes all: give one of them")
    found = _generated(config)
    if output is None:
        uid = f"ragmon-{name or FIRST}"
        if uid not in found:
            raise UnknownNameError("dashboard", str(name), [known.removeprefix("ragmon-") for known in found])
        click.echo(found[uid], nl=False)
        return 0
    files = {Path(output) / f"{uid}.json": text for uid, text in found.items()}
    return compare(files) if check else _write(Path(output), files)


def _generated(config: str | None) -> dict[str, str]:
    """The dashboards by uid.

    Raises:
        RagmonError: Grafana's SDK is not installed.
    """
    try:
        from ragmon.export.dashboards import generate  # noqa: PLC0415 - the SDK is optional
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != SDK:
            raise
        hint = "pip install 'ragmon[dashboard]'"
        raise RagmonError("dashboards are made with Grafana's SDK, which is not installed", hint=hint) from missing
    return generate(load(config))


def _write(folder: Path, files: dict[Path, str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        click.echo(printable_line(str(path)), err=True)
    return 0
