"""Fields as objects store them, read without running any code of their classes.

The arguments of a call include sessions, clients and proxies, whose properties may ask a server. What lies in a
dictionary, an instance dictionary, a slot or a named tuple can be read from another thread at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType, SimpleNamespace
from typing import Any, Final, TypeGuard

BREADTH: Final = 64
"""The fields of one object that are looked at."""
_DATA_MARKS: Final = (
    *("__pydantic_fields__", "model_fields", "__fields__"),
    *("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__"),
)
"""The class attributes of pydantic 2 and 1, dataclasses, attrs and msgspec."""
_HANDLE_MARKS: Final = ("__call__", "__enter__", "__aenter__", "__next__", "__anext__", "invoke", "complete", "execute")
"""Class attributes of sessions, clients, models and chains, which libraries make with pydantic as well."""
_EXTRA: Final = "__pydantic_extra__"


def is_data(value: Any) -> bool:
    """Whether a value is made to hold data: a dict, named tuple, dataclass, or an object of pydantic, attrs, msgspec.

    >>> is_data({}), is_data(SimpleNamespace()), is_data(object())
    (True, True, False)
    """
    kind = type(value)
    if issubclass(kind, dict | SimpleNamespace) or (issubclass(kind, tuple) and _tuple_names(kind)):
        return True
    return _has_any(kind, _DATA_MARKS) and not is_handle(value)


def is_handle(value: Any) -> bool:
    """Whether a value is made to do something: a session, a client, a model, a chain, a proxy, an iterator."""
    return _has_any(type(value), _HANDLE_MARKS)


def _has_any(kind: type, names: Collection[str]) -> bool:
    return any(name in base.__dict__ for base in kind.__mro__ for name in names)


def is_str(value: Any) -> TypeGuard[str]:
    """As `isinstance`, which asks an object that is no text for its `__class__`: a proxy then runs code."""
    return issubclass(type(value), str)


def is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """The same for a list, or a tuple without names."""
    kind = type(value)
    return issubclass(kind, list) or (issubclass(kind, tuple) and not _tuple_names(kind))


def stored(value: Any, *names: str) -> Any:
    """The first field with one of the names that is stored and not None; None where there is none.

    >>> stored({"q": "Is it?"}, "question", "q")
    'Is it?'
    """
    return next((field for name in names if (field := _field(value, name)) is not None), None)


def stored_fields(value: Any) -> dict[str, Any]:
    """The first stored fields of an object by name; empty where it stores none.

    >>> stored_fields(SimpleNamespace(a=1))
    {'a': 1}
    """
    kind = type(value)
    if issubclass(kind, dict):
        return _first(value)
    if issubclass(kind, tuple):
        return dict(zip(_tuple_names(kind), tuple.__iter__(value), strict=False))
    members = (item for base in kind.__mro__ for item in base.__dict__.items())
    slots = [name for name, slot in members if type(slot) is MemberDescriptorType and not name.startswith("__")]
    in_slots = {name: _field(value, name) for name in slots[:BREADTH]}
    return {**in_slots, **_first(_instance_dict(value))}


def _first(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        return {name: field for name, field in islice(dict.items(fields), BREADTH) if type(name) is str}
    except RuntimeError:  # the application changes it at this moment
        return {}


def _field(value: Any, name: str) -> Any:
    kind = type(value)
    if issubclass(kind, dict):
        return dict.get(value, name)
    if issubclass(kind, tuple):
        names = _tuple_names(kind)
        return tuple.__getitem__(value, names.index(name)) if name in names else None
    fields = _instance_dict(value)
    return fields[name] if name in fields else _in_slot(value, name, _in_slot(value, _EXTRA, {}).get(name))


def _in_slot(value: Any, name: str, default: Any) -> Any:
    slot = _class_attribute(type(value), name)
    try:
        found = slot.__get__(value, type(value)) if type(slot) is MemberDescriptorType else None
    except AttributeError:  # not set yet
        found = None
    return default if found is None else found


def _instance_dict(value: Any) -> dict[str, Any]:
    """The instance dictionary; empty where there is none, or the class puts something else in its place."""
    descriptor = _class_attribute(type(value), "__dict__")
    is_own = type(descriptor) in (GetSetDescriptorType, MemberDescriptorType)
    fields = descriptor.__get__(value, type(value)) if is_own else None
    return fields if type(fields) is dict else {}


def _tuple_names(kind: type) -> tuple[str, ...]:
    names = _class_attribute(kind, "_fields")
    return names if type(names) is tuple else ()


def _class_attribute(kind: type, name: str) -> Any:
    attributes: Mapping[str, Any]
    for base in kind.__mro__:
        attributes = base.__dict__
        if name in attributes:
            return attributes[name]
    return None
