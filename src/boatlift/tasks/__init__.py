"""The tasks of steps, which run in Spark's Python workers.

Read the modules in this order:

| module | content |
| --- | --- |
| `parameters`, `inputs` | the input of a task |
| `stage`, `staging` | its output |
| `kernel_task` | steps over keyed state |
| `channels`, `divide` | rows for later jobs of a step; rows by key without a shuffle |
| `barrier`, `long_running`, `python_calls` | tasks that exchange rows; tasks for many steps |
| `between`, `kept` | rows that hold in a state, and that lead from one state to another |
| `loop_checkpoint_files`, `state_memory` | files of loops; states in memory |
| `sealed_errors` | errors on their way to the driver |
"""
