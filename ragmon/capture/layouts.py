"""How the classes of arguments and results store fields: asked of the classes alone, so that no code of theirs runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar

from ragmon.capture import known_types
from ragmon.core.text import Path

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
EXTRA: Final = "__pydantic_extra__"
_INSTANCE: Final = "__dict__"
_BASES, _ATTRIBUTES, _MODULE, _NAME = (
    type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__module__", "__name__")
)
"""What a class says of itself, whatever its metaclass says."""

T = TypeVar("T")


class ClassLayout(NamedTuple):
    """How objects of a class store their fields.

    Attributes:
        names: The fields of a named tuple.
        slots: The descriptors of its slots by name.
        instance: The descriptor of the instance dictionary; None where there is none, or a class replaced it.
        is_data: As the function of that name.
        is_handle: As the function of that name.
        properties: The paths to the data of known properties.
        inner: The field that holds all fields or entries; None where the object holds them itself.
        in_c: Which kind of value C code of a library holds; empty for others.
    """

    names: tuple[str, ...]
    slots: dict[str, Any]
    instance: Any
    is_data: bool
    is_handle: bool
    properties: dict[str, Path]
    inner: str | None
    in_c: str


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
        {name: path for paths in _known(known_types.PROPERTIES, own) for name, path in paths.items()},
        next(iter(_known(known_types.INNER, own)), None),
        "" if type(attributes.get("__iter__")) is FunctionType else next(iter(_known(known_types.IN_C, own)), ""),
    )


def _known(table: Mapping[str, T], own: Collection[str]) -> list[T]:
    """What a table says of a class, by the names of it and its bases."""
    return [said for pattern, said in table.items() if any(fnmatchcase(name, pattern) for name in own)]


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
    return issubclass(kind, list) or (issubclass(kind, tuple) and not layout.names) or layout.in_c == known_types.LIST
