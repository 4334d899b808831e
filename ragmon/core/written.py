"""Values that are written as text: JSON, and lists and objects as Python shows them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from ragmon.core.documents import View, finite
from ragmon.core.text import clean

REDACTED: Final = "__REDACTED__"
"""OpenInference's placeholder for redacted values."""
MAX_TEXT_CHARS: Final = 1 << 20
"""The maximum length of a text that is decoded as JSON; a longer one stays text. A thousand documents of one page have
this length; the decoded value takes up to twenty times the memory."""
_JSON_STARTS: Final = frozenset('{["-0123456789')
_JSON_WORDS: Final = frozenset({"true", "false", "null", "NaN", "Infinity"})
"""JSON values that look like words. Decoding a sentence only to see that it is no JSON takes longer than most JSON."""
_BRACKETS: Final = frozenset("{[")
_OPENINGS: Final = ('{"', '[{"', '["', "[[")
NO_MEMBERS: Final[Mapping[str, Any]] = MappingProxyType({})
_decode = msgspec.json.Decoder().decode


def decode(text: Any) -> Any:
    """Decode a JSON text; None where it is no JSON, was cut off by a limit, or is too long.

    >>> decode('{"score": NaN}'), decode('[1, 2'), decode(7)
    ({'score': nan}, None, None)
    """
    if not isinstance(text, str) or len(text) > MAX_TEXT_CHARS:
        return None
    if text.lstrip()[:1] not in _JSON_STARTS and text.strip() not in _JSON_WORDS:
        return None
    try:
        return _decode(text)
    except RecursionError:
        return None
    except ValueError:
        # Decode JSON as Python writes it, with NaN, infinities and half surrogate pairs; takes ten times as long.
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def decode_container(value: Any) -> Any:
    """Decode a mapping or list that is written as JSON; anything else stays unchanged.

    >>> decode_container('["a"]'), decode_container("[sic]"), decode_container('"quoted"')
    (['a'], '[sic]', '"quoted"')
    """
    if is_json(value):
        decoded = decode(value)
        return value if decoded is None else decoded
    return list(value) if isinstance(value, tuple) else value


def is_json(value: Any) -> bool:
    """Whether a value is text that starts like a JSON object or array."""
    return isinstance(value, str) and value.lstrip()[:1] in _BRACKETS


def too_long(value: Any) -> bool:
    """Whether a value is JSON that was not decoded because of its length."""
    return isinstance(value, str) and len(value) > MAX_TEXT_CHARS and is_json(value)


def cut_off(value: Any) -> bool:
    """Whether a text is JSON that was cut off by a limit on its length, not a sentence.

    >>> cut_off('{"answer": "Ye'), cut_off("[sic] Yes."), cut_off('{"answer": "Yes."}')
    (True, False, False)
    """
    return is_json(value) and value.startswith(_OPENINGS) and decode(value) is None


def mapping(value: Any) -> Mapping[str, Any]:
    """The members of an object, which may be written as JSON; empty for anything else."""
    if value is None:
        return NO_MEMBERS
    decoded = decode_container(value)
    return decoded if type(decoded) is dict or isinstance(decoded, Mapping) else NO_MEMBERS


def as_text(value: Any) -> str | None:
    """The text of an attribute; None where it is no text, or redacted."""
    if type(value) is str and value.isascii():
        return None if value == REDACTED else value
    return clean(value) if isinstance(value, str) and value != REDACTED else None


def nonempty_text(value: Any) -> str | None:
    """The text of an attribute; None also where it is empty."""
    return as_text(value) or None


number: Final = finite


def is_null(value: Any) -> bool:
    """Whether a text is what JSON and JavaScript write for no value."""
    return isinstance(value, str) and value.strip() in ("null", "NaN", "undefined")


def scalar(value: Any) -> str | int | float | None:
    """A text that is not redacted, or a number; None for anything else."""
    if isinstance(value, str):
        return as_text(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


_MAX_SHOWN_CHARS: Final = 4096
"""The maximum length of an object that is read as Python shows it, which takes fifty times as long as JSON."""


def _members(value: Any) -> dict[str, Any]:
    found = mapping(value)
    if not found and isinstance(value, str) and value[:2] == "{'" and len(value) <= _MAX_SHOWN_CHARS:
        found = mapping(python_value(value))  # as the fields of Milvus are on OpenLLMetry's spans
    return found if type(found) is dict else dict(found)


def _entries(value: Any) -> list[Any] | None:
    decoded = decode_container(value)
    return decoded if isinstance(decoded, list) else None


JSON: Final = View(_members, _entries, scalar, lambda _, read, *args: read(*args))


MAX_LITERAL_CHARS: Final = 1 << 17
MAX_LITERAL_TOKENS: Final = 1 << 14
_MAX_LITERAL_DEPTH: Final = 12
_MESSAGE: Final = "Message"
_TOKEN: Final = re.compile(
    r"""(?:'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+"|[\[({]|[\])}]|[,:=-]|[0-9][0-9.eE+-]*+|[A-Za-z_][\w.]*+)\s*+""",
    re.DOTALL,
)


def python_value(text: str) -> Any:
    """The list or mapping that a text shows as Python does; None where it is none, too long or too deep.

    Objects count as mappings of their fields, as `Document(id='a', page_content='one')`. The time is linear in the
    length: what may be slow to parse, such as deep nesting, is refused before.

    >>> python_value("[{'id': 'a', 'score': 0.5}]"), python_value("[see below]")
    ([{'id': 'a', 'score': 0.5}], None)
    """
    if len(text) > MAX_LITERAL_CHARS or not _is_flat(text):
        return None
    try:
        value = _evaluated(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, list | dict) else None


def _is_flat(text: str) -> bool:
    """Whether a text is a few tokens of Python's values with balanced brackets, none of them deep."""
    position, depth = len(text) - len(text.lstrip()), 0
    for _ in range(MAX_LITERAL_TOKENS):
        token = _TOKEN.match(text, position)
        if token is None:
            break
        position = token.end()
        depth += (token[0][0] in "[({") - (token[0][0] in "])}")
        if not 0 <= depth <= _MAX_LITERAL_DEPTH:
            return False
    return position == len(text) and not depth


def _evaluated(node: ast.expr) -> Any:
    """The value of an expression without names and calculations."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return list(map(_evaluated, node.elts))
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if not all(isinstance(key, str) for key in keys):
            raise ValueError("a key is not text")
        return dict(zip(keys, map(_evaluated, node.values), strict=True))
    if isinstance(node, ast.Call) and not node.args:
        members = {str(keyword.arg): _evaluated(keyword.value) for keyword in node.keywords}
        name = ast.unparse(node.func)  # `HumanMessage(content='Why?')`
        return {"type": name.removesuffix(_MESSAGE).lower(), **members} if name.endswith(_MESSAGE) else members
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value  # type: ignore[operator]
    raise ValueError(type(node).__name__)
