"""JSON: an object a line, or one array of objects a file.

Spark's own JSON source ignores everything behind the first value of a line or a file. So Spark reads only the text, and
`texts_of_json` makes the columns.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from boatlift.connectors.files.compression import damage_of, exceeds, opened, refuse_unreadable
from boatlift.connectors.files.formats.base import CORRECTED, TEXT_TYPES, ReadFiles, TextFormat, loaded, with_ordinals
from boatlift.connectors.files.lines import LONGEST, Span, cut, lines_in
from boatlift.connectors.kit import Columns, required_of
from boatlift.connectors.kit.json_values import json_fault, texts_of_json
from boatlift.connectors.kit.object_place import InputFile
from boatlift.connectors.kit.text_forms import NO_FORMATS, TextForms
from boatlift.connectors.kit.text_rows import Texts
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import BAD_ROW, Json
from boatlift.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

_AT_ONCE = 1 << 20
_BLANK = b" \t\r\n"
_TOKEN = re.compile(rb""""(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|[][{},]""", re.DOTALL)
"""A text in quotes, or a character that opens, closes or divides.

Single quotes count, although they are no JSON. A text without its second quote reaches to the end of the file.
"""


@dataclass(frozen=True)
class JsonFileFormat(TextFormat):
    """Objects whose keys are columns: a missing key is NULL, and a key that is no column is ignored.

    Attributes:
        multi_line: Whether a file is one array of objects, or one object; otherwise every line is an object.
        max_line_bytes: The bytes that a line may have; for `multi_line`, those of a file.
    """

    multi_line: bool
    forms: TextForms
    max_line_bytes: int = LONGEST
    sorts_in: InputFile | None = None
    header = False
    encoding = "utf-8"
    types = (*TEXT_TYPES, "binary", "array", "map", "struct")
    title = "JSON"

    def sorting_in(self, base: InputFile) -> TextFormat:
        return replace(self, sorts_in=base)

    def describe(self) -> Json:
        return {"multi_line": self.multi_line, **NO_FORMATS, **self.forms.describe()}

    def check_file(self, path: InputFile, columns: Columns) -> None:  # noqa: ARG002
        refuse_unreadable(path)
        if self.multi_line and exceeds(path, self.max_line_bytes):
            message = f"{path} has more than max_line_bytes={self.max_line_bytes} bytes in one value"
            raise DataError("BAD_ROW", f"{message}: write an object a line, or give a larger max_line_bytes")

    def texts_in(
        self, path: InputFile, begin: int = 0, end: int | None = None, most: int = LONGEST, *, at_line: bool = False
    ) -> Iterator[tuple[list[int], list[bytes]]]:
        if not self.multi_line:
            yield from lines_in(path, begin, end, most, at_line=at_line)
            return
        assert (begin, end) == (0, None), "a file of one value has no parts"
        offsets, texts, size = list[int](), list[bytes](), 0
        for offset, text in objects_in(path):
            if len(text) > most:
                yield [offset], [cut(text, len(text))]
                continue
            offsets.append(offset)
            texts.append(text)
            size += len(text)
            if size >= _AT_ONCE:
                yield offsets, texts
                offsets, texts, size = [], [], 0
        yield offsets, texts

    def texts(self, lines: DataFrame, schema: StructType) -> Texts:
        return texts_of_json(lines, schema, self.forms, blanks=not self.multi_line)

    def no_row(self, schema: StructType) -> str:  # noqa: ARG002
        return "}"

    def fault(self, line: bytes, unread: Collection[str], columns: Columns, required: Collection[str]) -> str:
        return json_fault(line, unread, columns, required, self.forms)

    def strict_reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        text = spark.read.format("text")

        def read(files: Sequence[Span], *, ordinals: bool) -> DataFrame:
            if self.multi_line:
                texts = self.lines_of(spark, "files of JSON", files)
            else:
                texts = with_ordinals(loaded(text, [each.path for each in files]), files, ordinals=ordinals)
            return self.texts(texts, schema).rows([ORDINAL] if ordinals else [])

        return read

    def bad_row_in(
        self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType
    ) -> DataError | None:
        if (damage := damage_of(path)) is not None:
            return DataError("BAD_ROW", damage)
        not_text = _not_text(path)
        if not_text is not None:
            return not_text
        return (self._explain_file if self.multi_line else self._explain_line)(spark, path, columns, schema)

    def _explain_line(
        self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType
    ) -> DataError | None:
        found = self._first_bad(loaded(spark.read.format("text"), [str(path)]), schema)
        if found is None:
            return None
        bad = found[BAD_ROW]["value"]
        with opened(path) as file:
            wanted = (bad.encode(), codecs.BOM_UTF8 + bad.encode())  # Spark returns the text without the mark
            numbered = enumerate(file, start=1)
            line = next((number for number, line in numbered if line.rstrip(b"\r\n") in wanted), "unknown")
        return DataError("BAD_ROW", f"{path} line {line}: {self._fault(found, columns, schema)}; {CORRECTED}")

    def _explain_file(
        self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType
    ) -> DataError | None:
        with opened(path) as file:
            text = file.read().decode()
        try:
            json.loads(text.lstrip("\ufeff"), parse_int=str)  # Python refuses integers of thousands of digits
        except RecursionError:
            pass  # the check of each element finds the one that is nested too deeply
        except json.JSONDecodeError as error:
            message = f"it is no single JSON value ({error.msg} at column {error.colno})"
            return DataError("BAD_ROW", f"{path} line {error.lineno}: {message}; {CORRECTED}")
        texts = [element for _, element in objects_in(path)]
        frame = spark.createDataFrame(list(enumerate(texts, start=1)), "number INT, value BINARY")
        bad = self._first_bad(frame.orderBy("number"), schema)
        if bad is None:
            return None
        fault = self._fault(bad, columns, schema)
        return DataError("BAD_ROW", f"{path} object {bad[BAD_ROW]['number']} of {len(texts)}: {fault}; {CORRECTED}")

    def _first_bad(self, texts: DataFrame, schema: StructType) -> Row | None:
        from pyspark.sql import functions as F

        return self.texts(texts, schema).sorted_out([], F.struct("*")).where(F.col(BAD_ROW).isNotNull()).first()

    def _fault(self, bad: Row, columns: Columns, schema: StructType) -> str:
        unread = [name for name, _ in columns if bad[name] is None]
        text = bad[BAD_ROW]["value"]
        return json_fault(
            text if isinstance(text, str) else bytes(text), unread, columns, required_of(schema), self.forms
        )


def _not_text(path: InputFile) -> DataError | None:
    """Return the error for the first line that is not UTF-8; None if all are."""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return DataError("BAD_ROW", f"{path} line {number} is not UTF-8 ({error}); {CORRECTED}")
    return None


def objects_in(path: InputFile) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets and the texts of the elements of a file's array; of another file, all of its text.

    Law: if the file is an array, the texts are its elements. Otherwise at least one text is no JSON value: a `,`
    without an element beside it, the `[` of an array without an end, the last bracket with the text behind it, or an
    element whose brackets do not match, with the elements behind it.
    """
    with opened(path) as file:
        text = file.read()
    begin = len(codecs.BOM_UTF8) if text.startswith(codecs.BOM_UTF8) else 0
    begin += len(text) - begin - len(text[begin:].lstrip(_BLANK))
    if text[begin : begin + 1] != b"[":
        yield begin, text[begin:].rstrip(_BLANK)
        return
    depth, last = 0, begin
    for token in _TOKEN.finditer(text, begin):
        character, place = token[0], token.start()
        if character in (b"[", b"{"):
            depth += 1
        elif character in (b"]", b"}"):
            depth -= 1
        if depth and (character != b"," or depth > 1):
            continue
        element = _element(text, last + 1, place)
        if element is not None:
            yield element
        elif depth or last > begin:
            yield place if depth else last, b","
        last = place
        if not depth:
            if character != b"]" or text[place + 1 :].strip(_BLANK):
                yield place, text[place:].rstrip(_BLANK)
            return
    if (element := _element(text, last + 1, len(text))) is not None:
        yield element
    yield begin, b"["


def _element(text: bytes, begin: int, end: int) -> tuple[int, bytes] | None:
    element = text[begin:end].strip(_BLANK)
    return (text.index(element, begin), element) if element else None
