"""A Delta table as a sink: each step is one commit (`docs/formats/delta-sink.md`).

**Fencing.** An owner claims the table by a commit without rows that records its token. Each commit rests on the version
that was checked last, so the commit of an older owner meets the claim, wherever that owner was paused. Commits of other
programs, such as a compaction, come between: the sink reads them, checks again, and commits on top of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.delta.table import DataFile, DeltaPlace, StepOfTable, TableOwner
from boatlift.connectors.kit import (
    Decision,
    SinkBase,
    StepLedger,
    checked_options,
    first_difference,
    gathering,
    held_rows,
    user_columns,
)
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import (
    Committed,
    HeldRow,
    Json,
    Outcome,
    SinkCapabilities,
    SinkContext,
    SinkTwin,
    Staged,
    Stager,
)
from boatlift.dataflow.policies import Batch
from boatlift.errors import FencedError, Finding, InvalidError, UnavailableError
from boatlift.paths import refuse_place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_COMPRESSIONS = ("zstd", "snappy", "none")
_ATTEMPTS = 20
_LONGEST_REST = 1.0
_SPECIAL = " ,;{}()\n\t="
"""Characters that a column of a Delta table cannot have in its name."""


@checked_options("bl.delta")
def delta(
    path: str | Path,
    *,
    every: str | None = None,
    rows: int | None = None,
    compression: str = "zstd",
) -> DeltaSink:
    """Return a sink that appends each step to a Delta table, in one commit.

    Changes are appended with their `_weight`: +1 for a row that comes, −1 for one that goes.

    Args:
        path: A folder, or `s3://BUCKET/PREFIX`. The sink makes the table. Other programs may compact and read it.
        every: A period, such as `"1 minute"`: the rows of all steps in this time are one commit. Only new rows can be
            gathered, no changes. None: each step is a commit.
        rows: With `every`: a commit comes earlier, with the step that brings it to this number of rows.
        compression: `zstd` (level 1), `snappy` or `none`.

    Raises:
        InvalidError: `[BAD_OPTION]`; `[MISSING_EXTRA]`.

    Examples:
        >>> flights.sink("lake", bl.delta("lake"))
    """
    refuse_place(path, "a delta sink")
    if compression not in _COMPRESSIONS:
        raise InvalidError("BAD_OPTION", f"compression is {compression!r}: choose one of {', '.join(_COMPRESSIONS)}")
    gathers = gathering(every, rows)
    is_url = str(path).startswith("s3://")
    return DeltaSink(str(path).rstrip("/") if is_url else str(Path(path).absolute()), compression, gathers)


class DeltaSink(SinkBase):
    """One commit a step."""

    def __init__(self, place: str, compression: str, gathers: Batch | None = None) -> None:
        self._place, self._compression, self._gathers = place, compression, gathers
        self._table: DeltaPlace | None = None
        self._failed: str | None = None
        where = place if place.startswith("s3://") else f"folder {realpath(place)}"
        self._places = (where,)

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            places=self._places,
            gathers=self._gathers,
            leaves_files=True,
            preflight=self._preflight,
            reads_back=self,
            twin=self._twin,
        )

    def _twin(self, folder: Path, name: str) -> SinkTwin:
        place = folder / name

        def held() -> Iterator[HeldRow]:
            from deltalake import DeltaTable

            if place.is_dir():
                yield from held_rows(DeltaTable(str(place)).to_pyarrow_table())

        return SinkTwin(DeltaSink(str(place), self._compression, self._gathers), held)

    def describe(self) -> Json:
        return {"kind": "delta", "path": self._place, "compression": self._compression}

    def open(self, context: SinkContext) -> Committed | None:
        from deltalake.exceptions import CommitFailedError

        _check_columns_of(context.schema)
        user_columns(context, ())
        self._context, self._failed = context, None
        table = self._table = DeltaPlace(self._place)
        table.probe()
        for attempt in range(_ATTEMPTS):
            if not table.load():
                table.create(self._schema, TableOwner(context.dataflow, context.sink, context.store))
                _rest(attempt)
                continue
            self._check(table, context)
            table.sync()
            self._ledger.refuse_newer_owner(self._token(table))
            self._check_columns(table, may_lack=True)
            newest = self._newest(table)
            try:
                table.add_columns(self._schema)
                if table.commit([], {f"{self._name}/owner": context.token}, replace(newest, token=context.token)):
                    return newest.committed
            except CommitFailedError:
                pass  # another commit came first: look again
            _rest(attempt)
        if table.doubt is not None:
            raise table.doubt
        raise FencedError("FENCED", f"other processes keep claiming {self._place}: stop this one or those")

    def stager(self) -> Stager:
        from boatlift.connectors.delta.pieces import ParquetStager

        return ParquetStager(self._schema, self._compression)

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        ledger, table = self._ledger, self._opened_table
        if self._failed is not None:
            raise ledger.failed_before(self._failed)
        try:
            return self._commit(table, Committed(step, rows, digest), staged)
        except UnavailableError as error:
            self._failed = error.message
            raise

    def held(self, spark: SparkSession) -> DataFrame | None:
        from boatlift.connectors.kit.parquet_rows import rows_of_files

        files = self._opened_table.files()
        return rows_of_files(spark, self._place, files, self._schema) if files else None

    def verify(self) -> Iterator[Finding]:
        """Check that the files of the newest version are there with their sizes; values carry no checksum of ours."""
        table = DeltaPlace(self._place)
        if not table.load():
            return
        there = table.sizes()
        for name, size in table.named_files().items():
            if name not in there:
                yield Finding(f"{self._place}/{name}", "SINK_GAP", f"{name} is gone: restore it from a copy")
            elif there[name] != size:
                damage = f"{name} has {there[name]} bytes, the table records {size}: restore it from a copy"
                yield Finding(f"{self._place}/{name}", "SINK_DAMAGED", damage)

    def close(self) -> None:
        self._table = None

    def _commit(self, table: DeltaPlace, now: Committed, staged: Sequence[Staged]) -> Outcome:
        ledger, context = self._ledger, self._opened
        table.doubt = None
        table.refresh()
        files: list[DataFile] | None = None
        for attempt in range(_ATTEMPTS):
            self._check(table, context)
            ledger.refuse_newer_owner(self._token(table))
            held = table.newest(self._name)
            if ledger.decide(now.step, -1 if held is None else held) is Decision.COMPARE:
                table.sync()
                if files is not None and self._is_own(table, now):
                    return Outcome.APPENDED  # it landed, and its answer was lost
                return self._compare(table, now, staged)
            self._check_columns(table)
            if files is None:
                from boatlift.connectors.delta.pieces import pieces_of

                files = table.write(pieces_of(now.rows, staged))
            record = StepOfTable(context.token, now.step, now.rows, now.digest, [each.name for each in files])
            if table.commit(files, {self._name: now.step, f"{self._name}/owner": context.token}, record):
                return Outcome.APPENDED
            table.refresh()
            _rest(attempt)
        if table.doubt is not None:
            raise table.doubt
        raise UnavailableError("SINK_FAILED", f"other programs keep committing to {self._place}: run again")

    def _is_own(self, table: DeltaPlace, now: Committed) -> bool:
        found = table.record(now.step)
        return found is not None and found.token == self._opened.token and found.committed == now

    def _compare(self, table: DeltaPlace, now: Committed, staged: Sequence[Staged]) -> Outcome:
        found = table.record(now.step)
        if found is None or found.committed is None:
            return self._ledger.too_old(now.step)
        files = found.files

        def difference() -> str:
            from boatlift.connectors.delta.pieces import pieces_of

            now_there = [each.rows() for each in pieces_of(now.rows, staged)]
            return first_difference(table.read(files), now_there) if files else ""

        return self._ledger.compare(now, found.committed, difference)

    def _newest(self, table: DeltaPlace) -> StepOfTable:
        """Return the record of the newest step; one without a digest if its commit is not kept any more."""
        step = table.newest(self._name)
        if step is None:
            return StepOfTable(0, -1, 0, "")
        return table.record(step) or StepOfTable(0, step, 0, "")

    def _token(self, table: DeltaPlace) -> int:
        return table.newest(f"{self._name}/owner") or 0

    def _check(self, table: DeltaPlace, context: SinkContext) -> None:
        """Refuse a table of another sink or store, or one that this sink cannot write."""
        ledger, owner = self._ledger_of(context), table.owner()
        if owner is None:
            raise ledger.foreign("was not made by a sink")
        if (owner.dataflow, owner.sink) != (context.dataflow, context.sink):
            raise ledger.foreign(f"belongs to sink {owner.sink!r} of dataflow {owner.dataflow!r}")
        ledger.refuse_other_store(owner.store)
        if why := table.unsuitable():
            raise InvalidError("SINK_UNSUITABLE", f"{ledger.place} {why}, which this sink cannot keep to: undo that")

    def _check_columns(self, table: DeltaPlace, *, may_lack: bool = False) -> None:
        """Refuse other columns than the sink's: the table would take rows without some of their values."""
        found, own = ({field.name: field.type for field in each} for each in (table.columns(), self._schema))
        further = own.keys() - found.keys()
        lacks = bool(further) if not may_lack else WEIGHT in further
        if lacks or any(own.get(name) != kind for name, kind in found.items()):
            shown = [", ".join(f"{name} {kind}" for name, kind in each.items()) for each in (found, own)]
            raise self._ledger.foreign(f"has columns ({shown[0]}), and this sink writes ({shown[1]})")

    def _preflight(self, context: SinkContext) -> None:
        table = DeltaPlace(self._place)
        if table.load():
            self._check(table, context)

    @property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([field.with_nullable(True) for field in self._opened.schema])

    @property
    def _name(self) -> str:
        return f"boatlift/{self._opened.dataflow}/{self._opened.sink}"

    @property
    def _opened_table(self) -> DeltaPlace:
        assert self._table is not None, "open comes first"
        return self._table

    @property
    def _ledger(self) -> StepLedger:
        return self._ledger_of(self._opened)

    def _ledger_of(self, context: SinkContext) -> StepLedger:
        return StepLedger(context, f"table {self._place}", "table", "restore the table")


def _check_columns_of(schema: pa.Schema) -> None:
    names = schema.names
    for field in schema:
        if str(field.type) == "null":
            raise InvalidError("TYPE_REFUSED", f"a Delta table cannot hold column {field.name} of type null: cast it")
    if len({name.lower() for name in names}) != len(names):
        raise InvalidError("SCHEMA_MISMATCH", f"two of the columns {names} have one name: rename one")
    for name in names:
        if any(each in name for each in _SPECIAL):
            raise InvalidError(
                "SCHEMA_MISMATCH", f"column {name!r} has a character that Delta refuses, one of {_SPECIAL!r}: rename it"
            )


def _rest(attempt: int) -> None:
    part = 1 + os.getpid() % 7 / 7  # two owners rest for different times
    time.sleep(min(_LONGEST_REST, 0.01 * part * 2**attempt))
