"""A Parquet folder with columns of every nested type is its sink's after a restart, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import boatlift as bl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "value",
    [
        "array(v)",
        "map('v', v)",
        "named_struct('a', array(v), 'b', named_struct('c', v))",
        "map('v', array(named_struct('m', v)))",
    ],
)
def test_a_folder_of_nested_columns_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Parquet names what is within arrays and maps otherwise than Spark does."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()

    def run() -> None:
        flow = bl.Dataflow("flow")
        flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG"))
        flow.sql("made", f"SELECT k, {value} AS m FROM rows").sink("out", bl.parquet("out"))
        bl.run(flow, "store", available_now=True, spark=spark)

    for number in range(2):
        Path(f"in/{number}.csv").write_text(f"k,v\n{number},7\n")
        run()
    assert [pq.read_table(path).num_rows for path in sorted(Path("out").glob("*.parquet"))] == [1, 1]
