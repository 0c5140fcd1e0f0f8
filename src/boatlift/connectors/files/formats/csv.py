"""CSV: lines of fields. The header line is compared with the schema; texts become values by the one strict reader."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import IO, TYPE_CHECKING, Any

from boatlift.connectors.files.compression import DAMAGE, damage_of, length_of_bom, opened, refuse_unreadable
from boatlift.connectors.files.formats.base import CORRECTED, ReadFiles, TextFormat, difference, loaded, with_ordinals
from boatlift.connectors.files.lines import BLANK, LONGEST, Span, lines_in
from boatlift.connectors.kit import Columns, null_fault, required_of
from boatlift.connectors.kit.object_place import InputFile
from boatlift.connectors.kit.text_forms import NO_FORMATS, TextForms
from boatlift.connectors.kit.text_rows import QUOTED_EMPTY, Texts, all_text
from boatlift.dataflow.columns import ORDINAL, quoted
from boatlift.dataflow.contracts import BAD_ROW, Json
from boatlift.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

ENCODINGS = {"utf-8": "utf-8-sig", "iso-8859-1": "iso-8859-1"}
"""The encodings that Spark reads line by line, as Python calls them for reading."""

_CHUNK = 1 << 20
_BAD_ROW = "_boatlift_bad_row"
_NOT_PARSED = "TextParsingException"
_TEXT, _PARSED = "_boatlift_line", "_boatlift_fields"
_UNFIT = "it does not fit the schema"
_MOST_FIELDS = 1 << 20
"""Of a line with more fields Spark's parser says only that it fails. A task keeps 8 bytes for each."""


@dataclass(frozen=True)
class CsvFormat(TextFormat):
    """Lines of text; every field of every row must fit the schema, also in unused columns.

    Attributes:
        max_line_bytes: The bytes that a line may have; for `multi_line`, the characters that a field may have.
    """

    header: bool
    null_value: str
    separator: str
    quote: str | None
    escape: str
    encoding: str
    multi_line: bool
    forms: TextForms
    max_line_bytes: int = LONGEST
    sorts_in: InputFile | None = None
    title = "CSV"

    @property
    def has_task(self) -> bool:
        return not self.multi_line and not self.separator.isspace()

    def sorting_in(self, base: InputFile) -> TextFormat | None:
        return None if self.multi_line else replace(self, sorts_in=base)

    def describe(self) -> Json:
        return {
            "header": self.header,
            "null_value": self.null_value,
            "separator": self.separator,
            "quote": self.quote,
            "escape": self.escape,
            "encoding": self.encoding,
            "multi_line": self.multi_line,
            **NO_FORMATS,
            **self.forms.describe(),
        }

    def check_file(self, path: InputFile, columns: Columns) -> None:
        refuse_unreadable(path)
        if not self.header:
            return
        declared = [name for name, _ in columns]
        try:
            with opened(path) as file:
                text = self._text(file)
                lines = iter(lambda: text.readline(self.max_line_bytes + 1), "")
                found = next(self._split(line for line in lines if line.strip(BLANK.decode())), None)
        except csv.Error as error:
            raise DataError("BAD_HEADER", f"{path} has no header line ({error}); correct the file") from error
        except DAMAGE as error:
            if (damage := damage_of(path)) is not None:
                raise DataError("BAD_HEADER", damage) from error
            raise
        if found is None:
            raise DataError("BAD_HEADER", f"{path} has no header line: the schema has {declared}; correct the file")
        if found != declared:
            raise DataError("BAD_HEADER", f"{path} {difference(found, declared)}; correct the file or the schema")

    def whole_because(self, path: InputFile) -> str | None:
        if self.separator.isspace():
            return "with a separator that is white space, a row is found in the whole file alone"
        return super().whole_because(path)

    def rows_begin(self, path: InputFile) -> int:
        begin, behind = length_of_bom(path), False
        if not self.header:
            return begin
        for offsets, lines in lines_in(path, begin, None, self.max_line_bytes, at_line=True):
            for offset, line in zip(offsets, lines, strict=True):
                if behind:
                    return offset
                behind = bool(line.strip(BLANK))
        return path.stat().st_size

    def texts(self, lines: DataFrame, schema: StructType) -> Texts:
        from pyspark.sql import functions as F

        text = F.col("value").cast("string")
        names = [*(quoted(name) for name in schema.fieldNames()), _TEXT]
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _TEXT, "maxColumns": str(_MOST_FIELDS)}
        options |= self._parser_options()
        fields = F.from_csv(text, ", ".join(f"{name} STRING" for name in names), options)
        is_row = F.length(text) > 0 if self.separator.isspace() else text.rlike(r"[^\x00-\x20]")
        frame = lines.where(is_row).select("*", fields.alias(_PARSED))
        return Texts(frame, _PARSED, f"{_PARSED}.{_TEXT} IS NOT NULL", schema, self.forms, has_quoted_empty=True)

    def no_row(self, schema: StructType) -> str:
        return self.separator.join("-" * (len(schema.fields) + 1))

    def fault(self, line: bytes, unread: Collection[str], columns: Columns, required: Collection[str]) -> str:
        fault = self._fault_of_text(line.decode(errors="replace"), unread, columns)
        if fault.startswith(_UNFIT):
            return next((null_fault(name) for name in required if name in unread), fault)
        return fault

    def strict_reader(self, spark: SparkSession, schema: StructType) -> ReadFiles:
        def read(files: Sequence[Span], *, ordinals: bool) -> DataFrame:
            ends = [self._line_end(each.input) for each in files]
            texts = []
            for end in dict.fromkeys(ends or [None]):
                reader = self._options(spark, end).schema(all_text(schema)).option("mode", "FAILFAST")
                some = [file for file, each in zip(files, ends, strict=True) if each == end]
                texts.append(with_ordinals(loaded(reader, [each.path for each in some]), some, ordinals=ordinals))
            united = reduce(lambda one, other: one.union(other), texts)
            return self._of_fields(united, schema).rows([ORDINAL] if ordinals else [])

        return read

    def _of_fields(self, fields: DataFrame, schema: StructType, broken: str = "false") -> Texts:
        row = f"struct({', '.join(map(quoted, schema.fieldNames()))})"
        return Texts(fields, row, broken, schema, self.forms, has_quoted_empty=True)

    def bad_row_in(
        self, spark: SparkSession, path: InputFile, columns: Columns, schema: StructType
    ) -> DataError | None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        if (damage := damage_of(path)) is not None:
            return DataError("BAD_ROW", damage)
        try:
            end = self._line_end(path)
        except DataError as error:
            return error
        lenient = StructType([*all_text(schema).fields, StructField(_BAD_ROW, StringType())])
        reader = self._options(spark, end).schema(lenient)
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _BAD_ROW)
        texts = self._of_fields(loaded(reader, [str(path)]), schema, f"{_BAD_ROW} IS NOT NULL")
        bad = texts.sorted_out([], F.struct(*map(quoted, lenient.fieldNames()))).where(F.col(BAD_ROW).isNotNull())
        try:
            found = bad.limit(1).collect()
        except (PySparkException, Py4JJavaError) as error:
            if _NOT_PARSED not in str(error):
                raise
            bound = f"a field of more than max_line_bytes={self.max_line_bytes} characters, or too many fields"
            return DataError("BAD_ROW", f"{path} has {bound}: end its quotes, or give a larger max_line_bytes")
        if not found:
            return None
        row, bad_row = found[0].asDict(), found[0][BAD_ROW].asDict()
        unread = [name for name, _ in columns if row[name] is None]
        text = bad_row.pop(_BAD_ROW)
        if text is not None:
            line, fault = self._line_of(path, text), self._fault_of_text(text, unread, columns)
        else:
            fields = ["" if field == QUOTED_EMPTY else field for field in bad_row.values()]
            line = self._line_of_row(path, fields)
            fault = self._fault_of(fields, unread, columns) or null_fault(
                next(name for name in required_of(schema) if name in unread)
            )
        return DataError("BAD_ROW", f"{path} line {line}: {fault}; {CORRECTED}")

    def _fault_of_text(self, text: str, unread: Collection[str], columns: Columns) -> str:
        try:
            fields = next(self._split(io.StringIO(text, newline="")), [])
        except csv.Error:  # a field of more than 131,072 characters
            return f"{_UNFIT}: {text[:200]!r}"
        if len(fields) != len(columns):
            return f"it has {len(fields)} fields, the schema {len(columns)}: {text[:200]!r}"
        return self._fault_of(fields, unread, columns) or f"{_UNFIT}: {text[:200]!r}"

    def _fault_of(self, fields: Sequence[str | None], unread: Collection[str], columns: Columns) -> str | None:
        """Return, in words, the first text that is no value of its column; None if all are values."""
        for field, (name, kind) in zip(fields, columns, strict=True):
            if name in unread and field not in {None, "", self.null_value}:
                return f"column {name} is {str(field)[:200]!r}, which is no {kind}{self.forms.of(name).of(kind)}"
        return None

    def _line_of(self, path: InputFile, text: str) -> int | str:
        """Return the number of the line at which a row of this text begins; the first line is 1."""
        wanted = text.rstrip("\r\n")
        with opened(path) as file:
            lines = self._text(file)
            if "\n" not in wanted:
                numbered = enumerate(lines, start=1)
                return next((number for number, line in numbered if line.rstrip("\r\n") == wanted), "unknown")
            before, found, _ = lines.read().partition(wanted)
            return before.count("\n") + 1 if found else "unknown"

    def _line_of_row(self, path: InputFile, texts: Sequence[str | None]) -> int | str:
        """Return the number of the line at which a row of these texts begins; the first line is 1."""
        wanted, begin = self._comparable(texts), 1
        with opened(path) as file, suppress(csv.Error):
            rows: Any = self._split(self._text(file))
            for row in rows:
                if self._comparable(row) == wanted:
                    return begin
                begin = rows.line_num + 1
        return "unknown"

    def _comparable(self, texts: Sequence[str | None]) -> list[str]:
        """Return texts in a form that is the same for Spark and Python: Spark makes all line ends LF."""
        return ["" if each in {None, self.null_value} else "\n".join(str(each).splitlines()) for each in texts]

    def _line_end(self, path: InputFile) -> str | None:
        r"""Return the line end of a file's rows, if rows may have several lines; None: Spark detects it.

        By default Spark takes the first line end of a file for the end of all rows, and makes LF of it in quoted fields
        too: `"a\r\nb"` would lose its CR.
        """
        if not (self.multi_line or self.separator.isspace()):
            return None
        try:
            with opened(path) as file:
                if not any(b"\r" in chunk for chunk in iter(lambda: file.read(_CHUNK), b"")):
                    return None
        except DAMAGE:
            return None  # Spark's reader fails too, and `explain` says why
        ends, changed, last = set[str](), False, [""]

        def noted(line: str) -> str:
            last[0] = line
            return line

        with opened(path) as file, suppress(csv.Error):
            for row in self._split(map(noted, self._text(file))):
                ends.add(last[0][len(last[0].rstrip("\r\n")) :])
                changed = changed or any("\r" in field for field in row)
        ends.discard("")
        if len(ends) > 1 and changed:
            kinds = " and ".join(sorted(map(repr, ends)))
            raise DataError(
                "BAD_ROW",
                f"{path} has rows that end with {kinds}, and a field with '\\r': end all rows alike; {CORRECTED}",
            )
        return ends.pop() if len(ends) == 1 else None

    def _text(self, file: IO[bytes]) -> io.TextIOWrapper:
        return io.TextIOWrapper(file, ENCODINGS[self.encoding], errors="replace", newline="")

    def _split(self, lines: Iterable[str]) -> Iterator[list[str]]:
        if self.quote is None:
            return csv.reader(lines, delimiter=self.separator, quoting=csv.QUOTE_NONE)
        if self.escape == self.quote:
            return csv.reader(lines, delimiter=self.separator, quotechar=self.quote)
        return csv.reader(
            lines, delimiter=self.separator, quotechar=self.quote, doublequote=False, escapechar=self.escape
        )

    def _parser_options(self) -> dict[str, str]:
        return {
            "nullValue": self.null_value,
            "sep": self.separator,
            "quote": self.quote or "",  # empty: no character is a quote
            "escape": self.escape,
            "emptyValue": QUOTED_EMPTY,
        }

    def _options(self, spark: SparkSession, end: str | None) -> DataFrameReader:
        return spark.read.format("csv").options(
            **({} if end is None else {"lineSep": end}),
            header=self.header,
            encoding=self.encoding,
            # Line by line, Spark would pass over a line of separators alone if these are white space.
            multiLine=self.multi_line or self.separator.isspace(),
            enforceSchema=False,
            maxCharsPerColumn=self.max_line_bytes,
            **self._parser_options(),
        )
