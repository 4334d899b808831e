"""Every key of a TOML text is found on the line it was written on."""

from __future__ import annotations

import json
import tomllib
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.config.problems import Repeat, dotted, locate, repeat

EXAMPLE = '''\
# a comment with [brackets] and key = value
extend = "base.toml"

[sampling]
rate = 0.05
keep = { error = 1.0, slow = 0.5 }
text = """
[not.a.table]
neither = "a key"
"""

[gates]
"recall@5".at_least = 0.9
"recall@5".window = '1h'

[gates.precision-de]   # after a header
k = [
  1,  # one
  3,

  5,
]
when = 2024-05-01 10:00:00

[[rules]]
name = "a"
[rules.more]
x = 1
[[rules]]
name = "b"
  [rules.more]
  x = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("extend",), 2),
        (("sampling",), 4),
        (("sampling", "keep"), 6),
        (("sampling", "keep", "slow"), 6),
        (("sampling", "text"), 7),
        (("gates",), 12),
        (("gates", "recall@5"), 13),
        (("gates", "recall@5", "window"), 14),
        (("gates", "precision-de"), 16),
        (("gates", "precision-de", "k", 0), 18),
        (("gates", "precision-de", "k", 2), 21),
        (("gates", "precision-de", "when"), 23),
        (("rules", 0, "name"), 26),
        (("rules", 0, "more", "x"), 28),
        (("rules", 1), 29),
        (("rules", 1, "more"), 31),
        (("rules", 1, "more", "x"), 32),
    ],
)
def test_each_form_of_a_key_is_found(path, line):
    """Bare, quoted and dotted keys, inline tables, multi-line values, arrays of tables."""
    assert locate(EXAMPLE)[path] == line


def test_a_fake_key_inside_a_string_or_a_comment_is_none():
    assert not any("neither" in path or "not" in path or "key" in path for path in locate(EXAMPLE))


def test_windows_line_ends_count_once():
    assert locate(EXAMPLE.replace("\n", "\r\n")) == locate(EXAMPLE)


def test_a_header_wins_over_the_line_that_only_implied_its_table():
    assert locate("[a.b]\nx = 1\n\n[a]\ny = 2\n")[("a",)] == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1\nb = 2\na = 3\n", Repeat(("a",), 3, 1)),
        ("[t]\nx = 1\n[u]\n[t]\n", Repeat(("t",), 4, 1)),
        ("k = { a = 1, a = 2 }\n", Repeat(("k", "a"), 1, 1)),
        ("[t]\nx.y = 1\nx.z = 2\nx.y = 3\n", Repeat(("t", "x", "y"), 4, 2)),
        ("[t.a]\n[t]\nx = 1\n[[l]]\nx = 1\n[[l]]\nx = 2\n", None),
    ],
)
def test_the_first_key_defined_twice_is_found_with_both_lines(text, expected):
    assert repeat(text) == expected


@given(st.text(alphabet="ab.=[]{}\"'#\\\n 1,", max_size=60))
def test_any_text_is_scanned_to_its_end_or_to_where_it_is_no_toml(text):
    """Broken text never raises: tomllib says what is wrong with it."""
    lines = locate(text)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


def test_dotted_writes_keys_that_toml_reads_back():
    path = ("gates", 'odd "key"', "a.b", "plain-1")
    data = tomllib.loads(f"{dotted(path)} = 1")
    for key in path:
        data = data[key]
    assert data == 1


TRICKY = ["plain", "a # hash", 'a " quote', "three\n[lines]\nkey = 1", 'ends with "', "back\\slash", "ünï ✓", ""]
KEYS = st.sampled_from(["a", "b-1", "recall@5", "with space", "d.o.t", "[x]", "#", "é"])
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.just(0.5), st.sampled_from(TRICKY), st.just(date(2024, 5, 1)))
LISTS = st.lists(st.one_of(SCALARS, st.lists(SCALARS, max_size=2)), max_size=3)
TREES = st.recursive(
    st.dictionaries(KEYS, st.one_of(SCALARS, LISTS), max_size=3),
    lambda inner: st.dictionaries(KEYS, st.one_of(SCALARS, inner, st.lists(inner, min_size=1, max_size=2)), max_size=4),
    max_leaves=8,
)


class Writer:
    """Writes a tree as TOML in drawn styles and notes the line of everything it writes."""

    def __init__(self, draw):
        self.draw = draw
        self.text = ""
        self.lines = {}

    def note(self, path):
        self.lines[path] = self.text.count("\n") + 1

    def gap(self):
        self.text += self.draw(st.sampled_from(["", "", "\n", "# [comment] a = 1\n", "\t\n\n"]))

    def key(self, key):
        if key.replace("-", "").isascii() and key.replace("-", "").isalnum() and self.draw(st.booleans()):
            return key
        return f"'{key}'" if self.draw(st.booleans()) else json.dumps(key)

    def table(self, path, table):
        """The entries of a table whose header is written: plain ones first, then tables with headers of their own."""
        later = {}
        for key, value in table.items():
            nested = isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict))
            if nested and self.draw(st.booleans()):
                later[key] = value
                continue
            self.gap()
            self.pair(path, key, value)
            self.text += self.draw(st.sampled_from(["\n", "  # said\n"]))
        for key, value in later.items():
            self.section((*path, key), value)

    def section(self, path, value):
        for index, entry in enumerate(value if isinstance(value, list) else [None]):
            self.gap()
            here = path if entry is None else (*path, index)
            self.note(here)
            name = " . ".join(self.key(part) for part in path if isinstance(part, str))
            self.text += f"[{name}]\n" if entry is None else f"[[{name}]]\n"
            self.table(here, value if entry is None else entry)

    def pair(self, path, key, value):
        path = (*path, key)
        self.note(path)
        self.text += self.key(key)
        while isinstance(value, dict) and len(value) == 1 and self.draw(st.booleans()):
            ((key, value),) = value.items()
            path = (*path, key)
            self.note(path)
            self.text += f".{self.key(key)}"
        self.text += " = "
        self.value(path, value)

    def value(self, path, value):
        if isinstance(value, dict):
            self.text += "{ "
            for index, (key, entry) in enumerate(value.items()):
                self.text += ", " if index else ""
                self.pair(path, key, entry)
            self.text += " }"
        elif isinstance(value, list):
            self.text += "["
            for index, entry in enumerate(value):
                self.text += self.draw(st.sampled_from(["", "\n  ", " # [one]\n\n"]))
                self.note((*path, index))
                self.value((*path, index), entry)
                self.text += ","
            self.text += "]"
        elif isinstance(value, str):
            self.text += self.string(value)
        else:
            self.text += str(value).lower()

    def string(self, value):
        style = self.draw(st.sampled_from(["basic", "long", "literal"]))
        if style == "literal" and "\n" in value:
            return f"'''\n{value}'''"
        if style == "long":
            escaped = value.replace("\\", "\\\\")
            return f'"""\n{escaped}"""'
        return json.dumps(value)


def paths(value, at=()):
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*at, key)
        yield from paths(entry, (*at, key))


@pytest.mark.slow
@settings(deadline=None)
@given(st.data(), TREES)
def test_the_line_found_is_the_line_written(data, tree):
    """Any tables, in any mixture of headers, dotted keys, inline tables, long strings and comments."""
    writer = Writer(data.draw)
    writer.table((), tree)
    assert tomllib.loads(writer.text) == tree
    found = locate(writer.text)
    assert set(found) == set(paths(tree))
    assert {path: found[path] for path in writer.lines} == writer.lines
