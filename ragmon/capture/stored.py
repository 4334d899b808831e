"""What objects hold, read without running any code of their classes.

Arguments and results include sessions, rows, open responses and proxies, whose properties may ask a server. What lies
in a dictionary, an instance dictionary, a slot or a named tuple can be read from another thread at any time. For
properties of a few libraries the data behind them is read (`known_types`).

Objects may hold themselves, or a million others: what it may cost to read one field of a call is bounded.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ragmon.capture import known_types
from ragmon.capture.layouts import BREADTH, EXTRA, ClassLayout, layout_of
from ragmon.core.errors import error_location, warn_once
from ragmon.core.text import Path, clean

STEPS: Final = 2_000
"""The objects and lists that are looked at for one field of a call."""
_TEXT_STEP: Final = 512
"""The characters that count as one more step: a text of a million characters is too long."""
LONGEST: Final = 65_536
"""The entries of a list that are read."""
TOO_LARGE: Final = "too_large"
"""Why a field cannot be read, where nothing raises."""
_LISTS: Final[tuple[Any, ...]] = (list, tuple, deque, type({}.values()))

T = TypeVar("T")


class TooLargeError(Exception):
    """A field takes more steps to read, or more text, than it may."""


class _Budget(threading.local):
    """What the field that this thread reads may still cost."""

    steps: float = inf


_budget: Final = _Budget()
unread: Final[Counter[tuple[str, str]]] = Counter()
"""How many fields of calls could not be read in this process, by field and reason."""


def attempt(field: str, read: Callable[..., T], *args: Any, steps: float = STEPS) -> T | None:
    """What a function reads for a field of a call; None where it raises or costs too much, which is counted.

    Args:
        field: The field, for the count and the log.
        read: The function.
        *args: Its arguments.
        steps: The objects it may look at.
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


def _spend(steps: int) -> None:
    left = _budget.steps = _budget.steps - steps
    if left < 0:
        raise TooLargeError


def number(value: Any) -> int | float | None:
    """A number, also one of numpy; None for other values, and for true and false."""
    kind = type(value)
    if issubclass(kind, int | float):
        return None if kind is bool else int.__int__(value) if issubclass(kind, int) else float.__float__(value)
    return value.item() if layout_of(value).in_c == known_types.NUMBER else None


def plain_text(value: str) -> str:
    """A text as one that can be encoded.

    Raises:
        TooLargeError: The field has too much text.
    """
    _spend(str.__len__(value) // _TEXT_STEP)
    return clean(value)


def entries(value: Any) -> Sequence[Any] | None:
    """The entries of a list, tuple, deque or array, whatever its class makes of them; None where it is none of these.

    An iterator is none: to read it would consume the application's.
    """
    _spend(1)
    kind, layout = type(value), layout_of(value)
    if kind is list or kind is tuple:
        return value  # type: ignore[no-any-return]
    if layout.in_c == known_types.LIST:
        return list(islice(value, LONGEST))
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


def storage(value: Any) -> dict[str, Any]:
    """All fields that an object stores: the very dictionary that holds them, where one does. To be read by name.

    Raises:
        TooLargeError: Too many objects were looked at for the field.
    """
    _spend(1)
    kind = type(value)
    if issubclass(kind, dict):
        return value  # type: ignore[no-any-return]
    layout = layout_of(value)
    if layout.names:
        return dict(zip(layout.names, tuple.__iter__(value), strict=False))
    if layout.in_c == known_types.MESSAGE:
        return {field.name: held for field, held in value.ListFields()}
    fields = _instance(value, layout)
    inner = gc.get_referents(value)[0] if kind is MappingProxyType else fields.get(layout.inner or "")
    return fields if inner is None else storage(inner)


def _instance(value: Any, layout: ClassLayout) -> dict[str, Any]:
    """The instance dictionary and the slots of an object."""
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
