"""The node of session windows: it gives sessions that change whole, and its rows go once nothing can change them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from boatlift.kernels.network.node import ZSet
from boatlift.kernels.network.rows_of_keys import SESSION_ROWS, SessionsNode, session_spans
from boatlift.kernels.step_state import StepState
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share, residues
from boatlift.state.merge import merge_runs
from boatlift.state.opened import RunsOnDemand, open_run
from boatlift.storage.records.records import RunRef

Row = tuple[int, int, int]
"""A key, and when the session of the row alone begins and ends, in milliseconds."""

Sessions = Counter[tuple[int, int, int, int]]
"""Sessions by key, begin, end and number of rows."""

TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema([("k", pa.int64()), ("session", pa.struct([("start", TIME), ("end", TIME)]))])
NODE = SessionsNode("p", "GROUP BY k", ROWS, 1, 1)
EXPIRY = ExpiryColumn("rows", len(ROWS), later=1)


def sessions_of(rows: Counter[Row]) -> Sessions:
    """Return the sessions of rows, as Spark tells them apart."""
    found: Sessions = Counter()
    for key in {row[0] for row in rows}:
        open_at: tuple[int, int, int] | None = None
        for _, begin, end in sorted(row for row in rows.elements() if row[0] == key):
            if open_at is not None and begin <= open_at[1]:
                open_at = (open_at[0], max(open_at[1], end), open_at[2] + 1)
                continue
            if open_at is not None:
                found[key, *open_at] += 1
            open_at = (begin, end, 1)
        assert open_at is not None
        found[key, *open_at] += 1
    return found


@dataclass
class Steps:
    """Steps of the node in a folder, between which runs are merged and dropped by chance.

    Attributes:
        folder: Where runs go.
        chance: Draws merges.
        tasks: The number of tasks.
        held: The runs.
        bounds: The bound after each step.
    """

    folder: Path
    chance: random.Random
    tasks: int = 1
    held: list[RunRef] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)

    def take(self, change: Counter[Row], bound: int) -> tuple[Counter[Row], Counter[Row]]:
        """Take a step; return the rows before and after that the node gives."""
        pairs = [(row, weight) for row, weight in change.items() if weight]
        self.chance.shuffle(pairs)
        whole = zset_of(pairs)
        shares = residues(key_hashes([whole.columns[2]], len(whole)), self.tasks)
        total: tuple[Counter[Row], Counter[Row]] = Counter(), Counter()
        added = []
        for task in range(self.tasks):
            mine = whole.take(np.flatnonzero(shares == np.uint64(task)))
            share, path = Share(self.tasks, task), self._fresh()
            runs = [
                (run, str(self.files[run.name])) for run in self.held if Share(run.modulus, run.residue).meets(share)
            ]
            state = StepState(
                {SESSION_ROWS: RunsOnDemand(runs, NODE.parts[SESSION_ROWS])},
                lambda _, path=path: path,  # type: ignore[misc]
                len(self.bounds),
                share,
                expiries={SESSION_ROWS: EXPIRY},
                passed={SESSION_ROWS: self.bounds[-1]} if self.bounds else {},
            )
            made = NODE.step([mine if len(mine) else None], state)
            for side, given in zip(total, made.changes, strict=False):
                side.update(rows_of(given))
            added += [self._named(run, path) for run in made.runs.values()]
        self.bounds.append(bound)
        self.held = [run for run in [*self.held, *added] if run.expires is None or run.expires > bound]
        return total

    def merge(self) -> None:
        """Merge some runs: neighbours in time."""
        first, last = sorted(self.chance.sample(range(len(self.held) + 1), 2)) if self.held else (0, 0)
        chosen, path = self.held[first:last], self._fresh()
        if not chosen:
            return
        codec = NODE.parts[SESSION_ROWS]
        opened = [open_run(self.files[run.name], run, codec=codec) for run in chosen]
        now = self.bounds[max(run.last for run in chosen)]
        merged = merge_runs(codec, opened, path, processor="p", share=Share(), expiry=EXPIRY, now=now)
        made = [] if merged is None else [self._named(merged, path)]
        self.held = [*self.held[:first], *made, *self.held[last:]]

    def _fresh(self) -> Path:
        return self.folder / str(self.chance.getrandbits(64))

    def _named(self, run: RunRef, path: Path) -> RunRef:
        self.files[run.name] = path
        return run


def zset_of(pairs: Sequence[tuple[Row, int]]) -> ZSet:
    keys = pa.array([row[0] for row, _ in pairs], pa.int64())
    spans = [pa.array([row[place] * 1000 for row, _ in pairs], pa.int64()).cast(TIME) for place in (1, 2)]
    session = pa.StructArray.from_arrays(spans, fields=list(ROWS.field(1).type))
    return ZSet((keys, session, keys), np.array([weight for _, weight in pairs], np.int64))


def rows_of(given: ZSet | None) -> Counter[Row]:
    if given is None:
        return Counter()
    assert (given.weights > 0).all()
    spans = [field.cast(pa.int64()).to_pylist() for field in given.columns[1].flatten()]
    rows = zip(given.columns[0].to_pylist(), *([at // 1000 for at in span] for span in spans), strict=True)
    return Counter(dict(zip(rows, given.weights.tolist(), strict=True)))


def difference(after: Sessions, before: Sessions) -> Sessions:
    after = Counter(after)
    after.subtract(before)
    return Counter({row: weight for row, weight in after.items() if weight})


@pytest.mark.parametrize("seed", range(60))
def test_the_change_of_sessions_is_that_of_all_rows_and_their_rows_go(tmp_path: Path, seed: int) -> None:
    """Law: also where rows go within the bound, and whatever merges have dropped."""
    chance = random.Random(seed)
    gaps = chance.choice([(10,), (10,), (3, 30)])
    steps = Steps(tmp_path, chance, tasks=chance.choice([1, 4]))
    every: Counter[Row] = Counter()
    bound = given = 0
    for _ in range(60):
        change: Counter[Row] = Counter()
        for _ in range(chance.randrange(1, 6)):
            begin = bound + chance.choice([0, chance.randrange(60)])
            change[chance.randrange(3), begin, begin + chance.choice(gaps)] += chance.choice([1, 1, 2])
        for row in sorted(every):
            if row[1] >= bound and chance.random() < 0.3:
                change[row] -= chance.choice([1, every[row]])
        after = every + change
        before_rows, after_rows = steps.take(change, bound := bound + chance.choice([0, 0, 5, 10, 11, 40]))
        found = difference(sessions_of(after_rows), sessions_of(before_rows))
        assert found == difference(sessions_of(after), sessions_of(every))
        given += sum(before_rows.values())
        every = after
        for _ in range(chance.randrange(3)):
            steps.merge()
    assert given
    steps.take(Counter({(9, bound + 500, bound + 510): 1}), bound + 400)
    steps.held.sort(key=lambda run: run.last)
    while len(steps.held) > 1:
        steps.merge()
    assert sum(run.rows for run in steps.held) == 1, "rows of sessions that have ended go"


def test_a_replay_gives_the_same_bits(tmp_path: Path) -> None:
    chance = random.Random(3)
    changes = [
        Counter(
            {
                (k, begin, begin + 10): 1
                for k in range(3)
                for begin in chance.sample(range(60 * step, 90 * (step + 1)), 4)
            }
        )
        for step in range(5)
    ]
    found = []
    for number in (1, 2):
        (folder := tmp_path / str(number)).mkdir()
        steps = Steps(folder, random.Random(number))
        given = [steps.take(change, 50 * step) for step, change in enumerate(changes)]
        found.append((given, [(run.rows, run.size, run.digest, run.expires) for run in steps.held]))
    assert found[0] == found[1]


def test_a_long_session_is_written_anew_when_it_has_become_twice_as_long(tmp_path: Path) -> None:
    steps = Steps(tmp_path, random.Random(1))
    for begin in range(0, 1500, 5):
        steps.take(Counter({(1, begin, begin + 10): 1}), begin - 20)
    written = sum(run.rows for run in steps.held)
    assert written < 6 * 300


@pytest.mark.parametrize("seed", range(30))
def test_spans_are_those_of_sessions(seed: int) -> None:
    chance = random.Random(seed)
    rows = [(chance.randrange(3), begin := chance.randrange(100), begin + chance.randrange(1, 12)) for _ in range(25)]
    hashes, begins, ends = np.array([row[0] for row in rows], np.uint64), *np.array([row[1:] for row in rows]).T
    spans = list(zip(*(each.tolist() for each in session_spans(hashes, begins, ends)), strict=True))
    sessions = sessions_of(Counter(rows))
    assert {(row[0], *span) for row, span in zip(rows, spans, strict=True)} == {each[:3] for each in sessions}
    assert all(span[0] <= row[1] and row[2] <= span[1] for row, span in zip(rows, spans, strict=True))
