"""A minimal source: the lines of a file that only grows. `docs/connectors.md` explains it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from boatlift.connectors.kit import SourceBase, struct_of
from boatlift.dataflow import Json
from boatlift.errors import DataError


class LogSource(SourceBase):
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def describe(self) -> Json:
        return {"kind": "log", "path": str(self._path)}

    def schema(self, spark: SparkSession) -> StructType:
        return struct_of("id LONG, text STRING")

    def start(self) -> Json:
        return {"end": 0}

    def next(self, cursor: Json) -> Json | None:
        begin = cursor["end"]
        lines = self._read(begin, None).rpartition(b"\n")[0]  # the last line may be unfinished
        return {"begin": begin, "end": begin + len(lines) + 1, "digest": sha256(lines).hexdigest()} if lines else None

    def advance(self, cursor: Json, position: Json) -> Json:
        return {"end": position["end"]}

    def verify(self, position: Json) -> None:
        if sha256(self._read(position["begin"], position["end"] - 1)).hexdigest() != position["digest"]:
            raise DataError("INPUT_CHANGED", f"{self._path} has other lines than a recorded step: restore it")

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        lines = self._read(position["begin"], position["end"] - 1).decode().split("\n")
        rows = [(int(key), text) for key, text in (line.split(" ", maxsplit=1) for line in lines)]
        return spark.createDataFrame(rows, self.schema(spark))

    def _read(self, begin: int, end: int | None) -> bytes:
        return self._path.read_bytes()[begin:end] if self._path.exists() else b""
