"""The question of a call, looked for among its arguments. Runs in the worker, never on the request path.

Usual names are tried first among the parameters, then in the data that they hold: bodies, messages, requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from inspect import Parameter
from typing import Any, Final

from ragmon.capture.call import TracedFunction
from ragmon.capture.layouts import is_data, is_handle, is_list, is_str
from ragmon.capture.messages import NOT_USER, USER, last_text, part_text, role
from ragmon.capture.stored import held_at, storage, stored_fields
from ragmon.capture.web import decoded, is_request, request_fields, requests_in

_CERTAIN: Final = ("question", "query", "q", "user_question", "user_query", "user_input", "user_message")
"""Names that mean the question in an object of any class."""
_NAMES: Final = (
    *_CERTAIN,
    *("query_str", "query_text", "message", "messages", "input", "inputs", "search", "search_query", "prompt", "text"),
)
"""Names of parameters and fields that hold the question, the surest first."""
_LABEL: Final = re.compile(
    r"(?:.*_)?(?:id|ids|key|token|lang|language|locale|user|username|tenant|session|thread|model)", re.IGNORECASE
)
"""Names of parameters and fields whose text is no question."""
_SENTENCE: Final = re.compile(r"\s|[^\x00-\x7f]|\?")
"""A text without any of these is a label, not a question."""
_NOT_READ: Final = frozenset({"config", "settings", "options", "metadata", "headers", "cookies"})
"""Names of parameters and fields that are not looked into: a prompt among settings is no question."""
_MAX_DEPTH: Final = 3
"""How many objects deep below a parameter the question is looked for."""
_MAX_OBJECTS: Final = 128
"""The objects of one depth that are looked into."""


def question(
    site: TracedFunction, args: Sequence[Any], kwargs: Mapping[str, Any], context: Context | None = None
) -> Any:
    """The question of a call; None if there is none.

    It is where `question=` of the decorator says; else the parameter with a usual name; else a field with such a name
    in the other arguments, or in the request that the context holds; else the first text among the arguments, or the
    only one in an object.

    Args:
        site: The function.
        args: Positional arguments.
        kwargs: Keyword arguments.
        context: The context the call began in; None where no request is looked for there.

    Raises:
        Exception: A callable `question=` raised it.
    """
    if callable(site.question):
        return site.question(*args, **kwargs)
    if site.question is not None:
        return held_at(arguments(site, args, kwargs), site.question)
    passed = _without_instance(arguments(site, args, kwargs, defaults=False))
    text = _named([passed])
    if text is not None:
        return text
    read = [value for name, value in passed.items() if name not in _NOT_READ]
    text = _nested(read)
    if text is not None:
        return text
    text = _named([_without_instance(arguments(site, args, kwargs))])
    if text is None and context is not None:
        text = _nested(requests_in(context))
    if text is not None:
        return text
    text = _first_text(passed)
    return text if text is not None else next((text for value in read if (text := _only_text(value)) is not None), None)


def _without_instance(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments without the object whose method was called."""
    first = next(iter(values), None)
    return {name: value for name, value in values.items() if name not in ("self", "cls") or name != first}


def _named(values: Iterable[Any], names: Sequence[str] = _NAMES) -> str | None:
    """The text in the field with the surest name, over several objects."""
    objects = [storage(value) for value in values]
    found = ((name, field) for name in names for fields in objects if (field := dict.get(fields, name)) is not None)
    return next((text for name, field in found if (text := _text_at(name, field)) is not None), None)


def _text_at(name: str, value: Any) -> str | None:
    """The question that a field is: a text, a message of a user, or the last such message in a list."""
    if is_str(value):
        return value
    if is_list(value):
        return last_text(value, USER)
    said_by = role(value)
    return part_text(value) if said_by in USER or (name == "message" and said_by not in NOT_USER) else None


def _nested(values: Iterable[Any]) -> str | None:
    """The question in the data that arguments hold, the least deep first."""
    level = [value for value in values if not is_str(value)]
    for _ in range(_MAX_DEPTH):
        level = level[:_MAX_OBJECTS]
        data = [inner for value in level for inner in _readable(value)]
        text = _named(data) or _named((value for value in level if not (is_data(value) or is_handle(value))), _CERTAIN)
        if text is not None:
            return text
        level = [field for value in data for name, field in stored_fields(value).items() if _holds(name, field)]
    return None


def _readable(value: Any) -> Iterator[Any]:
    """The data in a value: itself, or the fields of a request; a body of JSON is decoded."""
    if is_request(value):
        yield from request_fields(value)
    elif is_str(value):
        inner = decoded(value)
        if type(inner) is dict:
            yield inner
    elif is_data(value):
        yield value
    messages = dict.get(storage(value), "root") if is_data(value) else value  # of a root model of pydantic
    if is_list(messages):
        yield {"messages": messages}


def _holds(name: str, value: Any) -> bool:
    """Whether the question may lie in a field: in data, or in a body of JSON."""
    if is_str(value):
        return name == "body" and value.lstrip().startswith("{")
    return name not in _NOT_READ and (is_data(value) or is_request(value))


def _only_text(model: Any) -> str | None:
    """The one sentence in a body whose fields have names of their own; None where there are several."""
    if not is_data(model) or type(model) is dict:
        return None
    texts = [
        field
        for name, field in stored_fields(model).items()
        if is_str(field) and _SENTENCE.search(field) and not _LABEL.fullmatch(name)
    ]
    return texts[0] if len(texts) == 1 else None


def _first_text(values: Mapping[str, Any]) -> str | None:
    """The first text that was passed, but no label."""
    return next((text for name, text in values.items() if is_str(text) and not _LABEL.fullmatch(name)), None)


def arguments(
    site: TracedFunction, args: Sequence[Any], kwargs: Mapping[str, Any], *, defaults: bool = True
) -> dict[str, Any]:
    """The arguments of a call by parameter name; those of catch-all parameters have their own names or numbers.

    Args:
        site: The function.
        args: Positional arguments.
        kwargs: Keyword arguments.
        defaults: Include parameters that were not passed, with their defaults.
    """
    names = None if defaults else site.places
    if names is not None and len(args) <= len(names):
        return {**dict(zip(names, args, strict=False)), **kwargs}
    try:
        bound = site.signature.bind_partial(*args, **kwargs) if site.signature is not None else None
    except TypeError:  # the call itself has already raised for such arguments
        bound = None
    if bound is None:
        return {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    if defaults:
        bound.apply_defaults()
    values = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            values.update({f"{name}[{index}]": entry for index, entry in enumerate(value)})
        elif kind is Parameter.VAR_KEYWORD:
            values.update(value)
        else:
            values[name] = value
    return values
