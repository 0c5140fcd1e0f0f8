"""The node of a loop: its body, a circuit of operators, iterates until nothing changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.loop.by_iteration import IterationCodec, at_iteration, negated
from boatlift.kernels.loop.expressions import InTask, true_of
from boatlift.kernels.loop.iterations import Iterations, iteration_parts, iterations_of
from boatlift.kernels.network.node import Node, NodeOutput, ZSet, concat, consolidated
from boatlift.kernels.step_state import ALONE, Exchange, StepState, rows_of_share
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.column import shown
from boatlift.state.merge import merge_rows


@dataclass(frozen=True, slots=True)
class Apply:
    """Computes columns of each row that fulfils a condition."""

    source: int
    columns: tuple[InTask, ...]
    condition: InTask | None = None

    def of(self, change: ZSet) -> ZSet | None:
        """Return the change of the result; the operator is linear."""
        if self.condition is not None:
            change = change.take(true_of(self.condition, change.columns, len(change)))
        if not len(change):
            return None
        return ZSet(tuple(each.of(change.columns, len(change)) for each in self.columns), change.weights)


@dataclass(frozen=True, slots=True)
class Sum:
    """The union of the rows of places with the same columns."""

    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyedOperation:
    """An operator with state."""

    name: str
    node: Node
    """The operator, with one result."""
    sources: tuple[int, ...]


Operation = Apply | Sum | KeyedOperation


@dataclass(frozen=True, slots=True)
class Circuit:
    """The body of a loop.

    Places are numbered: first the inputs, then the loop's rows, then the results of the operations.
    """

    inputs: tuple[pa.Schema, ...]
    """The columns of each input, which is the same in each iteration."""
    once: frozenset[int]
    """The inputs that only iteration 0 has."""
    variable: pa.Schema
    """The columns of the loop's rows."""
    operations: tuple[Operation, ...]
    """The operations, each after those that it reads."""
    result: int
    """The place of the loop's rows of the next iteration."""

    @property
    def keyed(self) -> tuple[KeyedOperation, ...]:
        return tuple(each for each in self.operations if isinstance(each, KeyedOperation))

    def round(
        self,
        number: int,
        inputs: Sequence[ZSet | None],
        looped: ZSet | None,
        iterations: Mapping[str, Iterations],
        exchange: Exchange = ALONE,
    ) -> ZSet | None:
        """Return the change of the next iteration's loop rows, from those of inputs and loop rows at an iteration."""
        places: list[ZSet | None] = [*inputs, looped]
        for operation in self.operations:
            match operation:
                case Apply(source):
                    change = places[source]
                    places.append(None if change is None else operation.of(change))
                case Sum(sources):
                    places.append(concat([change for each in sources if (change := places[each]) is not None]))
                case KeyedOperation(name, node, sources):
                    taken = [exchange.divided(places[each], node.keys(place)) for place, each in enumerate(sources)]
                    places.append(iterations[name].round(number, taken))
        return places[self.result]


_MOVED = "moved"
"""The name of the changes of the loop's rows in a loop checkpoint."""


class Result(Enum):
    """The result of a loop with the rows L(0), L(1), … of its iterations."""

    FIXED_POINT = "fixed point"
    """The rows of the last iteration, after which nothing changes."""
    ALL_ITERATIONS = "all rounds"
    """The sum of all iterations' rows, until an iteration has none: WITH RECURSIVE."""


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A loop: L(0) is empty, and L(i+1) is the circuit's result for L(i) and the inputs.

    Laws, beside those of `Node`:
        - After each step the state is that of a loop over the sums of the inputs, whatever the steps were: its rows at
          an iteration are the difference between that iteration and the one before.
        - The cost of a step is that of the rows that it changes, over all iterations, and of the rows of their keys.
    """

    processor: str
    place: str
    circuit: Circuit
    result: Result
    most_iterations: int
    """A step with more iterations fails."""
    keep_every: float = 10.0
    """The seconds between the begin of the step or a loop checkpoint and the next loop checkpoint."""
    whole = False

    @property
    def inputs(self) -> int:
        return len(self.circuit.inputs)

    @property
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        return {
            _part(each, part): codec
            for each in self.circuit.keyed
            for part, codec in iteration_parts(each.node).items()
        }

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        return (self.circuit.variable,)

    def keys(self, number: int) -> None:
        del number  # rows are divided by all columns, and then among operators by their keys

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        (begins,) = state.exchange.greatest([any(change is not None for change in changes)])
        if not begins:
            return NodeOutput()
        iterations = {
            each.name: iterations_of(each.node, {part: state.runs[_part(each, part)] for part in each.node.parts})
            for each in self.circuit.keyed
        }
        moved = self._iterations(changes, iterations, state)
        added = {
            _part(each, part): merge_rows(codec, iterations[each.name].added[part])
            for each in self.circuit.keyed
            for part, codec in iteration_parts(each.node).items()
            if iterations[each.name].added.get(part)
        }
        result = self._result(moved, state)
        return NodeOutput((result,), state.written(self.processor, self.parts, added))

    def _iterations(
        self, changes: Sequence[ZSet | None], iterations: Mapping[str, Iterations], state: StepState
    ) -> list[ZSet | None]:
        """Return the changes of the loop's rows of iteration 0, 1, …."""
        once = self.circuit.once
        moved = self._restored(iterations, state) or [None]
        while True:
            number = len(moved) - 1
            given: list[ZSet | None] = [None] * len(changes)
            for place, change in enumerate(changes):
                if change is not None and number == 0:
                    given[place] = change
                elif change is not None and number == 1 and place in once:
                    given[place] = negated(change)
            made = self.circuit.round(number, given, moved[number], iterations, state.exchange)
            coming = consolidated(state.exchange.divided(made, None), self.circuit.variable)
            last = max((each.last for each in iterations.values()), default=-1)
            moved.append(coming)
            comes, last, due = state.exchange.greatest([coming is not None, last, state.iterations.due])
            if not comes and number >= max(last, 1 if once else 0):
                return moved
            if comes and number >= self.most_iterations:
                raise self._too_long(coming, state)
            if due:
                self._keep(moved, iterations, state)

    @property
    def kept_codecs(self) -> Mapping[str, ValueCodec[Any, Any]]:
        """The codecs of a loop checkpoint's rows, except those of the changes of operators' inputs."""
        moved: ValueCodec[Any, Any] = IterationCodec(ArrangementCodec(self.circuit.variable))
        return {_MOVED: moved} | {
            f"{each.name}/added.{part}": codec
            for each in self.circuit.keyed
            for part, codec in iteration_parts(each.node).items()
        }

    def _keep(self, moved: Sequence[ZSet | None], iterations: Mapping[str, Iterations], state: StepState) -> None:
        """Write a loop checkpoint of all iterations so far."""
        rows = {f"{name}/{part}": kept for name, each in iterations.items() for part, kept in each.kept().items()}
        codec = ArrangementCodec(self.circuit.variable)
        pieces = [
            at_iteration(arranged(codec, each.columns, each.weights, key_hashes(each.columns, len(each))), number)
            for number, each in enumerate(moved)
            if each is not None
        ]
        if pieces:
            by_iteration = IterationCodec(codec)
            rows[_MOVED] = (by_iteration, merge_rows(by_iteration, pieces))
        number = len(moved) - 2
        state.iterations.write(number, rows)
        state.exchange.greatest([])  # all tasks have written
        state.iterations.written(number)

    def _restored(self, iterations: Mapping[str, Iterations], state: StepState) -> list[ZSet | None] | None:
        """Return the changes of the loop's rows of a loop checkpoint; None if the step begins with iteration 0."""
        saved = state.iterations.read()
        number = -1 if saved is None else saved.number
        greatest, least = state.exchange.greatest([number, -number])
        if saved is None or greatest != -least:  # a task cannot read it, or has read another one
            return None
        for name, each in iterations.items():
            each.restore(saved, name, state.share)
        moved: list[ZSet | None] = [None] * (number + 2)
        if _MOVED in saved.runs:
            codec, runs = saved.runs[_MOVED]
            rows = rows_of_share(codec, runs, state.share)
            if rows is not None:
                at = rows.keys[-1].values
                change = ZSet(rows.values.rows, rows.values.weights)
                for each in np.unique(at).tolist():
                    moved[each] = change.take(np.flatnonzero(at == each))
        return moved

    def _result(self, moved: Sequence[ZSet | None], state: StepState) -> ZSet | None:
        last = consolidated(concat([each for each in moved if each is not None]), self.circuit.variable)
        if self.result is Result.FIXED_POINT:
            return last
        (endless,) = state.exchange.greatest([last is not None])
        if endless:  # every further iteration would repeat the same rows
            raise self._too_long(last, state)
        there = [
            ZSet(each.columns, each.weights * (len(moved) - number))
            for number, each in enumerate(moved)
            if each is not None
        ]
        return consolidated(concat(there), self.circuit.variable)

    def _too_long(self, coming: ZSet | None, state: StepState) -> DataError:
        """Return the error of a task with the rows that still change; the first task with an example fails first."""
        own = state.share.residue
        first, *_ = state.exchange.greatest([-own if coming is not None else -state.share.modulus])
        if -first != own:
            state.exchange.greatest([])  # wait until that task has ended
        example = ""
        if coming is not None:
            columns = zip(self.circuit.variable, coming.columns, strict=True)
            row = {field.name: shown(column[0]) for field, column in columns}
            example = f", such as {row}"
        return DataError(
            "LOOP_TOO_LONG",
            f"{self.place} of {self.processor} still changes rows after {self.most_iterations} iterations{example}",
        )


def _part(operator: KeyedOperation, part: str) -> str:
    return f"{operator.name}/{part}"
