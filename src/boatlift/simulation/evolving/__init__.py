"""Lives of stores whose programs change: owners that end, are paused or overtaken, transitions, ways back.

The log, its records, the state machine, the plan of a transition and the code that carries it out are the real ones.
Only the engine and what is outside are simulated. Rows are hashes: a row carries the version of each operator that has
led to it, and a row of a sum all rows of its key. An oracle executes each program synchronously over the recorded
input, and holds each sink to that after every commit.

In reading order: `operators` (what is computed), `programs` (programs, their changes, and modes), `outside` (sources,
places of sinks, and the disk), `engine`, `owner` (one process), `ideal` (the oracle), `life` (a seed).
"""
