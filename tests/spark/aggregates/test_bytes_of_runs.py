"""The bytes of runs are those that earlier versions wrote: stores outlive versions."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from boatlift.spark.aggregates.kernel import AggregateColumn, Layout
from boatlift.spark.aggregates.kernel.codec import PartialsCodec
from boatlift.spark.keyed.key_groups import Share
from boatlift.spark.keyed.merge import merge_runs
from boatlift.spark.keyed.opened import open_run
from boatlift.spark.keyed.state import STATE
from support.keyed_state import Driver, Fields, crowded_hash, merge_into

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
    (12287425300050437969, 7874, "1e7dbf864a9f907284674c1950444f1b"),
    (389733510979711907, 8866, "8e588165866ed09925e5670c7909bbb4"),
    (9629299988683963607, 8866, "3aacc1cf9d9569adf4398603a0ad8981"),
    (2517618220113685227, 8866, "384f8c0fc71815029c26f42a0a4c31ad"),
]
"""For each step the digest of its output, and size and digest of its run, as version 1 of the format has them."""


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
    assert (merged.size, merged.digest) == (8866, "c013c5311d4493bfe56121b43da434e3")
    codec = PartialsCodec(LAYOUT)
    runs = [open_run(run.name, run, codec=codec) for run in driver.runs[0][STATE]]
    sliced = merge_runs(codec, runs, tmp_path / "sliced", processor="p", share=Share(2, 1), slice_rows=20)
    assert sliced is not None
    assert (sliced.rows, sliced.digest) == (56, "837da0d88ce8c4308b28c8f769bbdc8d")


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
