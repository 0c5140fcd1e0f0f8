"""What peers outside Spark read and write: the same rows in other files, and changes as lines of text.

The rows of a Parquet file are converted once, before anything is timed: for Flink into an Arrow file, whose batches its
readers share, and for DBSP into lines of text under a header. Both write changes as lines of text: a weight, and the
columns, separated by tabs. A moment is a number of milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

__all__ = ["arrow_file", "difference", "read_changes", "text_file"]

BATCH = 1024


def arrow_file(parquet: Path) -> Path:
    """Return the Arrow file of a Parquet file."""
    path = _converted(parquet, ".arrow")
    if not path.exists():
        rows = pq.read_table(parquet)
        for number, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type):
                moments = rows.column(number).cast(pa.timestamp("ms"))
                rows = rows.set_column(number, field.name, moments)
        unfinished = path.with_suffix(".tmp")
        with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=BATCH)
        unfinished.rename(path)
    return path


def text_file(parquet: Path) -> Path:
    """Return the file of text of a Parquet file."""
    path = _converted(parquet, ".tsv")
    if not path.exists():
        rows = pq.read_table(parquet)
        plain = pa.table({name: _plain(rows[name]) for name in rows.column_names})
        unfinished = path.with_suffix(".tmp")
        options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
        with unfinished.open("wb") as lines:
            lines.write("\t".join(plain.column_names).encode() + b"\n")
            pa.csv.write_csv(plain, lines, options)
        unfinished.rename(path)
    return path


def read_changes(files: Iterable[Path], like: pa.Schema) -> pa.Table:
    """Return the changes of a peer: the weight first, and the columns under the names of the answer."""
    types = {"_weight": pa.int64()} | {field.name: _plain_type(field.type) for field in like}
    parse = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    convert = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    read = pa.csv.ReadOptions(column_names=list(types))
    parts = [
        pa.csv.read_csv(file, read_options=read, parse_options=parse, convert_options=convert)
        for file in files
        if file.stat().st_size
    ]
    empty = pa.schema(list(types.items())).empty_table()
    return pa.concat_tables([empty, *parts])


def difference(changes: pa.Table, answer: pa.Table) -> int:
    """Return how many rows have another count in the sum of all changes than in the answer of a batch query."""
    if len(set(answer.column_names)) != answer.num_columns:
        raise ValueError(f"the answer has columns of one name: {answer.column_names}")
    columns = {name: _rounded(_plain(answer[name])) for name in answer.column_names}
    expected = pa.table({"_weight": pa.array([-1] * answer.num_rows, pa.int64()), **columns})
    found = pa.table({name: _rounded(_plain(changes[name])) for name in changes.column_names})
    changed = pa.concat_tables([found.select(expected.column_names).cast(expected.schema), expected])
    sums = changed.group_by(answer.column_names).aggregate([("_weight", "sum")])
    return int(pc.sum(pc.not_equal(sums["_weight_sum"], 0)).as_py() or 0)


def _converted(parquet: Path, ending: str) -> Path:
    """Return the path of a converted file, in a folder beside the one of the Parquet files, which Spark reads whole."""
    folder = parquet.parent.with_name(parquet.parent.name + ending)
    folder.mkdir(exist_ok=True)
    return folder / parquet.with_suffix(ending).name


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms")).cast(pa.int64())
    plain = _plain_type(column.type)
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).cast(plain)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # the cast to a double gives the next double now and then
    return column.cast(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return pa.float64()
    return pa.string() if pa.types.is_string(kind) else pa.int64()


def _rounded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return doubles rounded: two systems may divide sums in another order."""
    if not pa.types.is_floating(column.type):
        return column
    return pa.chunked_array([pa.array(np.rint(column.to_numpy() * 1e6) / 1e6)])
