"""Tools for tests of dataflows: crash points, clusters, brokers, warm JVMs, laws of projections and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boatlift.times import check_projection

if TYPE_CHECKING:
    from boatlift.testing.stateful_operators import check_operator

__all__ = ["check_operator", "check_projection"]


def __getattr__(name: str) -> Any:
    if name == "check_operator":  # it needs Arrow and Spark
        from boatlift.testing.stateful_operators import check_operator

        return check_operator
    raise AttributeError(f"module 'boatlift.testing' has no attribute {name!r}")
