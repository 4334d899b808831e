"""Finds and loads the shared library of the native core, and says why there is none.

A wheel for a platform holds the library in `lib/`; a checkout may have built it (`cargo build --release`). It is
loaded once, with ctypes, which releases the interpreter lock during every call. `RAGMON_NATIVE=0` switches it off.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ABI_VERSION: Final = 6
"""The version of the ABI that this ragmon speaks (`ABI_VERSION` of src/lib.rs)."""
SWITCH: Final = "RAGMON_NATIVE"
"""The environment variable that switches the native core off."""
OFF: Final = ("0", "no", "off", "false")
"""Its values that do."""
_HERE: Final = Path(__file__).parent
_SUFFIX: Final = ".dylib" if sys.platform == "darwin" else ".so"
FILE_NAME: Final = f"libragmon_core{_SUFFIX}"
"""The name of the library's file."""
_FOLDERS: Final = (_HERE / "lib", _HERE / "target" / "release")
"""Folders that are no packages: beside modules, a shared library is taken for one by whoever imports them all."""

_BYTES: Final = ctypes.c_char_p
_SIZE: Final = ctypes.c_size_t
_CONTEXT: Final = ctypes.c_void_p
_U32, _U64, _I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
_SIGNATURES: Final[dict[str, tuple[object, tuple[object, ...]]]] = {
    "ragmon_question_key": (_I64, (_BYTES, _SIZE, ctypes.c_void_p)),
    "ragmon_scan_new": (_CONTEXT, ()),
    "ragmon_scan_free": (None, (_CONTEXT,)),
    "ragmon_scan_describe": (_I64, (_CONTEXT, _U32, _BYTES, _SIZE)),
    "ragmon_scan_set": (None, (_CONTEXT, _U32, _U64)),
    "ragmon_scan_read": (_I64, (_CONTEXT, _BYTES, _SIZE)),
    "ragmon_scan_commit": (_I64, (_CONTEXT, _BYTES, _SIZE, _SIZE)),
    "ragmon_scan_decide": (_I64, (_CONTEXT, _BYTES, _SIZE)),
    "ragmon_scan_learn": (_I64, (_CONTEXT, _CONTEXT)),
    "ragmon_scan_merge": (_I64, (_CONTEXT, _CONTEXT)),
    "ragmon_scan_times": (None, (_CONTEXT, ctypes.POINTER(ctypes.c_double))),
    "ragmon_scan_advance": (_I64, (_CONTEXT, ctypes.c_double, ctypes.c_double)),
    "ragmon_scan_follow": (None, (_CONTEXT, ctypes.c_double, ctypes.c_double)),
    "ragmon_scan_forget_streams": (None, (_CONTEXT,)),
    "ragmon_scan_array": (_I64, (_CONTEXT, _U32)),
    "ragmon_scan_bytes": (ctypes.c_void_p, (_CONTEXT,)),
    "ragmon_scan_clear": (None, (_CONTEXT,)),
}
"""The result and the arguments of every function, as in src/lib.rs."""
_BRIEF_SIGNATURES: Final[dict[str, tuple[object, tuple[object, ...]]]] = {
    "ragmon_words_found": (_I64, (_BYTES, _SIZE, _BYTES, _SIZE)),
    "ragmon_extent": (_I64, (_BYTES, _SIZE, ctypes.POINTER(_U32), _SIZE, ctypes.POINTER(_I64))),
    "ragmon_otlp_spans": (_I64, (_BYTES, _SIZE, ctypes.POINTER(_U64), _SIZE)),
}
"""Those that take so short a time that they keep the interpreter lock."""


@dataclass(frozen=True)
class NativeCore:
    """What was found.

    Attributes:
        functions: The functions of the library; None where it is not used.
        brief: Its functions that keep the interpreter lock; None where it is not used.
        version: The version of the library; "" where it is not used.
        absence: Why it is not used; "" where it is.
    """

    functions: ctypes.CDLL | None
    brief: ctypes.PyDLL | None = None
    version: str = ""
    absence: str = ""

    @property
    def label(self) -> str:
        """Version and language, for the label of a series: `1.0.0 rust`; `no` where it is not used."""
        return f"{self.version} rust" if self.functions is not None else "no"

    def __str__(self) -> str:
        return f"{self.version} (Rust)" if self.functions is not None else f"no: {self.absence}"


def native_core() -> NativeCore:
    """The native core, unless it is switched off or missing."""
    if os.environ.get(SWITCH, "").strip().lower() in OFF:
        return NativeCore(None, absence=f"switched off by {SWITCH}")
    return _loaded()


@cache
def _loaded() -> NativeCore:
    """The library, loaded once."""
    files = [folder / FILE_NAME for folder in _FOLDERS]
    files = [file for file in files if file.is_file()]
    if not files:
        return NativeCore(None, absence="this installation has none (there was no cargo to build it)")
    # A checkout may have two: the one an installation copied, and the one cargo built last.
    file = max(files, key=lambda file: file.stat().st_mtime)
    try:
        functions = ctypes.CDLL(str(file))
        functions.ragmon_abi_version.restype = ctypes.c_uint32
        abi = functions.ragmon_abi_version()
        if abi != ABI_VERSION:
            return NativeCore(None, absence=f"{file.name} speaks ABI {abi}, not {ABI_VERSION}: build it anew")
        brief = ctypes.PyDLL(str(file))
        _declare(functions, _SIGNATURES)
        _declare(brief, _SIGNATURES | _BRIEF_SIGNATURES)
        functions.ragmon_core_version.restype = _BYTES
        return NativeCore(functions, brief, functions.ragmon_core_version().decode())
    except (OSError, AttributeError) as error:
        return NativeCore(None, absence=f"{file.name} cannot be loaded ({error})")


def _declare(functions: ctypes.CDLL, signatures: dict[str, tuple[object, tuple[object, ...]]]) -> None:
    """Tell ctypes what functions take and give."""
    for name, (result, arguments) in signatures.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
