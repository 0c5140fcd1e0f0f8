"""The first rows of each key: their order, their refusals, and the number of rows that were pushed out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from boatlift.operators.top_n.operator import TopN


def dataflow(order_by: Any = ("v DESC",), n: Any = 2) -> bl.Dataflow:
    flow = bl.Dataflow("top")
    rows = flow.source("rows", bl.files("rows", format="parquet", schema="k STRING, v LONG", max_files_per_step=1))
    rows.group_by("k").top_n("top", n, order_by=order_by).sink("out", bl.parquet("out"))
    return flow


def write(number: int, values: list[int | None]) -> None:
    Path("rows").mkdir(exist_ok=True)
    pq.write_table(
        pa.table({"k": pa.array(["a"] * len(values), pa.string()), "v": pa.array(values, pa.int64())}),
        f"rows/{number}.parquet",
    )


def changes(step: int) -> set[tuple[int | None, int]]:
    rows = pq.read_table(sorted(Path("out").glob("*.parquet"))[step]).to_pylist()
    return {(row["v"], row["_weight"]) for row in rows}


def test_rows_are_pushed_out_by_rows_before_them_and_status_counts_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, values in enumerate([[1, None], [5, 0], [], [7, 6, 2]]):
        write(number, values)
    bl.run(dataflow(), "store", available_now=True, spark=spark)
    assert changes(0) == {(1, 1), (None, 1)}
    assert changes(1) == {(None, -1), (5, 1)}, "NULL is last in descending order"
    assert changes(2) == set()
    assert changes(3) == {(1, -1), (5, -1), (7, 1), (6, 1)}, "2 is not among the first"
    write(4, [8])
    bl.run(dataflow(), "store", available_now=True, spark=spark)
    assert changes(4) == {(6, -1), (8, 1)}
    status = bl.status("store")
    assert (status.top_n["top"].step, status.top_n["top"].pushed_out) == (4, 4)
    assert status.as_json()["top_n"] == {"top": {"step": 4, "pushed_out": 4}}
    from boatlift.console.contents import show_status

    show_status(Path("store"), as_json=False)
    assert "top: 4 rows were pushed out up to step 4, its newest checkpoint" in capsys.readouterr().out


def test_an_order_names_columns_and_directions() -> None:
    order = ("v", "w ASC", "x desc", "a name  DESC")
    assert TopN("top", ("rows",), bl.Lazy(), ("k",), 1, order).order() == [
        ("v", False), ("w", False), ("x", True), ("a name", True)
    ]  # fmt: skip


@pytest.mark.parametrize(("order_by", "n"), [((), 1), (("v", "v"), 1), (("v",), 0), (("v",), True), (("v",), "1")])
def test_a_wrong_order_or_number_is_refused(order_by: Any, n: Any) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        dataflow(order_by, n)
