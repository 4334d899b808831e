"""The pages of examples with a framework: typed command by command, they print what they say, and only red is red."""

from __future__ import annotations

import pytest

from tests.support.example_pages import type_page


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fastapi-langchain", "llama-index", "openai-sdk", "haystack", "pydantic-ai", "langgraph"]
)
def test_a_page_can_be_typed_and_says_what_one_sees(name, tmp_path):
    typed = type_page(name, tmp_path)
    assert typed.promised
    assert typed.code == 0, typed.output
    assert typed.missing == [], typed.output
    assert "Traceback" not in typed.output
