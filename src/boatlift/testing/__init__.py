"""Tools for tests of dataflows: crash tests and their points, clusters, brokers, laws of projections and operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boatlift.times import check_projection

if TYPE_CHECKING:
    from boatlift.testing.crash_runs import crash_test
    from boatlift.testing.crash_verdict import CrashTrial, CrashVerdict
    from boatlift.testing.stateful_operators import check_operator

__all__ = ["CrashTrial", "CrashVerdict", "check_operator", "check_projection", "crash_test"]

_NEED_SPARK = {
    "CrashTrial": "crash_verdict",
    "CrashVerdict": "crash_verdict",
    "check_operator": "stateful_operators",
    "crash_test": "crash_runs",
}


def __getattr__(name: str) -> Any:
    if name in _NEED_SPARK:
        return getattr(import_module(f"boatlift.testing.{_NEED_SPARK[name]}"), name)
    raise AttributeError(f"module 'boatlift.testing' has no attribute {name!r}")
