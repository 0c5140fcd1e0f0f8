"""The laws of operators with a data structure of their own, for a user's tests."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import cloudpickle

from boatlift.operators.custom.operator import StatefulOperator


def check_operator(operator: StatefulOperator, steps: Sequence[pa.Table]) -> None:
    """Assert that an operator keeps the laws of `StatefulOperator` over some steps of one key group.

    Args:
        operator: The object that a key group begins with. It is not changed.
        steps: The rows of each step, in the order in which a task would hand them over; at least two steps.

    Raises:
        AssertionError: A law does not hold; the message says which, and at which step.
        ValueError: There are fewer than two steps.
    """
    if len(steps) < 2:
        raise ValueError("check_operator needs at least two steps: one to begin with, and one to go on with")
    before = copy.deepcopy(operator).get_state()
    course = _run(operator, steps)
    _assert_replay(operator, steps, course)
    _assert_rest(operator, course.states)
    _assert_snapshot_and_deltas(operator, course.states, course.deltas)
    _assert_groups_move(operator, steps, course)
    assert copy.deepcopy(operator).get_state() == before, (
        "Groups are independent: an object has changed what the others begin with"
    )


@dataclass(frozen=True)
class _Course:
    """The states, deltas and rows of an operator, step by step."""

    states: list[bytes]
    deltas: list[bytes]
    rows: list[pa.Table | None]


def _run(operator: StatefulOperator, steps: Sequence[pa.Table]) -> _Course:
    course = _Course([], [], [])
    one = copy.deepcopy(operator)
    for step in steps:
        course.rows.append(one.process(step))
        course.deltas.append(one.get_delta())
        course.states.append(_copied(one).get_state())
    for name, every in (("get_state", course.states), ("get_delta", course.deltas)):
        assert all(type(each) is bytes for each in every), f"{name} gives bytes"
    return course


def _assert_replay(operator: StatefulOperator, steps: Sequence[pa.Table], course: _Course) -> None:
    again = _run(operator, steps)
    for number in range(len(steps)):
        where = f"of step {number} differs when it is executed again"
        assert course.states[number] == again.states[number], f"Replay: the state {where}"
        assert course.deltas[number] == again.deltas[number], f"Replay: the delta {where}"
        assert _equal(course.rows[number], again.rows[number]), f"Replay: what comes {where}"


def _equal(one: pa.Table | None, other: pa.Table | None) -> bool:
    return one is other if one is None or other is None else bool(one.equals(other))


def _assert_rest(operator: StatefulOperator, states: Sequence[bytes]) -> None:
    for number, state in enumerate(states):
        one = copy.deepcopy(operator)
        one.set_state(state)
        resting = one.get_delta()
        one.apply_delta(resting)
        assert one.get_state() == state, f"Rest: after step {number}, a delta of nothing changes the state"


def _assert_snapshot_and_deltas(operator: StatefulOperator, states: Sequence[bytes], deltas: Sequence[bytes]) -> None:
    """Restore from nothing, or from the snapshot of any step, and apply the later deltas."""
    for begin in range(-1, len(states)):
        one = copy.deepcopy(operator)
        if begin >= 0:
            one.set_state(states[begin])
        for number in range(begin + 1, len(states)):
            one.apply_delta(deltas[number])
            found = _copied(one).get_state()
            where = "nothing" if begin < 0 else f"the snapshot of step {begin}"
            assert found == states[number], f"Snapshot and deltas: from {where}, step {number} has another state"


def _assert_groups_move(operator: StatefulOperator, steps: Sequence[pa.Table], course: _Course) -> None:
    """Continue from each snapshot in an object that was pickled, as for another process."""
    for begin in range(len(steps) - 1):
        one = pickle.loads(cloudpickle.dumps(operator))  # type: ignore[no-untyped-call]
        one.set_state(course.states[begin])
        same = _equal(one.process(steps[begin + 1]), course.rows[begin + 1])
        assert same, f"Groups are independent: moved after step {begin}, step {begin + 1} gives other rows"


def _copied(operator: StatefulOperator) -> StatefulOperator:
    """Return a copy, because `get_state` lets the deltas begin anew."""
    return copy.deepcopy(operator)
