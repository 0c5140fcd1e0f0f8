"""Execution on Spark: the session, plans, compiled units, jobs on the driver and tasks in the workers.

Read `compile` (an operator's expressions), `jobs` (a step on the driver), `tasks` (a step in a worker), `engine` (the
whole). `plans` inspects Catalyst's plans; `session` starts Spark. Keyed state and kernels are in `boatlift.state` and
`boatlift.kernels`, which do not depend on Spark.
"""
