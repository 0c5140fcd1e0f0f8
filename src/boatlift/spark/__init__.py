"""Execution on Spark, on the driver: plans, compiled units, jobs.

Read `compile` (an operator's expressions), `jobs` (a step on the driver), `engine` (the whole). `plans` inspects
Catalyst's plans. What runs in the workers is in `boatlift.tasks`; the session is in `boatlift.processes`.
"""
