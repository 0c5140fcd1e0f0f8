"""The Spark jobs that execute steps: plans, inputs, state, and the meaning of failures.

Read the modules in this order:

| module | content |
| --- | --- |
| `steps` | the contract: `Steps` executes the steps of one unit |
| `row_steps`, `keyed_steps`, `batch_steps` | its implementations: rows without state, rows by key, whole tables |
| `jobs` | shared by all units: how a job begins, fails and ends, and the result that its receipts add up to |
| `planner` | the Spark plan of a step, made while the step before runs |
| `inputs`, `told_rows` | the rows of a step, as a frame of its plan or as parameters of its job |
| `plan_cache` | cached plans, each of which serves many small steps |
| `members`, `long_running` | the long-running job, which executes small steps of many units |
| `barrier` | tasks that run at the same time and exchange rows by the driver; slots; the task listener |
| `state_parts` | keyed state on the driver: runs by part, merges, the time of a step |
| `row_questions` | the job that asks whether the epoch of a batch is over |
| `diagnosis`, `set_aside`, `input_logs` | errors of jobs, bad rows, rows that clients push |
"""
