"""`check_operator` passes an operator that keeps the laws, and names the law that another breaks."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import boatlift as bl
from boatlift.testing import check_operator

STEPS = [pa.table({"k": ["a", "b"]}), pa.table({"k": ["a"]}), pa.table({"k": ["c", "a"]})]


class Names(bl.StatefulOperator):
    """How often each name came, in the order in which names came first."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.since: list[str] = []

    def process(self, rows: pa.Table) -> pa.Table | None:
        for name in rows.column("k").to_pylist():
            self.counts[name] = self.counts.get(name, 0) + 1
            self.since.append(name)
        return pa.table({"n": [sum(self.counts.values())]})

    def get_state(self) -> bytes:
        self.since = []
        return " ".join(f"{name}:{count}" for name, count in self.counts.items()).encode()

    def set_state(self, state: bytes) -> None:
        pairs = (each.split(":") for each in state.decode().split())
        self.counts, self.since = {name: int(count) for name, count in pairs}, []

    def get_delta(self) -> bytes:
        delta, self.since = " ".join(self.since).encode(), []
        return delta

    def apply_delta(self, delta: bytes) -> None:
        for name in delta.decode().split():
            self.counts[name] = self.counts.get(name, 0) + 1


def test_an_operator_that_keeps_the_laws_passes_and_is_not_changed() -> None:
    operator = Names()
    check_operator(operator, STEPS)
    assert operator.counts == {}


class DeltaOfEverything(Names):
    def get_delta(self) -> bytes:
        return " ".join(self.since).encode()


class ForgetsDeltas(Names):
    def apply_delta(self, delta: bytes) -> None:
        if not self.counts:
            super().apply_delta(delta)


class Chance(Names):
    def process(self, rows: pa.Table) -> pa.Table | None:
        super().process(rows)
        return pa.table({"n": [random.random()]})


class RowsBesideTheState(Names):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def process(self, rows: pa.Table) -> pa.Table | None:
        super().process(rows)
        self.steps += 1
        return pa.table({"n": [self.steps]})


class Shared(Names):
    def __init__(self) -> None:
        super().__init__()
        self.counts = Everything()


class Everything(dict[str, int]):
    """A dictionary that is its own copy."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Everything:
        return self


class Text(Names):
    def get_delta(self) -> Any:
        return super().get_delta().decode()


@pytest.mark.parametrize(
    ("operator", "law"),
    [
        (DeltaOfEverything, "Snapshot and deltas: from nothing, step 1 has another state"),
        (ForgetsDeltas, "Snapshot and deltas"),
        (Chance, "Replay: what comes of step 0"),
        (RowsBesideTheState, "Groups are independent: moved after step 0"),
        (Shared, "Replay: the state of step 0|Groups are independent"),
        (Text, "get_delta gives bytes"),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_a_broken_law_is_named(operator: type[bl.StatefulOperator], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_operator(operator(), STEPS)


def test_one_step_proves_nothing() -> None:
    with pytest.raises(ValueError, match="at least two steps"):
        check_operator(Names(), STEPS[:1])
