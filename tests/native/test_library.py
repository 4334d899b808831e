"""The library of the native core: found, loaded and checked, or absent with a reason; and its first function."""

from __future__ import annotations

import ctypes
from pkgutil import iter_modules

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragmon.native
from ragmon.core.text import normalise_question
from ragmon.native import library
from ragmon.native.library import native_core
from tests.support.native_core import needs_native


@pytest.fixture
def fresh():
    """What was loaded is forgotten before and after a test that looks elsewhere."""
    library._loaded.cache_clear()
    yield
    library._loaded.cache_clear()


@pytest.mark.parametrize("value", ["0", "no", "OFF"])
def test_a_variable_of_the_environment_switches_it_off(monkeypatch, value):
    monkeypatch.setenv("RAGMON_NATIVE", value)
    assert str(native_core()) == "no: switched off by RAGMON_NATIVE"
    assert native_core().label == "no"


def test_where_there_is_no_file_the_reason_says_so(monkeypatch, fresh, tmp_path):
    monkeypatch.delenv("RAGMON_NATIVE", raising=False)
    monkeypatch.setattr(library, "_FOLDERS", (tmp_path,))
    assert "this installation has none" in native_core().absence


def test_whoever_imports_every_module_does_not_meet_the_library():
    """Beside modules a file with the suffix `.so` would be one."""
    modules = {module.name for module in iter_modules(ragmon.native.__path__)}
    assert modules == {"library", "live", "otlp", "sampling", "scanning"}


def test_a_file_that_is_no_library_is_named(monkeypatch, fresh, tmp_path):
    monkeypatch.delenv("RAGMON_NATIVE", raising=False)
    (tmp_path / library.FILE_NAME).write_bytes(b"no library")
    monkeypatch.setattr(library, "_FOLDERS", (tmp_path,))
    assert library.FILE_NAME in native_core().absence


@needs_native
def test_a_library_of_another_abi_is_refused(monkeypatch, fresh):
    monkeypatch.setattr(library, "ABI_VERSION", 0)
    assert "build it anew" in native_core().absence


def _key(text):
    out = ctypes.create_string_buffer(len(text) + 1)
    length = native_core().functions.ragmon_question_key(text, len(text), out)
    return out.raw[:length].decode() if length >= 0 else None


@needs_native
@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_the_key_of_a_question_is_pythons(text):
    assert _key(text.encode()) == normalise_question(text)


@needs_native
def test_a_question_in_another_script_is_left_to_python():
    assert _key("café".encode()) is None
