"""The types of values in ragmon.toml: shares, durations, sizes, addresses, files. Errors tell what would be right."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from ragmon.core.ids import EXACT, IdForm
from ragmon.core.json_schema import attribute_notes
from ragmon.core.network import Address, split_url

T = TypeVar("T")
TIME: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SIZE: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s?([A-Za-z]+)")
MASK: Final = "***"
"""What is shown of a secret."""
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SECRET: Final = re.compile("token(?!s)|key|secret|authorization|password|credential|cookie", re.IGNORECASE)
NAME_HINT: Final = "printable text without a slash"
MAX_PORT: Final = 65_535


class Table(BaseModel):
    """A table of ragmon.toml: immutable, without unknown keys and without conversion between types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @classmethod
    def notes(cls) -> dict[str, str]:
        """What each key does: the sentences below `Attributes:`, of the model and of its bases."""
        found: dict[str, str] = {}
        for model in reversed(cls.__mro__):
            found |= attribute_notes(model.__doc__ or "")
        return found


class Seconds(float):
    """A duration in seconds; printed in the syntax of ragmon.toml.

    >>> str(Seconds(5400))
    '90m'
    """

    __slots__ = ()

    def __str__(self) -> str:
        return _with_unit(float(self), {unit: TIME[unit] for unit in ("d", "h", "m", "s", "ms")})


class Bytes(int):
    """A size in bytes; printed in the syntax of ragmon.toml."""

    __slots__ = ()

    def __str__(self) -> str:
        return _with_unit(int(self), {unit: SIZE[unit] for unit in ("TiB", "GiB", "MiB", "KiB", "GB", "MB", "kB", "B")})


def value_error(message: str, hint: str) -> PydanticCustomError:
    """The error that a validator raises: a predicate ("must be a list") and a hint."""
    return PydanticCustomError("ragmon", "{message}", {"message": message, "hint": hint})


def checked(is_right: Callable[[Any], object], message: str, hint: str) -> AfterValidator:
    """A validator that keeps a value which is right."""

    def validate(value: T) -> T:
        if not is_right(value):
            raise value_error(message, hint)
        return value

    return AfterValidator(validate)


def is_secret(key: str) -> bool:
    """Whether the values of this key are secrets, which are never shown."""
    return _SECRET.search(key) is not None


def plain(value: object, *, masked: bool = False) -> object:
    """The value as plain data; durations and sizes as text with their unit, without names and passwords in URLs."""
    if isinstance(value, Seconds | Bytes | Address | Path):
        return str(value)
    if isinstance(value, str):
        return _CREDENTIALS.sub(MASK, value)
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping | Table):
        items = value.items() if isinstance(value, Mapping) else iter(value)
        return {key: MASK if masked and is_secret(key) else plain(entry) for key, entry in items if entry is not None}
    return value


def duration(value: object) -> Seconds:
    """A duration such as `"500ms"`, `"5m"` or `"24h"`.

    >>> duration("1.5h")
    5400.0
    """
    if isinstance(value, Seconds):
        return value
    amount = _parse_amount(value, TIME)
    if amount is None or amount <= 0 or not math.isfinite(amount):
        raise value_error("must be a duration", 'a number and a unit in quotes: "500ms", "8s", "5m", "24h", "7d"')
    return Seconds(amount)


def size(value: object) -> Bytes:
    """A size such as `"5GiB"` or `"500MB"`."""
    amount = _parse_amount(value, SIZE)
    if amount is None or amount < 1 or not math.isfinite(amount):
        raise value_error("must be a size", 'a number and a unit in quotes: "500MB", "5GiB"')
    return Bytes(amount)


def number(value: object) -> float:
    """A finite number; neither a boolean nor a string."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise value_error("must be a finite number", "a number without quotes, such as 0.8")
    return float(value)


def share(value: object) -> float:
    """A finite number from 0 to 1."""
    hint = "a number from 0 to 1, without quotes: 0.05 is 5 %"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise value_error("must be a number from 0 to 1", hint)
    return float(value)


def positive(value: object) -> float:
    """A finite number above 0."""
    if (parsed := number(value)) <= 0:
        raise value_error("must be above 0", "a number such as 1.0")
    return parsed


def is_name(value: str) -> bool:
    """Whether a name can be typed and read; without a slash, which separates pipeline and gate on the command line."""
    return value.strip() == value != "" and value.isprintable() and "/" not in value


def file(value: object) -> Path:
    """The path of a file."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise value_error("must be the path of a file", "a path in quotes, relative to the file it stands in")
    return Path(value).expanduser()


def files(value: object) -> tuple[Path, ...]:
    """One path or a list of them."""
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise value_error("must name a file", 'a path or a list of paths: "gold.jsonl"')
    return tuple(file(entry) for entry in entries)


FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def url(value: object) -> str:
    """An http or https address."""
    try:
        if isinstance(value, str):
            split_url(value)
            return value
    except ValueError:
        pass
    raise value_error("must be an http or https address", 'such as "http://127.0.0.1:4318"')


def address(value: object) -> Address:
    """A host and a port."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    bare_host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    port_is_valid = port.isascii() and port.isdigit() and int(port) <= MAX_PORT
    if not port_is_valid or not bare_host or (":" in bare_host and bare_host == host) or "/" in bare_host:
        raise value_error("must be a host and a port", 'such as "127.0.0.1:4318" or "[::1]:4318"')
    return Address(bare_host, int(port))


def id_forms(value: object) -> tuple[IdForm, ...]:
    """What ids may differ in: one form or a list of them."""
    forms: list[IdForm] = value if isinstance(value, list) else [value]  # type: ignore[list-item]
    known = get_args(IdForm)
    if not all(form in known for form in forms):
        raise value_error("is not a form of ids", f"one of {', '.join(known)}, or a list of them")
    if EXACT in forms and len(forms) > 1:
        raise value_error("has exact beside another form", "exact alone, or the others")
    return unique(tuple(forms))


def unique(values: tuple[T, ...]) -> tuple[T, ...]:
    """Check that a list has no repetitions."""
    repeated = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if repeated is not None:
        raise value_error(f"names {repeated!r} twice", "every entry once")
    return values


def _parse_amount(value: object, units: Mapping[str, float]) -> float | None:
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) * units[match[2]] if match and match[2] in units else None


def _with_unit(amount: float, units: Mapping[str, float]) -> str:
    # In the largest unit that gives a whole number.
    for unit, factor in units.items():
        if round(amount / factor, 9) == round(amount / factor) >= 1:
            return f"{round(amount / factor)}{unit}"
    unit, factor = list(units.items())[-1]
    return f"{amount / factor:g}{unit}"


def _quantities(units: Mapping[str, float]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": rf"^\s*[0-9]+(\.[0-9]+)?\s?({'|'.join(units)})\s*$"})


Share = Annotated[float, PlainValidator(share), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
Number = Annotated[float, PlainValidator(number), WithJsonSchema({"type": "number"})]
Positive = Annotated[float, PlainValidator(positive), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]
Duration = Annotated[Seconds, PlainValidator(duration), _quantities(TIME)]
Size = Annotated[Bytes, PlainValidator(size), _quantities(SIZE)]
Count = Annotated[int, Field(ge=1)]
Few = Annotated[int, Field(ge=0, le=1000)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, checked(is_name, "is not usable as a name", NAME_HINT)]
JudgeName = Annotated[
    str,
    checked(
        re.compile(r"[a-z][a-z0-9_]*").fullmatch,
        "is not usable as a judge's name",
        "lower-case letters, digits, underscores: it names a metric",
    ),
]
Function = Annotated[str, checked(FUNCTION.fullmatch, "must be a function", '"myapp.privacy:clear"')]
_PATH: Final = {"type": "string", "minLength": 1}
File = Annotated[Path, PlainValidator(file), WithJsonSchema(_PATH)]
Files = Annotated[
    tuple[Path, ...],
    PlainValidator(files),
    WithJsonSchema({"anyOf": [_PATH, {"type": "array", "items": _PATH, "minItems": 1}]}),
]
_FORM: Final = {"type": "string", "enum": list(get_args(IdForm))}
IdForms = Annotated[
    tuple[IdForm, ...],
    PlainValidator(id_forms),
    WithJsonSchema({"anyOf": [_FORM, {"type": "array", "items": _FORM, "uniqueItems": True}]}),
]
Url = Annotated[str, PlainValidator(url), WithJsonSchema({"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"})]
Listen = Annotated[Address, PlainValidator(address), WithJsonSchema({"type": "string", "pattern": ":[0-9]+$"})]
Many = Annotated[tuple[T, ...], Field(strict=False)]
"""A TOML list, stored as a tuple."""
non_empty: Final = checked(bool, "must not be empty", "at least one entry")
