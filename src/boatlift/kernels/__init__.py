"""What tasks compute on keyed state and on changes; no module of this room knows Spark.

| read | for |
|---|---|
| `kernel` | the contract of what computes by key, and its laws |
| `aggregate` | sums, counts, extremes and their changes, exact to the bit |
| `network` | a graph of nodes that compute on changes: joins, distinct values, first rows, sessions |
| `loop` | fixed points, round by round |
"""
