"""What the tasks of an aggregation do with the rows of a step: exact sums, kept as runs of what each step added.

`AggregateKernel` is the way in. The parts, in the order of a step: `step_input`, `previous`, `change`, `codec`. No
Spark in here.
"""

from __future__ import annotations

from boatlift.operators.aggregate.kernel.kernel import AggregateKernel, ReduceKernel
from boatlift.operators.aggregate.kernel.layout import AggregateColumn, Layout

__all__ = ["AggregateColumn", "AggregateKernel", "Layout", "ReduceKernel"]
