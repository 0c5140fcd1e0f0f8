"""Files of JSON: an object a line, or one array of objects a file.

Spark's own JSON source would pass over all that follows the first value of a line or a file, so Spark reads the text
alone, and `JsonValues` the columns.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.compression import (
    damage_of,
    exceeds,
    length_of_bom,
    opened,
    refuse_unreadable,
    whole_because,
    without_compression,
)
from boatlift.connectors.files.formats import (
    TEXT_TYPES,
    Lines,
    ReadFiles,
    lines_by_task,
    loaded,
    nullable,
    with_ordinals,
)
from boatlift.connectors.files.json_lines import JsonLines
from boatlift.connectors.files.json_objects import JsonObjects, objects_in
from boatlift.connectors.files.line_ends import LONGEST, has_long_line
from boatlift.connectors.files.lines import Span, lines_of
from boatlift.connectors.kit import Columns, required_of
from boatlift.connectors.kit.json_faults import json_fault
from boatlift.connectors.kit.json_values import JsonValues
from boatlift.connectors.kit.text_forms import NO_FORMATS, TextForms
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import BAD_ROW, FrameOfTask, Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from boatlift.connectors.files.row_groups import RowGroups

_TYPES = (*TEXT_TYPES, "binary", "array", "map", "struct")
_CORRECTED = "corrected, the file needs a new name"


@dataclass(frozen=True, slots=True)
class JsonFileFormat:
    """Objects whose keys are columns: a missing key is NULL, and a key that the schema has not is passed over.

    Attributes:
        multi_line: Whether a file is one array of objects, or one object; else every line is an object.
        forms: How text says values.
        max_line_bytes: How many bytes a line may have; of `multi_line`, a file.
    """

    multi_line: bool
    forms: TextForms
    max_line_bytes: int = LONGEST

    @property
    def positioned(self) -> bool:
        return False

    @property
    def lines(self) -> Lines | None:
        return None if self.multi_line else JsonLines(self.forms, self.max_line_bytes)

    @property
    def sortable(self) -> Lines:
        return self.lines or JsonObjects(self.forms, self.max_line_bytes)

    @property
    def row_groups(self) -> RowGroups | None:
        return None

    def describe(self) -> Json:
        return {"multi_line": self.multi_line, **NO_FORMATS, **self.forms.describe()}

    def rows_schema(self, schema: StructType) -> StructType:
        return nullable(schema)

    def check_columns(self, columns: Columns) -> None:
        for name, kind in columns:
            if kind.partition("(")[0].partition("<")[0] not in _TYPES:
                raise InvalidError("BAD_OPTION", f"JSON cannot hold column {name} of type {kind}: declare it as string")

    def check_patterns(self, spark: SparkSession) -> None:
        self.forms.check(spark)

    def check_file(self, path: Path, columns: Columns) -> None:  # noqa: ARG002
        refuse_unreadable(path)
        if self.multi_line and exceeds(path, self.max_line_bytes):
            message = f"{path} has more than max_line_bytes={self.max_line_bytes} bytes in one value"
            raise DataError("BAD_ROW", f"{message}: write an object a line, or give a larger max_line_bytes")

    def whole_because(self, path: Path) -> str | None:
        return whole_because(path, multi_line=self.multi_line)

    def rows_begin(self, path: Path) -> int:
        return length_of_bom(path)

    def rows_of_lines(self, lines: DataFrame, schema: StructType) -> DataFrame:
        return self._values.rows(lines, schema, [ORDINAL])

    @property
    def has_task(self) -> bool:
        return self.lines is not None

    def needs_tasks(self, path: Path) -> bool:
        if not self.has_task:
            return False
        return without_compression(path) != path or has_long_line(path, self.max_line_bytes)

    def by_task(self, spans: Sequence[Span], spark: SparkSession) -> bool:  # noqa: ARG002
        return self.has_task

    def rows_by_task(self, source: str, schema: StructType, frame_of: FrameOfTask) -> DataFrame:
        return lines_by_task(self, source, schema, frame_of)

    def reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        text = spark.read.format("text")

        def read(files: Sequence[tuple[Path, int]], ordinals: Sequence[int] = ()) -> DataFrame:
            if self.multi_line:
                numbers = ordinals or [0] * len(files)
                spans = [Span(str(path), path.name, 0, None, n) for (path, _), n in zip(files, numbers, strict=True)]
                texts = lines_of(spark, "files of JSON", self.sortable, spans)
            else:
                texts = with_ordinals(loaded(text, files), files, ordinals)
            return self._values.rows(texts, schema, [ORDINAL] if ordinals else [])

        return read

    def explain(self, spark: SparkSession, path: Path, columns: Columns, schema: StructType) -> DataError | None:
        if (damage := damage_of(path)) is not None:
            return DataError("BAD_ROW", damage)
        not_text = _not_text(path)
        if not_text is not None:
            return not_text
        return (self._explain_file if self.multi_line else self._explain_line)(spark, path, columns, schema)

    def _explain_line(self, spark: SparkSession, path: Path, columns: Columns, schema: StructType) -> DataError | None:
        found = self._first_bad(loaded(spark.read.format("text"), [(path, 0)]), schema)
        if found is None:
            return None
        bad = found[BAD_ROW]["value"]
        with opened(path) as file:
            wanted = (bad.encode(), codecs.BOM_UTF8 + bad.encode())  # of which Spark gives the text alone
            numbered = enumerate(file, start=1)
            line = next((number for number, line in numbered if line.rstrip(b"\r\n") in wanted), "unknown")
        return DataError("BAD_ROW", f"{path} line {line}: {self._fault(found, columns, schema)}; {_CORRECTED}")

    def _explain_file(self, spark: SparkSession, path: Path, columns: Columns, schema: StructType) -> DataError | None:
        with opened(path) as file:
            text = file.read().decode()
        try:
            json.loads(text.lstrip("\ufeff"), parse_int=str)  # Python reads no integer of some thousand digits
        except RecursionError:
            pass  # a look at each element says which is nested too deeply
        except json.JSONDecodeError as error:
            message = f"it is no single JSON value ({error.msg} at column {error.colno})"
            return DataError("BAD_ROW", f"{path} line {error.lineno}: {message}; {_CORRECTED}")
        texts = [element for _, element in objects_in(path)]
        frame = spark.createDataFrame(list(enumerate(texts, start=1)), "number INT, value BINARY")
        bad = self._first_bad(frame.orderBy("number"), schema)
        if bad is None:
            return None
        fault = self._fault(bad, columns, schema)
        return DataError("BAD_ROW", f"{path} object {bad[BAD_ROW]['number']} of {len(texts)}: {fault}; {_CORRECTED}")

    def _first_bad(self, texts: DataFrame, schema: StructType) -> Row | None:
        from pyspark.sql import functions as F

        return self._values.sorted_out(texts, schema, [], F.struct("*")).where(F.col(BAD_ROW).isNotNull()).first()

    def _fault(self, bad: Row, columns: Columns, schema: StructType) -> str:
        unread = [name for name, _ in columns if bad[name] is None]
        text = bad[BAD_ROW]["value"]
        return json_fault(
            text if isinstance(text, str) else bytes(text), unread, columns, required_of(schema), self.forms
        )

    @property
    def _values(self) -> JsonValues:
        return JsonValues(self.forms, blanks=not self.multi_line)


def _not_text(path: Path) -> DataError | None:
    """Return the error for the first line that is not UTF-8; None if all are."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return DataError("BAD_ROW", f"{path} line {number} is not UTF-8 ({error}); {_CORRECTED}")
    return None
