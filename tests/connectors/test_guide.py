"""The source and the sink of `docs/connectors.md`, under every law of their contracts."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.guide_case import JournalCase, LogCase
from connectors.sink_laws import SinkLaws
from connectors.source_laws import SourceLaws

ROOT = Path(__file__).resolve().parents[2]


class TestJournalSink(SinkLaws):
    case = JournalCase


class TestLogSource(SourceLaws):
    case = LogCase


@pytest.mark.parametrize("name", ["log_source", "journal_sink"])
def test_the_guide_shows_the_connector_that_is_tested(name: str) -> None:
    guide = (ROOT / "docs" / "connectors.md").read_text()
    assert f"```python\n{(ROOT / 'examples' / f'{name}.py').read_text()}```\n" in guide


def test_the_guide_shows_the_case_that_is_tested() -> None:
    guide = (ROOT / "docs" / "connectors.md").read_text()
    case = (ROOT / "tests" / "connectors" / "guide_case.py").read_text()
    assert f"```python\n{case[case.index('class JournalCase') :]}```\n" in guide
