"""What sinks hold after a crash is compared as multisets of rows, floats to the last bit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.testing.held import RowsOfSink, SinkDifference, compare
from boatlift.testing.twins import row_text

Row = tuple[int, tuple[str, str] | None, dict[str, Any]]


def held(rows: Iterable[Row], key: list[str] | None = None, *, again: bool = False) -> RowsOfSink:
    lines = [json.dumps({"key": key, "again": again})]
    lines += [json.dumps([weight, delivered, row_text(values)]) for weight, delivered, values in rows]
    return RowsOfSink.read(lines)


def new(*rows: dict[str, Any], key: list[str] | None = None) -> RowsOfSink:
    return held([(1, None, row) for row in rows], key)


def delivered(*rows: tuple[str, str, dict[str, Any]]) -> RowsOfSink:
    return held([(1, (part, delivery), row) for part, delivery, row in rows], again=True)


def difference(expected: RowsOfSink, found: RowsOfSink) -> SinkDifference:
    (only,) = compare({"out": expected}, {"out": found})
    return only


def test_rows_that_are_lost_or_extra_are_counted_and_the_first_is_named() -> None:
    found = difference(new({"k": 1}, {"k": 2}, {"k": 2}), new({"k": 2}, {"k": 3}))
    assert (found.lost, found.extra, found.expected, found.rows, found.right) == (2, 1, 3, 2, False)
    assert found.first == 'lost {"k": 1} and extra {"k": 3}'


def test_a_row_of_a_key_that_differs_is_changed() -> None:
    expected, found = (new({"k": 1, "v": 5}, {"k": 2, "v": v}, key=["k"]) for v in (6, 7))
    assert difference(expected, found).first == 'changed from {"k": 2, "v": 6} to {"k": 2, "v": 7}'


def test_the_order_of_rows_does_not_matter() -> None:
    assert difference(new({"k": 1}, {"k": 2}), new({"k": 2}, {"k": 1})).right


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (0.1 + 0.2, 0.3), (float("nan"), None), (1, 1.0), (True, 1), (b"a", b"b"), (None, "None")],
)
def test_values_are_compared_to_the_last_bit(one: object, other: object) -> None:
    assert not difference(new({"v": one}), new({"v": other})).right
    assert difference(new({"v": one}), new({"v": one})).right


def test_values_of_all_types_have_a_text() -> None:
    text = row_text({"a": Decimal("1.50"), "b": datetime(2026, 1, 2, 3, 4), "c": [b"x", {"d": float("inf")}]})  # noqa: DTZ001
    assert text == '{"a": "1.50", "b": "2026-01-02 03:04:00", "c": ["base64:eA==", {"d": Infinity}]}'


def test_changes_are_summed() -> None:
    changes = held([(1, None, {"n": 1}), (-1, None, {"n": 1}), (1, None, {"n": 2})])
    assert difference(new({"n": 2}), changes).right
    assert difference(changes, held([(-1, None, {"n": 2})])).first == 'lost {"n": 2}'
    assert difference(held([]), held([(-1, None, {"n": 3})])).first == 'lost {"n": 3}'


def test_a_part_that_is_delivered_again_with_the_same_rows_is_right() -> None:
    once = delivered(("0-0", "a", {"k": 1}), ("1-0", "b", {"k": 2}))
    twice = delivered(("0-0", "c", {"k": 1}), ("1-0", "d", {"k": 2}), ("1-0", "e", {"k": 2}))
    found = difference(once, twice)
    assert (found.right, found.repeated, found.rows, found.at_least_once) == (True, 1, 2, True)


def test_a_part_that_is_delivered_again_with_other_rows_is_wrong() -> None:
    once = delivered(("000000000010-0", "a", {"k": 1}))
    torn = delivered(("000000000010-0", "b", {"k": 1}), ("000000000010-0", "c", {"k": 9}))
    assert difference(once, torn).first == (
        'step 10 was delivered again with other rows: lost {"k": 1} and extra {"k": 9}'
    )


def test_a_row_that_was_never_delivered_is_lost() -> None:
    once = delivered(("0-0", "a", {"k": 1}), ("1-0", "b", {"k": 2}))
    assert difference(once, delivered(("0-0", "a", {"k": 1}))).first == 'lost {"k": 2}'


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_two_runs_are_alike_if_and_only_if_their_multisets_are(one: list[int], other: list[int]) -> None:
    found = difference(new(*({"k": k} for k in one)), new(*({"k": k} for k in other)))
    assert found.right is (Counter(one) == Counter(other))
    assert found.rows == found.expected - found.lost + found.extra
