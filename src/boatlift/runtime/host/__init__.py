"""The host: the thin shell around the state machine, in one driver process.

A host carries out the machine's instructions on threads, turns their outcomes into events, and hands the events to the
machine one at a time. It draws the determinants that need a clock or randomness, and decides nothing else.

In reading order: `host` (claim, recovery, end of a run), `event_loop` (the loop, its queue and threads), `context`
(what handlers share), then the handlers: `sources` with `source_cursors`, `steps` (steps and probes), `sinks`, `log`,
`clock` (timers). `failures` has the retry policy. `ownership`, `admission` and `overrides` are about the beginning of a
run; `progress` and `run_report` are for people.
"""
