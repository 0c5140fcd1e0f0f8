"""A connector for tests that plan a program and never call what it reads and writes."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from boatlift.dataflow import Delivery, SinkCapabilities, SourceCapabilities

__all__ = ["ANY", "NO_ACCOUNT", "SHARING"]

ANY: Any = SimpleNamespace(
    delivery=Delivery.EXACTLY_ONCE,
    capabilities=SimpleNamespace(**asdict(SourceCapabilities()) | asdict(SinkCapabilities())),
    describe=dict,
    key=None,
)
"""A source, a sink, or a function of the program, without any capability."""

NO_ACCOUNT: Any = SimpleNamespace(**{**vars(ANY), "delivery": Delivery.AT_LEAST_ONCE})
"""A sink that keeps no account of its steps."""

SHARING: Any = SimpleNamespace(
    **{
        **vars(ANY),
        "capabilities": SimpleNamespace(
            **{**vars(ANY.capabilities), "shares_transaction": SimpleNamespace(shared_place="memory")}
        ),
    }
)
"""A sink that shares the transactions of others like it."""
