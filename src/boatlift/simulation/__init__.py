"""Deterministic simulation: whole dataflows under crashes, without Spark; some hundreds in a minute.

A seed determines the graph, the workload, the schedule and the faults. The state machine, the monitor, the solver and
the log are the real ones. Processors are hash chains, sensitive to order, count and time. The simulated external
systems record effects as they become visible, and an oracle compares them with one execution without failures.

Half of the seeds have standbys on several hosts: they follow the log, hear beats over links that delay, drop, reorder
and are cut by direction, and take over. Each reading is compared with the log and with the owner. In some
seeds the store answers late or not at all.

Another kind of seed is the life of a store whose program changes: `evolving/`, with programs and an oracle of its own.

In reading order: `recipes` (random programs), `processors` (the computation and the memory of processors), `disk` (a
store that can lose power), `mounts` (a store as one process sees it), `world` (external systems), `faults`, `machines`
and `driver` (one driver process), `links`, `standbys` and `replicas`, `simulation` (a seed, from its first act to its
last), `oracle`.
"""
