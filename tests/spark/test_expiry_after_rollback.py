"""Rows expire while runs are merged and states are taken back: no step misses a row that it may meet."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from boatlift.spark.jobs.state_parts import PassedTimes, drop_expired
from boatlift.state import table
from boatlift.state.table import StateTable
from boatlift.storage.records.records import RunRef

PART = "p"
Rows = dict[int, int]
"""Rows by number, each with the time at which it expires."""


@dataclass
class Lineage:
    """What one history of steps has come to.

    Attributes:
        states: The state after each step, and the bound of event time then.
        added: The rows that each step has added.
    """

    states: list[tuple[list[RunRef], int]] = field(default_factory=lambda: [([], 0)])
    added: list[Rows] = field(default_factory=list)


class Steps:
    """Steps that add a run each, over a table whose runs are merged in the background.

    Args:
        chance: Draws rows, bounds, merges and rollbacks.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._contents: dict[str, Rows] = {}
        self._passed = PassedTimes()
        self._table = StateTable(self._merge)
        self._numbers = iter(range(10**9))
        self._lineage, self._saved = Lineage(), 0
        self.merged = self.dropped = 0

    def _run(self, rows: Rows, first: int, last: int) -> RunRef:
        name = f"runs/{next(self._numbers)}"
        self._contents[name] = rows
        return RunRef(name, first, last, 1, 0, len(rows), 1, "", max(rows.values()))

    def _merge(self, runs: Sequence[RunRef], /, *, oldest: bool) -> list[RunRef]:
        del oldest
        last = max(run.last for run in runs)
        now = self._passed.after(last, PART)
        every = {number: end for run in runs for number, end in self._contents[run.name].items()}
        rows = {number: end for number, end in every.items() if now is None or end > now}
        self.merged += 1
        self.dropped += len(every) - len(rows)
        return [self._run(rows, min(run.first for run in runs), last)] if rows else []

    def step(self) -> None:
        """Execute a step: look at the state before it, add rows, move the bound."""
        states, added = self._lineage.states, self._lineage.added
        number, (before, bound) = len(added), states[-1]
        held = {PART: self._table.resolve(before)}
        there = {each for run in held[PART] for each in self._contents[run.name]}
        wanted = {each for rows in added for each, end in rows.items() if end > bound}
        assert wanted <= there, f"step {number} misses {wanted - there}"
        rows = {next(self._numbers): bound + self._chance.randint(1, 12) for _ in range(self._chance.randint(1, 5))}
        after = bound + self._chance.choice((0, 0, 1, 2, 5))
        held[PART].append(self._run(rows, number, number))
        passed: Mapping[str, int] = {PART: after}
        drop_expired(held, passed)
        added.append(rows)
        states.append((held[PART], after))
        self._passed.record(number, passed)
        self._table.grown(held[PART])
        if self._chance.random() < 0.7 and (merging := self._table._merging) is not None:
            merging.result()

    def save(self) -> None:
        """Make the state after some step durable: no rollback leads beyond it."""
        self._saved = self._chance.randint(self._saved, len(self._lineage.states) - 1)
        self._table.saved(self._lineage.states[self._saved][0])

    def roll_back(self) -> None:
        """Go back to the state after some step; the steps after it may have other rows and other bounds."""
        kept = self._chance.randint(self._saved, len(self._lineage.states) - 1)
        self._lineage = Lineage(self._lineage.states[: kept + 1], self._lineage.added[:kept])

    def close(self) -> None:
        """End merges."""
        self._table.close()


@pytest.mark.parametrize("seed", range(40))
def test_no_step_misses_a_row_that_has_not_expired(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Law (`ExpiryColumn`): what a merge leaves out, no step needs that may read the merged run."""
    monkeypatch.setattr(table, "SINGLE", 2)
    steps = Steps(random.Random(seed))
    for _ in range(150):
        steps.step()
        if steps._chance.random() < 0.2:
            steps.save()
        if steps._chance.random() < 0.15:
            steps.roll_back()
    steps.close()
    assert steps.merged > 10
    assert steps.dropped > 5
