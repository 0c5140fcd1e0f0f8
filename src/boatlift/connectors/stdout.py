"""The standard output as a sink, at least once."""

from __future__ import annotations

import base64
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.deliver import delivering_twin
from boatlift.connectors.kit import SinkBase, checked_options, read_pieces, whole_number
from boatlift.connectors.kit.step_rows import ordered_part
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import Delivery, Json, Outcome, SinkCapabilities, SinkContext, SinkTwin, Staged

if TYPE_CHECKING:
    import pyarrow as pa


@checked_options("bl.stdout")
def stdout(*, rows: int = 20) -> StdoutSink:
    """Return a sink that prints the rows of each step, as JSON, at least once.

    Bytes are printed as text if they are UTF-8, else as `base64:…`.

    The rows appear on the standard output of the process that runs the dataflow, also on a cluster. In a stream of
    changes, a new row has `+` before it, and a retracted row `-`.

    Args:
        rows: The most rows to print of a step; of further rows, the number is printed.

    Raises:
        InvalidError: `[BAD_OPTION]`.

    Example:
        >>> numbers = bl.Dataflow("numbers").source("n", bl.generator({"n": "id"}, rows_per_step=2, steps=1))
        >>> numbers.sink("shown", bl.stdout())
    """
    return StdoutSink(whole_number("rows", rows))


class StdoutSink(SinkBase):
    """Prints the rows of each step in the process that commits it."""

    delivery = Delivery.AT_LEAST_ONCE

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(twin=self._twin)

    def _twin(self, folder: Path, name: str) -> SinkTwin:
        return delivering_twin(folder / name, self.describe(), 1)

    def __init__(self, most: int) -> None:
        self._most = most

    def describe(self) -> Json:
        return {"kind": "stdout", "rows": self._most}

    def open(self, context: SinkContext) -> None:
        from boatlift.connectors.kit.tasks import session_of_process

        self._context = context
        spark = session_of_process()
        if spark is not None and not str(spark.sparkContext.master).startswith("local"):
            where = f"host {socket.gethostname()}, by the process that runs {context.dataflow}"
            sys.stderr.write(f"boatlift: {context.sink} prints its rows here, on {where}\n")

    def commit(self, step: int, rows: int, _digest: str, staged: Sequence[Staged]) -> Outcome:
        from boatlift.connectors.kit.arrow_text import json_objects

        if rows:
            table, _ = ordered_part(read_pieces(rows, staged), 0, 1)
            shown = table.slice(0, self._most).combine_chunks()
            weights = shown.column(WEIGHT).to_pylist() if WEIGHT in shown.schema.names else None
            signs = [""] * shown.num_rows if weights is None else ["+ " if weight > 0 else "- " for weight in weights]
            names = [name for name in shown.schema.names if name != WEIGHT]
            batch = shown.select(names).to_batches()[0]
            texts = json_objects(batch.schema.names, [_readable(each) for each in batch.columns]).to_pylist()
            lines = [f"{self._opened.sink} {step}: {sign}{text}" for sign, text in zip(signs, texts, strict=True)]
            if rows > len(lines):
                lines.append(f"{self._opened.sink} {step}: and {rows - len(lines):,} more rows")
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
        return Outcome.APPENDED


def _readable(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    def text(value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"base64:{base64.b64encode(value).decode()}"

    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return column
    return pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())
