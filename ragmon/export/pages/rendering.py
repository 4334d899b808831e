"""The templates of pages: everything that is put into one is escaped, and made printable first.

Pages are valid XHTML as well as HTML, so that any parser of either can check them. Names of pipelines, gates and builds
come from requests; the content of requests is never on a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragmon.core.errors import printable, printable_line

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0


@cache
def environment() -> Environment:
    """The environment of all templates."""
    templates = Environment(
        loader=PackageLoader("ragmon.export"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_text,
    )
    templates.filters |= {"cell": cell, "time": time_text, "ago": ago, "query": query, "by_reason": by_reason}
    return templates


def render(template: str, **data: Any) -> str:
    """A page.

    Args:
        template: The name of the template.
        data: What it shows.
    """
    return environment().get_template(template).render(**data)


def _text(value: object) -> object:
    """What a template puts out; text becomes one printable line, which the environment then escapes."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable_line(value)


def cell(value: object) -> str:
    """What stands in a cell, which is cut sooner than a sentence."""
    return printable(str(value))


def time_text(seconds: float | None) -> str:
    """A point in time.

    >>> time_text(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(seconds: float | None, now: float) -> str:
    """How long ago a time was.

    >>> ago(0.0, 7200.0)
    '2 h ago'
    """
    if seconds is None:
        return "never"
    age = max(0.0, now - seconds)
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if age >= 2 * unit:
            return f"{age / unit:.0f} {name} ago"
    return f"{age:.0f} s ago"


def query(parameters: Mapping[str, str]) -> str:
    """The query of an address; parameters without a value are left out."""
    return urlencode({name: value for name, value in parameters.items() if value})


def by_reason(counts: Mapping[str, int]) -> str:
    """Counts by reason, in a line."""
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))
