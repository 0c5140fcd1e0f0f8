"""The body of a loop in a task: operators, each over the results of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from boatlift.kernels.loop.expressions import InTask, true_of
from boatlift.kernels.loop.iterations import Iterations
from boatlift.kernels.network.node import Node, ZSet, concat
from boatlift.kernels.step_state import ALONE, Exchange


@dataclass(frozen=True, slots=True)
class Apply:
    """Computes columns of each row that fulfils a condition.

    Attributes:
        condition: The condition; None: of all rows.
    """

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
    """An operator with state.

    Attributes:
        name: Its name within the circuit.
        node: The operator, with one result.
    """

    name: str
    node: Node
    sources: tuple[int, ...]


Operation = Apply | Sum | KeyedOperation


@dataclass(frozen=True, slots=True)
class Circuit:
    """The body of a loop.

    Places are numbered: first the inputs, then the loop's rows, then the results of the operations.

    Attributes:
        inputs: The columns of each input, which is the same in each iteration.
        once: The inputs that only iteration 0 has.
        variable: The columns of the loop's rows.
        operations: The operations, each after those that it reads.
        result: The place of the loop's rows of the next iteration.
    """

    inputs: tuple[pa.Schema, ...]
    once: frozenset[int]
    variable: pa.Schema
    operations: tuple[Operation, ...]
    result: int

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
        """Return the change of the next iteration's loop rows at an iteration.

        Args:
            inputs: The change of each input at the iteration.
            looped: The change of the loop's rows at the iteration.
            exchange: The exchange with the other tasks of the step.
        """
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
