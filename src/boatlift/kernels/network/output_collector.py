"""The end of a network: the changes of a step, each row once, with nothing that cancels out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import WEIGHT
from boatlift.kernels.network.network import Feed
from boatlift.kernels.network.node import ZSet, concat
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.column import Column
from boatlift.state.digest import add_column, finish


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The rows of a step.

    Attributes:
        replaced, rows: Those with weight −1, and those with weight 1.
        digest: The digest of the rows with their weights; those of a step's tasks add up modulo 2^64.
    """

    replaced: tuple[pa.RecordBatch, ...] = ()
    rows: tuple[pa.RecordBatch, ...] = ()
    count: int = 0
    digest: int = 0


@dataclass(frozen=True, slots=True)
class OutputCollector:
    """Adds up the weights of equal rows.

    A row of weight n comes out n times with weight 1, or −1: readers of changes know no other weights.

    Attributes:
        feeds: The places whose changes are the result; it is their sum.
        schema: The columns of the rows.
    """

    feeds: tuple[Feed, ...]
    schema: pa.Schema

    def of(self, changes: Sequence[ZSet | None]) -> HandedOut:
        """Return the rows of a task; those of all tasks are those of the step if equal rows are one task's."""
        whole = concat([change for feed in self.feeds if (change := feed.of(changes[feed.source])) is not None])
        if whole is None:
            return HandedOut()
        codec = ArrangementCodec(self.schema)
        found = arranged(codec, whole.columns, whole.weights, key_hashes(whole.columns, len(whole)))
        weights, columns = found.values.weights, found.values.rows
        words = np.zeros(len(found), np.uint64)
        for place, column in enumerate((*found.keys, Column(pa.int64(), weights))):
            add_column(words, place, column)
        replaced, rows = (self._repeated(columns, weights, sign) for sign in (-1, 1))
        count = int(np.abs(weights).sum())
        return HandedOut(replaced, rows, count, finish(words))

    def _repeated(
        self, columns: Sequence[pa.Array], weights: npt.NDArray[np.int64], sign: int
    ) -> tuple[pa.RecordBatch, ...]:
        """Return the rows whose weight has a sign, each as often as its weight says."""
        chosen = np.flatnonzero(weights * sign > 0)
        if not len(chosen):
            return ()
        at = np.repeat(chosen, np.abs(weights[chosen]))
        taken = [column.take(pa.array(at)) for column in columns]
        schema = self.schema.append(pa.field(WEIGHT, pa.int64(), nullable=False))
        signs = pa.array(np.full(len(at), sign, np.int64))
        return (pa.RecordBatch.from_arrays([*taken, signs], schema=schema),)
