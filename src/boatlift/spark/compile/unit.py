"""A compiled unit: a tree of compiled operators, which builds the plan of any step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from boatlift.dataflow import OperatorTree, Timing, Unit
from boatlift.dataflow.columns import POSITION, WEIGHT
from boatlift.errors import InvalidError
from boatlift.spark.compile.operator import Columns, Compiled, Kit, without_position
from boatlift.spark.plans.catalyst import INPUT, analysed, analysed_text, can_thread
from boatlift.spark.plans.fingerprint import shape
from boatlift.spark.plans.step_functions import MARK
from boatlift.storage.records.payloads import StepClock


@dataclass(frozen=True, slots=True)
class CompiledUnit:
    """A unit, ready to build its frame for any step.

    Rows have the alias `INPUT` at the begin of a hashed plan: where they enter the unit, and above an opaque operator.
    Neighbouring row-wise operators are applied as one: to changes once for each weight, so that the plan does not
    double with every operator.

    Attributes:
        unit: The unit.
        leaves: The columns of the sources and units that it reads.
        operators: Its operators by name.
        output: The schema of its output rows, with `_weight` if they are changes.
        unique: Columns in which any two rows that hold at one time differ; None if none are known.
        of_step: Whether its plan has values of a step's own (`bl.now()`, `bl.rand()`, `bl.uuid()`).
        threads: Whether a further column passes through its plan.
        shapes: The shape of the plan of each chain of row-wise operators, by the name of the last.
    """

    unit: Unit
    leaves: Mapping[str, Columns]
    operators: Mapping[str, Compiled]
    output: pa.Schema
    unique: tuple[str, ...] | None = None
    of_step: bool = False
    threads: bool = True
    shapes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        unit: Unit,
        leaves: Mapping[str, Columns],
        operators: Mapping[str, Compiled],
        unique: tuple[str, ...] | None,
        kit: Kit,
    ) -> CompiledUnit:
        """Return the unit of compiled operators; its plan is built once on empty frames."""
        columns = _columns(unit.body, leaves, operators)
        plain = cls(unit, leaves, operators, kit.arrow(columns), unique)
        empties = {name: kit.empty(each, weighted=True) for name, each in leaves.items()}
        shapes: dict[str, str] = {}
        frame = plain._built(empties, StepClock(0, 0), None, shapes)
        of_step, threads = MARK in analysed_text(frame), can_thread(analysed(frame))
        return replace(plain, of_step=of_step, threads=threads, shapes=shapes)

    @property
    def name(self) -> str:
        """The unit's name."""
        return self.unit.name

    @property
    def apart(self) -> bool:
        """Whether its steps cannot be run together."""
        return self.of_step or not self.threads

    @property
    def not_again(self) -> str:
        """Why its steps cannot be executed again, divided in another way; empty if they can."""
        if self.of_step:
            return f"{self.name} uses bl.now(), bl.rand() or bl.uuid(), which are each step's own"
        asks = [each.name for each in self.unit.operators if each.records_answers or not each.deterministic]
        return f"{asks[0]} gives other rows each time that it is executed" if asks else ""

    @property
    def by_place(self) -> str:
        """Why its rows depend on their places in a step's input; empty if they do not."""
        placed = [name for name, each in self.operators.items() if each.by_place]
        return f"{placed[0]} computes with _position, which another division may change" if placed else ""

    @property
    def columns(self) -> Columns:
        """The columns of the unit's rows."""
        return without_position(_columns(self.unit.body, self.leaves, self.operators))

    @property
    def functions(self) -> tuple[str, ...]:
        """The operators whose Python functions run in the tasks; the unit itself if there are none."""
        return tuple(name for name, each in self.operators.items() if each.calls_python) or (self.name,)

    @property
    def libraries(self) -> dict[str, str]:
        """The installed packages that the unit's functions use, and their versions."""
        return {name: version for each in self.operators.values() for name, version in each.libraries.items()}

    @property
    def top(self) -> Compiled | None:
        """The operator with the unit's name; None of a source that is staged as it is."""
        return self.operators[self.unit.body.operator.name] if isinstance(self.unit.body, OperatorTree) else None

    @property
    def decisive(self) -> Compiled | None:
        """The operator with the unit's state, or with work in the last stage; else the top."""
        return None if self.unit.keeper is None else self.operators[self.unit.keeper.name]

    def frame(self, rows: Mapping[str, DataFrame], clock: StepClock, state: Any = None) -> DataFrame:
        """Return the frame of the unit's rows at a step; with keyed state, of the kernel's input.

        Args:
            rows: The rows of each source and unit with a message at the step; or the rows of an operator of the unit,
                instead of those below it.
            clock, state: As for `Compiled.frame`.

        Raises:
            InvalidError: `[NOT_DETERMINISTIC]` the user's functions build another plan than when the program was
                compiled.
            UserCodeError: `[USER_CODE]`.
        """
        return self._built(rows, clock, state, {})

    @property
    def inputs(self) -> dict[str, Columns]:
        """The columns of each input of the unit's top operator, by name."""
        assert isinstance(self.unit.body, OperatorTree)
        return {
            each if isinstance(each, str) else each.operator.name: _columns(each, self.leaves, self.operators)
            for each in self.unit.body.inputs
        }

    def below(self, rows: Mapping[str, DataFrame], clock: StepClock) -> DataFrame:
        """Return the rows of the first input of the operator with the unit's state; arguments as for `frame`."""
        keeper, compiled = self.unit.keeper, self.decisive
        assert keeper is not None
        assert compiled is not None
        tree = next(each for each in _trees(self.unit.body) if each.operator.name == keeper.name)
        frame = self._input(tree.inputs[0], compiled, rows, clock, None, {})
        assert frame is not None
        return frame

    def taken(self, rows: Mapping[str, DataFrame], clock: StepClock) -> dict[str, DataFrame]:
        """Return the rows of each input of the unit's top operator, by name; inputs without a message are left out.

        Arguments as for `frame`.
        """
        assert isinstance(self.unit.body, OperatorTree)
        assert self.top is not None
        frames = [self._input(each, self.top, rows, clock, None, {}) for each in self.unit.body.inputs]
        return {name: frame for name, frame in zip(self.inputs, frames, strict=True) if frame is not None}

    def _built(self, rows: Mapping[str, DataFrame], clock: StepClock, state: Any, shapes: dict[str, str]) -> DataFrame:
        frame = self._rows(self.unit.body, rows, clock, state, shapes)
        assert frame is not None
        if isinstance(self.unit.body, str):
            frame = frame.alias(INPUT)
        return frame.drop(POSITION) if _columns(self.unit.body, self.leaves, self.operators).positioned else frame

    def _rows(
        self,
        tree: OperatorTree | str,
        rows: Mapping[str, DataFrame],
        clock: StepClock,
        state: Any,
        shapes: dict[str, str],
    ) -> DataFrame | None:
        """Return the rows of a tree; None if it has no message at the step."""
        if isinstance(tree, str):
            return rows.get(tree)
        if tree.operator.name in rows:
            return rows[tree.operator.name]
        compiled = self.operators[tree.operator.name]
        if compiled.row_wise:
            return self._run(tree, rows, clock, state, shapes)
        inputs = [self._input(each, compiled, rows, clock, state, shapes) for each in tree.inputs]
        return None if all(each is None for each in inputs) else compiled.frame(inputs, clock, state)

    def _input(
        self,
        tree: OperatorTree | str,
        reader: Compiled,
        rows: Mapping[str, DataFrame],
        clock: StepClock,
        state: Any,
        shapes: dict[str, str],
    ) -> DataFrame | None:
        """Return the rows of an input of an operator that is not row-wise."""
        frame = self._rows(tree, rows, clock, state, shapes)
        if frame is None:
            return None
        if not reader.opaque and (isinstance(tree, str) or not self.operators[tree.operator.name].row_wise):
            frame = frame.alias(INPUT)
        positioned = _columns(tree, self.leaves, self.operators).positioned
        return frame.drop(POSITION) if positioned and not reader.selects else frame

    def _run(
        self, tree: OperatorTree, rows: Mapping[str, DataFrame], clock: StepClock, state: Any, shapes: dict[str, str]
    ) -> DataFrame | None:
        """Return the rows of a row-wise operator, applied together with the row-wise operators before it."""
        run: list[Compiled] = []
        below: OperatorTree | str = tree
        while isinstance(below, OperatorTree) and self.operators[below.operator.name].row_wise:
            run.insert(0, self.operators[below.operator.name])
            (below,) = below.inputs
        begin = self._rows(below, rows, clock, state, shapes)
        if begin is None:
            return None
        begin = begin.alias(INPUT)
        if _columns(below, self.leaves, self.operators).changes:
            frame = _on_changes(run, begin, clock)
        else:
            frame = _applied(run, begin, clock)
        if self.unit.deterministic and self.unit.timing is not Timing.BATCH:
            self._check_shape(tree.operator.name, run, frame, shapes)
        return frame

    def _check_shape(self, name: str, run: Sequence[Compiled], frame: DataFrame, shapes: dict[str, str]) -> None:
        found = shapes[name] = shape(frame, functions=any(each.calls_python for each in run))
        if self.shapes.get(name, found) != found:
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{name} builds another plan now than when this process began, so a replay would differ: let its "
                "functions depend on nothing that changes while it runs",
            )


def _trees(body: OperatorTree | str) -> Iterator[OperatorTree]:
    if isinstance(body, OperatorTree):
        yield body
        for each in body.inputs:
            yield from _trees(each)


def _columns(tree: OperatorTree | str, leaves: Mapping[str, Columns], operators: Mapping[str, Compiled]) -> Columns:
    return leaves[tree] if isinstance(tree, str) else operators[tree.operator.name].columns


def _applied(run: Sequence[Compiled], rows: DataFrame, clock: StepClock) -> DataFrame:
    for each in run:
        rows = each.frame([rows], clock, None)
    return rows


def _on_changes(run: Sequence[Compiled], rows: DataFrame, clock: StepClock) -> DataFrame:
    """Apply row-wise operators to changes: they are linear, so the rows of each weight are transformed alone."""
    sides = []
    for weight in (-1, 1):
        side = _applied(run, rows.where(F.col(WEIGHT) == weight).drop(WEIGHT), clock)
        sides.append(side.withColumn(WEIGHT, F.lit(weight).cast("long")))
    return sides[0].unionAll(sides[1])
