"""Lines of JSON as rows, and those that are none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.connectors.files.line_ends import LONGEST, lines_in
from boatlift.connectors.kit import Columns
from boatlift.connectors.kit.json_faults import json_fault
from boatlift.connectors.kit.json_values import JsonValues
from boatlift.connectors.kit.text_forms import TextForms

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Lines of which each is an object, or blank.

    Attributes:
        forms: How text says values.
        most: How many bytes a line may have.
    """

    forms: TextForms
    most: int = LONGEST
    header = False
    encoding = "utf-8"
    divisible = True
    texts_in = staticmethod(lines_in)

    def sorted_out(self, lines: DataFrame, schema: StructType, kept: Sequence[str], bad_row: Column) -> DataFrame:
        return JsonValues(self.forms).sorted_out(lines, schema, kept, bad_row)

    def no_row(self, schema: StructType) -> str:  # noqa: ARG002
        return "}"

    def fault(self, line: bytes, unread: Collection[str], columns: Columns, required: Collection[str]) -> str:
        return json_fault(line, unread, columns, required, self.forms)
