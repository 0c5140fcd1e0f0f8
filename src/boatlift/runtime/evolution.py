"""Which change of a program a store accepts: a processor of the user's whose state gets further columns.

A step that was executed before the change is never executed again, because the run before it stopped cleanly: all that
it did is in checkpoints. States that were written before have the first values of the new columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from boatlift.dataflow.identity import processors_of
from boatlift.dataflow.policies import History
from boatlift.errors import DataError
from boatlift.storage.records.division import units_in
from boatlift.storage.records.history import LogHistory

__all__ = ["accepts_state"]

State = Mapping[str, Mapping[str, str]]


def accepts_state(history: LogHistory, entry: str, before: Any, now: Any) -> bool:
    """Return whether an entry of a program's identity is a processor whose state gets further columns, or parts.

    Args:
        history: The log's content.
        entry: The entry.
        before, now: Its value in the log, and in the program; None if it is not there.

    Raises:
        DataError: `[PROGRAM_CHANGED]` the state changes otherwise, or in a store in which steps may be executed again.
    """
    name = entry.removeprefix("processor ")
    if name == entry or before is None or now is None:
        return False
    old, new = (processors_of({entry: each})[name] for each in (before, now))
    if old.state is None or new.state is None or old.state == new.state:
        return False
    if msgspec.structs.replace(old, state=new.state, code=new.code) != new:
        return False
    lost = _lost(old.state, new.state)
    if lost:
        raise DataError(
            "PROGRAM_CHANGED",
            f"the state of {name} changes in {lost}: a state may get further columns, which begin with their default; "
            "keep the others as they were, and give a column of another type another name",
        )
    units = units_in(history.program)
    unit = next(each for each in units.values() if name in each.operators)
    if unit.policy["name"] == History.__name__:
        raise DataError(
            "PROGRAM_CHANGED",
            f"the state of {name} gets further columns, and its policy History executes all of its steps again after a "
            "crash: give it Lazy() and stop once, then change it",
        )
    if not history.stopped:
        raise DataError(
            "PROGRAM_CHANGED",
            f"the state of {name} gets further columns, and the last run did not stop cleanly, so that steps are "
            "executed again: run the program once more as it was, end it with Ctrl-C, then change it",
        )
    return True


def _lost(before: State, now: State) -> str:
    """Return the first column or part that is not as it was, in words; nothing if all are."""
    for part, columns in before.items():
        if part not in now:
            return f"{part!r}, which is gone"
        for column, kind in columns.items():
            found = now[part].get(column)
            if found != kind:
                return f"{column} ({kind}), " + ("which is gone" if found is None else f"which is {found} now")
    return ""
