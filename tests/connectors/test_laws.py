"""Every connector under the laws of its contract."""

from __future__ import annotations

from connectors.cases import (
    CsvCase,
    CsvRangesCase,
    GeneratorCase,
    GzipCsvCase,
    JsonArrayCase,
    JsonLinesCase,
    JsonRangesCase,
    ParquetCase,
    ParquetFilesCase,
    ParquetRangesCase,
    PushCase,
    SqliteCase,
    SqliteNanCase,
    TailedCsvCase,
    TailedJsonCase,
    UpsertCase,
)
from connectors.conformance import SinkLaws
from connectors.sink_crash_laws import SinkCrashLaws
from connectors.source_laws import SourceLaws


class TestParquetSink(SinkLaws, SinkCrashLaws):
    case = ParquetCase


class TestSqliteSink(SinkLaws, SinkCrashLaws):
    case = SqliteCase


class TestSqliteSinkWithNanAsText(SinkLaws):
    case = SqliteNanCase


class TestCsvFiles(SourceLaws):
    case = CsvCase


class TestRangesOfCsvFiles(SourceLaws):
    case = CsvRangesCase


class TestRangesOfJsonFiles(SourceLaws):
    case = JsonRangesCase


class TestTailedCsvFiles(SourceLaws):
    case = TailedCsvCase


class TestTailedJsonFiles(SourceLaws):
    case = TailedJsonCase


class TestGzipCsvFiles(SourceLaws):
    case = GzipCsvCase


class TestJsonLinesFiles(SourceLaws):
    case = JsonLinesCase


class TestJsonArrayFiles(SourceLaws):
    case = JsonArrayCase


class TestParquetFiles(SourceLaws):
    case = ParquetFilesCase


class TestRangesOfParquetFiles(SourceLaws):
    case = ParquetRangesCase


class TestGenerator(SourceLaws):
    case = GeneratorCase


class TestPush(SourceLaws):
    case = PushCase


class TestUpserts(SourceLaws):
    case = UpsertCase
