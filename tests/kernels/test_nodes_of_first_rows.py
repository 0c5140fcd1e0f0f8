"""The nodes of the first rows of a key, under the laws of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from boatlift.kernels.network.node import NodeOutput, ZSet, concat
from boatlift.kernels.network.rows_of_keys import NumberedNode, Numbering, TopNNode
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.ordered import FirstRows, Order, exact_codes
from kernels.node_laws import NodeCase, NodeLaws, Rows, Tasks

some_number = st.one_of(st.none(), st.integers(0, 2))
some_text = st.one_of(st.none(), st.sampled_from(["", "a"]))
some_double = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])


@dataclass(frozen=True)
class Difference:
    """The node of first rows, with what it gives after a step less what it gives before as its one result."""

    node: TopNNode

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "node":
            raise AttributeError(name)
        return getattr(self.node, name)

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        return self.node.schemas[:1]

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        made = self.node.step(changes, state)
        before, after = made.changes or (None, None)
        taken_back = [] if before is None else [ZSet(before.columns, -before.weights)]
        return NodeOutput((concat([*taken_back, *([] if after is None else [after])]),), made.runs)


SCORES = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
"""The rows, of which the laws' strategies repeat the key, and the columns of the orders."""


def behind(rows: Rows, key: int, place: Callable[[Any], Any], count: int, *, different: bool = False) -> Rows:
    """Return the rows of a key that come first, by the column that is an order."""
    mine = sorted(((place(row[-1]), row[:3], weight) for row, weight in rows.items() if row[0] == key), key=repr)
    mine.sort(key=lambda each: each[0])
    found: Rows = Counter()
    places = set()
    for at, row, weight in mine:
        if at not in places and (len(places) if different else found.total()) >= count:
            break
        places.add(at)
        found[row] += weight
    return found


def of_each_key(rows: Rows, place: Callable[[Any], Any], count: int, *, different: bool = False) -> Rows:
    keys = {row[0] for row in rows}
    return sum((behind(rows, key, place, count, different=different) for key in keys), Counter())


some_score = st.builds(lambda k, x, s: (k, x, s, k, x), some_number, some_double, some_text)
some_word = st.builds(lambda k, x, s: (k, x, s, k, s), some_number, some_double, some_text)


def ascending(value: Any) -> tuple[int, float]:
    """Return the place of a number in ascending order: NULL, numbers, NaN."""
    return (0, 0.0) if value is None else (2, 0.0) if value == "NaN" else (1, value)


def descending(value: Any) -> int:
    """Return the place of a text in descending order, NULL last; the empty text and NULL have one place."""
    return -ord(value) if value else 0


class TestFirstTwo(NodeLaws):
    case = NodeCase(
        Difference(TopNNode("p", "TOP", SCORES, 1, Order(), FirstRows(2, ahead=0))),  # type: ignore[arg-type]
        (pa.schema([*SCORES, ("key", pa.int64()), ("order", pa.float64())]),),
        (some_score,),
        lambda rows: of_each_key(rows, ascending, 2),
    )


class TestFirstTwoPlaces(NodeLaws):
    case = NodeCase(
        Difference(
            TopNNode("p", "TOP", SCORES, 1, Order(True, False), FirstRows(2, different=True, ahead=-1))  # type: ignore[arg-type]
        ),
        (pa.schema([*SCORES, ("key", pa.int64()), ("order", pa.string())]),),
        (some_word,),
        lambda rows: of_each_key(rows, descending, 2, different=True),
    )


def numbered(rows: Rows, after: int, last: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the rows of each key from a number on, by text ascending, then by number descending, NULL last."""

    def place(row: tuple[Any, ...]) -> Any:
        _, x, s = row[:3]
        by_number = (2, 0.0) if x is None else (0, 0.0) if x == "NaN" else (1, -x)
        return (s is not None, s or "", by_number)

    for key in {row[0] for row in rows}:
        mine = sorted((row for row in rows.elements() if row[0] == key), key=place)
        yield from ((number, row[:3]) for number, row in enumerate(mine, 1) if after < number <= last)


BY_TEXT = ((2, Order()), (1, Order(descending=True, nulls_first=False)))


class TestNumbers(NodeLaws):
    case = NodeCase(
        NumberedNode(
            "p", "OVER", SCORES, 1, Order(), FirstRows(3, ahead=0), numbering=Numbering(BY_TEXT, 0, (0, 1, 2), True)
        ),
        (pa.schema([*SCORES, ("key", pa.int64()), ("order", pa.string())]),),
        (some_word,),
        lambda rows: Counter((*row, number) for number, row in numbered(rows, 0, 3)),
    )


class TestLimitWithOffset(NodeLaws):
    case = NodeCase(
        NumberedNode("p", "LIMIT", SCORES, 1, Order(), FirstRows(3), numbering=Numbering(BY_TEXT, 1, (2, 1), False)),
        (pa.schema([*SCORES, ("key", pa.int64()), ("order", pa.string())]),),
        (some_word,),
        lambda rows: Counter((s, x) for _, (_, x, s) in numbered(rows, 1, 3)),
    )


def test_the_least_number_and_null_have_places_of_their_own() -> None:
    column = pa.array([None, -(2**63), 2**63 - 1, None])
    flags, codes = exact_codes(column, Order())
    assert np.lexsort((codes, flags)).tolist() == [0, 3, 1, 2]
    flags, codes = exact_codes(column, Order(descending=True, nulls_first=False))
    assert np.lexsort((codes, flags)).tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize(
    ("kind", "ascending_values"),
    [
        (pa.string(), [None, "", "eight or more", "eight or more and", "z"]),
        (pa.binary(), [None, b"", b"\x00", b"\xff"]),
        (pa.decimal128(30, 2), [None, Decimal(-(10**27)), Decimal("0.01"), Decimal(10**27)]),
        (pa.float64(), [None, float("-inf"), 0.0, 1.5, float("inf"), float("nan")]),
    ],
)
def test_codes_keep_the_order_of_values_of_each_type(kind: pa.DataType, ascending_values: list[Any]) -> None:
    mixed = ascending_values[::2] + ascending_values[1::2]
    for descending in (False, True):
        flags, codes = exact_codes(pa.array(mixed, kind), Order(descending, nulls_first=not descending))
        found = [mixed[place] for place in np.lexsort((codes, flags))]
        assert list(map(repr, found)) == list(map(repr, ascending_values[:: -1 if descending else 1]))


def test_a_row_that_is_there_very_often_is_repeated_as_often_as_it_is_taken(tmp_path: Path) -> None:
    numbering = Numbering(BY_TEXT, 1, (2, 1), False)
    node = NumberedNode("p", "LIMIT", SCORES, 1, Order(), FirstRows(3), numbering=numbering)
    schema = pa.schema([*SCORES, ("key", pa.int64()), ("order", pa.string())])
    found = Tasks(node, (schema,), tmp_path).take([Counter({(1, 0.5, "a", 1, "a"): 2**40})])
    assert found == Counter({("a", 0.5): 2})


def test_of_rows_that_only_come_the_first_of_each_key_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([*SCORES, ("key", pa.int64()), ("order", pa.float64())])
    kept = {}
    for grows in (False, True):
        node = TopNNode("p", "TOP", SCORES, 1, Order(), FirstRows(2), grows)
        tasks = Tasks(Difference(node), (schema,), tmp_path / str(grows))  # type: ignore[arg-type]
        total: Rows = Counter()
        for begin in range(0, 60, 20):
            rows = Counter({(n % 2, float(60 - n), None, n % 2, float(60 - n)): 1 for n in range(begin, begin + 20)})
            for row, count in tasks.take([rows]).items():
                total[row] += count
        tasks.merge("rows")
        kept[grows] = sum(run.rows for run, _ in tasks.runs["rows"]), +total
    assert kept[False][0] == 60
    assert kept[True][0] == 4
    assert kept[True][1] == kept[False][1] == Counter({(n % 2, 60.0 - n, None): 1 for n in range(56, 60)})
