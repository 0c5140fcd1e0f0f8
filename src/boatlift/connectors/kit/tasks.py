"""For code of a connector that runs in Spark's tasks. Importing it imports PySpark.

`guarded` runs a function of a task: a `BoatliftError` reaches the driver as it is, any other error as `[INTERNAL]`.
What is raised outside of it counts as an error of the user's code.
`job_parameters` returns the parameters of the task's job; its `source` is what `ParameterizedRead.parameters_for` gave.
"""

from boatlift.spark.tasks.parameters import guarded, job_parameters

__all__ = ["guarded", "job_parameters"]
