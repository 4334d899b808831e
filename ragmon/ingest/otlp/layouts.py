"""Which attributes a span has: those of one instrumentation mostly have the same ones, in the same order.

To turn attributes into Python's objects one by one takes longer than all the rest of reading a span; all texts of a
span are one step for the parser. Where a span has the keys and the kinds of values that one before it had, what was
found out about that one says which text is what.

Source: OpenTelemetry, `common.proto`; Protocol Buffers, encoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import getitem
from struct import Struct
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from ragmon.ingest.otlp.values import value
from ragmon.ingest.otlp.wanted import ON_SPAN
from ragmon.spans.flattened import ABSENT, CELLS, Cell, Gathered, Table, table
from ragmon.spans.remembered import Remembered

_KEY: Final = b"\x0a"
"""Says that an attribute's key follows: field 1, its length first."""
_VALUE: Final = b"\x12"
"""Says that its value follows: field 2, its length first."""
_TEXT: Final = b"\x0a"
"""Says that a value is text: field 1."""
_DOUBLE: Final = b"\x12\x09\x21"
"""Says that a value follows, that it has nine bytes, and that it is a double: field 4."""
_MORE: Final = 0x80
"""The bit of a length's byte that says that another one follows."""
_double = Struct("<d").unpack_from


class Layout:
    """The attributes of a span: their keys, the kinds of their values, and where those belong.

    Args:
        pairs: The attributes, messages `KeyValue`.

    Raises:
        LookupError: One of them does not begin with its key, or that has more than 127 bytes.
    """

    def __init__(self, pairs: Sequence[bytes]) -> None:
        self._heads: list[bytes] = []
        texts: list[int] = []
        doubles: list[int] = []
        self._others: list[tuple[int, int, bool]] = []
        wanted: list[str | None] = []
        for at, pair in enumerate(pairs):
            head = pair[: pair[1] + 2]
            wanted.append(_KEYS[head])
            if pair.startswith(_DOUBLE, len(head)):
                head += _DOUBLE
                doubles.append(at)
            elif _is_text(pair, len(head)):
                texts.append(at)
            else:
                self._others.append((at, len(head), wanted[at] is not None))
            self._heads.append(head)
        self._slices = [slice(len(head)) for head in self._heads]
        self._texts = len(texts)
        self._doubles = len(doubles)
        order = [*texts, *doubles, *[at for at, _, _ in self._others]]
        self._place({at: index for index, at in enumerate(order)}, wanted)

    def _place(self, indexes: Mapping[int, int], wanted: Sequence[str | None]) -> None:
        """Find out where values belong.

        Args:
            indexes: Where the value of each attribute stands when they are read by kind.
            wanted: Their keys; None for one nobody asks for.
        """
        self._alone: list[tuple[str, int]] = []
        cells: dict[str, list[tuple[Cell, int]]] = {}
        for at, key in enumerate(wanted):
            cell = None if key is None else CELLS[key]
            if cell is not None:
                cells.setdefault(cell.name, []).append((cell, indexes[at]))
            elif key is not None:
                self._alone.append((key, indexes[at]))
        self._lists = [(name, table(found)) for name, found in cells.items()]

    def read(self, told: Any, pairs: Sequence[bytes]) -> Gathered | None:
        """The attributes of a span that are wanted; None where it has others.

        Args:
            told: Their values by kind.
            pairs: As many attributes as this layout has.
        """
        values = [*told.string_value]
        if len(values) != self._texts or list(map(getitem, pairs, self._slices)) != self._heads:
            return None
        if self._doubles:
            values += told.double_value
            if len(values) != self._texts + self._doubles:
                return None
        for at, end, wanted in self._others:
            if _is_text(pairs[at], end):
                return None
            values.append(value(KeyValue.FromString(pairs[at]).value) if wanted else None)
        alone = {key: values[index] for key, index in self._alone}
        return Gathered(alone, {name: _filled(indexes, values) for name, indexes in self._lists})


def _filled(indexes: Table, values: Sequence[Any]) -> Table:
    """A list with values in place of their indexes."""
    columns = {
        member: [ABSENT if index is ABSENT else values[index] for index in column]
        for member, column in indexes.columns.items()
    }
    return Table(indexes.size, indexes.whole, columns)


def _is_text(pair: bytes, at: int) -> bool:
    """Whether an attribute's value is text.

    Args:
        pair: The attribute.
        at: Where its key ends.
    """
    if pair[at : at + 1] != _VALUE:
        return False
    at += 1
    while pair[at] >= _MORE:
        at += 1
    return pair[at + 1 : at + 2] == _TEXT


def _wanted(head: bytes) -> str | None:
    """The key an attribute begins with; None where nobody asks for it.

    Raises:
        LookupError: It does not begin with its key.
    """
    if head[:1] != _KEY or head[1] >= _MORE or len(head) != head[1] + 2:
        raise LookupError(head)
    key = head[2:].decode()
    return key if ON_SPAN[key] else None


_KEYS: Final = Remembered(_wanted)
