"""How a plan is divided into units, as a claim records it; and which other division a store can be opened with.

Another division comes of another policy of a transform, or of another version of Boatlift. Facts in the log are those
of units and of their edges. So another division is accepted only if it loses none that a recovery may need:

* The last run stopped cleanly, so that no step is under way.
* No edge that goes has a message in the log: its receiver has not taken the message into a checkpoint yet, and the
  sender may be unable to make the message again.
* The units that come or go keep no state and have the times of their inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

import msgspec

from boatlift.dataflow import Batch, History, Plan, Policy, Timing, Unit
from boatlift.dataflow.identity import processors_of
from boatlift.errors import DataError
from boatlift.runtime.graph import edge_name
from boatlift.storage.records.division import UnitRecord, edges_of, units_in
from boatlift.storage.records.history import LogHistory

__all__ = ["division_of", "policy_of", "refuse_other_division"]

_POLICIES: Mapping[str, type[Policy]] = {kind.__name__: kind for kind in get_args(Policy)}


def division_of(plan: Plan) -> dict[str, Any]:
    """Return the units of a plan, as JSON."""
    return {name: msgspec.to_builtins(_recorded(unit)) for name, unit in plan.units.items()}


def _recorded(unit: Unit) -> UnitRecord:
    options = {field.name: getattr(unit.policy, field.name) for field in fields(unit.policy)}
    if isinstance(unit.policy, History) and unit.policy.batch is None:
        del options["batch"]  # as it was recorded before batches could have this policy
    return UnitRecord(
        tuple(operator.name for operator in unit.operators),
        {edge_name(read, unit.name): read for read in unit.reads},
        {edge_name(unit.name, sink.name): sink.name for sink in unit.sinks},
        {"name": type(unit.policy).__name__, **options},
    )


def policy_of(record: UnitRecord) -> Policy:
    """Return the policy of a recorded unit.

    Raises:
        KeyError: there is no such policy.
        TypeError: the policy has no such option.
        InvalidError: an option has no such value.
    """
    options = dict(record.policy)
    if options["name"] == History.__name__ and options.get("batch") is not None:
        options["batch"] = Batch(**options["batch"])
    return _POLICIES[options.pop("name")](**options)


def refuse_other_division(history: LogHistory, program: Mapping[str, Any]) -> None:
    """Refuse a program that is divided otherwise than the log's facts are, unless no fact is of what differs.

    Args:
        history: The log's content.
        program: The program as this process would claim it.

    Raises:
        DataError: `[PROGRAM_CHANGED]`.
    """
    before, now = units_in(history.program), units_in(program)
    changed = {name for name in before.keys() | now.keys() if _shape(before.get(name)) != _shape(now.get(name))}
    if not before or not changed:
        return
    what = f"other Spark jobs than before ({', '.join(sorted(changed))}), as after a change of a transform's policy"
    live = history.live_records
    waiting = sorted(edge for edge in edges_of(before) - edges_of(now) if live.sent.get(edge))
    if not history.stopped or waiting:
        why = f"messages wait on {', '.join(waiting)}" if waiting else "its last run did not stop cleanly"
        raise DataError(
            "PROGRAM_CHANGED",
            f"the program is divided into {what}, and {why}: run it once more as it was until it has taken all of its "
            "input, end it with Ctrl-C, then change it; or give the transforms the policies that they had",
        )
    processors = {**processors_of(history.program), **processors_of(program)}
    for name in sorted(changed):
        units = [each for each in (before.get(name), now.get(name)) if each is not None]
        operators = [processors[operator] for unit in units for operator in unit.operators]
        own_times = any(each.timing != Timing.EPOCHS.value for each in operators)
        comes_or_goes = len(units) == 1
        if own_times or live.taken.get(name) or (comes_or_goes and any(each.keeps_state for each in operators)):
            raise DataError(
                "PROGRAM_CHANGED",
                f"the program is divided into {what}, and {name} keeps state, messages or times of its own, which "
                "another division cannot take over: give the transforms the policies that they had",
            )


def _shape(unit: UnitRecord | None) -> object:
    return None if unit is None else (unit.operators, unit.inputs, unit.outputs)
