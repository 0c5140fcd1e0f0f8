"""Frontiers: restarts after failures, garbage, and outputs that may leave (design, section 4). Pure.

In reading order: `graph` (vertices, edges); `available` (Ξ; F*, the frontiers a processor could be restored to);
`knowledge` (everything known about one processor); `constraints` (the constraints of a rollback; reproducible times and
the widening of φ); `solver` (the greatest fixed point); `incremental` (the same, kept up to date); `plan` (the recovery
from a failure); `reported` and `monitor` (record by record: stable frontiers, garbage, the release rule).
"""

from boatlift.recovery.available import Every, Xi
from boatlift.recovery.constraints import reproducible, widen
from boatlift.recovery.graph import Edge, Kind, RecoveryGraph, Vertex
from boatlift.recovery.knowledge import Knowledge
from boatlift.recovery.monitor import Monitor
from boatlift.recovery.plan import ProcessorPlan, RecoveryPlan, plan_recovery
from boatlift.recovery.solver import solve
