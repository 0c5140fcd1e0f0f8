"""The page on what of its sources is built names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "sources.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py)::(test_\w+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_each_point_names_a_test_that_there_is(file: str, test: str) -> None:
    assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8")


def test_each_row_names_a_test() -> None:
    assert len(re.findall(r"^\| (?!point)", PAGE, re.MULTILINE)) == len(NAMED) > 20
