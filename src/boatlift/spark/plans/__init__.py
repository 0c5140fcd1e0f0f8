"""Plans of users' functions: read from Catalyst (`catalyst`), proved row-wise (`row_wise`), hashed (`fingerprint`).

`plan_check` and `allowed` hold the rules of row-wise plans; `clock` finds hidden reads of the clock; `step_functions`
has `bl.now()` and its like; `branches` is the common plan of a long-running job.
"""
