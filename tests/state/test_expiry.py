"""Rows that expire: by the keys of partial aggregates, columns of an arrangement, or columns of newest rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from boatlift.spark.jobs.state_parts import PassedTimes
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import ALL_KEY_GROUPS
from boatlift.state.merge import merge_runs
from boatlift.state.opened import RunsOnDemand
from boatlift.state.run_file import write_run

SECOND = 1000
WINDOW = pa.struct([("start", pa.timestamp("us")), ("end", pa.timestamp("us"))])


def at(second: int) -> datetime:
    return datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC)


def rows_of(values: list[Any], kind: pa.DataType) -> tuple[ArrangementCodec, Arranged]:
    codec = ArrangementCodec(pa.schema([("n", pa.int64()), ("at", kind)]))
    columns = [pa.array(range(len(values)), pa.int64()), pa.array(values, kind)]
    hashes = key_hashes(columns[:1], len(values))
    return codec, arranged(codec, columns, np.ones(len(values), np.int64), hashes)


@pytest.mark.parametrize(
    ("kind", "values", "field", "last"),
    [
        (pa.timestamp("us"), [at(1), at(3), at(2)], None, 3 * SECOND),
        (pa.timestamp("us", "UTC"), [at(1), at(3)], None, 3 * SECOND),
        (pa.timestamp("us"), [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)], None, 1),
        (pa.int64(), [5, 7], None, 7),
        (pa.date32(), [date(1970, 1, 2)], None, 86_400 * SECOND),
        (WINDOW, [{"start": at(1), "end": at(4)}, {"start": at(2), "end": at(5)}], 1, 5 * SECOND),
        (pa.timestamp("us"), [at(1), None], None, None),
        (WINDOW, [{"start": at(1), "end": at(4)}, None], 1, None),
        (pa.timestamp("us"), [], None, None),
    ],
)
def test_the_last_row_expires_at_the_latest_time_and_never_with_a_null(
    kind: pa.DataType, values: list[Any], field: int | None, last: int | None
) -> None:
    _, rows = rows_of(values, kind)
    assert ExpiryColumn("rows", 1, field=field).latest(rows) == last
    later = ExpiryColumn("rows", 1, later=10, field=field)
    assert later.latest(rows) == (None if last is None else last + 10)


def test_a_row_is_alive_before_its_time_and_without_one() -> None:
    _, rows = rows_of([at(1), at(2), at(3), None], pa.timestamp("us"))
    numbers = np.array(rows.values.rows[0])

    def alive(now: int) -> set[int]:
        return set(numbers[ExpiryColumn("rows", 1).alive(rows, now)])

    assert alive(999) == {0, 1, 2, 3}
    assert alive(2000) == {2, 3}
    assert alive(10_000) == {3}


@pytest.mark.parametrize("slice_rows", [2, 100])
def test_merges_leave_out_what_has_expired(tmp_path: Path, slice_rows: int) -> None:
    expiry = ExpiryColumn("rows", 1)
    located = []
    for number in range(2):
        codec, rows = rows_of([at(number + each) for each in range(5)], pa.timestamp("us"))
        path = tmp_path / str(number)
        located.append(
            (
                write_run(path, codec, [rows], processor="p", times=(number, number), share=ALL_KEY_GROUPS),
                str(path),
            )
        )
    opened = list(RunsOnDemand(located, codec))

    def merged(name: str, now: int | None) -> Any:
        return merge_runs(
            codec, opened, tmp_path / name, processor="p", share=ALL_KEY_GROUPS,
            expiry=expiry, now=now, slice_rows=slice_rows,
        )  # fmt: skip

    whole = merged("whole", None)
    assert (whole.rows, whole.expires) == (10, 5 * SECOND)
    some = merged("some", 3 * SECOND)
    assert (some.rows, some.expires) == (3, 5 * SECOND)
    assert merged("none", 5 * SECOND) is None


def test_a_merge_goes_by_the_time_after_the_last_step_of_its_runs() -> None:
    times = PassedTimes()
    for step in (3, 4, 6):
        times.record(step, {"part": step * 10, "other": 0})
    assert [times.after(step, "part") for step in (2, 3, 5, 9)] == [None, 30, 40, 60]
    assert times.after(9, "unknown") is None
    times.record(3, {"part": 31})
    assert times.after(3, "part") == 31
    for step in range(7, 6000):
        times.record(step, {"part": step * 10})
    assert times.after(6, "part") is None, "what is long ago is forgotten, and nothing expires by it"
