"""The pictures of the boards show the boards there are."""

from __future__ import annotations

import pytest

from tests.support.dashboard_world import GRAFANA, ROOT
from tests.support.drawing.pictures import DIGESTS, IMAGES, LARGEST, digest

BOARDS = sorted(GRAFANA.glob("*.json"))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_a_picture_is_of_the_board_as_it_is(board):
    drawn = dict(reversed(line.split()) for line in DIGESTS.read_text(encoding="utf-8").splitlines())
    name = str(board.relative_to(ROOT))
    assert drawn.get(name) == digest(board), f"{name} has changed since its picture was taken: make board-pictures"


def test_every_board_has_one_picture_that_loads_fast_and_that_the_documentation_shows():
    pictures = sorted(IMAGES.glob("*.png"))
    assert {picture.name for picture in pictures} == {f"{board.stem}.png" for board in BOARDS}
    text = (ROOT / "docs" / "how-to" / "dashboards.md").read_text(encoding="utf-8")
    for picture in pictures:
        assert picture.stat().st_size <= LARGEST
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert f"(../images/boards/{picture.name})" in text
