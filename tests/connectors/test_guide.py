"""The sink of `docs/connectors.md`, under every law of a sink."""

from __future__ import annotations

from pathlib import Path

from connectors.conformance import SinkLaws
from connectors.guide_case import JournalCase

ROOT = Path(__file__).resolve().parents[2]


class TestJournalSink(SinkLaws):
    case = JournalCase


def test_the_guide_shows_the_sink_that_is_tested() -> None:
    guide = (ROOT / "docs" / "connectors.md").read_text()
    assert f"```python\n{(ROOT / 'examples' / 'journal_sink.py').read_text()}```\n" in guide


def test_the_guide_shows_the_case_that_is_tested() -> None:
    guide = (ROOT / "docs" / "connectors.md").read_text()
    case = (ROOT / "tests" / "connectors" / "guide_case.py").read_text()
    assert f"```python\n{case[case.index('class JournalCase') :]}```\n" in guide
