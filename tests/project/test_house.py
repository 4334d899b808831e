"""What `python -m bench.house` counts, on a package of five files, and that its four walks run."""

from __future__ import annotations

import pytest

from bench.house import WALKS, House, measured, points_up, size

FILES = {
    "__init__.py": '"""A package."""\n',
    "core/__init__.py": "",
    "core/record.py": """'''Two lines of
documentation.'''

LIMIT = 3
'''Said of the limit.'''


def decode(text):  # a comment
    return _split(_fold(text))


def _split(text):
    return _fold(text).split()


def _fold(text):
    def _local(part):
        return part

    return _local('''two
lines''')
""",
    "core/text.py": "def fold():\n    import house.core.words\n    from house.stats.drops import Drop\n",
    "core/words.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.core.text import fold\n",
    "stats/drops.py": """from house.core import record


class Drop:
    def _same(self):
        return record.decode

    def total(self):
        return self._same()


class Rise:
    def _same(self):
        return 'house.stats.drops:_named'


def _named():
    return 0
""",
    "page.css": "a {\n\n}\n",
}


@pytest.fixture
def house(tmp_path):
    for file, text in FILES.items():
        path = tmp_path / "house" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return House(tmp_path / "house")


def test_code_is_without_documentation_comments_and_blank_lines(house):
    assert size(house.files["core/record.py"]) == (21, 10)
    assert size(house.files["__init__.py"]) == (1, 0)
    assert size(house.files["page.css"]) == (3, 2)


def test_a_helper_that_is_named_once_is_found(house):
    """`_fold` is named twice, `_local` stands in a function, and two classes define `_same`."""
    single, shared = house.helpers()
    assert [one.name for one in single] == ["_split", "_same", "_same", "_named"]
    assert shared == []


def test_a_helper_whose_name_others_share_is_counted_in_its_module(house, tmp_path):
    (tmp_path / "house/core/words.py").write_text("def _same():\n    pass\n\n\n_same()\n", encoding="utf-8")
    _, shared = House(tmp_path / "house").helpers()
    assert {(one.module, one.name) for one in shared} == {("house.core.words", "_same"), ("house.stats.drops", "_same")}


def test_imports_in_functions_and_for_types_make_arrows_and_cycles(house):
    assert house.cycles() == [["house.core.text", "house.core.words"]]
    assert house.between() == {
        ("core", "stats"): ["house.core.text -> house.stats.drops"],
        ("stats", "core"): ["house.stats.drops -> house.core.record"],
    }


def test_an_arrow_points_up_to_a_higher_package_and_to_one_of_the_same_row():
    assert points_up("core", "stats")
    assert points_up("scoring", "capture")
    assert points_up("compat", "stats")
    assert not points_up("stats", "core")
    assert not points_up("compat", "core")
    assert points_up("core", "elsewhere") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_reaches_what_judges_or_counts(name):
    found = measured(name)
    assert found["calls"] >= found["functions"] >= len(found["files"]) > 10
    assert any(file.startswith(("scoring/", "export/rules")) for file in found["files"])
