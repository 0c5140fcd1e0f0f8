"""Networks: kernels made of nodes, whose results feed other nodes. Each job of a view has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import WEIGHT
from boatlift.kernels.kernel import Kernel, KernelInputs, StepOutput
from boatlift.kernels.network.node import KeepingNode, Node, ZSet, concat
from boatlift.kernels.step_state import ALONE, Runs, StepState
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.column import Column, Ints, as_declared
from boatlift.state.digest import add_column, finish
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share
from boatlift.storage.records.records import RunRef

T = TypeVar("T")

_WEIGHT = pa.field(WEIGHT, pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True)
class Feed:
    """Passes columns of one place of a network to another."""

    source: int
    """The place of origin: an input of the network, or after the inputs a result of a node."""
    columns: tuple[int, ...]
    """The places of the columns that are passed on, in order."""

    def of(self, change: ZSet | None) -> ZSet | None:
        if change is None:
            return None
        return ZSet(tuple(change.columns[place] for place in self.columns), change.weights)


@dataclass(frozen=True, slots=True)
class OutputCollector:
    """Collects a step's output: adds up the weights of equal rows.

    A row of weight n is emitted n times with weight 1, or −1, because readers of changes know no other weights.
    """

    feeds: tuple[Feed, ...]
    """The places whose changes add up to the result."""
    schema: pa.Schema

    def of(self, changes: Sequence[ZSet | None]) -> StepOutput:
        """Return a task's rows. Those of all tasks add up to the step's if equal rows go to the same task."""
        whole = concat([change for feed in self.feeds if (change := feed.of(changes[feed.source])) is not None])
        if whole is None:
            return StepOutput()
        codec = ArrangementCodec(self.schema)
        found = arranged(codec, whole.columns, whole.weights, key_hashes(whole.columns, len(whole)))
        weights, columns = found.values.weights, found.values.rows
        words = np.zeros(len(found), np.uint64)
        for place, column in enumerate((*found.keys, Column(pa.int64(), weights))):
            add_column(words, place, column)
        replaced, rows = (self._repeated(columns, weights, sign) for sign in (-1, 1))
        count = int(np.abs(weights).sum())
        return StepOutput(batches=rows, replaced=replaced, rows=count, digest=finish(words))

    def _repeated(self, columns: Sequence[pa.Array], weights: Ints, sign: int) -> tuple[pa.RecordBatch, ...]:
        """Return the rows with a positive or negative weight, repeated by their weight."""
        chosen = np.flatnonzero(weights * sign > 0)
        if not len(chosen):
            return ()
        at = np.repeat(chosen, np.abs(weights[chosen]))
        taken = [column.take(pa.array(at)) for column in columns]
        schema = self.schema.append(_WEIGHT)
        signs = pa.array(np.full(len(at), sign, np.int64))
        return (pa.RecordBatch.from_arrays([*taken, signs], schema=schema),)


@dataclass(frozen=True, slots=True)
class Channel:
    """Rows that a step leaves for later jobs."""

    name: str
    place: int
    """The place in the network of the node with these rows."""
    schema: pa.Schema
    """The columns, with `_weight`."""

    def of(self, changes: Sequence[ZSet | None]) -> dict[str, pa.RecordBatch]:
        change = changes[self.place]
        if change is None:
            return {}
        columns = [*change.columns, pa.array(change.weights)]
        return {self.name: pa.RecordBatch.from_arrays(columns, schema=self.schema)}


@dataclass(frozen=True, slots=True)
class Network(Kernel):
    """Nodes in topological order, over inputs of changes."""

    processor: str
    columns: tuple[pa.Schema, ...]
    """The columns of each input; its batches have `_weight` as the last column."""
    names: tuple[str, ...]
    """The names of the nodes, which prefix the parts of their states."""
    nodes: tuple[Node, ...]
    feeds: tuple[tuple[Feed, ...], ...]
    """For each node the feeds into it, one for each of its inputs."""
    expiring: Mapping[str, ExpiryColumn]
    """Part of the state to the column by which its rows expire."""
    channels: tuple[Channel, ...]
    """The rows for later jobs of the step."""
    output: OutputCollector | None
    """Collects the output of the step; None in a job that is not the step's last."""

    @property
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        return {
            part_name(name, part): codec
            for name, node in zip(self.names, self.nodes, strict=True)
            for part, codec in node.parts.items()
        }

    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {str(number): (*schema.names, WEIGHT) for number, schema in enumerate(self.columns)}

    @property
    def expiries(self) -> Mapping[str, ExpiryColumn]:
        return self.expiring

    @property
    def output_schema(self) -> pa.Schema:
        """The columns of the result, with `_weight`; of a job that is not the last, no columns."""
        return pa.schema([]) if self.output is None else self.output.schema.append(_WEIGHT)

    @property
    def gives_rows(self) -> bool:
        """Whether the output is the rows of one node, which keeps them."""
        return self.output is not None and len(self.output.feeds) == 1 and self._giving is not None

    @property
    def _giving(self) -> tuple[str, KeepingNode] | None:
        """The name of the node whose only result is the output, and that node, if it keeps its rows."""
        place = len(self.columns)
        for name, node in zip(self.names, self.nodes, strict=True):
            if self.output is not None and self.output.feeds[0].source == place:
                return (name, node) if isinstance(node, KeepingNode) and node.keeps_rows else None
            place += len(node.schemas)
        return None

    def between(
        self,
        before: Mapping[str, Runs],
        after: Mapping[str, Runs],
        share: Share,
        *,
        upserts: bool = False,  # noqa: ARG002
    ) -> StepOutput:
        giving, output = self._giving, self.output
        assert giving is not None
        assert output is not None
        name, node = giving
        pieces = []
        for state, sign in ((before, -1), (after, 1)):
            held = node.held({part: state.get(part_name(name, part), ()) for part in node.parts}, share)
            if held is not None:
                pieces.append(ZSet(held.columns, sign * held.weights))
        (feed,) = output.feeds
        return output.of([*[None] * feed.source, concat(pieces)])

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:
        """Execute a step of all nodes in a task; see `Kernel.step`.

        With several nodes the task has all key groups, because nodes have other keys.
        """
        del upserts
        changes = [_change_of(inputs[str(number)], schema) for number, schema in enumerate(self.columns)]
        written: dict[str, RunRef] = {}
        for name, node, feeds in zip(self.names, self.nodes, self.feeds, strict=True):
            taken = [feed.of(changes[feed.source]) for feed in feeds]
            nothing = [None] * len(node.schemas)
            alone = state.exchange is ALONE  # otherwise other tasks may have rows for an operator within the node
            if alone and all(change is None for change in taken) and not (state.first and node.whole):
                changes += nothing
                continue
            made = node.step(taken, _state_of(name, node, state))
            changes += made.changes or nothing
            written |= {part_name(name, part): run for part, run in made.runs.items()}
        result = StepOutput() if self.output is None else self.output.of(changes)
        left = {name: rows for channel in self.channels for name, rows in channel.of(changes).items()}
        return replace(result, runs=written, channels=left)


def part_name(node: str, part: str) -> str:
    """Return the name of a part of a network's state."""
    return f"{node}/{part}"


def _state_of(name: str, node: Node, state: StepState) -> StepState:
    """Return the state of a node, whose parts have the node's own names there."""

    def own(by_part: Mapping[str, T]) -> dict[str, T]:
        return {part: by_part[part_name(name, part)] for part in node.parts if part_name(name, part) in by_part}

    return replace(
        state,
        runs=own(state.runs),
        write_to=lambda part: state.write_to(part_name(name, part)),
        iterations=state.checkpoints_of(name, node),
        expiries=own(state.expiries),
        passed=own(state.passed),
    )


def _change_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> ZSet | None:
    """Return an input's rows in the declared types; None if there are none."""
    changes = [
        ZSet(
            tuple(map(as_declared, batch.columns[:-1], schema.types)),
            batch.column(WEIGHT).to_numpy(zero_copy_only=False).astype(np.int64),
        )
        for batch in batches
    ]
    return concat(changes)
