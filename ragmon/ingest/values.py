"""Times and numbers as people and programs write them, and the one form of a column.

A text may allow several readings: `03/04/2025` by the order of day and month, `1,234` by its decimal mark. A column has
one form, which the first value that allows a single reading decides. A value that stands alone is read where all its
readings agree, else it is unknown.

Sources: RFC 2822 (dates of mail), RFC 9557 and ISO 8601 (`datetime.fromisoformat`), ISO/IEC 29500 (serials of Excel).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from ragmon.core.record import LATEST

Readings = Mapping[str, float]
"""What a value may mean, by form; "" where every form gives the same. Nothing: it cannot be read."""

ABSENT: Final = frozenset(
    ("", "nan", "nat", "none", "null", "na", "n/a", "<na>", "-", "inf", "-inf", "infinity", "-infinity")
)
"""What programs write, in lower case, instead of a time or a number."""
EPOCH: Final = "epoch"
EXCEL: Final = "excel"
POINT: Final = "."
COMMA: Final = ","
_LONGEST: Final = 80
_FIRST_SERIAL, _LAST_SERIAL = 36_526, 73_051  # the days of this century
_SERIAL_OF_1970: Final = 25_569
_DAY: Final = 86_400

_SWAPPED: Final = str.maketrans(".,", ",.")
_QUANTITY: Final = re.compile(r"([+-]?[\d.,'’\s]*\d[.,]?(?:e[+-]?\d+)?)\s*([a-zµμ]*)\.?", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_GROUPED: Final = re.compile(r"[+-]?[1-9]\d{0,2}([,'’\s])\d{3}(?:\1\d{3})*(?:\.\d+)?", re.ASCII)
_GROUPS: Final = re.compile(r"[,'’\s]")
_CLOCK_TIME: Final = re.compile(r"(?:(\d+) days? )?(\d{1,2}):(\d\d):(\d\d(?:\.\d+)?)", re.ASCII)
_MILLISECONDS: Final = {
    **dict.fromkeys(("", "ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1e3),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds"), 1e-3),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-6),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 6e4),
}


def milliseconds(value: Any) -> Readings:
    """The readings of a number, by the decimal mark; a unit of time makes milliseconds of it.

    >>> milliseconds("812,5"), milliseconds("0.8 s"), milliseconds("1,234"), milliseconds("812 parsecs")
    ({',': 812.5}, {'.': 800.0}, {'.': 1234.0, ',': 1.234}, {})
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _finite({"": value})
    if not isinstance(value, str) or len(value) > _LONGEST:
        return {}
    text = value.strip()
    if text.isdecimal():
        return {"": float(text)}
    if clock := _CLOCK_TIME.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return {"": 1e3 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)}
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2].lower() not in _MILLISECONDS:
        return {}
    readings = {}
    for mark in (POINT, COMMA):
        written = found[1] if mark == POINT else found[1].translate(_SWAPPED)
        if _PLAIN.fullmatch(written) or _GROUPED.fullmatch(written):
            readings[mark] = float(_GROUPS.sub("", written)) * _MILLISECONDS[found[2].lower()]
    return _finite(readings)


def _finite(readings: dict[str, float]) -> Readings:
    """Readings without those that no float holds; one reading where all agree."""
    found = {}
    for form, number in readings.items():
        try:
            if math.isfinite(number):
                found[form] = float(number)
        except OverflowError:
            continue
    return {"": found[POINT]} if len(found) > 1 and len(set(found.values())) == 1 else found


_CLOCK: Final = re.compile(
    r"(?<!\d)(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?(?:\s?([ap])\.?m\.?(?![a-z]))?"
    r"(?:\s?(z|utc|gmt|ut|[ecmp][sd]t|cet|cest|eet|eest|wet|west|jst|kst|msk)(?![a-z]))?"
    r"(?:\s?([+-]\d{1,2}):?(\d\d)?(?!\d))?(?:\s(?:utc|gmt|z))?(?![\d:])",
    re.IGNORECASE | re.ASCII,
)
_HOURS: Final = {
    "est": -5,
    "edt": -4,
    "cst": -6,
    "cdt": -5,
    "mst": -7,
    "mdt": -6,
    "pst": -8,
    "pdt": -7,
    "wet": 0,
    "west": 1,
    "cet": 1,
    "cest": 2,
    "eet": 2,
    "eest": 3,
    "msk": 3,
    "jst": 9,
    "kst": 9,
}
_WEEKDAY: Final = re.compile(
    r"\b(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b[,.]?", re.IGNORECASE
)
_REMARK: Final = re.compile(r"\s{0,9}\([^()]*\)$|(?<=[Z\d])\[[^\[\]]*\]$")
_BETWEEN: Final = re.compile(r"(?:@|\bat\b|\bT\b)", re.IGNORECASE)
_YEAR_FIRST: Final = re.compile(r"(\d{4})(?:[-/.]\s?|年\s?|\s)(\d{1,2})(?:[-/.]\s?|月\s?|\s)(\d{1,2})[.日]?", re.ASCII)
_DIGITS: Final = re.compile(r"((?:19|20)\d\d)(\d\d)(\d\d)(?:T?(\d\d)(\d\d)(\d\d))?", re.ASCII)
_YEAR_LAST: Final = re.compile(r"(\d{1,2})(\.\s?|[/-])(\d{1,2})(?:\.\s?|[/-])(\d{4}|\d\d)", re.ASCII)
_DAY_NAME: Final = re.compile(
    r"(\d{1,2})(?:st|nd|rd|th)?[\s./-]*(?:of\s)?([a-z]{3,9})[\s.,/-]*(\d{4}|\d\d)", re.IGNORECASE | re.ASCII
)
_NAME_DAY: Final = re.compile(
    r"([a-z]{3,9})[\s.-]*(\d{1,2})(?:st|nd|rd|th)?[\s,-]+(\d{4}|\d\d)", re.IGNORECASE | re.ASCII
)
_MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_ORDERS: Final = {"day/month/year": (0, 1, 2), "month/day/year": (1, 0, 2), "year/month/day": (2, 1, 0)}
"""Where day, month and year stand in dates of three numbers."""


def times(value: Any, *, serials: bool = True) -> Readings:
    """The readings of a time in seconds since 1970, by form; a time without an offset is UTC.

    Numbers are seconds, milliseconds, microseconds or nanoseconds by their range, or serials of Excel, where `serials`
    are expected.

    >>> times("20.11.2025 09:00"), times("11/20/2025 9:00 AM"), times(1763629200000)
    ({'': 1763629200.0}, {'month/day/year': 1763629200.0}, {'epoch': 1763629200.0})
    >>> times("03/04/2025"), times(45981.375)
    ({'day/month/year': 1743638400.0, 'month/day/year': 1741046400.0}, {'epoch': 45981.375, 'excel': 1763629200.0})
    """
    if isinstance(value, str):
        if value[4:5] == "-" and len(value) < _LONGEST:
            with suppress(ValueError):
                return _at(datetime.fromisoformat(value))
        text = _REMARK.sub("", " ".join(value.split()))  # Berlin's time with an offset names Berlin as well
        if len(text) > _LONGEST:
            return {}
        if not _PLAIN.fullmatch(text) or _DIGITS.fullmatch(text):
            return _dated(text)
        value = float(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST * 1e9:
        return {}
    readings = {EPOCH: float(value)}
    while readings[EPOCH] >= LATEST:
        readings[EPOCH] /= 1000
    if serials and _FIRST_SERIAL <= value < _LAST_SERIAL:
        readings[EXCEL] = round((value - _SERIAL_OF_1970) * _DAY, 3)
    return readings


def _dated(text: str) -> Readings:
    """The readings of a time that is no number."""
    with suppress(ValueError):
        return _at(datetime.fromisoformat(text))
    hour = minute = second = 0
    fraction, offset = "", timedelta()
    if digits := _DIGITS.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in digits.groups()[3:])
        text = "-".join(digits.groups()[:3])
    elif clock := _CLOCK.search(text):
        hour, minute, second = (int(part or 0) for part in clock.groups()[:3])
        fraction = clock[4] or ""
        if clock[5]:
            if not 1 <= hour <= 12:
                return {}
            hour = hour % 12 + 12 * (clock[5].lower() == "p")
        offset = timedelta(hours=_HOURS.get((clock[6] or "").lower(), 0))
        if clock[7]:
            offset = timedelta(hours=int(clock[7]), minutes=int(f"{clock[7][0]}{clock[8] or 0}"))
        text = f"{text[: clock.start()]} {text[clock.end() :]}"
    date = " ".join(_BETWEEN.sub(" ", _WEEKDAY.sub(" ", text)).split()).strip(" ,:")
    moments = {}
    for form, (year, month, day) in _dates(date).items():
        try:
            zone = timezone(offset) if offset else UTC
            moments[form] = datetime(year, month, day, hour, minute, second, int(f"{fraction:0<6}"[:6]), tzinfo=zone)
        except ValueError:
            continue
    return _seconds(moments)


def _at(moment: datetime) -> Readings:
    seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    return {"": seconds} if 0 <= seconds < LATEST else {}


def _seconds(moments: Mapping[str, datetime]) -> Readings:
    readings = {form: seconds for form, moment in moments.items() if 0 <= (seconds := moment.timestamp()) < LATEST}
    return (
        {"": next(iter(readings.values()))}
        if readings and len(set(readings.values())) == 1 < len(readings)
        else readings
    )


def _dates(text: str) -> dict[str, tuple[int, int, int]]:
    """Year, month and day of a date, by form; they need not be a date."""
    if found := _YEAR_FIRST.fullmatch(text):
        return {"": (int(found[1]), int(found[2]), int(found[3]))}
    if found := _YEAR_LAST.fullmatch(text):
        if found[2][0] == ".":  # where points separate, the day is first
            return {"": (_year(found[4]), int(found[3]), int(found[1]))}
        parts = found[1], found[3], found[4]
        orders = {name: tuple(parts[place] for place in places) for name, places in _ORDERS.items()}
        if len(found[4]) > 2:
            del orders["year/month/day"]
        return {name: (_year(year), int(month), int(day)) for name, (day, month, year) in orders.items()}
    if found := _DAY_NAME.fullmatch(text):
        day, name, year = found.groups()
    elif found := _NAME_DAY.fullmatch(text):
        name, day, year = found.groups()
    else:
        return {}
    month = next((n for n, full in enumerate(_MONTHS, 1) if full.startswith(name.lower().replace("sept", "sep"))), 0)
    return {"": (_year(year), month, int(day))}


def _year(digits: str) -> int:
    """A year; of one in two digits, the century is that of `strptime`."""
    year = int(digits)
    return year if len(digits) > 2 else year + (1900 if year >= 69 else 2000)


def formatted_time(value: Any, form: str) -> Readings:
    """The reading of a time by a format of `strptime`.

    >>> formatted_time("03/04/2025", "%d/%m/%Y"), formatted_time("2025", "%d/%m/%Y")
    ({'': 1743638400.0}, {})
    """
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    with suppress(ValueError):
        return _at(datetime.strptime(text, form))  # noqa: DTZ007 - it becomes UTC where the format has no offset
    return {}


def time_format(text: str, form: str) -> str:
    """The format of `strptime` that a text has in a form.

    >>> time_format("03/04/2025 9:00 AM", "day/month/year"), time_format("25-11-20", "year/month/day")
    ('%d/%m/%Y %I:%M %p', '%y-%m-%d')
    """

    def date(found: re.Match[str]) -> str:
        year = "%Y" if len(found[4]) > 2 else "%y"
        return form.replace("/", found[2]).replace("day", "%d").replace("month", "%m").replace("year", year)

    def clock(found: re.Match[str]) -> str:
        seconds = f":%S{'.%f' if found[4] else ''}" if found[3] else ""
        return f"{'%I' if found[5] else '%H'}:%M{seconds}{' %p' if found[5] else ''}{' %z' if found[7] else ''}"

    return _CLOCK.sub(clock, _YEAR_LAST.sub(date, text, count=1), count=1)


@dataclass
class ColumnForms:
    """The forms in which the values of a column that were seen can be read."""

    forms: frozenset[str] = frozenset()

    def see(self, readings: Readings) -> None:
        """Take a value into account; one that contradicts those before it changes nothing."""
        if "" not in readings and readings:
            self.forms = (self.forms & readings.keys() if self.forms else frozenset(readings)) or self.forms

    def read(self, readings: Readings) -> float | None:
        """The value in the column's form; None where it has none, or where the form is not known yet."""
        known = ("",) if "" in readings else tuple(self.forms & readings.keys())
        return readings[known[0]] if len(known) == 1 else None
