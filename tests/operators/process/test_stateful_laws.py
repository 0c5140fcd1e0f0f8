"""A `StatefulProcessor` keeps the laws of kernels: values, lists and maps, times to live, and timers after rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, Row, StringType, StructField, StructType

from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.kernels.step_state import KernelTime
from boatlift.operators.process.kernel import ProcessKernel
from boatlift.operators.process.stateful.cells import SET_TIMERS, timers_codec
from boatlift.operators.process.stateful.handle import StateRecorder
from boatlift.operators.process.stateful.program import StatefulProgram
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from operators.process.test_kernel_laws import KEYS, ROWS, columns_of, some_row
from support.rows.keyed_state import Hash, batch_maker, crowded_hash, same_hash, spread_hash
from support.rows.keyed_state import Row as Made

OUTPUT = pa.schema([*KEYS, ("what", pa.string()), ("v", pa.int64())])
LONG = StructType([StructField("n", LongType())])
TEXT = StructType([StructField("text", StringType())])
TTL = 250


class Everything(StatefulProcessor):
    """Uses every method of handle and state, as the values of rows say."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", LONG)
        self.short = handle.getValueState("short", LONG, TTL)
        self.last = handle.getListState("last", TEXT)
        self.seen = handle.getMapState("seen", LONG, LONG)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        now = timerValues.getCurrentProcessingTimeInMs()
        for row in rows:
            v = row.v
            self.count.update(((self.count.get() or (0,))[0] + 1,))
            yield self.row(key, "count", self.count.get()[0])
            yield self.row(key, "short", self.short.get()[0] if self.short.exists() else None)
            if v == 0:
                self.short.update((self.count.get()[0],))
            elif v == 1:
                self.last.appendValue((f"at {self.count.get()[0]}",))
            elif v == 2:
                self.last.put([("a",), ("b",)] if self.last.exists() else [("c",)])
            elif v == 3:
                self.handle.registerTimer(now + 150)
            elif v == 4:
                self.handle.registerTimer(now - 10)
            elif v == 5:
                for at in self.handle.listTimers():
                    self.handle.deleteTimer(at)
            elif v == 6:
                self.count.clear()
                self.last.clear()
            elif v == 7:
                self.seen.clear()
            elif v < 0:
                self.seen.updateValue((v,), ((self.seen.getValue((v,)) or (0,))[0] + 1,))
            else:
                self.seen.removeKey((-1,))
            for text in self.last.get():
                yield self.row(key, text[0], v)
            for of, n in sorted(self.seen.iterator()):
                yield self.row(key, f"seen {of[0]}", n[0])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        assert isinstance(key, Row)
        at = expiredTimerInfo.getExpiryTimeInMs()
        yield self.row(key, "timer", at)
        if self.count.exists() and self.count.get()[0] % 2:
            self.handle.registerTimer(at + 170)
        for left in self.handle.listTimers():
            yield self.row(key, "left", left)

    def row(self, key: Any, what: str, v: int | None) -> Row:
        return Row(a=key[0], b=key[1], what=what, v=v)


class InPlainPython:
    """The same with dictionaries."""

    def __init__(self) -> None:
        self.step = 0
        self.count: dict[Any, int] = {}
        self.short: dict[Any, tuple[int, int]] = {}
        self.last: dict[Any, list[str]] = {}
        self.seen: dict[Any, dict[int, int]] = {}
        self.timers: dict[tuple[Any, int], int] = {}

    def take(self, inputs: Step) -> Counter[Made]:
        now = 100 * self.step + 99
        self.step += 1
        found: Counter[Made] = Counter()
        stood = {each for each, fires in self.timers.items() if fires <= now}
        keys = {key for key, _ in stood} | {(row["a"], row["b"]) for row in inputs[ROWS_INPUT]}
        for key in keys:
            for row in sorted((row for row in inputs[ROWS_INPUT] if (row["a"], row["b"]) == key), key=lambda r: r["v"]):
                self.row(key, row["v"], now, found)
        for key in keys:
            self.fire(key, now, stood, found)
        return found

    def row(self, key: Any, v: int, now: int, found: Counter[Made]) -> None:
        n = self.count[key] = self.count.get(key, 0) + 1
        found[(*key, "count", n)] += 1
        lives = key in self.short and self.short[key][1] > now
        found[(*key, "short", self.short[key][0] if lives else None)] += 1
        seen = self.seen.setdefault(key, {})
        if v == 0:
            self.short[key] = (n, now + TTL)
        elif v == 1:
            self.last.setdefault(key, []).append(f"at {n}")
        elif v == 2:
            self.last[key] = ["a", "b"] if self.last.get(key) else ["c"]
        elif v in (3, 4):
            self.timers[key, now + 150 if v == 3 else now - 10] = now + 1 if v == 4 else now + 150
        elif v == 5:
            self.timers = {each: fires for each, fires in self.timers.items() if each[0] != key}
        elif v == 6:
            del self.count[key]
            self.last.pop(key, None)
        elif v == 7:
            seen.clear()
        elif v < 0:
            seen[v] = seen.get(v, 0) + 1
        else:
            seen.pop(-1, None)
        found.update((*key, text, v) for text in self.last.get(key, []))
        found.update((*key, f"seen {of}", n) for of, n in seen.items())

    def fire(self, key: Any, now: int, stood: set[tuple[Any, int]], found: Counter[Made]) -> None:
        """Fire what stood there, and what the rows of this step have set in the past."""
        due = [at for other, at in self.timers if other == key and ((key, at) in stood or at <= now)]
        for at in sorted(due):
            found[(*key, "timer", at)] += 1
            if self.count.get(key, 0) % 2:
                self.timers[key, at + 170] = max(at + 170, now + 1)
            found.update((*key, "left", other) for of, other in self.timers if of == key)
            del self.timers[key, at]


def case(hash_of: Hash) -> KernelCase:
    def refuse(fault: str) -> Any:
        raise AssertionError(fault)

    recorder = StateRecorder(lambda schema: schema, lives=True, refuse=refuse)
    Everything().init(recorder)
    variables = tuple(recorder.variables[each] for each in sorted(recorder.variables))
    program = StatefulProgram(
        "p",
        Everything(),
        variables,
        tuple((arrow(each.key), arrow(each.columns)) for each in variables),
        columns_of(ROWS),
        columns_of(pa.schema(KEYS)),
        columns_of(OUTPUT),
        OUTPUT,
        pandas=False,
        time=KernelTime.CLOCK,
        zone="UTC",
    )
    codecs = {each.part: each.codec(KEYS, arrow) for each in variables} | {SET_TIMERS: timers_codec(KEYS)}
    kernel = ProcessKernel("p", KEYS, ROWS, ("v",), OUTPUT, program, codecs, KernelTime.CLOCK)
    rows = some_row.map(lambda row: {**row, "v": row["v"] + 1})
    steps = st.lists(st.lists(rows, max_size=10), min_size=1, max_size=5)
    return KernelCase(
        kernel,
        steps.map(lambda each: [{ROWS_INPUT: rows} for rows in each]),
        InPlainPython,
        batch_maker(ROWS, lambda row: hash_of((row["a"], row["b"]))),
        lambda _, row: hash_of((row["a"], row["b"])),
    )


def arrow(schema: StructType) -> pa.Schema:
    return pa.schema([(f.name, pa.int64() if isinstance(f.dataType, LongType) else pa.string()) for f in schema])


class TestSpread(KernelLaws):
    case = case(spread_hash)


class TestCrowded(KernelLaws):
    case = case(crowded_hash)


class TestOneHash(KernelLaws):
    case = case(same_hash)
