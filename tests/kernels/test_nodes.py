"""The nodes that there are, under the laws of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.kernels.aggregate import AggregateColumn, AggregateNode, Layout
from boatlift.kernels.aggregate.node import DistinctNode
from boatlift.kernels.network.join import Gives, JoinNode, OuterJoinNode, SemiJoinNode
from boatlift.kernels.network.node import ZSet
from boatlift.kernels.network.not_in import NotInNode
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.codec import ArrangedRows, ArrangementCodec
from boatlift.state.arrangement.join import Side
from boatlift.state.key_groups import Share
from boatlift.state.opened import RunsOnDemand
from kernels.node_laws import NodeCase, NodeLaws, Rows, Tasks

some_number = st.one_of(st.none(), st.integers(0, 2))
some_text = st.one_of(st.none(), st.sampled_from(["", "a"]))
some_double = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])

LEFT = Side(ArrangementCodec(pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64())])), (0, 1), (2, 0))
RIGHT = Side(ArrangementCodec(pa.schema([("y", pa.string()), ("k", pa.int64()), ("s", pa.string())])), (1, 2), (0,))


def joined(left: Rows, right: Rows) -> Rows:
    result: Rows = Counter()
    for (k, s, x), count in left.items():
        for (y, other_k, other_s), other in right.items():
            if None not in (k, s) and (k, s) == (other_k, other_s):
                result[x, k, y] += count * other
    return result


class TestJoin(NodeLaws):
    case = NodeCase(
        JoinNode("p", "INNER JOIN", LEFT, RIGHT),
        (LEFT.codec.schema, RIGHT.codec.schema),
        (st.tuples(some_number, some_text, some_double), st.tuples(some_text, some_number, some_text)),
        joined,
    )


def partner_of(row: tuple[Any, ...], others: Rows, places: tuple[int, int], other_places: tuple[int, int]) -> bool:
    key = tuple(row[place] for place in places)
    return None not in key and any(tuple(other[place] for place in other_places) == key for other in others)


def outer(alone: tuple[bool, bool]) -> Callable[[Rows, Rows], Rows]:
    def function(left: Rows, right: Rows) -> Rows:
        result = joined(left, right)
        for row, count in left.items():
            if alone[0] and not partner_of(row, right, (0, 1), (1, 2)):
                result[row[2], row[0], None] += count
        for row, count in right.items():
            if alone[1] and not partner_of(row, left, (1, 2), (0, 1)):
                result[None, None, row[0]] += count
        return result

    return function


class Outer(NodeLaws):
    alone: ClassVar[tuple[bool, bool]]

    def __init_subclass__(cls) -> None:
        cls.case = NodeCase(
            OuterJoinNode("p", "OUTER JOIN", (LEFT, RIGHT), cls.alone),
            TestJoin.case.schemas,
            TestJoin.case.rows,
            outer(cls.alone),
        )


class TestLeftOuter(Outer):
    alone = (True, False)


class TestRightOuter(Outer):
    alone = (False, True)


class TestFullOuter(Outer):
    alone = (True, True)


def semi(gives: Gives) -> Callable[[Rows, Rows], Rows]:
    def function(left: Rows, right: Rows) -> Rows:
        result: Rows = Counter()
        for row, count in left.items():
            has = partner_of(row, right, (0, 1), (0, 1))
            if gives == "both":
                result[row[2], row[0], has] += count
            elif has == (gives == "matched"):
                result[row[2], row[0]] += count
        return result

    return function


class Semi(NodeLaws):
    gives: ClassVar[Gives]

    def __init_subclass__(cls) -> None:
        keys = pa.schema([("k", pa.int64()), ("s", pa.string())])
        cls.case = NodeCase(
            SemiJoinNode("p", "SEMI JOIN", LEFT, keys, cls.gives),
            (LEFT.codec.schema, keys),
            (TestJoin.case.rows[0], st.tuples(some_number, some_text)),
            semi(cls.gives),
        )


class TestSemi(Semi):
    gives = "matched"


class TestAnti(Semi):
    gives = "unmatched"


class TestExistence(Semi):
    gives = "both"


def not_in(left: Rows, right: Rows) -> Rows:
    values = {row[0] for row in right}
    if not values:
        return sum_of(left)
    if None in values:
        return Counter()
    return sum_of(Counter({row: count for row, count in left.items() if row[0] is not None and row[0] not in values}))


def sum_of(rows: Rows) -> Rows:
    result: Rows = Counter()
    for row, count in rows.items():
        result[row[2], row[0]] += count
    return result


class TestNotIn(NodeLaws):
    side = Side(LEFT.codec, (0,), (2, 0))
    values = pa.schema([("k", pa.int64())])
    case = NodeCase(
        NotInNode("p", "k NOT IN …", side, values),
        (LEFT.codec.schema, values),
        (st.tuples(st.one_of(some_number, st.just(9)), some_text, some_double), st.tuples(some_number)),
        not_in,
    )

    @staticmethod
    def _example(some: st.SearchStrategy[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [row for row in NodeLaws._example(some) if row[0] is not None]  # beside a NULL nothing comes out


def test_a_semi_join_refuses_a_partner_that_goes_without_having_come(tmp_path: Path) -> None:
    case = TestSemi.case
    tasks = Tasks(case.node, case.schemas, tmp_path / "runs")
    tasks.take([Counter({(1, "a", 0.5): 1}), Counter({(1, "a"): 1})])
    with pytest.raises(DataError, match=r"SEMI JOIN of p loses {'k': 1, 's': 'a'} more often than it came"):
        tasks.take([Counter(), Counter({(1, "a"): -2})])


ROWS = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("l", pa.list_(pa.string()))])


class TestDistinct(NodeLaws):
    case = NodeCase(
        DistinctNode("p", "DISTINCT", ROWS),
        (ROWS,),
        (st.tuples(some_number, some_double, st.one_of(st.none(), st.lists(some_text, max_size=2).map(tuple))),),
        lambda rows: Counter(dict.fromkeys(rows, 1)),
    )


FUNCTIONS = (
    AggregateColumn("count_all", None, "n", None, pa.int64()),
    AggregateColumn("count", "v", "c", pa.int64(), pa.int64()),
    AggregateColumn("sum", "v", "s", pa.int64(), pa.int64()),
    AggregateColumn("avg", "v", "m", pa.int64(), pa.float64()),
)
KEYED = Layout((("k", pa.string()),), FUNCTIONS, weighted=True)
WHOLE = Layout((), FUNCTIONS, weighted=True)


def totals(rows: Rows) -> tuple[int, int, int | None, float | None]:
    known = {row[-1]: 0 for row in rows if row[-1] is not None}
    for row, count in rows.items():
        if row[-1] is not None:
            known[row[-1]] += count
    count, total = sum(known.values()), sum(value * count for value, count in known.items())
    return rows.total(), count, total if count else None, total / count if count else None


def by_key(rows: Rows) -> Rows:
    keys = {row[0] for row in rows}
    return Counter({(key, *totals(Counter({r: n for r, n in rows.items() if r[0] == key}))): 1 for key in keys})


class TestAggregate(NodeLaws):
    case = NodeCase(
        AggregateNode("p", KEYED, ("k",)),
        (pa.schema([("k", pa.string()), ("v", pa.int64())]),),
        (st.tuples(some_text, some_number),),
        by_key,
    )


class TestAggregateOfEverything(NodeLaws):
    """Its one row is there from the first step on, also for no rows."""

    case = NodeCase(
        AggregateNode("p", WHOLE, ()),
        (pa.schema([("v", pa.int64())]),),
        (st.tuples(some_number),),
        lambda rows: Counter({totals(rows): 1}),
    )


VALUES = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.string()), ("x", pa.float64())])
BESIDE = Layout(
    (("k", pa.string()),),
    (
        AggregateColumn("count_all", None, "n", None, pa.int64()),
        AggregateColumn("min", "v", "lv", pa.int64(), pa.int64()),
        AggregateColumn("max", "v", "gv", pa.int64(), pa.int64()),
        AggregateColumn("sum", "v", "sv", pa.int64(), pa.int64()),
        AggregateColumn("max", "t", "gt", pa.string(), pa.string()),
        AggregateColumn("min", "x", "lx", pa.float64(), pa.float64()),
        AggregateColumn("count", "dv", "dn", pa.int64(), pa.int64(), distinct=True),
        AggregateColumn("sum", "dv", "ds", pa.int64(), pa.int64(), distinct=True),
        AggregateColumn("count", "dt", "dt", pa.string(), pa.int64(), distinct=True),
    ),
    weighted=True,
    ordered=True,
)


def aggregated_beside(rows: Rows) -> Rows:
    result: Rows = Counter()
    for key in {row[0] for row in rows}:
        mine = {row: count for row, count in rows.items() if row[0] == key}
        v, t, x = ([(row[at], count) for row, count in mine.items() if row[at] is not None] for at in (1, 2, 3))
        numbers = sorted((float("inf") if value == "NaN" else value, value) for value, _ in x)
        distinct = {value for value, _ in v}
        result[
            key,
            sum(mine.values()),
            min((value for value, _ in v), default=None),
            max((value for value, _ in v), default=None),
            sum(value * count for value, count in v) if v else None,
            max((value for value, _ in t), default=None),
            numbers[0][1] if numbers else None,
            len(distinct),
            sum(distinct) if v else None,
            len({value for value, _ in t}),
        ] += 1
    return result


class TestMinimaAndDistinctValues(NodeLaws):
    one_zero = st.sampled_from([0.0, 1.5, float("nan"), None])  # as the rows of a job's input have it
    some_text = st.one_of(st.none(), st.sampled_from(["", "a", "12345678", "12345678 ", "123456789"]))
    case = NodeCase(
        AggregateNode("p", BESIDE, ("k",)),
        (pa.schema([*VALUES, ("dv", pa.int64()), ("dt", pa.string())]),),
        (
            st.tuples(st.sampled_from([None, "a"]), some_number, some_text, one_zero).map(
                lambda row: (*row, row[1], row[2])
            ),
        ),
        aggregated_beside,
    )


TYPES = {
    "big": (pa.decimal128(30, 2), [Decimal("1.25"), Decimal(10**25), Decimal(-(10**25))]),
    "day": (pa.date32(), [date(2026, 1, 1), date(1969, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)]),
    "flag": (pa.bool_(), [False, True]),
    "small": (pa.float32(), [0.5, -1.5]),
    "raw": (pa.binary(), [b"", b"12345678", b"123456789", b"\xff"]),
}
OF_ALL = Layout(
    (),
    (
        AggregateColumn("count_all", None, "n", None, pa.int64()),
        *(AggregateColumn("min", name, f"l_{name}", kind, kind) for name, (kind, _) in TYPES.items()),
        *(AggregateColumn("max", name, f"g_{name}", kind, kind) for name, (kind, _) in TYPES.items()),
        AggregateColumn("var_pop", "once", "v", pa.float64(), pa.float64(), distinct=True),
    ),
    weighted=True,
    ordered=True,
)


def aggregated_of_all(rows: Rows) -> Rows:
    columns = list(zip(*rows, strict=True)) if rows else [()] * (len(TYPES) + 1)
    known = [[value for value in column if value is not None] for column in columns]
    once = [Fraction(value) for value in set(known[-1])]
    mean = sum(once) / len(once) if once else Fraction(0)
    variance = float(sum((value - mean) ** 2 for value in once)) / len(once) if once else None
    least, greatest = ([pick(values) if values else None for values in known[:-1]] for pick in (min, max))
    return Counter([(sum(rows.values()), *least, *greatest, variance)])


class TestMinimaOfEveryTypeWithoutKeys(NodeLaws):
    case = NodeCase(
        AggregateNode("p", OF_ALL, ()),
        (pa.schema([*((name, kind) for name, (kind, _) in TYPES.items()), ("once", pa.float64())]),),
        (
            st.tuples(
                *(st.sampled_from([None, *values]) for _, values in TYPES.values()),
                st.sampled_from([None, 1.0, 2.5, 4.0]),
            ),
        ),
        aggregated_of_all,
    )

    def test_a_step_without_rows_gives_nothing(self, tmp_path: Path) -> None:
        tasks = Tasks(self.case.node, self.case.schemas, tmp_path / "runs")
        assert tasks.take([Counter()]) == aggregated_of_all(Counter()), "the row of no rows begins with the first step"
        assert tasks.take([Counter()]) == Counter()


def count_rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each read of an arrangement adds its number of rows."""
    read: list[int] = []
    original = ArrangementCodec.read

    def counted(self: ArrangementCodec, stored: ArrangedRows, rows: Any) -> ArrangedRows:
        found = original(self, stored, rows)
        read.append(len(found.weights))
        return found

    monkeypatch.setattr(ArrangementCodec, "read", counted)
    return read


@pytest.mark.parametrize("case", [TestAnti.case, TestLeftOuter.case], ids=["anti", "left outer"])
def test_another_partner_reads_no_rows_of_a_hot_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: NodeCase
) -> None:
    keys_alone = case is TestAnti.case
    first, second = ((1, "a"), (2, "b")) if keys_alone else (("y", 1, "a"), ("y", 2, "b"))
    tasks = Tasks(case.node, case.schemas, tmp_path / "runs")
    tasks.take([Counter({(1, "a", float(number)): 1 for number in range(10_000)}), Counter({first: 1})])
    read = count_rows_read(monkeypatch)
    tasks.take([Counter(), Counter({second: 1, first: 1} if keys_alone else {second: 1})])
    assert sum(read) < 10


def test_the_first_value_of_not_in_hands_on_what_changes_alone(tmp_path: Path) -> None:
    case = TestNotIn.case
    left = pa.table({"k": range(1000), "s": ["a"] * 1000, "x": [0.5] * 1000})
    change = ZSet(tuple(column.combine_chunks() for column in left.columns), np.ones(1000, np.int64))
    state = StepState({part: [] for part in case.node.parts}, lambda part: tmp_path / part, 0, Share())
    made = case.node.step([change, None], state)
    held = {part: RunsOnDemand([(run, str(tmp_path / part))], case.node.parts[part]) for part, run in made.runs.items()}
    state = StepState({"right_keys": [], "right_kinds": [], **held}, lambda part: tmp_path / f"1-{part}", 1, Share())
    (found,) = case.node.step([None, ZSet((pa.array([5]),), np.ones(1, np.int64))], state).changes
    assert found is not None
    assert found.weights.tolist() == [-1]
    assert [column.to_pylist() for column in found.columns] == [[0.5], [5]]


def test_a_value_that_goes_without_having_come_is_reported(tmp_path: Path) -> None:
    layout = Layout((), BESIDE.aggregates[1:2], weighted=True, ordered=True)
    tasks = Tasks(AggregateNode("p", layout, ()), (pa.schema([("v", pa.int64())]),), tmp_path / "runs")
    tasks.take([Counter({(7,): 1, (9,): 2})])
    with pytest.raises(DataError, match=r"min of p loses {'v': 5} more often than it came"):
        tasks.take([Counter({(5,): -1})])


def test_a_row_that_goes_without_having_come_is_named(tmp_path: Path) -> None:
    tasks = Tasks(DistinctNode("orders", "DISTINCT", ROWS), (ROWS,), tmp_path / "runs")
    tasks.take([Counter({(1, 0.5, None): 1})])
    with pytest.raises(
        DataError, match=r"\[NEGATIVE_WEIGHT\] DISTINCT of orders loses \{'k': 1, 'x': 0.5, 'l': None\}"
    ):
        tasks.take([Counter({(1, 0.5, None): -2})])
