"""Kernels of aggregates: exact sums, stored as runs of the sums that each step added.

The entry points are `AggregateKernel`, `ReduceKernel` and `AggregateNode`. The order of a step is `step_input`,
`results`, `partials`.
"""

from __future__ import annotations

from boatlift.kernels.aggregate.kernel import AggregateKernel, ReduceKernel
from boatlift.kernels.aggregate.layout import AggregateColumn, Layout
from boatlift.kernels.aggregate.node import AggregateNode
from boatlift.kernels.aggregate.partial_rows import CombiningKernel, PartialKernel

__all__ = [
    "AggregateColumn",
    "AggregateKernel",
    "AggregateNode",
    "CombiningKernel",
    "Layout",
    "PartialKernel",
    "ReduceKernel",
]
