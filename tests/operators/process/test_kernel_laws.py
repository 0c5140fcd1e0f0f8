"""The kernel of processors keeps the laws of kernels, with state that ends, and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.kernels.step_state import STATE
from boatlift.operators.process.arrow import ArrowProgram
from boatlift.operators.process.by_key import ByKey
from boatlift.operators.process.kernel import KERNEL_TIME, ProcessKernel
from boatlift.operators.process.operator import TimerTime
from boatlift.state.newest import NewestCodec
from boatlift.storage.records.payloads import NO_WATERMARK
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Hash, Row, batch_maker, crowded_hash, same_hash, spread_hash

I64, TEXT = pa.int64(), pa.string()
KEYS = (("a", I64), ("b", TEXT))
ROWS = pa.schema([*KEYS, ("v", I64)])
STATE_COLUMNS = pa.schema([("n", I64), ("last", TEXT)])
OUTPUT = pa.schema([*KEYS, ("what", TEXT), ("v", I64), ("n", I64)])


AHEAD = {-3: -150, 0: 0, 3: 100, 6: 250}
"""How far ahead a value sets a timer, in milliseconds; some fire at the time of a step, which are 100 apart."""


def columns_of(schema: pa.Schema) -> StructType:
    """Return a schema as Spark's."""
    return StructType([StructField(each.name, LongType() if each.type == I64 else StringType()) for each in schema])


def milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def remember(key: Any, rows: Sequence[Any], state: Any, context: Any) -> Iterator[Any]:
    """Number rows; a row sets a timer, clears one or ends the state, as its value says; a timer may set itself."""
    if context.timer is not None:
        yield {"a": key.a, "b": key.b, "what": "timer", "v": milliseconds(context.timer), "n": state.n}
        if state.n is not None and state.n % 2:
            context.clear_timer(context.timer + timedelta(milliseconds=40))
            state.clear()
        elif state.n is not None:
            context.set_timer(context.timer)
        return
    for row in rows:
        state.n, state.last = (state.n or 0) + 1, f"{row.v}"
        yield key.a, key.b, state.last, row.v, state.n
        if row.v % 3 == 0:
            context.set_timer(context.now + timedelta(milliseconds=AHEAD[row.v]))
        elif row.v % 3 == 1:
            context.clear_timer(context.now + timedelta(milliseconds=20))
        elif row.v == 5:
            state.clear()


class Remembered:
    """The same in plain Python: states and timers in dictionaries."""

    def __init__(self, now: Callable[[int], int], timers: TimerTime) -> None:
        self.step, self.now, self.timers_by = 0, now, timers
        self.states: dict[Any, tuple[int, str]] = {}
        self.timers: dict[tuple[Any, int], int] = {}

    def take(self, inputs: Step) -> Counter[Row]:
        now = passed = self.now(self.step)
        if self.timers_by is TimerTime.EVENT:  # the bound that the step's own rows have not moved
            passed = self.now(self.step - 1) if self.step else NO_WATERMARK
        self.step += 1
        found: Counter[Row] = Counter()
        due = sorted((at, repr(key), key) for (key, at), fires in self.timers.items() if fires <= passed)
        late = {}
        for at, _, key in due:
            if (key, at) not in self.timers:
                continue
            del self.timers[key, at]
            n = self.states[key][0] if key in self.states else None
            found[(*key, "timer", at, n)] += 1
            if n is not None and n % 2:
                self.timers.pop((key, at + 40), None)
                self.states.pop(key)
            elif n is not None:
                late[key, at] = True
        for row in sorted(inputs[ROWS_INPUT], key=lambda row: row["v"]):
            key, v = (row["a"], row["b"]), row["v"]
            n = self.states.get(key, (0, ""))[0] + 1
            self.states[key] = (n, f"{v}")
            found[(*key, f"{v}", v, n)] += 1
            if v % 3 == 0:
                late[key, now + AHEAD[v]] = True
            elif v % 3 == 1:
                late[key, now + 20] = False
            elif v == 5:
                del self.states[key]
        for (key, at), on in late.items():
            self.timers.pop((key, at), None)
            if on:
                self.timers[key, at] = max(at, passed)
        return found


some_row = st.fixed_dictionaries(
    {
        "a": st.one_of(st.none(), st.integers(0, 2)),
        "b": st.sampled_from([None, "", "x"]),
        "v": st.integers(-4, 8),
    }
)


def by_leaps(step: int) -> int:
    """Stand still, then leap."""
    return 300 * (step // 3) + 99


def steadily(step: int) -> int:
    return 100 * step + 99


def case(hash_of: Hash, timers: TimerTime, now: Callable[[int], int] = steadily) -> KernelCase:
    """Return the case of timers of the clock, or of event time: by the bound that the step's own rows do not move."""
    nulls = tuple(pa.scalar(None, kind) for kind in STATE_COLUMNS.types)
    function = ByKey(
        "p",
        remember,
        columns_of(ROWS),
        columns_of(pa.schema(KEYS)),
        columns_of(STATE_COLUMNS),
        columns_of(OUTPUT),
        by_watermark=timers is TimerTime.EVENT,
        initial=nulls,
    )
    program = ArrowProgram("p", function, STATE_COLUMNS, OUTPUT, nulls)
    kernel = ProcessKernel(
        "p", KEYS, ROWS, ("v",), OUTPUT, program, {STATE: NewestCodec(KEYS, STATE_COLUMNS)}, KERNEL_TIME[timers]
    )
    steps = st.lists(st.lists(some_row, max_size=10), min_size=1, max_size=5)
    return KernelCase(
        kernel,
        steps.map(lambda each: [{ROWS_INPUT: rows} for rows in each]),
        lambda: Remembered(now, timers),
        batch_maker(ROWS, lambda row: hash_of((row["a"], row["b"]))),
        lambda _, row: hash_of((row["a"], row["b"])),
        now=now,
    )


class TestSpread(KernelLaws):
    case = case(spread_hash, TimerTime.CLOCK)


class TestCrowded(KernelLaws):
    case = case(crowded_hash, TimerTime.EVENT)


class TestOneHash(KernelLaws):
    case = case(same_hash, TimerTime.CLOCK)


class TestATimeThatStandsAndLeaps(KernelLaws):
    case = case(spread_hash, TimerTime.EVENT, by_leaps)
