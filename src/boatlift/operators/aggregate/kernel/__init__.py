"""Keyed state as runs of deltas, with exact sums: what a task does with the rows of a step. No Spark in here.

`StepKernel` is the way in; `plan_merges` says which runs to merge. The parts, in the order of a step: `aggregate`,
`probe`, `change`, `run_file`; later `compact`.
"""

from __future__ import annotations

from boatlift.operators.aggregate.kernel.kernel import KernelResult, StepKernel
from boatlift.operators.aggregate.kernel.layout import AggregateColumn, Layout
from boatlift.spark.keyed.digest import digest
from boatlift.spark.keyed.opened import OpenRun, forget_runs, open_run
from boatlift.spark.keyed.tiers import plan_merges

__all__ = [
    "AggregateColumn",
    "KernelResult",
    "Layout",
    "OpenRun",
    "StepKernel",
    "digest",
    "forget_runs",
    "open_run",
    "plan_merges",
]
