"""What a running monitor captures: a line per pipeline and source, with the worst gap and its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ragmon.cli.client import NoResponseError, captured, parse_server_url
from ragmon.cli.doctor.local import Check
from ragmon.core.errors import RagmonError
from ragmon.export.text import shares
from ragmon.gates.coverage import FIELDS, CaptureReport

CAPTURED: Final = "captured"
SHOWN: Final = 50
"""Pipelines and sources that are listed: those with gaps first."""


def captured_checks(reports: Iterable[CaptureReport]) -> Iterator[Check]:
    """What is captured of each pipeline and source; bad where a gate cannot be judged for a gap.

    Args:
        reports: What a monitor reports.
    """
    listed = sorted(
        reports,
        key=lambda report: (not _blocked(report), report.worst is None, report.pipeline, report.source),
    )
    yield from map(_check, listed[:SHOWN])
    if len(listed) > SHOWN:
        yield Check(CAPTURED, ok=True, finding=f"and {len(listed) - SHOWN} more pipelines and sources")


def _check(report: CaptureReport) -> Check:
    gap = report.worst
    parts = ", ".join(
        f"{name} {share}" for name, share in zip(FIELDS, shares(report.fields), strict=True) if name in report.fields
    )
    finding = f"{report.pipeline}, {report.source}, {report.records} records: {parts}"
    if gap is None:
        return Check(CAPTURED, ok=True, finding=finding)
    return Check(CAPTURED, ok=not _blocked(report), finding=f"{finding}; {gap.text}", hint=gap.remedy)


def _blocked(report: CaptureReport) -> bool:
    return any(gap.blocked for gap in report.gaps)


def running_monitor(admin: str) -> Iterator[Check]:
    """What the monitor of an application captures, where one runs; that none runs is no fault.

    Args:
        admin: The address of its admin port.
    """
    try:
        reports = captured(admin)
    except NoResponseError:
        place = parse_server_url(admin).authority
        hint = "start the application, send it requests, and run doctor again; --admin-url names another address"
        yield Check(CAPTURED, ok=True, finding=f"not known: no monitor answers on {place}", hint=hint)
    except RagmonError as error:
        yield Check(CAPTURED, ok=False, finding=str(error), hint=error.hint)
    else:
        if not reports:
            yield Check(CAPTURED, ok=True, finding="nothing yet: the monitor has no records")
        yield from captured_checks(reports)
