"""Units: processors executed together as one Spark job.

A unit is a tree of operators. Its leaves are the sources and the other units that it reads; its top is the operator
with the unit's name. An operator joins its reader's job if `goes_into` allows it. Else it is the top of its own unit,
whose output is materialised once, as runs, for all readers. A sink is staged in the job of the unit that it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Ephemeral, History, Policy
from boatlift.dataflow.processors import Processor, SinkSpec, SourceSpec


@dataclass(frozen=True, slots=True)
class OperatorTree:
    """An operator in a unit, with the operators below it."""

    operator: Operator
    inputs: tuple[OperatorTree | str, ...]  # for each of its reads the tree below, or the name of a source or unit

    def operators(self) -> Iterator[Operator]:
        for tree in self.inputs:
            if isinstance(tree, OperatorTree):
                yield from tree.operators()
        yield self.operator

    def leaves(self) -> Iterator[str]:
        """Yield the sources and units read, the main input's first."""
        for tree in self.inputs:
            if isinstance(tree, OperatorTree):
                yield from tree.leaves()
            else:
                yield tree


@dataclass(frozen=True, slots=True)
class Unit:
    """Operators executed as one Spark job for each step; before a large step another job divides the rows."""

    name: str  # the name of its top operator; `NAME:rows` for a source that is staged unchanged
    body: OperatorTree | str  # its operators; the name of a source that is staged unchanged
    sinks: tuple[SinkSpec, ...]
    materialised: bool  # whether other units read its output

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(self.body.operators()) if isinstance(self.body, OperatorTree) else ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The sources and units that it reads, the main input's first."""
        return tuple(self.body.leaves()) if isinstance(self.body, OperatorTree) else (self.body,)

    @property
    def keeper(self) -> Operator | None:
        """The operator whose policy is the unit's: the one with state, or that ends the job, or else the top.

        None for a source that is staged unchanged.
        """
        operators = self.operators
        keepers = [each for each in operators if each.keeps_state or each.ends_job] or operators
        return keepers[-1] if keepers else None

    @property
    def policy(self) -> Policy:
        return self.keeper.policy if self.keeper else Ephemeral()

    @property
    def timing(self) -> Timing:
        """The timing of its one operator with other times than epochs."""
        return next((each.timing for each in self.operators if each.timing is not Timing.EPOCHS), Timing.EPOCHS)

    @property
    def keeps_state(self) -> bool:
        return any(each.keeps_state for each in self.operators)

    @property
    def deterministic(self) -> bool:
        return all(each.deterministic for each in self.operators)

    @property
    def records_answers(self) -> bool:
        """Whether answers of external systems are determinants, recorded after the step."""
        return any(each.records_answers for each in self.operators)

    @property
    def chooses_inputs(self) -> bool:
        """Whether the messages of a step are a determinant, recorded after the step."""
        return self.timing is not Timing.EPOCHS

    @property
    def rereads_source(self) -> bool:
        return any(each.rereads_source for each in self.operators)


def units_of(processors: Mapping[str, Processor]) -> dict[str, Unit]:
    """Return the units of a dataflow by name, each after those that it reads."""
    apart: set[str] = set()
    while True:
        units = _units_of(processors, apart)
        twice = next((name for unit in units.values() if (name := _read_twice(unit)) is not None), None)
        if twice is None:
            return units
        apart.add(twice)


def _read_twice(unit: Unit) -> str | None:
    """Return an operator to materialise because the unit would otherwise read a leaf along two paths.

    There is only one edge from a processor to another.
    """
    seen: set[str] = set()

    def within(tree: OperatorTree) -> str | None:
        for each in tree.inputs:
            if isinstance(each, OperatorTree):
                if not seen.isdisjoint(each.leaves()):
                    return each.operator.name
                if (found := within(each)) is not None:
                    return found
            else:
                seen.add(each)
        return None

    if not isinstance(unit.body, OperatorTree) or len(set(unit.reads)) == len(unit.reads):
        return None
    # Leaves that the top reads itself come first, so that the operator beside them is found.
    seen |= {each for each in unit.body.inputs if isinstance(each, str)}
    return within(unit.body)


def _units_of(processors: Mapping[str, Processor], apart: Collection[str]) -> dict[str, Unit]:
    readers: dict[str, list[Processor]] = {name: [] for name in processors}
    for processor in processors.values():
        for read in processor.reads:
            readers[read].append(processor)
    trees: dict[str, OperatorTree] = {}
    units: dict[str, Unit] = {}
    for name, processor in processors.items():
        sinks = tuple(each for each in readers[name] if isinstance(each, SinkSpec))
        if isinstance(processor, SourceSpec):
            # Each reader can read a source again, so its rows are never materialised, only staged.
            if sinks:
                units[f"{name}:rows"] = Unit(f"{name}:rows", name, sinks, materialised=False)
        elif isinstance(processor, Operator):
            tree = trees[name] = _tree(processor, trees, units)
            operators = [each for each in readers[name] if isinstance(each, Operator) and not each.rereads_source]
            alone = name in apart or processor.ends_job or len(operators) > 1
            if sinks or alone or (operators and not goes_into(tree, operators[0])):
                units[name] = Unit(name, tree, sinks, materialised=bool(operators))
    return units


def _tree(operator: Operator, trees: Mapping[str, OperatorTree], units: Mapping[str, Unit]) -> OperatorTree:
    inputs: list[OperatorTree | str] = []
    for read in operator.reads:
        if read not in trees:
            inputs.append(read)
        elif operator.rereads_source:
            inputs.append(_down_to_source(trees[read], trees))
        else:
            inputs.append(read if read in units else trees[read])
    return OperatorTree(operator, tuple(inputs))


def _down_to_source(tree: OperatorTree, trees: Mapping[str, OperatorTree]) -> OperatorTree:
    """Extend a tree down to its source, through operators that are units of their own."""
    inputs = [
        _down_to_source(trees[read], trees) if read in trees else read
        for read in (each if isinstance(each, str) else each.operator.name for each in tree.inputs)
    ]
    return OperatorTree(tree.operator, tuple(inputs))


def goes_into(tree: OperatorTree, reader: Operator) -> bool:
    """Return whether a tree of operators may be executed in the job of its one reader.

    Laws:
        * Only one operator of a unit has state, and its policy is the unit's. So a tree with a durable top is a unit,
          and a tree with state joins only a reader whose rows are cheap to compute again.
        * Only one operator of a unit has determinants. So a tree with times of its own joins only a deterministic
          reader without times, state or recorded answers.
        * Several messages form one step only if the reader's step is one time of all of them.
        * A stateless reader with `History` logs the messages of other units. No tree joins it: a replay of the log
          would execute the tree again.
    """
    operators: Sequence[Operator] = tuple(tree.operators())
    own_times = any(each.timing is not Timing.EPOCHS for each in operators)
    keeps_state = any(each.keeps_state for each in operators)
    if isinstance(reader.policy, History) and not reader.keeps_state:
        return False
    if tree.operator.ends_job or not reader.fuses(reader.reads.index(tree.operator.name)):
        return False
    if not (isinstance(tree.operator.policy, Ephemeral) or tree.operator.keeps_state):
        return False
    if (own_times or keeps_state) and not (
        len(reader.reads) == 1
        and reader.timing is Timing.EPOCHS
        and not (reader.keeps_state or reader.ends_job)
        and reader.deterministic
        and not reader.records_answers
    ):
        return False
    if keeps_state and not isinstance(reader.policy, Ephemeral):
        return False
    return len(list(tree.leaves())) == 1 or keeps_state or own_times or reader.timing is Timing.EPOCHS
