"""Parquet files in a bucket as a sink, one file a step (`docs/formats/parquet-sink.md`, version 2).

**One numbering is the fence.** Files are `part-NNNNNNNNNNNN.parquet`, numbered without gaps, and each number is given
once (`ObjectStore.create`). An owner claims the place by a file without rows under the next number. So the next file
of an older owner loses its number, wherever that owner was paused. Readers see the rows of steps and nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from boatlift.connectors.kit import Decision, SinkBase, StepLedger, first_difference, read_pieces, user_columns
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import Committed, Json, Outcome, SinkCapabilities, SinkContext, Staged
from boatlift.dataflow.policies import Batch
from boatlift.errors import BoatliftError, DataError, FencedError, Finding, UnavailableError
from boatlift.paths import scratch_named
from boatlift.storage.bucket_client import RETRY_FOR
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.remote_files import fetched

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PART = re.compile(r"part-(\d{12})\.parquet")
_CLAIM_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class PartRecord:
    """The record of a file, under the key `boatlift` of its footer.

    Attributes:
        store: The id of the store that the dataflow runs from.
        key: The key columns; None if rows are changes as they are, or new rows.
        token: The owner's.
        claims: Whether the file is a claim: then the step is the newest one before it, −1 for none.
        rows, digest: Of the step.
    """

    FORMAT: ClassVar[int] = 2
    dataflow: str
    sink: str
    store: str
    key: tuple[str, ...] | None
    token: int
    claims: bool
    step: int
    rows: int
    digest: str

    @property
    def rows_in_file(self) -> int:
        return 0 if self.claims else self.rows

    @property
    def committed(self) -> Committed | None:
        return None if self.step < 0 else Committed(self.step, self.rows, self.digest)


class ParquetBucketSink(SinkBase):
    """One Parquet file a step below a prefix of a bucket.

    Args:
        url: `s3://BUCKET/PREFIX`; the prefix belongs to this sink alone.
    """

    def __init__(self, url: str, key: Sequence[str] | None, compression: str, *, gathers: Batch | None = None) -> None:
        self.key = key
        self._url = url.rstrip("/")
        self._compression = compression
        self._gathers = gathers
        self._store: ObjectStore | None = None
        self._last = -1  # the number of the newest file
        self._held: Committed | None = None
        self._failed: str | None = None

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            places=(self._url,),
            gathers=self._gathers,
            leaves_files=True,
            preflight=self._preflight,
            reads_back=self,
            reads_back_steps=self if self.key is None else None,
        )

    def describe(self) -> Json:
        key = None if self.key is None else list(self.key)
        return {"kind": "parquet", "url": self._url, "key": key, "compression": self._compression}

    def open(self, context: SinkContext) -> Committed | None:
        from boatlift.connectors.parquet.step_file import check_types

        check_types(context.schema)
        user_columns(context, self.key or ())
        self._context, self._failed = context, None
        with self._errors():
            self._store = self._opened_store(create=True)
            self._drafts = self._store.scratch(context.token)
            for _ in range(_CLAIM_ATTEMPTS):
                self._last, newest = self._newest(self._store)
                if newest is not None:
                    self._refuse_other(newest, context)
                    self._ledger.refuse_newer_owner(newest.token)
                    self._check_columns()
                self._held = None if newest is None else newest.committed
                if self._claim():
                    return self._held
        raise FencedError("FENCED", f"other processes keep claiming {self._url}: stop this one or those")

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        ledger = self._ledger
        if self._failed is not None:
            raise ledger.failed_before(self._failed)
        held = -1 if self._held is None else self._held.step
        if ledger.decide(step, held) is Decision.COMPARE:
            with self._errors():
                self._check_owner()
                return self._compare(Committed(step, rows, digest), staged)
        pieces = read_pieces(rows, staged)
        with self._errors():
            if not self._write(self._record(claims=False, committed=Committed(step, rows, digest)), pieces):
                self._check_owner()
                raise DataError(
                    "SINK_DAMAGED", f"{self._url} has a file {_name(self._last + 1)} of no newer owner: restore it"
                )
        self._held = Committed(step, rows, digest)
        return Outcome.APPENDED

    def held(self, spark: SparkSession) -> DataFrame | None:
        return self._rows_behind(spark, -1, self.key)

    def held_since(self, spark: SparkSession, step: int) -> DataFrame | None:
        return self._rows_behind(spark, step, None)

    def _rows_behind(self, spark: SparkSession, step: int, key: Sequence[str] | None) -> DataFrame | None:
        """Return the rows of the steps after one; None if there are none."""
        from boatlift.connectors.kit.object_place import ObjectPlace, ObjectVersion
        from boatlift.connectors.kit.parquet_rows import rows_of_files

        store = self._store
        assert store is not None, "open comes first"
        if self._held is None or self._held.step <= step:
            return None
        with self._errors():
            numbers, sizes, first = self._numbers(store), store.sizes(""), 0
            if step >= 0:
                first = self._last
                while first > 0 and self._read(store, first - 1).step > step:
                    first -= 1
        files = [
            ObjectPlace(f"{self._url}/{_name(number)}", ObjectVersion(store.endpoint, sizes.get(_name(number), 0)))
            for number in numbers[first : self._last + 1]
        ]
        return rows_of_files(spark, self._url, files, self._opened.schema, key)

    def verify(self) -> Iterator[Finding]:
        from boatlift.connectors.parquet.step_file import check_file

        store = self._opened_store(create=False)
        try:
            numbers = self._numbers(store)
        except DataError as error:
            yield Finding(self._url, error.condition, error.message)
            numbers = [int(found[1]) for name in store.list("") if (found := _PART.fullmatch(name))]
        before: PartRecord | None = None
        for number in numbers:
            name = _name(number)
            try:
                check_file(fetched(store.local_path(name)), f"{self._url}/{name}")
                record = self._read(store, number)
                step = -1 if before is None else before.step
                if record.step != step + (not record.claims):
                    raise _damaged(f"{self._url}/{name}", f"it holds step {record.step} after {step}")
                before = record
            except DataError as error:
                yield Finding(f"{self._url}/{name}", error.condition, error.message)
            finally:
                store.forget(name)

    @property
    def _ledger(self) -> StepLedger:
        return StepLedger(self._opened, self._url, "prefix", "restore the sink")

    def _opened_store(self, *, create: bool) -> ObjectStore:
        """Return the objects of the place; one that refuses writes after a failure is of no more use."""
        scratch, _ = scratch_named()
        if create:
            return ObjectStore.open(self._url, scratch, BucketOptions(retry_for=RETRY_FOR), create=True)
        return ObjectStore(self._url, scratch, BucketOptions(retry_for=RETRY_FOR))

    def _preflight(self, context: SinkContext) -> None:
        with self._errors():
            _, newest = self._newest(self._opened_store(create=False))
        if newest is not None:
            self._refuse_other(newest, context)

    def _refuse_other(self, found: PartRecord, context: SinkContext) -> None:
        ledger = StepLedger(context, self._url, "prefix", "restore the sink")
        if (found.dataflow, found.sink) != (context.dataflow, context.sink):
            raise ledger.foreign(f"was written by sink {found.sink!r} of dataflow {found.dataflow!r}")
        ledger.refuse_other_store(found.store)
        if found.key != self._own_key:
            there, own = (_by_key(key) for key in (found.key, self._own_key))
            raise ledger.foreign(f"was written {there}, but this sink writes {own}")

    @property
    def _own_key(self) -> tuple[str, ...] | None:
        return None if self.key is None else tuple(self.key)

    def _numbers(self, store: ObjectStore) -> list[int]:
        """Return the numbers of files: 0 to n without a gap."""
        numbers = []
        for name in store.list(""):
            if (found := _PART.fullmatch(name)) is not None:
                numbers.append(int(found[1]))
            elif not any(part.startswith(("_", ".")) for part in name.split("/")):
                raise DataError(
                    "SINK_OF_ANOTHER_DATAFLOW",
                    f"{self._url}/{name} was not written by this sink: move it away, or give the sink a prefix of its "
                    "own",
                )
        for expected, number in enumerate(numbers):
            if number != expected:
                lacks = f"{self._url} has {_name(number)} but not {_name(expected)}: restore it from a copy"
                raise DataError("SINK_GAP", lacks)
        return numbers

    def _newest(self, store: ObjectStore) -> tuple[int, PartRecord | None]:
        last = len(self._numbers(store)) - 1
        return last, None if last < 0 else self._read(store, last)

    def _read(self, store: ObjectStore, number: int) -> PartRecord:
        from boatlift.connectors.parquet.step_file import record_in

        name = _name(number)
        fields = record_in(self._footer(store, number), f"{self._url}/{name}", PartRecord.FORMAT)
        try:
            key = fields.pop("key")
            record = PartRecord(key=None if key is None else tuple(key), **fields)
        except (TypeError, AttributeError, KeyError) as error:
            raise _damaged(f"{self._url}/{name}", "its record cannot be read") from error
        if record.rows_in_file != self._footer(store, number).metadata.num_rows:
            raise _damaged(f"{self._url}/{name}", f"its record says {record.rows_in_file} rows")
        return record

    def _footer(self, store: ObjectStore, number: int) -> Any:
        from boatlift.connectors.parquet.step_file import footer_of

        name = _name(number)
        size = store.size(name) or 0
        return footer_of(lambda start, length: store.read(name, start, length), size, f"{self._url}/{name}")

    def _record(self, *, claims: bool, committed: Committed | None) -> PartRecord:
        context, held = self._opened, committed or Committed(-1, 0, "")
        place = (context.dataflow, context.sink, context.store, self._own_key, context.token)
        return PartRecord(*place, claims, held.step, held.rows, held.digest)

    def _claim(self) -> bool:
        return self._write(self._record(claims=True, committed=self._held), [])

    def _write(self, record: PartRecord, pieces: Sequence[pa.Table]) -> bool:
        """Make the next file; return whether its number was free."""
        import pyarrow as pa

        from boatlift.connectors.parquet.step_file import write_step

        store = self._store
        assert store is not None, "open comes first"
        schema = pa.schema([field.with_nullable(field.name != WEIGHT) for field in self._opened.schema])
        draft = self._drafts / f"{os.getpid()}-{_name(self._last + 1)}"
        try:
            write_step(draft, schema, pieces, record, self._compression)
            store.create(_name(self._last + 1), draft)
        except FencedError as error:
            if error.condition != "OBJECT_EXISTS":
                raise
            return False
        except UnavailableError as error:
            self._failed = error.message
            raise
        finally:
            draft.unlink(missing_ok=True)
        self._last += 1
        return True

    def _check_owner(self) -> None:
        """Raise if there is a file that this owner has not made."""
        store = self._store
        assert store is not None, "open comes first"
        if store.size(_name(self._last + 1)) is not None:
            self._ledger.refuse_newer_owner(self._read(store, self._last + 1).token)

    def _compare(self, now: Committed, staged: Sequence[Staged]) -> Outcome:
        from boatlift.connectors.parquet.step_file import read_rows

        store = self._store
        assert store is not None, "open comes first"
        number = self._last
        while (record := self._read(store, number)).step > now.step or record.claims:
            number -= 1
            if number < 0:
                raise self._ledger.lacks(now.step)

        def difference() -> str:
            return first_difference(read_rows(fetched(store.local_path(_name(number)))), read_pieces(now.rows, staged))

        try:
            return self._ledger.compare(now, Committed(record.step, record.rows, record.digest), difference)
        finally:
            store.forget(_name(number))

    def _check_columns(self) -> None:
        store = self._store
        assert store is not None, "open comes first"
        found = [(field.name, field.type) for field in self._footer(store, self._last).schema_arrow]
        wanted = [(field.name, field.type) for field in self._opened.schema]
        weighted = [any(name == WEIGHT for name, _ in each) for each in (found, wanted)]
        if any(each not in wanted for each in found) or weighted[0] != weighted[1]:  # a later version may have more
            shown = [str([(name, str(kind)) for name, kind in each]) for each in (found, wanted)]
            raise self._ledger.foreign(f"has columns {shown[0]}, and this sink writes {shown[1]}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Speak of the sink where a store of objects speaks of a store."""
        try:
            yield
        except UnavailableError as error:
            raise UnavailableError("SINK_FAILED", error.message) from error
        except BoatliftError as error:
            if error.condition == "MISSING_OBJECT":
                raise DataError("SINK_GAP", error.message) from error
            raise


def _name(number: int) -> str:
    return f"part-{number:012d}.parquet"


def _by_key(key: tuple[str, ...] | None) -> str:
    return "without a key" if key is None else f"with key {list(key)}"


def _damaged(place: str, why: str) -> DataError:
    return DataError("SINK_DAMAGED", f"{place} is damaged, {why}: restore it from a copy")
