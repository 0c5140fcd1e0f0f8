"""All error conditions: the meaning of each, the user's action, and whether a host retries.

`docs/errors.md` shows the same table; a test compares both, and the table with the code.
"""

from __future__ import annotations

from boatlift.conditions.condition import Condition, Retry
from boatlift.conditions.of_connectors import OF_CONNECTORS
from boatlift.conditions.of_programs import OF_PROGRAMS
from boatlift.conditions.of_runs import OF_RUNS

__all__ = ["CONDITIONS", "Condition", "Retry"]

CONDITIONS: dict[str, Condition] = {**OF_PROGRAMS, **OF_CONNECTORS, **OF_RUNS}
