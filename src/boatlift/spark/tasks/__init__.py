"""The tasks of steps, which run in Spark's Python workers.

`parameters` (the input of a task), `stage` and `staging` (its output), `kernel_task` (steps over keyed state),
`channels` (rows for later jobs of a step), `divide` (rows by key without a shuffle), `barrier` (tasks that exchange
rows), `long_running` (tasks for many steps), `loop_checkpoint_files`, `sealed_errors` (errors on their way to the
driver).
"""
