"""The whole of ragmon.toml as one model, and what stands at which key."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import AfterValidator, Field
from pydantic.fields import FieldInfo

from ragmon.config.judging import Alarms, Gates, GateTable, Gold, Metrics
from ragmon.config.kinds import JudgeName, Many, Name, Table, Text, duration, some, unique, wrong
from ragmon.config.sampling import Capture, Refusal, Sampling
from ragmon.config.services import Export, Judge, Labels, Links, Probe, Serve
from ragmon.core import constants
from ragmon.core.constants import FOLDED, HOUR, STEP

KEYED: Final = ("gold", "gates", "probe", "judges")
"""Tables whose keys are names, each a table of its own."""


class Pipeline(Table):
    """The short form for one pipeline."""

    name: Name = constants.DEFAULT_PIPELINE


class Scoped(Table):
    """The tables that may stand at the top, or inside a pipeline and hold for it alone."""

    sampling: Sampling = Sampling()
    capture: Capture = Capture()
    refusal: Refusal = Refusal()
    slices: dict[Name, Annotated[Many[str], AfterValidator(unique)]] = Field(default_factory=dict)
    gold: dict[Name, Gold] = Field(default_factory=dict)
    gates: Gates = Gates()
    metrics: Metrics = Metrics()
    alarms: Alarms = Alarms()
    probe: dict[Name, Probe] = Field(default_factory=dict)
    judges: dict[JudgeName, Judge] = Field(default_factory=dict)
    labels: Labels = Labels()
    links: Links = Links()
    export: Export = Export()


def _window(value: str) -> str:
    seconds = duration(value)
    step = STEP if seconds <= HOUR else FOLDED
    if seconds % step:
        message = f"must be a multiple of {step} seconds"
        raise wrong(message, f"rows are {STEP} seconds long for an hour, then {FOLDED} seconds")
    return value


def _spans(values: tuple[str, ...]) -> tuple[str, ...]:
    unique(tuple(str(duration(value)) for value in values))
    return values


class Document(Scoped):
    """Everything a ragmon.toml may hold."""

    extend: Text | None = None
    windows: Annotated[
        tuple[Annotated[str, AfterValidator(_window)], ...],
        Field(strict=False),
        AfterValidator(some),
        AfterValidator(_spans),
    ] = ("5m", "1h", "24h")
    plugins: Many[Text] = ()
    pipeline: Pipeline = Pipeline()
    pipelines: dict[Name, Scoped] = Field(default_factory=dict)
    serve: Serve = Serve()


def is_merged(path: Sequence[str | int]) -> bool:
    """Whether a table at this key is merged key by key when two files (or a pipeline and the top) both have it.

    Deeper tables (`keep`, `headers`, `tags` ...) are values: the later one replaces the earlier, so that
    `keep = {}` can switch off what an extended file keeps.
    """
    if path[0] == "pipelines":
        path = path[2:]
    return len(path) <= 1 or (len(path) == 2 and path[0] in KEYED)


def field_at(path: Sequence[str | int], model: type[Table] = Document) -> FieldInfo | None:
    """The field that describes a key; None where no key stands."""
    table = table_at(path[:-1], model)
    return table.model_fields.get(str(path[-1])) if table is not None else None


def table_at(path: Sequence[str | int], model: type[Table] = Document) -> type[Table] | None:
    """The model that describes the table at a key; None where no table stands."""
    if not path:
        return model
    if issubclass(model, Gates) and path[0] not in model.model_fields:
        return table_at(path[1:], GateTable)
    field = model.model_fields.get(str(path[0]))
    inner = next(_tables(field.annotation), None) if field is not None else None
    named = field is not None and get_origin(field.annotation) is dict
    if inner is None or (named and len(path) == 1):
        return None
    return table_at(path[2 if named else 1 :], inner)


def _tables(annotation: Any) -> Iterator[type[Table]]:
    """The models an annotation is made of."""
    if inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, Table):
        yield annotation
    for part in get_args(annotation):
        yield from _tables(part)


def flatten(tables: Table, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every value with its key: `("sampling", "rate"), 0.05`. The gates are left out: what they say depends on more."""
    for key, value in tables:
        here = (*prefix, key)
        if isinstance(value, Mapping) and (is_merged((*here, "")) or key == "slices"):
            for name, entry in value.items():
                yield from flatten(entry, (*here, name)) if isinstance(entry, Table) else [((*here, name), entry)]
        elif isinstance(value, Table) and len(here) == 1:
            named = set(value.own) if isinstance(value, Gates) else set()
            yield from (((*here, name), entry) for name, entry in value if name not in named)
        else:
            yield here, value
