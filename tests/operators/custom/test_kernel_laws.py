"""The kernel of custom operators keeps the laws of kernels, through snapshots and deltas."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from hypothesis import strategies as st

import boatlift as bl
from boatlift.errors import DataError
from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.operators.custom import kernel as custom_kernel
from boatlift.operators.custom.kernel import DELTAS_KEPT, CustomKernel, Entry, GroupState
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Hash, Row, batch_maker, crowded_hash, same_hash, spread_hash

KEYS = (("a", pa.int64()), ("b", pa.string()))
COLUMNS = pa.schema([*KEYS, ("v", pa.int64())])
OUTPUT = pa.schema([*KEYS, ("sum", pa.int64()), ("n", pa.int64())])


class Sums(bl.StatefulOperator):
    """The running sum of each key: one row for each row."""

    def __init__(self) -> None:
        self.sums: dict[str, list[int]] = {}
        self.touched: set[str] = set()

    def process(self, rows: pa.Table) -> pa.Table | None:
        made = []
        for row in rows.to_pylist():
            name = json.dumps([row["a"], row["b"]])
            total = self.sums.setdefault(name, [0, 0])
            total[0] += row["v"]
            total[1] += 1
            self.touched.add(name)
            made.append({"a": row["a"], "b": row["b"], "sum": total[0], "n": total[1]})
        return pa.Table.from_pylist(made, OUTPUT)

    def get_state(self) -> bytes:
        self.touched = set()
        return json.dumps(self.sums, sort_keys=True).encode()

    def set_state(self, state: bytes) -> None:
        self.sums, self.touched = json.loads(state), set()

    def get_delta(self) -> bytes:
        delta = {name: self.sums[name] for name in sorted(self.touched)}
        self.touched = set()
        return json.dumps(delta).encode()

    def apply_delta(self, delta: bytes) -> None:
        self.sums.update(json.loads(delta))


class InPlainPython:
    def __init__(self) -> None:
        self.sums: defaultdict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])

    def take(self, inputs: Step) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for row in sorted(inputs[ROWS_INPUT], key=lambda row: row["v"]):
            total = self.sums[row["a"], row["b"]]
            total[0] += row["v"]
            total[1] += 1
            found[row["a"], row["b"], total[0], total[1]] += 1
        return found


some_row = st.fixed_dictionaries(
    {"a": st.one_of(st.none(), st.integers(0, 2)), "b": st.sampled_from([None, "", "x"]), "v": st.integers(-4, 8)}
)


def case(hash_of: Hash) -> KernelCase:
    steps = st.lists(st.lists(some_row, max_size=8), min_size=1, max_size=6)
    return KernelCase(
        CustomKernel("c", KEYS, COLUMNS, ("v",), OUTPUT, Sums(), "sums"),
        steps.map(lambda each: [{ROWS_INPUT: rows} for rows in each]),
        InPlainPython,
        batch_maker(COLUMNS, lambda row: hash_of((row["a"], row["b"]))),
        lambda _, row: hash_of((row["a"], row["b"])),
    )


@pytest.fixture(autouse=True, params=["objects kept", "objects loaded"])
def _keeps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_kernel, "DELTAS_KEPT", 3)
    if request.param == "objects loaded":
        monkeypatch.setattr(custom_kernel, "_KEPT_OBJECTS", 0)


class TestSpread(KernelLaws):
    case = case(spread_hash)


class TestCrowded(KernelLaws):
    case = case(crowded_hash)


class TestOneHash(KernelLaws):
    case = case(same_hash)


def rows(*values: int) -> pa.Table:
    return pa.Table.from_pylist([{"a": 1, "b": "x", "v": value} for value in values], COLUMNS)


def entries_of(count: int) -> list[Entry]:
    """Return the deltas of some steps."""
    entries: list[Entry] = []
    for number in range(count):
        group = GroupState("c", f"entries of {count}", Sums(), 5, entries)
        group.operator.process(rows(number))
        entries.append(group.written())
    return entries


def test_a_delta_applied_to_the_wrong_base_is_refused() -> None:
    first, second, third = entries_of(3)
    assert GroupState("c", "i", Sums(), 5, [first, second, third]).operator.get_state() == b'{"[1, \\"x\\"]": [3, 3]}'
    for wrong in (
        [second],
        [first, third],
        [second, first],
        [first, second, second],
        [first, Entry(1, False, b"", b"{}")],
    ):
        with pytest.raises(DataError, match="of key group 5 of c builds on another state") as refused:
            GroupState("c", "i", Sums(), 5, wrong)
        assert refused.value.condition == "CORRUPT"


def test_a_snapshot_takes_the_place_of_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_kernel, "DELTAS_KEPT", DELTAS_KEPT)
    entries = entries_of(DELTAS_KEPT)
    assert not any(entry.snapshot for entry in entries)
    group = GroupState("c", "i", Sums(), 5, entries)
    group.operator.process(rows(7))
    snapshot = group.written()
    assert snapshot.snapshot
    later = GroupState("c", "i", Sums(), 5, [snapshot])
    assert later.operator.get_state() == group.operator.get_state()
    assert not later.written().snapshot
