"""A unit as one line of transforms, around at most one operator of another kind: what `spark/program.py` compiles."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.dataflow import Operator, Part, Plan, RowKind, SinkProcessor, Unit
from boatlift.operators.aggregate.node import Aggregate
from boatlift.operators.gather.node import Gather
from boatlift.operators.lookup.node import Lookup, Table
from boatlift.operators.merge.node import Merge
from boatlift.operators.recompute.node import Recompute
from boatlift.operators.transform.node import Transform
from boatlift.operators.union.node import Union

__all__ = ["LinearUnit", "linear"]


@dataclass(frozen=True, slots=True)
class LinearUnit:
    """A unit as a line.

    Attributes:
        name: Its last processor; the unit goes by that name.
        roots: Where its rows come from: a source, or a unit whose output is materialised; several, if it unites them.
        union: How it unites them.
        chain: The transforms between roots and lookup or end, in order.
        end: What makes it more than transforms, if anything does: keyed state, a lookup, a recomputation.
        after: The transforms behind a lookup, in order.
        sinks: Sinks that are staged in its job.
        materialised: Whether other units read its output.
        changes_in, changes_out: Whether its rows carry a weight, on the way in and out.
    """

    name: str
    roots: tuple[str, ...]
    union: Union | Merge | None
    chain: tuple[Transform, ...]
    end: Aggregate | Lookup | Recompute | Gather | None
    after: tuple[Transform, ...]
    sinks: tuple[SinkProcessor, ...]
    materialised: bool
    changes_in: bool
    changes_out: bool

    @property
    def repeats(self) -> bool:
        """Whether executing its transforms again, with the same determinants, gives the same rows."""
        return all(transform.deterministic for transform in (*self.chain, *self.after))

    @property
    def aggregate(self) -> Aggregate | None:
        """The keyed state at its end."""
        return self.end if isinstance(self.end, Aggregate) else None

    @property
    def lookup(self) -> Lookup | None:
        """The lookup between its transforms."""
        return self.end if isinstance(self.end, Lookup) else None

    @property
    def recomputation(self) -> Recompute | Gather | None:
        """The batch at its end."""
        return self.end if isinstance(self.end, Recompute | Gather) else None

    @property
    def tables(self) -> tuple[Table, ...]:
        """What its lookup keeps; `upstream` names the units."""
        return self.lookup.tables if self.lookup is not None else ()


def linear(unit: Unit, plan: Plan) -> LinearUnit:
    """Return a unit of a plan as a line."""
    line: list[Operator] = []
    at: Part | str = unit.body
    while isinstance(at, Part):
        line.insert(0, at.operator)
        roots = at.inputs
        at = at.inputs[0]
    if not isinstance(unit.body, Part):
        roots = (unit.body,)
    first = line[0] if line else None
    union = first if isinstance(first, Union | Merge) else None
    if union is None:
        roots = roots[:1]
    places = [n for n, each in enumerate(line) if isinstance(each, Aggregate | Lookup | Recompute | Gather)]
    at_end = places[0] if places else len(line)
    end = line[at_end] if places else None
    assert end is None or isinstance(end, Aggregate | Lookup | Recompute | Gather)
    names = tuple(str(root) for root in roots)
    return LinearUnit(
        unit.name,
        names,
        union,
        tuple(each for each in line[:at_end] if isinstance(each, Transform)),
        end,
        tuple(each for each in line[at_end + 1 :] if isinstance(each, Transform)),
        unit.sinks,
        unit.materialised,
        plan.rows_of(names[0]).kind is RowKind.CHANGES,
        plan.rows_of(unit.name).kind is RowKind.CHANGES,
    )
