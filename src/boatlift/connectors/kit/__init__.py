"""The kit for authors of connectors: everything that a connector needs besides the contracts and the errors.

Connectors import nothing of `boatlift.spark` but through this kit, and `make check` enforces it. `docs/connectors.md`
shows the parts in use.

| part | for |
|---|---|
| `ArrowStager`, `read_pieces` | sinks: rows on their way from the tasks to `commit` |
| `checked_batches`, `checked_receipts` | stagers of other files: the same checks |
| `StepLedger`, `Decision`, `fenced`, `of_another_store` | sinks: the decision about a step, and the texts of errors |
| `user_columns`, `first_difference`, `difference_of_rows` | sinks: the user's columns; the first row that differs |
| `columns_of`, `required_of`, `struct_of`, `nullable`, `Columns` | sources: a declared schema |
| `held_rows`, `newest_of_keys` | sinks: what their twins hold in crash tests |
| `checked_options`, `checked_methods`, `whole_number`, `gathering` | functions for users: bad arguments are errors |
| `SourceBase`, `SinkBase` | defaults for the members that most connectors leave alone |
| `SinkWrapper`, `SourceWrapper` | connectors around connectors |
| `kit.tasks`: `guarded`, `job_parameters`, `parts_of_tasks` | code that runs in Spark's tasks; imports PySpark |
| `kit.tasks`: `run_in_tasks`, `session_of_process` | sinks whose `commit` runs a job |
| `kit.step_rows`: `ordered_part`, `without_equal_rows` | sinks: parts and order that depend on the rows alone |
| `kit.row_identities`: `row_identities`, `checked_key` | at-least-once sinks: what a receiver knows a row by |
| `kit.text_forms`, `kit.text_rows` | sources of text: texts as values and rows |
| `kit.json_values` | sources of JSON text: rows, bad rows, and reasons |
| `kit.object_place`: `ObjectPlace` | objects of buckets where readers expect a path |
| `kit.parquet_rows`: `rows_of_files` | sinks: the rows of Parquet files, read in tasks |
| `kit.arrow_text`: `json_objects`, `timestamps_as_text` | rows as JSON text, values as text; imports PyArrow |

Importing `boatlift.connectors` is quick, so this module imports neither PySpark nor PyArrow. A connector imports these
inside functions, or in modules that only tasks load.
"""

from boatlift.connectors.kit.bases import SinkBase, SinkWrapper, SourceBase, SourceWrapper
from boatlift.connectors.kit.checked_options import checked_methods, checked_options, gathering, whole_number
from boatlift.connectors.kit.declared_columns import Columns, columns_of, null_fault, nullable, required_of, struct_of
from boatlift.connectors.kit.step_ledger import Decision, StepLedger, fenced, of_another_store
from boatlift.connectors.kit.step_rows import difference_of_rows, first_difference, user_columns
from boatlift.connectors.kit.twin_rows import held_rows, newest_of_keys
from boatlift.tasks.staging import ArrowStager, checked_batches, checked_receipts, read_pieces

__all__ = [
    "ArrowStager",
    "Columns",
    "Decision",
    "SinkBase",
    "SinkWrapper",
    "SourceBase",
    "SourceWrapper",
    "StepLedger",
    "checked_batches",
    "checked_methods",
    "checked_options",
    "checked_receipts",
    "columns_of",
    "difference_of_rows",
    "fenced",
    "first_difference",
    "gathering",
    "held_rows",
    "newest_of_keys",
    "null_fault",
    "nullable",
    "of_another_store",
    "read_pieces",
    "required_of",
    "struct_of",
    "user_columns",
    "whole_number",
]
