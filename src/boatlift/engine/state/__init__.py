"""Keyed state as runs of deltas, with exact sums: what a task does with the rows of a step. No Spark in here.

`StepKernel` is the way in; `plan_merges` says which runs to merge. The parts, in the order of a step: `aggregate`,
`probe`, `change`, `run_file`; later `compact`.
"""

from __future__ import annotations

from boatlift.engine.state.digest import digest
from boatlift.engine.state.kernel import StepKernel, StepResult
from boatlift.engine.state.layout import Aggregate, Layout
from boatlift.engine.state.opened import OpenRun, forget_runs, open_run
from boatlift.engine.state.tiers import plan_merges

__all__ = [
    "Aggregate",
    "Layout",
    "OpenRun",
    "StepKernel",
    "StepResult",
    "digest",
    "forget_runs",
    "open_run",
    "plan_merges",
]
