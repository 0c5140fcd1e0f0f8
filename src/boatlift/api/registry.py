"""The operators that Spark can execute, by their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.api.cutting import cut_into_operators
from boatlift.dataflow import Plan
from boatlift.operators.aggregate.operator import Aggregate
from boatlift.operators.aggregate.spark import AggregateOnSpark
from boatlift.operators.bad_rows.operator import BadRows
from boatlift.operators.bad_rows.spark import BadRowsOnSpark
from boatlift.operators.changes.operator import Changes
from boatlift.operators.changes.spark import ChangesOnSpark
from boatlift.operators.custom.operator import Custom
from boatlift.operators.custom.spark import CustomOnSpark
from boatlift.operators.duplicates.operator import Duplicates
from boatlift.operators.duplicates.spark import DuplicatesOnSpark
from boatlift.operators.final.operator import Final
from boatlift.operators.final.spark import FinalOnSpark
from boatlift.operators.gather.operator import Gather
from boatlift.operators.gather.spark import GatherOnSpark
from boatlift.operators.lateness.operator import Watermark
from boatlift.operators.lateness.spark import WatermarkOnSpark
from boatlift.operators.lookup.operator import Lookup
from boatlift.operators.lookup.spark import LookupOnSpark
from boatlift.operators.merge.operator import Merge
from boatlift.operators.merge.spark import MergeOnSpark
from boatlift.operators.process.operator import Process
from boatlift.operators.process.spark import ProcessOnSpark
from boatlift.operators.recent.operator import Recent
from boatlift.operators.recent.spark import RecentOnSpark
from boatlift.operators.recompute.operator import Recompute
from boatlift.operators.recompute.spark import RecomputeOnSpark
from boatlift.operators.reduce.operator import Reduce
from boatlift.operators.reduce.spark import ReduceOnSpark
from boatlift.operators.transform.operator import Transform
from boatlift.operators.transform.spark import TransformOnSpark
from boatlift.operators.union.operator import Union
from boatlift.operators.union.spark import UnionOnSpark
from boatlift.operators.view.cuts import CutsFound
from boatlift.operators.view.operator import View
from boatlift.operators.view.spark import ViewOnSpark
from boatlift.operators.window.operator import WindowAggregate
from boatlift.operators.window.spark import WindowsOnSpark
from boatlift.spark.compile.operator import OtherOperators, SparkOperator
from boatlift.spark.compile.program import Registry

__all__ = ["ON_SPARK"]

_OPERATORS: Mapping[str, SparkOperator[Any]] = {
    Aggregate.kind: AggregateOnSpark(),
    BadRows.kind: BadRowsOnSpark(),
    Changes.kind: ChangesOnSpark(),
    Custom.kind: CustomOnSpark(),
    Duplicates.kind: DuplicatesOnSpark(),
    Final.kind: FinalOnSpark(),
    Gather.kind: GatherOnSpark(),
    Watermark.kind: WatermarkOnSpark(),
    Lookup.kind: LookupOnSpark(),
    Merge.kind: MergeOnSpark(),
    Process.kind: ProcessOnSpark(),
    Recent.kind: RecentOnSpark(),
    Recompute.kind: RecomputeOnSpark(),
    Reduce.kind: ReduceOnSpark(),
    Transform.kind: TransformOnSpark(),
    Union.kind: UnionOnSpark(),
    View.kind: ViewOnSpark(),
    WindowAggregate.kind: WindowsOnSpark(),
}


def _rewritten(plan: Plan, asked: OtherOperators) -> Plan:
    assert isinstance(asked, CutsFound), "views alone ask for other operators"
    return cut_into_operators(plan, asked)


ON_SPARK = Registry(_OPERATORS, _rewritten)
