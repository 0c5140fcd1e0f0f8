"""Every connector under the laws of its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from boatlift.testing.object_server import ObjectServer
from connectors.cases import (
    CsvByHttpCase,
    CsvCase,
    CsvInBucketCase,
    CsvRangesByHttpCase,
    CsvRangesCase,
    CsvRangesInBucketCase,
    GeneratorCase,
    GzipCsvCase,
    GzipCsvInBucketCase,
    JsonArrayCase,
    JsonArrayInBucketCase,
    JsonLinesByNameInBucketCase,
    JsonLinesCase,
    JsonRangesCase,
    JsonRangesInBucketCase,
    ParquetFilesCase,
    ParquetFilesInBucketCase,
    ParquetRangesCase,
    ParquetRangesInBucketCase,
    PushCase,
    TailedCsvCase,
    TailedJsonCase,
    UpsertCase,
)
from connectors.sink_cases import (
    DeltaCase,
    MysqlAppendCase,
    MysqlCase,
    ParquetBucketCase,
    ParquetCase,
    PostgresAppendCase,
    PostgresCase,
    SqliteCase,
    SqliteNanCase,
)
from connectors.sink_crash_laws import SinkCrashLaws
from connectors.sink_laws import SinkLaws
from connectors.source_laws import SourceLaws


class TestParquetSink(SinkLaws, SinkCrashLaws):
    case = ParquetCase


class TestParquetSinkInABucket(SinkLaws, SinkCrashLaws):
    case = ParquetBucketCase

    @pytest.fixture(autouse=True)
    def _server(self, object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BOATLIFT_SCRATCH", str(tmp_path / "own scratch"))


class TestDeltaSink(SinkLaws, SinkCrashLaws):
    case = DeltaCase

    @pytest.mark.skip(reason="it has no key")
    def test_another_key_is_refused(self) -> None:  # type: ignore[override]
        pass


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


@pytest.mark.usefixtures("mysql_server")
class TestMysqlSink(SinkLaws, SinkCrashLaws):
    case = MysqlCase


@pytest.mark.usefixtures("mysql_server")
class TestMysqlSinkThatAppends(SinkLaws, SinkCrashLaws):
    case = MysqlAppendCase


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


class InABucket(SourceLaws):
    @pytest.fixture(autouse=True)
    def _server(self, objects_for_tasks: ObjectServer) -> None:
        pass


class TestCsvFilesInABucket(InABucket):
    case = CsvInBucketCase


class TestRangesOfCsvFilesInABucket(InABucket):
    case = CsvRangesInBucketCase


class TestGzipCsvFilesInABucket(InABucket):
    case = GzipCsvInBucketCase


class TestRangesOfJsonFilesInABucket(InABucket):
    case = JsonRangesInBucketCase


class TestJsonArrayFilesInABucket(InABucket):
    case = JsonArrayInBucketCase


class TestParquetFilesInABucket(InABucket):
    case = ParquetFilesInBucketCase


class TestRangesOfParquetFilesInABucket(InABucket):
    case = ParquetRangesInBucketCase


class TestFilesInABucketByName(InABucket):
    case = JsonLinesByNameInBucketCase


class TestGenerator(SourceLaws):
    case = GeneratorCase


class TestPush(SourceLaws):
    case = PushCase


class TestUpserts(SourceLaws):
    case = UpsertCase


class TestCsvFilesByHttp(SourceLaws):
    case = CsvByHttpCase


class TestCsvRangesByHttp(SourceLaws):
    case = CsvRangesByHttpCase
