"""What objects hold, read without running any code of their classes.

Arguments and results include sessions, rows, open responses and proxies, whose properties may ask a server. What lies
in a dictionary, an instance dictionary, a slot or a named tuple can be read from another thread at any time. For
properties of a few libraries the data behind them is read: their classes are known by a pattern of module and name, so
no library is imported. Objects may hold themselves, or a million others: what one field of a call may cost is bounded.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from math import inf
from types import FunctionType, GetSetDescriptorType, MappingProxyType, MemberDescriptorType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar
from uuid import UUID

from ragmon.core.errors import error_location, warn_once
from ragmon.core.text import Path, clean

_GEMINI: Final[Path] = ("candidates", 0, "content", "parts")
PROPERTIES: Final[dict[str, dict[str, Path]]] = {
    "google.genai.*.GenerateContentResponse": {"text": _GEMINI},
    "google.generativeai.*.BaseGenerateContentResponse": {"text": ("_result", *_GEMINI)},
    "haystack.*.ChatMessage": {"text": ("_content",), "content": ("_content",), "role": ("_role",)},
    "langchain_core.*.BaseMessage": {"text": ("content",)},
    "llama_index.*.BaseNode": {"node_id": ("id_",), "text": ("text_resource", "text")},
    "llama_index.*.ChatMessage": {"content": ("blocks",)},
    "llama_index.*.NodeWithScore": {name: ("node", name) for name in ("node_id", "text", "metadata")},
    "openai.*.Response": {"output_text": ("output",)},
    "pydantic_ai.*.ModelResponse": {"text": ("parts",)},
}
"""The path to the data of each property; a list stands for the text of its parts."""
INNER: Final[dict[str, str]] = {
    "collections.User*": "data",
    "dspy.*.Example": "_store",
    "elastic_transport.*.ApiResponse": "_body",
    "pinecone.*.OpenApiModel": "_data_store",
    "proto.*.Message": "_pb",
}
"""The stored field that holds all fields or entries."""
MESSAGE, LIST, NUMBER = "message", "list", "number"
IN_C: Final[dict[str, str]] = {
    "google.protobuf.*.Message": MESSAGE,
    "google._upb.*.Repeated*Container": LIST,
    "numpy.ndarray": LIST,
    "numpy.number": NUMBER,
}
"""What C code holds, which is read by the methods of these classes."""
_ROWS: Final = 1_024
"""Rows of a table that are read; a record keeps fewer documents."""
READ: Final[dict[str, Callable[[Any], Any]]] = {
    "asyncpg.*Record": lambda row: dict(row.items()),
    "pandas.*.DataFrame": lambda frame: frame.head(_ROWS).to_dict("records"),
    "pandas.*.Series": lambda series: series.head(_ROWS).tolist(),
    "polars.*.DataFrame": lambda frame: frame.head(_ROWS).to_dicts(),
    "polars.*.Series": lambda series: series.head(_ROWS).to_list(),
    "psycopg2.extras.DictRow": lambda row: dict(row.items()),
    "pyarrow.lib.Table": lambda table: table.slice(0, _ROWS).to_pylist(),
    "sqlalchemy.engine.*.Row": lambda row: _selected(row._asdict()),
    "sqlalchemy.engine.*.RowMapping": dict,
    "sqlite3.Row": lambda row: dict(zip(row.keys(), row, strict=True)),
}
"""Rows of databases and tables that are in memory: how these very classes, and none made of them, are read."""


BREADTH: Final = 64
_CLASSES: Final = 512
_DATA_MARKS: Final = (
    *("__pydantic_fields__", "model_fields", "__fields__"),
    *("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__"),
)
"""The class attributes of pydantic 2 and 1, dataclasses, attrs and msgspec."""
_HANDLE_MARKS: Final = ("__call__", "__enter__", "__aenter__", "__next__", "__anext__", "invoke", "complete", "execute")
"""Class attributes of sessions, clients, models and chains, which libraries make with pydantic as well."""
EXTRA: Final = "__pydantic_extra__"
_INSTANCE: Final = "__dict__"
_BASES, _ATTRIBUTES, _MODULE, _NAME = (
    type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__module__", "__name__")
)
"""What a class says of itself, whatever its metaclass says."""

T = TypeVar("T")


class ClassLayout(NamedTuple):
    """How objects of a class store their fields (`PROPERTIES`, `INNER`, `IN_C`).

    `instance` is the descriptor of the instance dictionary; None where there is none, or a class replaced it.
    """

    names: tuple[str, ...]
    slots: dict[str, Any]
    instance: Any
    is_data: bool
    is_handle: bool
    properties: dict[str, Path]
    inner: str | None
    in_c: str
    read: Callable[[Any], Any] | None


@lru_cache(maxsize=_CLASSES)
def _layout(kind: type) -> ClassLayout:
    bases, attributes = _BASES(kind), dict[str, Any]()
    for base in reversed(bases):
        attributes |= _ATTRIBUTES(base)
    instance, class_of = attributes.get(_INSTANCE), attributes.get("__class__")
    # A proxy of C code, as of wrapt, asks what it stands for for its dictionary.
    is_proxy = type(class_of) is GetSetDescriptorType and class_of is not object.__dict__["__class__"]
    names = attributes.get("_fields") if issubclass(kind, tuple) else None
    names = names if type(names) is tuple else ()
    members = {name: slot for name, slot in attributes.items() if type(slot) is MemberDescriptorType}
    slots = {name: slot for name, slot in members.items() if name == EXTRA or not name.startswith("__")}
    is_handle = not attributes.keys().isdisjoint(_HANDLE_MARKS)
    is_record = bool(names) or issubclass(kind, dict | SimpleNamespace)
    own = [f"{_MODULE(base)}.{_NAME(base)}" for base in bases]
    return ClassLayout(
        names,
        dict(islice(slots.items(), BREADTH)),
        instance if type(instance) in (GetSetDescriptorType, MemberDescriptorType) and not is_proxy else None,
        is_record or (not is_handle and not attributes.keys().isdisjoint(_DATA_MARKS)),
        is_handle,
        {name: path for paths in _known(PROPERTIES, own) for name, path in paths.items()},
        next(iter(_known(INNER, own)), None),
        "" if type(attributes.get("__iter__")) is FunctionType else next(iter(_known(IN_C, own)), ""),
        next(iter(_known(READ, own[:1])), None),
    )


def _known(table: Mapping[str, T], own: Collection[str]) -> list[T]:
    # By the names of the class and its bases.
    return [entry for pattern, entry in table.items() if any(fnmatchcase(name, pattern) for name in own)]


def layout_of(value: Any) -> ClassLayout:
    """How objects of a value's class store their fields."""
    kind: Any = type(value)
    return _layout(kind)


def class_name(value: Any) -> str:
    """The name of a value's class, whatever a class of classes makes of it."""
    return str(_NAME(type(value)))


def is_data(value: Any) -> bool:
    """Whether a value is made to hold data: a dict, named tuple, dataclass, or an object of pydantic, attrs, msgspec.

    >>> is_data({}), is_data(SimpleNamespace()), is_data(object())
    (True, True, False)
    """
    return layout_of(value).is_data


def is_handle(value: Any) -> bool:
    """Whether a value is made to do something: a session, a client, a model, a chain, a proxy, an iterator."""
    return layout_of(value).is_handle


def is_a(value: Any, *kinds: type) -> bool:
    """As `isinstance`, which asks an object for its `__class__`: a proxy then runs code."""
    return issubclass(type(value), kinds)


def is_str(value: Any) -> TypeGuard[str]:
    """The same for a text."""
    return issubclass(type(value), str)


def is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """The same for a list, a tuple without names, or a list of a library."""
    kind, layout = type(value), layout_of(value)
    return issubclass(kind, list) or (issubclass(kind, tuple) and not layout.names) or layout.in_c == LIST


STEPS: Final = 2_000
_UUID_BYTES: Final = 16
_TEXT_STEP: Final = 512
"""The characters that count as one more step: a text of a million characters is too long."""
LONGEST: Final = 65_536
TOO_LARGE: Final = "too_large"
"""Why a field cannot be read, where nothing raises."""
_LISTS: Final[tuple[Any, ...]] = (list, tuple, deque, type({}.values()))


class TooLargeError(Exception):
    """A field takes more steps to read, or more text, than it may."""


class _Budget(threading.local):
    """What the field that this thread reads may still cost."""

    steps: float = inf


_budget: Final = _Budget()
unread: Final[Counter[tuple[str, str]]] = Counter()
"""How many fields of calls could not be read in this process, by field and reason."""


def attempt(field: str, read: Callable[..., T], *args: Any, steps: float = STEPS) -> T | None:
    """What a function reads for a field of a call, looking at a number of objects; None where it raises or costs more.

    Failures are counted and logged under the field.
    """
    outer = _budget.steps
    most = _budget.steps = min(steps, outer)
    try:
        return read(*args)
    except BaseException as error:  # noqa: BLE001 - a callable of the decorator may raise anything
        unread[field, TOO_LARGE if isinstance(error, TooLargeError | RecursionError | MemoryError) else "raised"] += 1
        warn_once(f"the {field} of a call cannot be read and is unknown: {error_location(error)}")
        return None
    finally:
        _budget.steps = outer if outer == inf else outer - most + max(_budget.steps, 0)


def spend(steps: int) -> None:
    """Take steps off what the field that this thread reads may still cost."""
    left = _budget.steps = _budget.steps - steps
    if left < 0:
        raise TooLargeError


def number(value: Any) -> int | float | None:
    """A number, also one of numpy; None for other values, and for true and false."""
    kind = type(value)
    if issubclass(kind, int | float):
        return None if kind is bool else int.__int__(value) if issubclass(kind, int) else float.__float__(value)
    return value.item() if layout_of(value).in_c == NUMBER else None


def scalar(value: Any) -> str | int | float | None:
    """A text or a number as JSON has it, also of bytes and of the ids of databases; None for other values.

    >>> scalar("a"), scalar(b"doc:1"), scalar(UUID(int=1)), scalar(True), scalar({})
    ('a', 'doc:1', '00000000-0000-0000-0000-000000000001', None, None)
    """
    kind = type(value)
    if issubclass(kind, str):
        return plain_text(value)
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if value is None or issubclass(kind, dict | list):
        return None
    if issubclass(kind, bytes | bytearray):
        spend(len(value) // _TEXT_STEP)
        try:
            return kind.decode(value, "utf-8")
        except UnicodeDecodeError:
            return str(UUID(bytes=bytes(value))) if len(value) == _UUID_BYTES else kind.hex(value)
    if issubclass(kind, UUID):
        return UUID.__str__(value)
    if issubclass(kind, Decimal):
        return float(value)
    if (found := number(value)) is not None:
        return found
    object_id = _instance(value, layout_of(value)).get("_ObjectId__id")  # of MongoDB
    return object_id.hex() if type(object_id) is bytes else None


def plain_text(value: str) -> str:
    """A text as one that can be encoded."""
    spend(str.__len__(value) // _TEXT_STEP)
    return clean(value)


def entries(value: Any) -> Sequence[Any] | None:
    """The entries of a list, tuple, deque or array, whatever its class makes of them; None for other values.

    An iterator is another value: to read it would consume the application's.
    """
    spend(1)
    kind, layout = type(value), layout_of(value)
    if kind is list or kind is tuple:
        return value  # type: ignore[no-any-return]
    if layout.in_c == LIST:
        return list(islice(value, LONGEST))
    if layout.read is not None:
        rows = layout.read(value)
        return rows if type(rows) is list else None
    base = next((base for base in _LISTS if issubclass(kind, base)), None)
    if base is not None:
        return list(islice(base.__iter__(value), LONGEST))
    return None if layout.inner is None else entries(_instance(value, layout).get(layout.inner))


def stored(value: Any, *names: str) -> Any:
    """The first field with one of the names that is held, not None and no function; None where there is none.

    >>> stored({"q": "Is it?"}, "question", "q")
    'Is it?'
    """
    return first(held(value), names)


def first(fields: dict[str, Any], names: Iterable[str]) -> Any:
    """The same of the fields that an object holds."""
    for name in names:  # a generator takes twice as long
        if (field := dict.get(fields, name)) is not None and not callable(field):
            return field
    return None


def held(value: Any) -> dict[str, Any]:
    """All fields that an object stores, and the data behind its known properties. To be read by name."""
    fields = storage(value)
    if type(value) is dict or not (properties := layout_of(value).properties):
        return fields
    return {
        **fields,
        **{name: found for name, path in properties.items() if (found := held_at(fields, path)) is not None},
    }


def held_at(value: Any, path: Path) -> Any:
    """Follow a path through what objects hold; None where a step does not exist.

    >>> held_at({"messages": [{"content": "Is it?"}]}, ("messages", -1, "content"))
    'Is it?'
    """
    for step in path:
        if isinstance(step, str):
            value = stored(value, step)
        else:
            listed = entries(value) or ()
            value = listed[step] if -len(listed) <= step < len(listed) else None
    return value


def stored_fields(value: Any) -> dict[str, Any]:
    """The first stored fields of an object by name; empty where it stores none.

    >>> from types import SimpleNamespace
    >>> stored_fields(SimpleNamespace(a=1))
    {'a': 1}
    """
    try:
        return {name: field for name, field in islice(dict.items(storage(value)), BREADTH) if type(name) is str}
    except RuntimeError:  # the application changes it at this moment
        return {}


def _selected(fields: dict[str, Any]) -> dict[str, Any]:
    # Of SQLAlchemy: a mapped object among columns, such as its distance, is the document.
    mapped = next((value for value in fields.values() if "_sa_instance_state" in storage(value)), None)
    return fields if mapped is None else {**fields, "node": mapped}


def storage(value: Any) -> dict[str, Any]:
    """All fields that an object stores: the very dictionary that holds them, where one does. To be read by name."""
    spend(1)
    kind = type(value)
    if issubclass(kind, dict):
        return value  # type: ignore[no-any-return]
    layout = layout_of(value)
    if layout.names:
        return dict(zip(layout.names, tuple.__iter__(value), strict=False))
    if layout.read is not None:
        row = layout.read(value)
        return row if type(row) is dict else {}
    if layout.in_c == MESSAGE:
        return {field.name: held for field, held in value.ListFields()}
    fields = _instance(value, layout)
    inner = gc.get_referents(value)[0] if kind is MappingProxyType else fields.get(layout.inner or "")
    return fields if inner is None else storage(inner)


def _instance(value: Any, layout: ClassLayout) -> dict[str, Any]:
    fields = {} if layout.instance is None else layout.instance.__get__(value, type(value))
    fields = fields if type(fields) is dict else {}
    if not layout.slots:
        return fields
    in_slots = {name: field for name, slot in layout.slots.items() if (field := _in_slot(slot, value)) is not None}
    extra = in_slots.pop(EXTRA, None)
    return {**extra, **fields} if type(extra) is dict else {**in_slots, **fields} if in_slots else fields


def _in_slot(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value, type(value))
    except AttributeError:  # not set yet
        return None
