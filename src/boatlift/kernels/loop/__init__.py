"""Loops: operators on changes inside a fixed point, iteration by iteration.

Read `node` (the loop) and `expressions` (its body), `iterations` (an operator inside a loop and the formula of its
changes), then `by_iteration` (the state and the changes of such an operator).
"""
