"""The changes of a program that a store accepts: another division into units, and further columns of a user's state.

**Another division** follows from another policy of a transform, or from another version of Boatlift. Facts in the log
belong to units and to their edges. So another division is accepted only if it loses no fact that a recovery may need:

* The last run stopped cleanly, so that no step is under way.
* No edge that disappears has a message in the log: its receiver has not taken the message into a checkpoint yet, and
  the sender may be unable to repeat the message.
* The units that appear or disappear keep no state and have the times of their inputs.

**Further columns** are accepted after a clean stop only: all steps before are in checkpoints, and none is executed
again. States that were written before have the first values of the new columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from boatlift.dataflow import Timing
from boatlift.dataflow.identity import processors_of
from boatlift.dataflow.policies import History
from boatlift.errors import DataError
from boatlift.runtime.past_steps import resumes
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, UnitRecord, edges_of, units_in


def refuse_other_division(history: LogHistory, program: Mapping[str, Any]) -> None:
    """Refuse a program with another division into units, unless the log has no fact of the units that differ.

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


def accepted(
    history: LogHistory, program: Mapping[str, Any], environment: Mapping[str, Any]
) -> tuple[dict[str, Any], DataError | None]:
    """Return the recorded program, with the new program's entries in place of those that mean what they meant.

    They have other hashes alone after an upgrade, another text alone, or further columns of a user's state.

    Args:
        program, environment: Of this process.

    Returns:
        That program, and the error of the first state that is not accepted.
    """
    recorded, refused = dict(history.program), None
    # The program is as the newest claim has it, also if its owner was refused because of its environment.
    upgraded = _is_upgrade(history.environment, environment) or _is_upgrade(history.claimed_environment(), environment)
    for entry, now in program.items():
        try:
            before = recorded.get(entry)
            if not entry.startswith("processor ") or before in (None, now):
                continue
            recorded[entry] = before = _as_it_is_now(before, now, upgraded=upgraded)
            if before != now and accepts_state(history, entry, before, now):
                recorded[entry] = now
        except DataError as error:
            refused = refused or error
    return recorded, refused


def recorded_as_claimed(history: LogHistory, claim: Claim) -> dict[str, Any]:
    """Return the recorded program as `accepted` of a claim does.

    Raises:
        DataError: `[PROGRAM_CHANGED]` a state changes in another way.
    """
    recorded, refused = accepted(history, claim.program, claim.environment)
    if refused is not None:
        raise refused
    return recorded


_VERSIONS = frozenset(("boatlift", "spark", "java", "python"))
_SETTINGS = "spark."


def _is_upgrade(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two environments have other versions, and the same settings: those that both versions know."""
    known = [name for name in before.keys() & now.keys() if name.startswith(_SETTINGS)]
    same = all(before[name] == now[name] for name in known)
    return same and any(before.get(name) != now.get(name) for name in _VERSIONS)


def _as_it_is_now(before: Any, now: Any, *, upgraded: bool) -> Any:
    """Return a recorded operator with the hashes of today, if it means what it meant."""
    as_written = upgraded and before.get("written", "") == now.get("written") != ""
    if as_written:
        hashes = {key: now[key] for key in ("plan", "code") if key in now}
    elif all(before.get(key) == now.get(key) for key in ("plan", "code")):
        hashes = {}
    else:
        return before
    hashes |= {"written": now["written"]} if now.get("written") else {}
    layout = {"layout": now["layout"]} if "layout" in now and "layout" not in before else {}
    unknown = {"written"} if "layout" in now else {"written", "layout"}
    return {key: each for key, each in before.items() if key not in unknown} | hashes | layout


State = Mapping[str, Mapping[str, str]]


def accepts_state(history: LogHistory, entry: str, before: Any, now: Any) -> bool:
    """Return whether an entry of a program's identity is a processor whose state gets further columns, or parts.

    Args:
        before, now: Its value in the log, and in the program; None if it is absent.

    Raises:
        DataError: `[PROGRAM_CHANGED]` the state changes otherwise, or in a store in which steps may be executed again.
    """
    name = entry.removeprefix("processor ")
    if name == entry or before is None or now is None:
        return False
    old, new = (processors_of({entry: each})[name] for each in (before, now))
    if old.state is None or new.state is None or old.state == new.state:
        return False
    if msgspec.structs.replace(old, state=new.state, code=new.code, written=new.written, layout=new.layout) != new:
        return False
    lost = _lost(old.state, new.state)
    if lost:
        raise DataError(
            "PROGRAM_CHANGED",
            f"the state of {name} changes in {lost}: a state may get further columns, which begin with their default; "
            "keep the others as they were, and give a column of another type another name",
        )
    units = units_in(history.program)
    of, unit = next((of, each) for of, each in units.items() if name in each.operators)
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
    if not resumes(history, of):
        raise DataError(
            "PROGRAM_CHANGED",
            f"the state of {name} gets further columns, and has no checkpoint of its last step, so that steps are "
            "executed again: run the program once more as it was, with Lazy() as its policy, until it has taken all of "
            "its input, end it with Ctrl-C, then change it",
        )
    return True


def _lost(before: State, now: State) -> str:
    """Return the first column or part that is gone or has another type, in words; empty if there is none."""
    for part, columns in before.items():
        if part not in now:
            return f"{part!r}, which is gone"
        for column, kind in columns.items():
            found = now[part].get(column)
            if found != kind:
                return f"{column} ({kind}), " + ("which is gone" if found is None else f"which is {found} now")
    return ""
