"""The cuts of a view's query: its calls and conditions about time become operators of their own.

`withWatermark` becomes a `Watermark`, `dropDuplicatesWithinWatermark` a `Duplicates`, and a condition such as
`at > now() - INTERVAL 1 HOUR` a `Recent`. The rows below a cut go to the operator, and the query continues above it
over the operator's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.java_gateway import get_field
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from boatlift.errors import InvalidError
from boatlift.operators.view.queried import queried
from boatlift.spark.compile.operator import OtherOperators
from boatlift.spark.plans.catalyst import items, jvm
from boatlift.spark.plans.watermarks import taking_watermarks
from boatlift.views.catalyst_plan import CatalystPlan, Node
from boatlift.views.current_time import TIME_COLUMNS, CurrentTime
from boatlift.views.deterministic import temporal_condition
from boatlift.views.never_fails import lowered


@dataclass(frozen=True, slots=True)
class WatermarkCut:
    """`withWatermark`."""

    column: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Within:
    """`dropDuplicatesWithinWatermark`."""

    keys: tuple[str, ...]
    milliseconds: int


@dataclass(frozen=True, slots=True)
class TemporalFilter:
    """A condition such as `at > now() - INTERVAL 1 HOUR`."""

    column: str
    period: int
    """The age, in milliseconds, at which a row leaves."""
    inclusive: bool


@dataclass(frozen=True, slots=True)
class CurrentTimeCut:
    """`now()` elsewhere: nothing is below it, and the operator's one row is the time of the newest tick."""

    period: int
    """The period, in microseconds, to which it is rounded down."""


Does = WatermarkCut | Within | TemporalFilter | CurrentTimeCut
"""The work of an operator on the rows below a cut."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of a query."""

    does: Does
    reads: tuple[str, ...]
    """The streams of the rows below; an earlier cut is named by its number, as `#0`."""
    bare: bool
    """Whether the rows below are exactly those of one stream."""
    row_wise: bool
    """Whether each row below is made of one row of the one stream."""


class CutsFound(OtherOperators):
    """Raised for a view whose query is to be cut: several operators are compiled in its place.

    Attributes:
        cuts: The cuts, each after those below it.
        rest: The streams and cuts that the query reads above all cuts.
        query: The query, as a function of the rows below a cut or above all cuts.
    """

    def __init__(self, view: str, cuts: Sequence[Cut], rest: tuple[str, ...], query: CutQuery) -> None:
        super().__init__(view)
        self.view, self.cuts, self.rest, self.query = view, tuple(cuts), rest, query


@dataclass(frozen=True)
class CutQuery:
    """A query with cuts, as the function of the rows below one of them, or above all."""

    view: str
    query: str | Callable[..., DataFrame]
    schemas: Mapping[str, StructType]
    """The streams that it reads, and their schemas."""
    reads: tuple[str, ...] = ()
    """The streams and cuts whose frames the function takes, in order."""
    now: int | None = None
    """The period of `now()` in microseconds; None: the query may not have it but in temporal filters."""
    stop: int | None = None
    """The number of the cut below which the function returns rows; None: above all cuts."""

    def __call__(self, *frames: DataFrame) -> DataFrame:
        return self.cut(dict(zip(self.reads, frames, strict=True)), CatalystPlan(frames[0].sparkSession))[0]

    def cut(self, given: Mapping[str, DataFrame], nodes: CatalystPlan) -> tuple[DataFrame, list[Cut], tuple[str, ...]]:
        """Return the rows, the cuts, and the streams and cuts that the rows come from; missing frames are empty."""
        frames = {name: given.get(name) or nodes.empty(schema) for name, schema in self.schemas.items()}
        cutting = _CutsOfQuery(self.view, nodes, given, self.now, self.stop)
        for name, frame in frames.items():
            cutting.register(frame, name)
        try:
            with taking_watermarks(next(iter(frames.values())), cutting.watermark):
                frame = queried(self.view, self.query, frames, nodes)
            plan = nodes.without_ctes(nodes.analysed(frame))
            cut = cutting.temporal(plan)
            frame = cutting.at_ticks(frame if cut is None else nodes.frame_of(cut), plan if cut is None else cut)
        except _Wanted as wanted:
            frame = wanted.rows
        return frame, cutting.cuts, cutting.reads(nodes.analysed(frame))

    def below(self, number: int, reads: tuple[str, ...]) -> CutQuery:
        """Return the function of the rows below a cut."""
        return replace(self, reads=reads, stop=number)

    def above(self, reads: tuple[str, ...]) -> CutQuery:
        """Return the function of the rows above all cuts."""
        return replace(self, reads=reads)


class _Wanted(BaseException):
    """Ends a query once the rows below a cut are known."""

    def __init__(self, rows: DataFrame) -> None:
        super().__init__()
        self.rows = rows


_NAMES_OF_ROWS = frozenset({"SubqueryAlias", "View"})
_ROW_WISE = frozenset({"Project", "Filter", "Generate", "LogicalRDD"}) | _NAMES_OF_ROWS


@dataclass
class _CutsOfQuery:
    """The cutting of a query while it is called."""

    view: str
    nodes: CatalystPlan
    given: Mapping[str, DataFrame]
    now: int | None
    stop: int | None
    cuts: list[Cut] = field(default_factory=list)
    _leaves: dict[int, str] = field(default_factory=dict)
    _columns: dict[int, list[str]] = field(default_factory=dict)
    _time: DataFrame | None = None
    _late_by: dict[int, int] = field(default_factory=dict)
    """The attribute id of each column with a watermark, to the allowed lateness in milliseconds."""

    def register(self, frame: DataFrame, name: str) -> None:
        for leaf in self.nodes.leaves(self.nodes.analysed(frame)):
            if self.nodes.kind(leaf) == "LogicalRDD":
                self._leaves[int(leaf.rdd().id())] = name
                self._columns[int(leaf.rdd().id())] = frame.columns

    def reads(self, plan: Node) -> tuple[str, ...]:
        """Return the streams and cuts that a plan reads, in the order of their registration."""
        there = {self._name_of(leaf) for leaf in self.nodes.leaves(plan)}
        return tuple(name for name in dict.fromkeys(self._leaves.values()) if name in there)

    def _name_of(self, leaf: Node) -> str | None:
        return self._leaves.get(int(leaf.rdd().id())) if self.nodes.kind(leaf) == "LogicalRDD" else None

    def watermark(self, method: str, frame: DataFrame, *arguments: Any, **named: Any) -> DataFrame:
        """Take a call of `withWatermark` or `dropDuplicatesWithinWatermark`."""
        if method == "withWatermark":
            column, delay = _watermark_of(*arguments, **named)
            late_by = _milliseconds(delay, f"{self.view}: withWatermark")
            place = self._place(frame, column, method)
            made = self._cut(frame, lambda names: WatermarkCut(names[place], late_by))
            attribute = self.nodes.output(self.nodes.analysed(made))[place]
            self._late_by[self.nodes.id(attribute)] = late_by
            return made
        keys = _keys_of(*arguments, **named)
        places = range(len(frame.columns)) if keys is None else [self._place(frame, key, method) for key in keys]
        output = self.nodes.output(self.nodes.analysed(frame))
        marks = [self._late_by[self.nodes.id(each)] for each in output if self.nodes.id(each) in self._late_by]
        if not marks:
            raise InvalidError(
                "NO_LATENESS",
                f"{self.view} calls {method}, and nothing says how late its rows can be: call withWatermark('COLUMN', "
                "'10 minutes') before it, and keep the column",
            )
        return self._cut(frame, lambda names: Within(tuple(names[place] for place in places), marks[0]))

    def _place(self, frame: DataFrame, column: str, method: str) -> int:
        """Return the place of the column that Spark finds under a name."""
        output = self.nodes.output(self.nodes.analysed(frame))
        try:
            (found,) = self.nodes.output(self.nodes.analysed(frame.select(column)))
        except AnalysisException as error:
            first = str(error).partition("\n")[0]
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{self.view} calls {method} of {column}, and its rows have {', '.join(frame.columns)}: {first}",
            ) from error
        return [self.nodes.id(each) for each in output].index(self.nodes.id(found))

    def temporal(self, node: Node) -> Node | None:
        """Return a plan that is cut at its temporal filters; None if it has none."""
        children = self.nodes.children(node)
        cut = [self.temporal(child) for child in children]
        if any(each is not None for each in cut):
            node = self.nodes.over(node, [old if new is None else new for old, new in zip(children, cut, strict=True)])
        found = temporal_condition(node, self.nodes) if self.nodes.kind(node) == "Filter" else None
        if found is None:
            return node if any(each is not None for each in cut) else None
        lower = lowered(node.child(), found.attribute, self.nodes)
        ids = [self.nodes.id(each) for each in self.nodes.output(lower.below)]
        place, period, inclusive = ids.index(lower.attribute), found.period, found.inclusive
        frame = self.nodes.frame_of(lower.below)
        made = self._cut(frame, lambda names: TemporalFilter(names[place], period, inclusive))
        below = lower.over(self.nodes.analysed(made), self.nodes)
        if found.others is None:
            return below
        rest = self.nodes.filter(found.others, below)
        return self.temporal(rest) or rest

    def at_ticks(self, frame: DataFrame, plan: Node) -> DataFrame:
        """Return a frame with the time of the newest tick in the place of `now()`, if the view says at which period.

        Args:
            plan: The frame's, analysed and without common table expressions.
        """
        if self.now is None:
            return frame
        period = self.now

        def table() -> Node:
            if self._time is None:
                name = f"#{len(self.cuts)}"
                self._time = self.given.get(name) or self.nodes.empty(TIME_COLUMNS)
                self.cuts.append(Cut(CurrentTimeCut(period), (), bare=True, row_wise=False))
                self.register(self._time, name)
            return self.nodes.analysed(self._time)

        made = CurrentTime(self.nodes.spark, table).in_plan(plan)
        return frame if made is plan else self.nodes.frame_of(made)

    def _cut(self, frame: DataFrame, does: Callable[[Sequence[str]], Does]) -> DataFrame:
        """Return the frame of the rows above a cut: columns have the same ids as below it.

        Args:
            does: Returns the operator's work, from the unique names of the columns.
        """
        frame = self.at_ticks(frame, self.nodes.analysed(frame))
        number, plan = len(self.cuts), self.nodes.analysed(frame)
        names = _without_doubles(frame.columns)
        if self.stop == number:
            raise _Wanted(frame if names == frame.columns else frame.toDF(*names))
        fields = zip(names, frame.schema.fields, strict=True)
        schema = StructType([StructField(name, each.dataType) for name, each in fields])  # may be NULL; no metadata
        leaf = self.given.get(f"#{number}") or self.nodes.empty(schema)
        reads = self.reads(plan)
        if not reads and self.stop is None:  # the frames of a step have other leaves
            raise InvalidError(
                "BAD_VIEW",
                f"{self.view} says how time passes for rows that are of no stream: say it of the frame of a stream",
            )
        row_wise = len(reads) == 1 and self._kinds(plan) <= _ROW_WISE
        self.cuts.append(Cut(does(names), reads, self._is_bare(plan), row_wise))
        self.register(leaf, f"#{number}")
        return self.nodes.frame_of(self.nodes.in_place_of(plan, leaf))

    def _kinds(self, plan: Node) -> set[str]:
        own = {self.nodes.kind(plan)} if plan.subqueries().isEmpty() else {self.nodes.kind(plan), "a subquery"}
        return own.union(*map(self._kinds, self.nodes.children(plan)))

    def _is_bare(self, plan: Node) -> bool:
        """Return whether a plan has the columns of a stream or an earlier cut, in their order, and nothing else."""
        output, below = self.nodes.output(plan), plan
        while self.nodes.kind(below) in _NAMES_OF_ROWS:
            (below,) = self.nodes.children(below)
        if self.nodes.kind(below) == "Project":
            (leaf,) = self.nodes.children(below)
            values = [self.nodes.unnamed(each) for each in items(below.projectList())]
            places = [self.nodes.id(each) if self.nodes.kind(each) == "AttributeReference" else None for each in values]
        else:
            leaf, places = below, [self.nodes.id(each) for each in output]
        if self.nodes.kind(leaf) != "LogicalRDD" or self._name_of(leaf) is None:
            return False
        own = [self.nodes.id(each) for each in self.nodes.output(leaf)]
        return places == own and [each.name() for each in output] == self._columns[int(leaf.rdd().id())]


def _watermark_of(eventTime: str, delayThreshold: str) -> tuple[str, str]:  # noqa: N803 - as PySpark names them
    return eventTime, delayThreshold


def _keys_of(subset: Sequence[str] | None = None) -> Sequence[str] | None:
    return subset


def _without_doubles(names: Sequence[str]) -> list[str]:
    made: list[str] = []
    taken: set[str] = set()
    for name in names:
        own, number = name, 1
        while own.lower() in taken:
            number += 1
            own = f"{name}_{number}"
        taken.add(own.lower())
        made.append(own)
    return made


def _milliseconds(period: str, what: str) -> int:
    """Return the length of a period in Spark's notation; `[BAD_OPTION]`: the text is no period, or has months."""
    java = jvm()
    intervals = java.org.apache.spark.sql.catalyst.util.IntervalUtils
    try:
        interval = intervals.stringToInterval(java.org.apache.spark.unsafe.types.UTF8String.fromString(period))
    except IllegalArgumentException as error:
        raise InvalidError("BAD_OPTION", f"{what} has {period!r}, no period: write '10 minutes'") from error
    days_of_month = 31
    microseconds = intervals.getDuration(interval, java.java.util.concurrent.TimeUnit.MICROSECONDS, days_of_month)
    if get_field(interval, "months") or microseconds < 0 or microseconds % 1000:
        raise InvalidError(
            "BAD_OPTION", f"{what} has {period!r}: write whole milliseconds, without months, as in '10 minutes'"
        )
    return int(microseconds // 1000)
