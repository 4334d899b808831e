"""Requests that no parser takes, with what spoils them repaired, or the spans taken out that it stands in.

Programs cut texts inside of a character: in UTF-8 a byte is left over, in UTF-16 half of a surrogate pair, which JSON
writes as an escape. Either becomes a question mark, as `ragmon.core.text.clean` writes it. All of this runs only for
requests that could not be read.
"""

from __future__ import annotations

import json as lenient
import re
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragmon.core import constants
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp.attribute_layouts import OneByKind, loose
from ragmon.ingest.otlp.batch import SpanBatch

MALFORMED_PROTOBUF: Final = "malformed_protobuf"
"""Why a body is no request, or part of it no span: it is no such message."""
_ESCAPES: Final = 100_000
"""Halves of surrogate pairs that are repaired in one request; a text that is cut has one."""
_LENIENT: Final = 1 << 20
"""Bytes of a span in JSON that is read by the rules of Python too, which take ten times as long."""
_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# Before an escape there may be backslashes that were escaped themselves: two of them are one of the text.
_HALVES: Final = (
    re.compile(rb"(?<!\\)((?:\\\\)+u[dD][89abAB][0-9a-fA-F]{2})" + _LOW),
    re.compile(rb"(?<!\\)((?:\\\\)*)" + _HIGH + rb"(?!" + _LOW + rb")"),
    re.compile(rb"(?<!\\)(?:((?:\\\\)+)|(?<!" + _HIGH + rb"))" + _LOW),
)
"""Halves of pairs: a second one after text that looks like a first, a first one alone, a second one alone."""
_MAY_BE_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKET: Final = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]])', re.DOTALL)
"""The next bracket that stands in no text."""
_IN_SPANS: Final = b"{[{[{["
"""The brackets that are open where spans stand: request, processes, process, scopes, scope, spans."""
_PAIRS: Final = {b"}": ord("{"), b"]": ord("[")}


def utf8(found: bytes) -> bytes:
    r"""Text with a question mark in place of each byte that is part of no character.

    >>> utf8(b"caf\xc3"), utf8("café".encode()) == "café".encode()
    (b'caf?', True)
    """
    return found.decode("utf-8", "surrogateescape").encode("utf-8", "replace")


def json(body: bytes) -> bytes:
    r"""JSON with question marks in place of bytes that are part of no character, and of halves of surrogate pairs.

    >>> json(rb'{"text": "so \ud83d"}'), json(rb'"\ud83d\ude00 \\ud83d"')
    (b'{"text": "so ?"}', b'"\\ud83d\\ude00 \\\\ud83d"')
    """
    body = utf8(body)
    if _MAY_BE_HALF.search(body):
        for half in _HALVES:
            body = half.sub(rb"\1?", body, count=_ESCAPES)
    return body


class SplitRequest(NamedTuple):
    """A request in JSON whose spans were taken out of it.

    Attributes:
        rest: What is left; in place of each span stands its place in `spans`.
        spans: The spans as they were written.
    """

    rest: bytes
    spans: list[bytes]


def split_request(body: bytes) -> SplitRequest | None:
    """A request in JSON and its spans, told apart by their brackets alone; None where those do not match.

    >>> split_request(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":NaN},{"name":"}"}]}]}]}')
    SplitRequest(rest=b'{"resourceSpans":[{"scopeSpans":[{"spans":[0,1]}]}]}', spans=[b'{"name":NaN}', b'{"name":"}"}'])
    """
    opened, rest, spans = bytearray(), [], list[bytes]()
    done, begun = 0, -1
    at = _BRACKET.match(body)
    while at is not None:
        place, bracket = at.start(1), at[1]
        if bracket in _PAIRS:
            if not opened or opened.pop() != _PAIRS[bracket]:
                return None
            if begun >= 0 and len(opened) == len(_IN_SPANS):
                rest += [body[done:begun], b"%d" % len(spans)]
                spans.append(body[begun : place + 1])
                done, begun = place + 1, -1
        else:
            if bracket == b"{" and opened == _IN_SPANS:
                begun = place
            opened += bracket
        at = _BRACKET.match(body, place + 1)
    rest.append(body[done:])
    return None if opened or b'"' in body[body.rfind(b"}") :] else SplitRequest(b"".join(rest), spans)


def span(told: bytes) -> Any:
    """A span in JSON as plain values, be it written as Python writes JSON: with NaN, and with control characters.

    Raises:
        Rejected: It is none.
    """
    try:
        return msgspec.json.decode(told)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if len(told) > _LENIENT:
            raise Rejected(constants.MALFORMED_JSON, str(error)) from None
    try:
        found = lenient.loads(told, strict=False)
        msgspec.json.encode(found)  # half a surrogate pair may be left
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except (ValueError, OverflowError, TypeError) as error:
        raise Rejected(constants.MALFORMED_JSON, f"a span is no JSON: {error}") from None
    return found


def protobuf(body: bytes, batch: SpanBatch) -> bytes:
    """A request in protobuf with text that is UTF-8, without the spans that are none.

    Args:
        body: The request.
        batch: Counts the spans that are left out.

    Raises:
        DecodeError: It is none, whatever its spans hold.
    """
    request = loose().request.FromString(body)
    _clean(request)
    for process in request.resource_spans:
        for scope in process.scope_spans:
            scope.spans[:] = [found for one in scope.spans if (found := _span(one, batch)) is not None]
    repaired: bytes = request.SerializeToString()
    return repaired


def _span(told: bytes, batch: SpanBatch) -> bytes | None:
    """A span with text that is UTF-8; None where it is none."""
    try:
        return _readable(told)
    except DecodeError:
        pass
    try:
        found = loose().span.FromString(told)
        _clean(found)
        return _readable(found.SerializeToString())
    except DecodeError as error:
        batch.spans += 1
        batch.refuse(Rejected(MALFORMED_PROTOBUF, f"a span is no protocol message: {error}"))
        return None


def _readable(told: bytes) -> bytes:
    Span.FromString(told)
    OneByKind.FromString(told)
    return told


def _clean(message: Any) -> None:
    """Repair the texts of a message, and of those in it."""
    texts, name = loose().texts, message.DESCRIPTOR.name
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in (value,) if hasattr(value, "ListFields") else value:
                _clean(inner)
        elif (name, field.name) in texts:
            if isinstance(value, bytes):
                setattr(message, field.name, utf8(value))
            else:
                getattr(message, field.name)[:] = map(utf8, value)
