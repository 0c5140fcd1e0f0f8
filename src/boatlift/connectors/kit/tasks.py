"""For a connector's code in Spark's tasks. Importing this module imports PySpark.

`guarded` runs a function of a task: a `BoatliftError` reaches the driver unchanged, any other error as `[INTERNAL]`. An
error outside of `guarded` counts as an error of the user's code.
`job_parameters` returns the parameters of the task's job; `source` has the bytes of `ParameterizedRead.parameters_for`.
"""

from boatlift.spark.tasks.parameters import guarded, job_parameters

__all__ = ["guarded", "job_parameters"]
