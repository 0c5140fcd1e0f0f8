"""Metrics of a dataflow, from its store and the report of its owner.

`table` names them, as data: the page about metrics, the dashboard and the alerts are made from it. `samples` reads
their values from the structs of `runtime.inspect`. `prometheus` writes them as text; `otlp` sends them.
"""
