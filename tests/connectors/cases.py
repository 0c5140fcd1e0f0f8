"""How `connectors.source_laws` uses each source: importable, so that other processes find it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import ClassVar

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import S3Store
from pyspark.sql.types import LongType, StringType, StructField, StructType

from boatlift.connectors import files, generator, push
from boatlift.connectors.files.bucket.source import BucketFilesSource
from boatlift.connectors.files.http.source import HttpSource
from boatlift.connectors.push.rows import PushedRows
from boatlift.dataflow.contracts import Json, Source
from boatlift.storage.input_log import InputLog
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import Push as StoredPush
from connectors.conformance import Row
from connectors.sink_cases import flip_a_bit
from connectors.source_laws import SourceCase
from support.http_resource import Resource, served


def _rows(number: int) -> list[Row]:
    return [(number * 100 + i, f"file {number} row {i}") for i in range(20)]


def _tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
    def first(folder: Path, position: Json) -> Path:
        return folder / str(position["files"][0]["path"])

    def flip(folder: Path, position: Json) -> None:
        path = first(folder, position)
        was = path.stat()
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))

    def cut(folder: Path, position: Json) -> None:
        path = first(folder, position)
        path.write_bytes(path.read_bytes()[:-1])

    def grow(folder: Path, position: Json) -> None:
        path = first(folder, position)
        path.write_bytes(path.read_bytes() + b"\n")

    def remove(folder: Path, position: Json) -> None:
        first(folder, position).unlink()

    return {
        "one bit, same size and time": ("INPUT_CHANGED", flip),
        "truncated": ("INPUT_CHANGED", cut),
        "grown": ("INPUT_CHANGED", grow),
        "gone": ("INPUT_MISSING", remove),
    }


class FilesCase(SourceCase):
    """Files in a folder."""

    endless = False
    tampers = staticmethod(_tampers)

    @staticmethod
    def place(folder: Path) -> str:
        """Return the place of the files, as the source gets it."""
        return str(folder)


class CsvCase(FilesCase):
    """One file a step."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(cls.place(folder), format="csv", schema="id BIGINT, text STRING")

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        rows = _rows(number)
        draft = folder / "_draft"
        draft.write_text("id,text\n" + "".join(f"{key},{text}\n" for key, text in rows))
        draft.rename(folder / f"part-{number}.csv")
        return rows


class CsvRangesCase(CsvCase):
    """Every file in several ranges."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(cls.place(folder), format="csv", schema="id BIGINT, text STRING", max_bytes_per_step=100)

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        def flip(folder: Path, position: Json) -> None:
            flip_a_bit(folder / position["files"][0]["path"], position["files"][0]["begin"])

        return {**_tampers(), "one bit, same size and time": ("INPUT_CHANGED", flip)}


class TailedCsvCase(CsvCase):
    """Two files that grow, of which a step takes a few lines."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(
            cls.place(folder), format="csv", schema="id BIGINT, text STRING", max_bytes_per_step=100, tail=True
        )

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        rows = _rows(number)
        path = folder / f"part-{number % 2}.csv"
        header = "" if path.exists() else "id,text\n"
        with path.open("a") as file:
            file.write(header + "".join(f"{key},{text}\n" for key, text in rows))
        return rows

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        def flip(folder: Path, position: Json) -> None:
            flip_a_bit(folder / position["files"][0]["path"], position["files"][0]["begin"])

        def cut(folder: Path, position: Json) -> None:
            os.truncate(folder / position["files"][0]["path"], position["files"][0]["end"] - 1)

        def rewrite(folder: Path, position: Json) -> None:
            path = folder / position["files"][0]["path"]
            path.write_bytes(path.read_bytes().replace(b"row", b"new", 1))

        return {
            "one bit": ("INPUT_CHANGED", flip),
            "cut": ("INPUT_SHRANK", cut),
            "written anew": ("INPUT_CHANGED", rewrite),
            "gone": ("INPUT_MISSING", _tampers()["gone"][1]),
        }


class GzipCsvCase(CsvCase):
    """Compressed, two files a step, with tabs between fields."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(
            f"{cls.place(folder)}/*.csv.gz", schema="id BIGINT, text STRING", separator="\t", max_files_per_step=2
        )

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        rows = _rows(number)
        draft = folder / "_draft"
        draft.write_bytes(gzip.compress(("id\ttext\n" + "".join(f"{key}\t{text}\n" for key, text in rows)).encode()))
        draft.rename(folder / f"part-{number}.csv.gz")
        return rows


class JsonLinesCase(FilesCase):
    """An object a line, two files a step."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(f"{cls.place(folder)}/*.jsonl", schema="id BIGINT, text STRING", max_files_per_step=2)

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        rows = _rows(number)
        draft = folder / "_draft"
        draft.write_text("".join(json.dumps({"text": text, "id": key}) + "\n" for key, text in rows))
        draft.rename(folder / f"part-{number}.jsonl")
        return rows


class JsonRangesCase(JsonLinesCase):
    """Every file in several ranges."""

    tampers = staticmethod(CsvRangesCase.tampers)

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(f"{cls.place(folder)}/*.jsonl", schema="id BIGINT, text STRING", max_bytes_per_step=300)


class TailedJsonCase(JsonLinesCase):
    """Files that grow and are done at once, as nobody writes to them any more."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        source = files(f"{cls.place(folder)}/*.jsonl", schema="id BIGINT, text STRING", tail="1 hour")
        source._growing._clock = lambda: 1 << 62  # type: ignore[attr-defined]
        return source


class JsonArrayCase(JsonLinesCase):
    """One array a file, over several lines."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(
            cls.place(folder), format="json", schema="id BIGINT, text STRING", multi_line=True, max_files_per_step=2
        )

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        rows = _rows(number)
        draft = folder / "_draft"
        draft.write_text(json.dumps([{"id": key, "text": text} for key, text in rows], indent=1))
        draft.rename(folder / f"part-{number}.json")
        return rows


class ParquetFilesCase(FilesCase):
    """Two files a step, several row groups a file."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(f"{cls.place(folder)}/*.parquet", schema="id BIGINT, text STRING", max_files_per_step=2)

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        rows = _rows(number)
        draft = folder / "_draft"
        table = pa.table({"id": [row[0] for row in rows], "text": [row[1] for row in rows]})
        pq.write_table(table, draft, row_group_size=7)
        draft.rename(folder / f"part-{number}.parquet")
        return rows


class ParquetRangesCase(ParquetFilesCase):
    """Every file in several ranges of row groups."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        return files(f"{cls.place(folder)}/*.parquet", schema="text STRING, id BIGINT", max_bytes_per_step=300)

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        return [(text, key) for key, text in ParquetFilesCase.add(folder, number)]

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        def flip(folder: Path, position: Json) -> None:
            flip_a_bit(folder / position["files"][0]["path"], position["files"][0]["begin"])

        def flip_footer(folder: Path, position: Json) -> None:
            flip_a_bit(folder / position["files"][0]["path"], position["files"][0]["of"] - 20)

        changed = {"one bit, same size and time": flip, "one bit of the footer": flip_footer}
        return {**_tampers(), **{name: ("INPUT_CHANGED", change) for name, change in changed.items()}}


class ByHttp(FilesCase):
    """A text that grows on a server, recorded in a store in the folder; comes before the case of a folder."""

    @staticmethod
    def resource(folder: Path) -> Resource:
        if folder not in _SERVED:
            _SERVED[folder] = _SERVERS.enter_context(served())
            _SERVED[folder].body = None
        return _SERVED[folder]

    @staticmethod
    def schema() -> dict[str, object]:
        return {"schema": "id BIGINT, text STRING", "header": False}

    @classmethod
    def make(cls, folder: Path) -> Source:
        source = files(cls.resource(folder).url, every="1 second", **cls.schema())  # type: ignore[arg-type]
        assert isinstance(source, HttpSource)
        source._inputs._clock = _an_hour_later
        (folder / "scratch").mkdir(exist_ok=True)
        source.attach(LocalStore.open(folder / "store", create=True), folder / "scratch", "rows")
        return source

    @classmethod
    def add(cls, folder: Path, number: int) -> list[Row]:
        rows, resource = _rows(number), cls.resource(folder)
        resource.body = (resource.body or b"") + "".join(f"{key},{text}\n" for key, text in rows).encode()
        return rows

    @classmethod
    def tampers(cls) -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        def recorded(tamper: Callable[[Path, Json], None]) -> Callable[[Path, Json], None]:
            return lambda folder, position: tamper(folder / "store" / "fetched" / "rows", position)

        tampers = {**_tampers(), "one bit, same size and time": ("INPUT_CHANGED", _flip_in_range)}
        return {name: (condition, recorded(tamper)) for name, (condition, tamper) in tampers.items()}


def _flip_in_range(folder: Path, position: Json) -> None:
    entry = position["files"][0]
    flip_a_bit(folder / entry["path"], entry.get("begin", 0))


_SERVED: dict[Path, Resource] = {}
_SERVERS = ExitStack()


class CsvByHttpCase(ByHttp):
    """Each body, or what has come to it, in one step."""


class CsvRangesByHttpCase(ByHttp):
    """Several steps a body."""

    @staticmethod
    def schema() -> dict[str, object]:
        return {**ByHttp.schema(), "max_bytes_per_step": 100}

    @classmethod
    def tampers(cls) -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        return {name: each for name, each in super().tampers().items() if name != "grown"}  # no range has the end


class InBucket(FilesCase):
    """The files of a folder, which are copied to a bucket after each change; comes before the case of a folder."""

    @staticmethod
    def place(folder: Path) -> str:
        return f"s3://boatlift{folder}"

    @classmethod
    def make(cls, folder: Path) -> Source:
        source = super().make(folder)
        assert isinstance(source, BucketFilesSource)
        source._inputs._clock = _an_hour_later
        return source

    @classmethod
    def add(cls, folder: Path, number: int) -> list[Row]:
        rows = super().add(folder, number)
        cls.settle(folder)
        return rows

    @staticmethod
    def settle(folder: Path) -> None:
        bucket = S3Store("boatlift", prefix=str(folder)[1:], client_options={"allow_http": True})
        files = {path.name: path for path in folder.iterdir()}
        for page in obstore.list(bucket):
            for gone in {each["path"] for each in page} - files.keys():
                obstore.delete(bucket, gone)
        for name, path in files.items():
            obstore.put(bucket, name, path)

    @classmethod
    def tampers(cls) -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        def settled(tamper: Callable[[Path, Json], None]) -> Callable[[Path, Json], None]:
            def both(folder: Path, position: Json) -> None:
                tamper(folder, position)
                cls.settle(folder)

            return both

        return {name: (condition, settled(tamper)) for name, (condition, tamper) in super().tampers().items()}


def _an_hour_later() -> float:
    """A clock by which the rest after a listing is always over."""
    return next(_HOURS)


_HOURS = count(3600.0, 3600.0)


class CsvInBucketCase(InBucket, CsvCase):
    """One object a step."""


class CsvRangesInBucketCase(InBucket, CsvRangesCase):
    """Every object in several ranges."""


class GzipCsvInBucketCase(InBucket, GzipCsvCase):
    """Compressed."""


class JsonRangesInBucketCase(InBucket, JsonRangesCase):
    """Every object in several ranges."""


class JsonArrayInBucketCase(InBucket, JsonArrayCase):
    """One array an object."""


class ParquetFilesInBucketCase(InBucket, ParquetFilesCase):
    """Two objects a step."""


class ParquetRangesInBucketCase(InBucket, ParquetRangesCase):
    """Every object in several ranges of row groups."""


class JsonLinesByNameInBucketCase(InBucket, JsonLinesCase):
    """Names that grow, it is said; each listing is one of all, so names that come late are taken."""

    @classmethod
    def make(cls, folder: Path) -> Source:
        source = files(f"{cls.place(folder)}/*.jsonl", schema="id BIGINT, text STRING", order="name")
        assert isinstance(source, BucketFilesSource)
        source._inputs._clock = _an_hour_later
        return source


class GeneratorCase(SourceCase):
    """Never changes, never ends."""

    endless = True

    @staticmethod
    def make(folder: Path) -> Source:
        return generator({"id": "id * 3", "text": "concat('row ', id)"}, rows_per_step=100)

    @staticmethod
    def add(folder: Path, number: int) -> list[Row]:
        return []

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        return {}


class PushCase(SourceCase):
    """Objects that an owner of the input log appends; the source reads beside it."""

    endless = False
    schema = StructType([StructField("id", LongType(), nullable=False), StructField("text", StringType())])
    owners: ClassVar[dict[Path, InputLog]] = {}
    key: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def log(folder: Path) -> InputLog:
        return InputLog(LocalStore.open(folder, create=True), "0" * 32, "pushed")

    @classmethod
    def make(cls, folder: Path) -> Source:  # type: ignore[override]
        source = push(cls.schema, upsert=cls.key or None)
        source.attach(cls.log(folder))
        return source

    @classmethod
    def add(cls, folder: Path, number: int) -> list[Row]:  # type: ignore[override]
        if folder not in cls.owners:
            cls.owners[folder] = cls.log(folder)
            cls.owners[folder].claim(1, 0)
        reader = PushedRows(cls.schema, cls.key)
        rows = [(number * 100 + i, f"{number} é {i}" if i else None) for i in range(7)]
        for some in (rows[:3], rows[3:]):
            made = reader.of_python([{"id": identity, "text": text} for identity, text in some])
            cls.owners[folder].append([StoredPush("", len(some), b"", 0)], reader.stream([made]))
        return list(rows)

    @staticmethod
    def tampers() -> dict[str, tuple[str, Callable[[Path, Json], None]]]:
        def last(folder: Path) -> Path:
            return max((folder / "input" / "pushed").iterdir())

        return {
            "a flipped byte": ("CORRUPT", lambda folder, _: flip_a_bit(last(folder), 60)),
            "a cut object": ("CORRUPT", lambda folder, _: os.truncate(last(folder), 90)),
            "one gone": ("MISSING_OBJECT", lambda folder, position: _object(folder, position["first"]).unlink()),
            "the end gone": ("INPUT_CHANGED", lambda folder, position: _cut(folder, position["last"])),
        }


class UpsertCase(PushCase):
    """Objects with rows that have a key, each row with one of its own."""

    owners: ClassVar[dict[Path, InputLog]] = {}
    key: ClassVar[tuple[str, ...]] = ("id",)


def _object(folder: Path, number: int) -> Path:
    return folder / "input" / "pushed" / f"{number:012d}"


def _cut(folder: Path, begin: int) -> None:
    for path in (folder / "input" / "pushed").iterdir():
        if int(path.name) >= begin:
            path.unlink()
