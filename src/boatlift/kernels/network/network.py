"""Networks of nodes and feeds: a task's computation for a step of a view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.dataflow.columns import WEIGHT
from boatlift.kernels.network.node import Node, ZSet, concat
from boatlift.kernels.step_state import ALONE, NOT_KEPT, Exchange, LoopCheckpoint, Runs, StepState
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.column import Column
from boatlift.state.digest import add_column, finish
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share
from boatlift.storage.records.records import RunRef

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Feed:
    """Passes columns of one place of a network to another.

    Attributes:
        source: The place of origin: an input of the network, or after the inputs a result of a node.
        columns: The places of the columns that are passed on, in order.
    """

    source: int
    columns: tuple[int, ...]

    def of(self, change: ZSet | None) -> ZSet | None:
        """Return the change that is passed on."""
        if change is None:
            return None
        return ZSet(tuple(change.columns[place] for place in self.columns), change.weights)


@dataclass(frozen=True, slots=True)
class NetworkOutput:
    """The result of a step in a task.

    Attributes:
        changes: The change at each place of the network: its inputs, then the results of the nodes; None: no change.
        runs: Part to the run that the step adds.
    """

    changes: tuple[ZSet | None, ...]
    runs: Mapping[str, RunRef]


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in topological order.

    Attributes:
        inputs: The columns of each input.
        names: The names of the nodes, which prefix the parts of their states.
        feeds: For each node the feeds into it, one for each of its inputs.
        expiries: Part of the state to the column by which its rows expire.
    """

    inputs: tuple[pa.Schema, ...]
    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    feeds: tuple[tuple[Feed, ...], ...]
    expiries: Mapping[str, ExpiryColumn] = field(default_factory=dict)

    @property
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        """The named parts of the state of all nodes."""
        return {
            part_name(name, part): codec
            for name, node in zip(self.names, self.nodes, strict=True)
            for part, codec in node.parts.items()
        }

    def step(
        self,
        inputs: Sequence[ZSet | None],
        runs: Mapping[str, Runs],
        write_to: Callable[[str], Path],
        *,
        time: int,
        share: Share,
        first: bool = False,
        exchange: Exchange = ALONE,
        iterations: Callable[[str], LoopCheckpoint] = lambda _: NOT_KEPT,
        passed: Mapping[str, int] | None = None,
    ) -> NetworkOutput:
        """Execute a step of all nodes in a task.

        Args:
            runs: Part to its runs, of times before this one.
            write_to: Returns a fresh file for the run of a part.
            share: The key groups of this task. With several nodes it is all of them, because nodes have other keys.
            first: Whether this is the nodes' first step.
            exchange: The exchange with the other tasks of the step.
            iterations: Returns the loop checkpoints of a node by its name.
            passed: Part to its time after the step before, if its rows expire.

        Raises:
            DataError: as `Node.step`.
        """
        changes: list[ZSet | None] = [change if change is not None and len(change) else None for change in inputs]
        written: dict[str, RunRef] = {}
        for name, node, feeds in zip(self.names, self.nodes, self.feeds, strict=True):
            taken = [feed.of(changes[feed.source]) for feed in feeds]
            nothing = [None] * len(node.schemas)
            alone = exchange is ALONE  # otherwise other tasks may have rows for an operator within the node
            if alone and all(change is None for change in taken) and not (first and node.whole):
                changes += nothing
                continue
            state = StepState(
                {part: runs[part_name(name, part)] for part in node.parts},
                lambda part, name=name: write_to(part_name(name, part)),  # type: ignore[misc]
                time,
                share,
                first,
                exchange=exchange,
                iterations=iterations(name),
                expiries=_own(self.expiries, name, node),
                passed=_own(passed or {}, name, node),
            )
            made = node.step(taken, state)
            changes += made.changes or nothing
            written |= {part_name(name, part): run for part, run in made.runs.items()}
        return NetworkOutput(tuple(changes), written)


def _own(by_part: Mapping[str, T], name: str, node: Node) -> dict[str, T]:
    """Return the entries for the parts of a node, under the node's own names."""
    return {part: by_part[part_name(name, part)] for part in node.parts if part_name(name, part) in by_part}


def part_name(node: str, part: str) -> str:
    """Return the name of a part of a network's state."""
    return f"{node}/{part}"


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The output rows of a step in a task.

    Attributes:
        replaced, rows: The rows with weight −1, and those with weight 1.
        digest: The digest of the rows with their weights; those of a step's tasks add up modulo 2^64.
    """

    replaced: tuple[pa.RecordBatch, ...] = ()
    rows: tuple[pa.RecordBatch, ...] = ()
    count: int = 0
    digest: int = 0


@dataclass(frozen=True, slots=True)
class OutputCollector:
    """Collects a step's output: adds up the weights of equal rows.

    A row of weight n is emitted n times with weight 1, or −1, because readers of changes know no other weights.

    Attributes:
        feeds: The places whose changes add up to the result.
        schema: The columns of the rows.
    """

    feeds: tuple[Feed, ...]
    schema: pa.Schema

    def of(self, changes: Sequence[ZSet | None]) -> HandedOut:
        """Return this task's output. All tasks' outputs add up to the step's if equal rows go to the same task."""
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
        """Return the rows with a positive or negative weight, repeated by their weight."""
        chosen = np.flatnonzero(weights * sign > 0)
        if not len(chosen):
            return ()
        at = np.repeat(chosen, np.abs(weights[chosen]))
        taken = [column.take(pa.array(at)) for column in columns]
        schema = self.schema.append(pa.field(WEIGHT, pa.int64(), nullable=False))
        signs = pa.array(np.full(len(at), sign, np.int64))
        return (pa.RecordBatch.from_arrays([*taken, signs], schema=schema),)
