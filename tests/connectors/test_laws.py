"""Every connector under the laws of its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from boatlift.testing.object_server import ObjectServer
from connectors.cases import (
    CsvCase,
    CsvRangesCase,
    GeneratorCase,
    GzipCsvCase,
    JsonArrayCase,
    JsonLinesCase,
    JsonRangesCase,
    ParquetFilesCase,
    ParquetRangesCase,
    PushCase,
    TailedCsvCase,
    TailedJsonCase,
    UpsertCase,
)
from connectors.conformance import SinkLaws
from connectors.sink_cases import (
    ParquetBucketCase,
    ParquetCase,
    PostgresAppendCase,
    PostgresCase,
    SqliteCase,
    SqliteNanCase,
)
from connectors.sink_crash_laws import SinkCrashLaws
from connectors.source_laws import SourceLaws


class TestParquetSink(SinkLaws, SinkCrashLaws):
    case = ParquetCase


class TestParquetSinkInABucket(SinkLaws, SinkCrashLaws):
    case = ParquetBucketCase

    @pytest.fixture(autouse=True)
    def _server(self, object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "own scratch"))


class TestSqliteSink(SinkLaws, SinkCrashLaws):
    case = SqliteCase


class TestSqliteSinkWithNanAsText(SinkLaws):
    case = SqliteNanCase


@pytest.mark.usefixtures("postgres_server")
class TestPostgresSink(SinkLaws, SinkCrashLaws):
    case = PostgresCase


@pytest.mark.usefixtures("postgres_server")
class TestPostgresSinkThatAppends(SinkLaws, SinkCrashLaws):
    case = PostgresAppendCase


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
