"""Repair of OTLP requests in JSON that no parser accepts: invalid text is repaired, and malformed spans are left out.

Programs truncate text inside a character. In UTF-8 an incomplete sequence of bytes is left; in UTF-16 half of a
surrogate pair is left, which JSON writes as an escape. Both become a question mark, as in `ragmon.core.text.clean`. All
of this runs only for requests that could not be read.
"""

from __future__ import annotations

import json as lenient
import re
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core import constants
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp.wire import utf8

_MAX_REPAIRS: Final = 100_000
"""The maximum number of half surrogate pairs of each kind that are repaired in one request; a truncated text has
one."""
_MAX_LENIENT_BYTES: Final = 1 << 20
"""The maximum length of a JSON span that is also read by Python's looser rules, which take ten times as long."""
_HIGH_SURROGATE: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW_SURROGATE: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Escaped backslashes may precede an escape: two of them are one backslash of the text.
_LONE_SURROGATES: Final = (
    re.compile(rb"(?<!\\)((?:\\\\)+u[dD][89abAB][0-9a-fA-F]{2})" + _LOW_SURROGATE),
    re.compile(rb"(?<!\\)((?:\\\\)*)" + _HIGH_SURROGATE + rb"(?!" + _LOW_SURROGATE + rb")"),
    re.compile(rb"(?<!\\)(?:((?:\\\\)+)|(?<!" + _HIGH_SURROGATE + rb"))" + _LOW_SURROGATE),
)
"""Half surrogate pairs: a low one after text that looks like a high one, a high one alone, a low one alone."""
_ANY_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKET: Final = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]])', re.DOTALL)
"""The next bracket outside of strings."""
_SPAN_LIST_PREFIX: Final = b"{[{[{["
"""The open brackets at a place where spans are: request, resources, resource, scopes, scope, spans."""
_OPENING_OF: Final = {b"}": ord("{"), b"]": ord("[")}


def json(body: bytes) -> bytes:
    r"""Replace the bytes of JSON that are not valid UTF-8, and half surrogate pairs, by question marks.

    >>> json(rb'{"text": "so \ud83d"}'), json(rb'"\ud83d\ude00 \\ud83d"')
    (b'{"text": "so ?"}', b'"\\ud83d\\ude00 \\\\ud83d"')
    """
    body = utf8(body)
    if _ANY_SURROGATE.search(body):
        for half in _LONE_SURROGATES:
            body = half.sub(rb"\1?", body, count=_MAX_REPAIRS)
    return body


class SplitRequest(NamedTuple):
    """A request in JSON, separated from its spans.

    Attributes:
        envelope: The request with an index into `spans` in place of each span.
        spans: The bytes of each span.
    """

    envelope: bytes
    spans: list[bytes]


def split_request(body: bytes) -> SplitRequest | None:
    """Separate a request in JSON from its spans by brackets alone; None where the brackets do not match.

    >>> split = split_request(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":NaN},{"name":"}"}]}]}]}')
    >>> split.envelope, split.spans
    (b'{"resourceSpans":[{"scopeSpans":[{"spans":[0,1]}]}]}', [b'{"name":NaN}', b'{"name":"}"}'])
    """
    open_brackets, rest, spans = bytearray(), [], list[bytes]()
    copied, span_start = 0, -1
    match = _BRACKET.match(body)
    while match is not None:
        position, bracket = match.start(1), match[1]
        if bracket in _OPENING_OF:
            if not open_brackets or open_brackets.pop() != _OPENING_OF[bracket]:
                return None
            if span_start >= 0 and len(open_brackets) == len(_SPAN_LIST_PREFIX):
                rest += [body[copied:span_start], b"%d" % len(spans)]
                spans.append(body[span_start : position + 1])
                copied, span_start = position + 1, -1
        else:
            if bracket == b"{" and open_brackets == _SPAN_LIST_PREFIX:
                span_start = position
            open_brackets += bracket
        match = _BRACKET.match(body, position + 1)
    rest.append(body[copied:])
    return None if open_brackets or b'"' in body[body.rfind(b"}") :] else SplitRequest(b"".join(rest), spans)


def span(message: bytes) -> Any:
    """Decode a span in JSON, also as Python writes JSON: with NaN and with control characters.

    Raises:
        Rejected: It is no JSON.
    """
    try:
        return msgspec.json.decode(message)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if len(message) > _MAX_LENIENT_BYTES:
            raise Rejected(constants.MALFORMED_JSON, str(error)) from None
    try:
        decoded = lenient.loads(message, strict=False)
        msgspec.json.encode(decoded)  # fails for a half surrogate pair
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (ValueError, OverflowError, TypeError) as error:
        raise Rejected(constants.MALFORMED_JSON, f"a span is no JSON: {error}") from None
    return decoded
