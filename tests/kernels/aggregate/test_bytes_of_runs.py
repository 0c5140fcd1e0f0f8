"""The bytes of runs are those that earlier versions wrote: stores outlive versions."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from boatlift.kernels.aggregate import AggregateColumn, Layout
from boatlift.kernels.aggregate.partials import PartialsCodec
from boatlift.kernels.step_state import STATE
from boatlift.state.key_groups import Share
from boatlift.state.merge import merge_runs
from boatlift.state.opened import open_run
from support.rows.keyed_state import Driver, Fields, crowded_hash, merge_into

F64, I64, TEXT = pa.float64(), pa.int64(), pa.string()
LAYOUT = Layout(
    (("k", I64), ("t", TEXT)),
    (
        AggregateColumn("count_all", None, "n", None, I64),
        AggregateColumn("sum", "x", "s", F64, F64),
        AggregateColumn("avg", "d", "a", pa.decimal128(20, 2), pa.decimal128(24, 6)),
        AggregateColumn("sum", "i", "si", I64, I64),
        AggregateColumn("min", "x", "lo", F64, F64),
        AggregateColumn("max", "t2", "hi", TEXT, TEXT),
    ),
)
STEPS = [
    (12287425300050437969, 7938, "2f0c1311da54704e05db1a680abb6f99"),
    (389733510979711907, 8930, "b9aedda008a1975154bb67466806d38d"),
    (9629299988683963607, 8930, "6298ab5161d101673c99d01451f8e0a8"),
    (2517618220113685227, 8930, "5b2c2870e737c413dbddfede2f3538e3"),
]
"""For each step the digest of its output, size and digest of its run, as version 1 has them: the digest proves all."""


def rows(step: int) -> list[Fields]:
    return [
        {
            "k": i % 17,
            "t": None if i % 5 == 0 else "t" * (i % 4),
            "x": None if i % 7 == 0 else float("nan") if i % 31 == 0 else 0.1 * i * (-1) ** step,
            "d": Decimal(i * step * 10**14) / 100,
            "i": (2**59 + i) * (-1) ** (i + i // 17 + step),
            "t2": None if i % 3 else str(i),
        }
        for i in range(step, 200 + step)
    ]


def test_they_are_those_of_version_1(tmp_path: Path) -> None:
    driver = Driver(LAYOUT, tmp_path, crowded_hash)
    for number, expected in enumerate(STEPS):
        _, digest = driver.step(rows(number))
        assert (digest, driver.runs[0][STATE][-1].size, driver.runs[0][STATE][-1].digest) == expected
    merged = merge_into(driver.kernel, driver.runs[0][STATE], tmp_path / "merged")
    assert merged is not None
    assert (merged.size, merged.digest) == (8930, "3ddaf3b3e886a1f34038d4bdab60f94a")
    codec = PartialsCodec(LAYOUT)
    runs = [open_run(run.name, run, codec=codec) for run in driver.runs[0][STATE]]
    sliced = merge_runs(codec, runs, tmp_path / "sliced", processor="p", share=Share(2, 1), slice_rows=20)
    assert sliced is not None
    assert (sliced.rows, sliced.digest) == (56, "398448bb799a698c96d7029f8ebe526b")


def test_the_kind_of_an_aggregates_run_goes_without_saying(tmp_path: Path) -> None:
    driver = Driver(LAYOUT, tmp_path, crowded_hash)
    driver.step(rows(0))
    with pa.ipc.open_file(driver.runs[0][STATE][0].name) as file:
        assert sorted(json.loads(file.schema.metadata[b"boatlift.run"])) == [
            "first",
            "format",
            "last",
            "layout",
            "modulus",
            "processor",
            "residue",
        ]
