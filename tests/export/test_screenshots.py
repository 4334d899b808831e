"""The pictures of pages show the pages there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.screenshots import DIGESTS, IMAGES, LARGEST, SHOTS, opened

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("incident")) as pages:
        yield pages


@pytest.mark.slow
@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_a_picture_is_of_the_page_as_it_is(pages, shot):
    taken = dict(reversed(line.split()) for line in DIGESTS.read_text(encoding="utf-8").splitlines())
    name = f"{shot.name}.png"
    assert taken.get(name) == pages.digest(shot), f"{name}: the page has changed, or its picture: run make screenshots"


def test_there_are_the_pictures_that_are_listed_each_is_shown_and_loads_fast():
    pictures = sorted(IMAGES.glob("*.png"))
    assert {picture.stem for picture in pictures} == {shot.name for shot in SHOTS}
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for picture in pictures:
        assert f"images/pages/{picture.name})" in text
        assert picture.stat().st_size <= LARGEST
        assert picture.read_bytes().startswith(b"\x89PNG")
