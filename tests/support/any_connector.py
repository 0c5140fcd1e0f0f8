"""A connector for tests that plan a program and never call what it reads and writes."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from boatlift.dataflow import SinkCapabilities, SourceCapabilities

__all__ = ["ANY"]

ANY: Any = SimpleNamespace(
    capabilities=SimpleNamespace(**asdict(SourceCapabilities()), **asdict(SinkCapabilities())),
    describe=dict,
    key=None,
)
"""A source, a sink, or a function of the program, without any capability."""
