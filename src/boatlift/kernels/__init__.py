"""Kernels: the computations of tasks on keyed state and on changes. Independent of Spark.

| module | content |
|---|---|
| `kernel`, `step_state` | the contract of kernels; state, exchange, answers and loop checkpoints of a step |
| `aggregate` | sums, counts, extremes and their changes, exact to the bit |
| `network` | a graph of nodes that compute on changes: joins, distinct values, first rows, sessions |
| `loop` | fixed points, iteration by iteration |
| `rows_until` | rows that leave at a time |
"""
