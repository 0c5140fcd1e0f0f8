"""Units: the processors that are executed together as one Spark job.

A unit is a tree of operators. Its leaves are the sources and the other units that it reads; its top is the operator
whose name the unit has. An operator goes into its reader's job where that is right (`goes_into`). Else it is the top of
a unit of its own, and its output is materialised once, as runs, for all its readers. Sinks are staged inside the job
that makes their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Ephemeral, History, Policy
from boatlift.dataflow.processors import Processor, SinkSpec, SourceSpec

__all__ = ["Part", "Unit", "goes_into", "units_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """An operator within a unit.

    Attributes:
        operator: The operator.
        inputs: For each of its reads the part whose rows it takes, or the name of the source or unit.
    """

    operator: Operator
    inputs: tuple[Part | str, ...]

    def operators(self) -> Iterator[Operator]:
        """Iterate over the operators, each after those that it reads, those of the main input first."""
        for part in self.inputs:
            if isinstance(part, Part):
                yield from part.operators()
        yield self.operator

    def leaves(self) -> Iterator[str]:
        """Iterate over the sources and units that are read, those of the main input first."""
        for part in self.inputs:
            if isinstance(part, Part):
                yield from part.leaves()
            else:
                yield part


@dataclass(frozen=True, slots=True)
class Unit:
    """The operators that are executed as one Spark job a step.

    A large step has another job before it, which divides its rows.

    Attributes:
        name: The name of its top operator; of a source that is staged as it is, `NAME:rows`.
        body: Its operators; of a source that is staged as it is, the source.
        sinks: Sinks whose rows its job stages.
        materialised: Whether other units read its output.
    """

    name: str
    body: Part | str
    sinks: tuple[SinkSpec, ...]
    materialised: bool

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Its operators, each after those that it reads."""
        return tuple(self.body.operators()) if isinstance(self.body, Part) else ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The sources and units that it takes messages from, those of the main input first."""
        return tuple(self.body.leaves()) if isinstance(self.body, Part) else (self.body,)

    @property
    def keeper(self) -> Operator | None:
        """The operator that decides what a step of the unit is, and whose policy the unit has.

        It is the operator with state, or with work in the last stage; else the top. A source that is staged as it is
        has none.
        """
        operators = self.operators
        keepers = [each for each in operators if each.keeps_state or each.ends_job] or operators
        return keepers[-1] if keepers else None

    @property
    def policy(self) -> Policy:
        """What is made durable: by the policy of its keeper."""
        return self.keeper.policy if self.keeper else Ephemeral()

    @property
    def timing(self) -> Timing:
        """Which times it has: those of its one operator that has times of its own."""
        return next((each.timing for each in self.operators if each.timing is not Timing.EPOCHS), Timing.EPOCHS)

    @property
    def keeps_state(self) -> bool:
        """True if a step depends on the steps before it."""
        return any(each.keeps_state for each in self.operators)

    @property
    def deterministic(self) -> bool:
        """True if executing a step again, with the same determinants, gives the same rows."""
        return all(each.deterministic for each in self.operators)

    @property
    def records_answers(self) -> bool:
        """True if the answers of the outside are determinants of the unit, recorded once the step is done."""
        return any(each.records_answers for each in self.operators)

    @property
    def chooses_inputs(self) -> bool:
        """True if the choice of a step's messages is a determinant of the unit, recorded once the step is done."""
        return self.timing is not Timing.EPOCHS

    @property
    def rereads_source(self) -> bool:
        """True if each step takes all rows that its source ever gave."""
        return any(each.rereads_source for each in self.operators)


def units_of(processors: Mapping[str, Processor]) -> dict[str, Unit]:
    """Return the units of a dataflow by name, each after those that it reads.

    Args:
        processors: All processors, each after those that it reads.
    """
    apart: set[str] = set()
    while True:
        units = _units_of(processors, apart)
        twice = next((name for unit in units.values() if (name := _read_twice(unit)) is not None), None)
        if twice is None:
            return units
        apart.add(twice)


def _read_twice(unit: Unit) -> str | None:
    """Return an operator of a unit whose rows should be materialised: else the unit would read a leaf on two ways.

    A message goes along an edge, and there is one edge from a processor to another.
    """
    seen: set[str] = set()

    def within(part: Part) -> str | None:
        for each in part.inputs:
            if isinstance(each, Part):
                if not seen.isdisjoint(each.leaves()):
                    return each.operator.name
                if (found := within(each)) is not None:
                    return found
            else:
                seen.add(each)
        return None

    if not isinstance(unit.body, Part) or len(set(unit.reads)) == len(unit.reads):
        return None
    # Leaves that an operator reads itself come first, so that the part beside them is found.
    seen |= {each for each in unit.body.inputs if isinstance(each, str)}
    return within(unit.body)


def _units_of(processors: Mapping[str, Processor], apart: Collection[str]) -> dict[str, Unit]:
    readers: dict[str, list[Processor]] = {name: [] for name in processors}
    for processor in processors.values():
        for read in processor.reads:
            readers[read].append(processor)
    parts: dict[str, Part] = {}
    units: dict[str, Unit] = {}
    for name, processor in processors.items():
        sinks = tuple(each for each in readers[name] if isinstance(each, SinkSpec))
        if isinstance(processor, SourceSpec):
            # A source can be read again by each of its readers, so that its rows are never materialised, only staged.
            if sinks:
                units[f"{name}:rows"] = Unit(f"{name}:rows", name, sinks, materialised=False)
        elif isinstance(processor, Operator):
            part = parts[name] = _part(processor, parts, units)
            operators = [each for each in readers[name] if isinstance(each, Operator) and not each.rereads_source]
            alone = name in apart or processor.ends_job or len(operators) > 1
            if sinks or alone or (operators and not goes_into(part, operators[0])):
                units[name] = Unit(name, part, sinks, materialised=bool(operators))
    return units


def _part(operator: Operator, parts: Mapping[str, Part], units: Mapping[str, Unit]) -> Part:
    inputs: list[Part | str] = []
    for read in operator.reads:
        if read not in parts:
            inputs.append(read)
        elif operator.rereads_source:
            inputs.append(_down_to_source(parts[read], parts))
        else:
            inputs.append(read if read in units else parts[read])
    return Part(operator, tuple(inputs))


def _down_to_source(part: Part, parts: Mapping[str, Part]) -> Part:
    """Return a part down to its source, also through operators that are units of their own."""
    inputs = [
        _down_to_source(parts[read], parts) if read in parts else read
        for read in (each if isinstance(each, str) else each.operator.name for each in part.inputs)
    ]
    return Part(part.operator, tuple(inputs))


def goes_into(part: Part, reader: Operator) -> bool:
    """Return whether a part may be executed in the job of its one reader.

    Laws:
        * The state of a unit is one operator's, and so is its policy: a part that is to be made durable is a unit's
          top, and a part with state goes only into a reader whose rows are cheap to make again.
        * The determinants of a unit are one operator's: a part with times of its own goes only into a deterministic
          reader without times, state or recorded answers of its own, so that the recorded order says all.
        * Several messages make one step only where the reader's step is one time of all of them.
        * The history of a reader without state is what other units send it: no part goes into it, which a replay of the
          history would execute again.
    """
    operators: Sequence[Operator] = tuple(part.operators())
    own_times = any(each.timing is not Timing.EPOCHS for each in operators)
    keeps_state = any(each.keeps_state for each in operators)
    if isinstance(reader.policy, History) and not reader.keeps_state:
        return False
    if part.operator.ends_job or not reader.fuses(reader.reads.index(part.operator.name)):
        return False
    if not (isinstance(part.operator.policy, Ephemeral) or part.operator.keeps_state):
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
    return len(list(part.leaves())) == 1 or keeps_state or own_times or reader.timing is Timing.EPOCHS
