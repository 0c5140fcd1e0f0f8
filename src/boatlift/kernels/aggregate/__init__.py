"""The kernels of aggregations: exact sums, kept as runs of the sums that each step added.

`AggregateKernel`, `ReduceKernel` and `AggregateNode` are the ways in. The parts, in the order of a step: `step_input`,
`previous`, `change`, `codec`. No Spark in here.
"""

from __future__ import annotations

from boatlift.kernels.aggregate.kernel import AggregateKernel, ReduceKernel
from boatlift.kernels.aggregate.layout import AggregateColumn, Layout
from boatlift.kernels.aggregate.node import AggregateNode

__all__ = ["AggregateColumn", "AggregateKernel", "AggregateNode", "Layout", "ReduceKernel"]
