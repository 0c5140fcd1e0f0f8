"""Deterministic simulation: whole dataflows under crashes, without Spark; some hundreds in a minute.

One seed gives the graph, the workload, the schedule and the faults, and always the same ones. The state machine, the
monitor, the solver and the log are the real ones. Processors are hash chains, sensitive to order, count and time; the
outside records effects as they leave, and an oracle holds them against one execution without failures.

In reading order: `recipes` (random programs), `nodes` (what processors compute), `disk` (a store that can lose power),
`world` (the outside), `faults`, `driver` (one life of a driver), `simulation` (a seed, from its first act to its last),
`oracle`, `shrink`.
"""
