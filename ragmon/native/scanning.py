"""A scan of trace lines in the native core: described once, then given block after block.

A block is read first: plain lines wait as events, the others are listed as hard. Then the events are counted, with
Python's word on the answers that may be refusals. What was counted is fetched as arrays of whole numbers.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from ragmon.native.library import NativeCore

Context = ctypes.c_void_p


class Description(IntEnum):
    """What can be described to a scan."""

    CHARACTERS = 0
    RULE = 1
    ITEMS = 2
    STREAM = 3


class Setting(IntEnum):
    """What a caller may know better than a scan."""

    LINES = 0
    HAS_DOCUMENTS = 1
    FAULT = 2


class Section(IntEnum):
    """The arrays of a scan; src/export.rs has their columns."""

    TOTALS = 0
    HARD = 1
    PENDING = 2
    TEXTS = 3
    KEYS = 4
    LANES = 5
    ROWS = 6
    CELLS = 7
    GROUPS = 8
    LATENCY = 9
    TABLES = 10
    ITEMS = 11
    STRATA = 12
    MATCHED = 13
    ANSWERS = 14
    COHORTS = 15
    CAPTURED = 16
    MASKS = 17
    EXAMPLES = 18
    LATENCY_COUNTS = 19
    FOLLOWED = 20
    VALUES = 21
    NAMES = 22


class NativeFaultError(Exception):
    """The native core failed in a way that plain Python cannot mend, because a part of a block is counted."""


ALL_EVENTS: Final = (1 << 32) - 1
"""More events than a block has."""
_BETWEEN: Final = b"\xff"


class Scan:
    """A scan in the native core; one thread uses it at a time.

    Args:
        core: The native core, which is there.
        keeps_lock: Keep the interpreter lock during every call: where another thread is busy, to take it again lasts
            longer than to read a short block.
    """

    def __init__(self, core: NativeCore, *, keeps_lock: bool = False) -> None:
        functions = core.brief if keeps_lock else core.functions
        if functions is None:
            raise ValueError("there is no native core")
        self._functions = functions
        self._context: int | None = functions.ragmon_scan_new()
        if not self._context:
            raise MemoryError("the native core has no memory for a scan")
        self._times = (ctypes.c_double * 2)()

    def close(self) -> None:
        """Free its memory."""
        if self._context:
            self._functions.ragmon_scan_free(self._context)
            self._context = None

    def __del__(self) -> None:
        self.close()

    def describe(self, what: Description, description: bytes) -> int:
        """Describe rules, gold items, a stream or the table of characters; returns the number by which it is known.

        Raises:
            NativeFaultError: It was not understood, which is a fault of the two halves of this program.
        """
        number: int = self._functions.ragmon_scan_describe(self._context, what, description, len(description))
        if number < 0:
            raise NativeFaultError(f"the native core does not understand its {what.name.lower()}")
        return number

    def set(self, what: Setting, value: int) -> None:
        """Set a whole number."""
        self._functions.ragmon_scan_set(self._context, what, value)

    def read(self, block: bytes) -> bool:
        """Read a block of whole lines; False where the core failed, and then the whole block is Python's."""
        return not self._functions.ragmon_scan_read(self._context, block, len(block))

    def decide(self, refusals: Sequence[bool]) -> None:
        """Say of each pending answer of the block whether it is a refusal in other words.

        Raises:
            NativeFaultError: The core failed.
        """
        self._must(self._functions.ragmon_scan_decide(self._context, bytes(refusals), len(refusals)))

    def commit(self, block: bytes, until: int = ALL_EVENTS) -> None:
        """Count the block that was read last.

        Args:
            block: The same block.
            until: Count so many of its events; those that are counted are not counted again.

        Raises:
            NativeFaultError: The core failed in the middle of it.
        """
        self._must(self._functions.ragmon_scan_commit(self._context, block, len(block), until))

    @property
    def times(self) -> tuple[float, float]:
        """The newest event time, and from when rows are folded next; seconds since the epoch."""
        self._functions.ragmon_scan_times(self._context, self._times)
        return self._times[0], self._times[1]

    def advance(self, newest: float, fold_due: float) -> None:
        """Go on to the newest event time that somebody else has counted, and to when he folds rows next.

        Raises:
            NativeFaultError: The core failed.
        """
        self._must(self._functions.ragmon_scan_advance(self._context, newest, fold_due))

    def learn(self, other: Scan) -> None:
        """Learn everything that was described to another scan, from which this one learned all that it knows.

        Raises:
            NativeFaultError: The core failed.
        """
        self._must(self._functions.ragmon_scan_learn(self._context, other._context))

    def merge(self, other: Scan) -> None:
        """Add what another scan has counted, which then starts at nothing; both have learned the same.

        Raises:
            NativeFaultError: The core failed.
        """
        self._must(self._functions.ragmon_scan_merge(self._context, other._context))

    def follow(self, earliest: float, latest: float) -> None:
        """Tell of each request of the next blocks by itself; those before or after some times are hard lines.

        Args:
            earliest: The first event time, seconds since the epoch.
            latest: The last one.
        """
        self._functions.ragmon_scan_follow(self._context, earliest, latest)

    def forget_streams(self) -> None:
        """Forget the streams that were described; what was counted was fetched before."""
        self._functions.ragmon_scan_forget_streams(self._context)

    @staticmethod
    def _must(result: int) -> None:
        if result < 0:
            raise NativeFaultError("the native core failed while it counted; RAGMON_NATIVE=0 goes on without it")

    def array(self, section: Section) -> memoryview:
        """An array of whole numbers with a sign."""
        return memoryview(self.raw(section)).cast("q")

    def raw(self, section: Section) -> bytes:
        """An array as bytes.

        Raises:
            NativeFaultError: The core failed.
        """
        length = self._functions.ragmon_scan_array(self._context, section)
        if length < 0:
            raise NativeFaultError(f"the native core cannot give out its {section.name.lower()}")
        return ctypes.string_at(self._functions.ragmon_scan_bytes(self._context), length) if length else b""

    def numbers(self, section: Section) -> list[float]:
        """An array of numbers."""
        found: list[float] = list(memoryview(self.raw(section)).cast("d"))
        return found

    def names(self) -> list[bytes]:
        """The texts of requests that are told of by themselves."""
        return self.raw(Section.NAMES).split(_BETWEEN)[:-1]

    def take(self, sections: Iterable[Section]) -> TakenArrays:
        """Hand out arrays, and forget what was counted: before the caller makes objects of it, its memory is free.

        Args:
            sections: The arrays.

        Raises:
            NativeFaultError: The core failed.
        """
        taken = TakenArrays({section: self.raw(section) for section in sections})
        self.clear()
        return taken

    def clear(self) -> None:
        """Forget what was counted; what was described stays."""
        self._functions.ragmon_scan_clear(self._context)


class TakenArrays:
    """Arrays of a scan, each of which is handed out once.

    Args:
        arrays: Their bytes.
    """

    def __init__(self, arrays: dict[Section, bytes]) -> None:
        self._arrays = arrays

    def raw(self, section: Section) -> bytes:
        """An array as bytes."""
        return self._arrays.pop(section)

    def array(self, section: Section) -> memoryview:
        """An array of whole numbers with a sign."""
        return memoryview(self.raw(section)).cast("q")

    def texts(self, section: Section) -> list[str]:
        """An array of texts."""
        return [text.decode() for text in self.raw(section).split(_BETWEEN)[:-1]]


def numbers(*values: int) -> bytes:
    """Whole numbers of 32 bits, as descriptions hold them."""
    return struct.pack(f"<{len(values)}I", *values)


def as_bytes(text: str) -> bytes:
    """A text in UTF-8; half of a surrogate pair becomes bytes that no trace has."""
    return text.encode("utf-8", "surrogatepass")


def blob(text: bytes) -> bytes:
    """Bytes behind their length."""
    return len(text).to_bytes(4, "little") + text


def blobs(texts: Iterable[str]) -> bytes:
    """A list of texts behind its length."""
    encoded = [blob(as_bytes(text)) for text in texts]
    return len(encoded).to_bytes(4, "little") + b"".join(encoded)
