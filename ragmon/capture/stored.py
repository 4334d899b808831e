"""Fields as objects store them, read without running any code of their classes.

The arguments of a call include sessions, clients and proxies, whose properties may ask a server. What lies in a
dictionary, an instance dictionary, a slot or a named tuple can be read from another thread at any time.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeGuard

BREADTH: Final = 64
"""The fields of one object that are looked at."""
_CLASSES: Final = 512
"""The classes whose layout is remembered."""
_DATA_MARKS: Final = (
    *("__pydantic_fields__", "model_fields", "__fields__"),
    *("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__"),
)
"""The class attributes of pydantic 2 and 1, dataclasses, attrs and msgspec."""
_HANDLE_MARKS: Final = ("__call__", "__enter__", "__aenter__", "__next__", "__anext__", "invoke", "complete", "execute")
"""Class attributes of sessions, clients, models and chains, which libraries make with pydantic as well."""
_EXTRA: Final = "__pydantic_extra__"
_INSTANCE: Final = "__dict__"


class _Layout(NamedTuple):
    """How objects of a class store their fields.

    Attributes:
        names: The fields of a named tuple.
        slots: The descriptors of its slots by name.
        instance: The descriptor of the instance dictionary; None where there is none, or a class replaced it.
        is_data: As the function of that name.
        is_handle: As the function of that name.
    """

    names: tuple[str, ...]
    slots: dict[str, Any]
    instance: Any
    is_data: bool
    is_handle: bool


@lru_cache(maxsize=_CLASSES)
def _layout(kind: type) -> _Layout:
    attributes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        attributes |= base.__dict__
    instance = attributes.get(_INSTANCE)
    names = attributes.get("_fields") if issubclass(kind, tuple) else None
    names = names if type(names) is tuple else ()
    members = {name: slot for name, slot in attributes.items() if type(slot) is MemberDescriptorType}
    slots = {name: slot for name, slot in members.items() if name == _EXTRA or not name.startswith("__")}
    is_handle = not attributes.keys().isdisjoint(_HANDLE_MARKS)
    is_record = bool(names) or issubclass(kind, dict | SimpleNamespace)
    return _Layout(
        names,
        dict(islice(slots.items(), BREADTH)),
        instance if type(instance) in (GetSetDescriptorType, MemberDescriptorType) else None,
        is_record or (not is_handle and not attributes.keys().isdisjoint(_DATA_MARKS)),
        is_handle,
    )


def _layout_of(value: Any) -> _Layout:
    kind: Any = type(value)
    return _layout(kind)


def is_data(value: Any) -> bool:
    """Whether a value is made to hold data: a dict, named tuple, dataclass, or an object of pydantic, attrs, msgspec.

    >>> is_data({}), is_data(SimpleNamespace()), is_data(object())
    (True, True, False)
    """
    return _layout_of(value).is_data


def is_handle(value: Any) -> bool:
    """Whether a value is made to do something: a session, a client, a model, a chain, a proxy, an iterator."""
    return _layout_of(value).is_handle


def is_str(value: Any) -> TypeGuard[str]:
    """As `isinstance`, which asks an object that is no text for its `__class__`: a proxy then runs code."""
    return issubclass(type(value), str)


def is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """The same for a list, or a tuple without names."""
    kind = type(value)
    return issubclass(kind, list) or (issubclass(kind, tuple) and not _layout_of(value).names)


def stored(value: Any, *names: str) -> Any:
    """The first field with one of the names that is stored and not None; None where there is none.

    >>> stored({"q": "Is it?"}, "question", "q")
    'Is it?'
    """
    fields = storage(value)
    return next((field for name in names if (field := dict.get(fields, name)) is not None), None)


def stored_fields(value: Any) -> dict[str, Any]:
    """The first stored fields of an object by name; empty where it stores none.

    >>> stored_fields(SimpleNamespace(a=1))
    {'a': 1}
    """
    try:
        return {name: field for name, field in islice(dict.items(storage(value)), BREADTH) if type(name) is str}
    except RuntimeError:  # the application changes it at this moment
        return {}


def storage(value: Any) -> dict[str, Any]:
    """All fields that an object stores: the very dictionary that holds them, where one does. To be read by name."""
    kind = type(value)
    if issubclass(kind, dict):
        return value  # type: ignore[no-any-return]
    layout = _layout_of(value)
    if layout.names:
        return dict(zip(layout.names, tuple.__iter__(value), strict=False))
    fields = {} if layout.instance is None else layout.instance.__get__(value, kind)
    fields = fields if type(fields) is dict else {}
    if not layout.slots:
        return fields
    in_slots = {name: field for name, slot in layout.slots.items() if (field := _in_slot(slot, value)) is not None}
    extra = in_slots.pop(_EXTRA, None)
    return {**extra, **fields} if type(extra) is dict else {**in_slots, **fields} if in_slots else fields


def _in_slot(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value, type(value))
    except AttributeError:  # not set yet
        return None
