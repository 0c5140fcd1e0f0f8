"""Deterministic simulation: whole dataflows under crashes, without Spark; some hundreds in a minute.

A seed determines the graph, the workload, the schedule and the faults. The state machine, the monitor, the solver and
the log are the real ones. Processors are hash chains, sensitive to order, count and time. The simulated external
systems record effects as they become visible, and an oracle compares them with one execution without failures.

In reading order: `recipes` (random programs), `processors` (the computation and the memory of processors), `disk` (a
store that can lose power), `world` (external systems), `faults`, `driver` (one driver process), `simulation` (a seed,
from its first act to its last), `oracle`.
"""
