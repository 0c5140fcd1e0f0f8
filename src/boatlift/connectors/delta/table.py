"""A Delta table that a sink writes: its place, its ledger, and its data files.

Each commit of a Delta table is the next number of one sequence of objects, created on the condition that it is free. So
a handle commits only on top of what it has read, and what is checked on a handle holds for its next commit. The client
would retry on top of a newer version by itself; that is switched off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from boatlift.connectors.kit.object_place import InputFile, ObjectPlace, ObjectVersion
from boatlift.dataflow.contracts import Committed
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError
from boatlift.paths import scratch_named
from boatlift.storage import bucket_client
from boatlift.storage.bucket_client import RETRY_FOR, BucketClient, client_of, endpoint_of, tries
from boatlift.storage.filesystem import DurableFolders, FileSystem
from boatlift.storage.object_store import ObjectStore
from boatlift.storage.remote_files import remote_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

    from boatlift.connectors.delta.pieces import StagedFile


KNOWN_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
"""The features of tables that a sink can write; others promise readers what it does not know."""

_LOOKED_AT = 1000
"""The commits that are searched for the record of a step."""

_AT_ONCE = 4
_T = TypeVar("_T")
_PROPERTY = "boatlift"
_FORGETS = "delta.setTransactionRetentionDuration"
_LAYOUT = re.compile(r"(\x1b\[\d*m|↳|\s)+")


@dataclass(frozen=True, slots=True)
class TableOwner:
    """The sink that a table belongs to, as its properties have it."""

    dataflow: str
    sink: str
    store: str


@dataclass(frozen=True, slots=True)
class StepOfTable:
    """The record in a commit: of the owner's step, or, in a claim, of the newest step before it (−1: none).

    Attributes:
        files: The data files of the step. A compaction may have replaced them.
    """

    token: int
    step: int
    rows: int
    digest: str
    files: Sequence[str] = ()

    @property
    def committed(self) -> Committed | None:
        return None if self.step < 0 else Committed(self.step, self.rows, self.digest)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that a commit may name.

    Attributes:
        size: In bytes.
        written_at: In milliseconds since 1970.
        statistics: JSON, for readers that pass files over.
    """

    name: str
    size: int
    written_at: int
    statistics: str


class DeltaPlace:
    """A place of a Delta table, and a handle on one version of it.

    Args:
        place: A folder, or `s3://BUCKET/PREFIX`.

    Attributes:
        doubt: The last error after which a commit may have happened, or may still come.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._files = FileSystem()
        self._handle: DeltaTable | None = None
        self.doubt: UnavailableError | None = None
        self._synced = -1

    @property
    def handle(self) -> DeltaTable:
        assert self._handle is not None, "load or create comes first"
        return self._handle

    @property
    def is_local(self) -> bool:
        return not self.place.startswith("s3://")

    def load(self) -> bool:
        """Take a handle on the newest version; return whether there is a table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self.is_local and not Path(self.place, "_delta_log").is_dir():
            return False
        try:
            self._handle = self._ask("opening", lambda: DeltaTable(self.place, storage_options=self._options()))
        except TableNotFoundError:
            return False
        return True

    def refresh(self) -> None:
        self._ask("reading", self.handle.update_incremental)

    def create(self, schema: pa.Schema, owner: TableOwner) -> None:
        """Make the table, unless another process has made it meanwhile: `load` tells.

        Raises:
            InvalidError: `[TYPE_REFUSED]`.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError, DeltaError

        if self.is_local:
            DurableFolders(Path(self.place), self._files).make(Path(self.place))
        properties = {_PROPERTY: json.dumps(asdict(owner))}
        try:
            with self.errors("creating"):
                DeltaTable.create(
                    self.place, schema, mode="error", configuration=properties, raise_if_key_not_exists=False,
                    storage_options=self._options(), commit_properties=_properties(),
                )  # fmt: skip
        except CommitFailedError:
            return
        except UnavailableError as error:
            self.doubt = error
            return
        except DeltaError as error:
            if "already exists" not in str(error):
                raise

    def owner(self) -> TableOwner | None:
        """Return the sink that has made the table; None if no sink has."""
        found = self.handle.metadata().configuration.get(_PROPERTY)
        try:
            return None if found is None else TableOwner(**json.loads(found))
        except (ValueError, TypeError):
            return None

    def unsuitable(self) -> str:
        """Return, in words, why a sink cannot write the table; empty if it can."""
        handle = self.handle
        protocol, metadata = handle.protocol(), handle.metadata()
        if others := {*(protocol.writer_features or ())} - KNOWN_FEATURES:
            return f"has the features {', '.join(sorted(others))}"
        if metadata.partition_columns:
            return f"is partitioned by {', '.join(metadata.partition_columns)}"
        if _FORGETS in metadata.configuration:
            return f"has the property {_FORGETS}, by which it forgets which steps it holds"
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
            return "has mapped columns"
        return ""

    def columns(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(self.handle.schema().to_arrow())

    def newest(self, name: str) -> int | None:
        """Return the newest step of a sink, or the newest token of its owners."""
        # The client reads the log again for it.
        return self._ask("reading", partial(self.handle.transaction_version, name))

    def record(self, step: int | None = None) -> StepOfTable | None:
        """Return the record of a step, or the newest record; None if it is in no commit that is kept.

        The commits are read here: the client's `history` would stop all threads of this process meanwhile.
        """
        newest: int = self.handle.version()
        with self.errors("reading"):
            for version in range(newest, max(-1, newest - _LOOKED_AT), -1):
                try:
                    content = self._read(f"_delta_log/{version:020}.json")
                except FileNotFoundError:
                    return None
                found = _record_in(content)
                if found is not None and found.digest and step in (None, found.step):
                    return found
        return None

    def add_columns(self, schema: pa.Schema) -> None:
        """Add those columns that the table has not, in a commit of its own.

        Raises:
            CommitFailedError: There is a newer version.
        """
        from deltalake import Schema

        there = set(self.columns().names)
        fields = [field for field in Schema.from_arrow(schema).fields if field.name not in there]
        if fields:
            with self.errors("altering"):
                self.handle.alter.add_columns(fields, commit_properties=_properties())
            self.refresh()
            self.sync()

    def commit(self, files: Sequence[DataFile], versions: Mapping[str, int], record: StepOfTable) -> bool:
        """Add data files and a record to the table; return whether this is known to have happened.

        If not, another commit came first, or there was no clear answer (`doubt`): `refresh`, and see what is there. A
        request that still comes then finds its version taken, or is the commit.

        Args:
            versions: The numbers that `newest` returns from then on.
        """
        from deltalake import Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        actions: list[Any] = [
            AddAction(each.name, each.size, {}, each.written_at, data_change=True, stats=each.statistics)
            for each in files
        ]
        transactions = [Transaction(name, version) for name, version in versions.items()]
        properties = _properties(transactions, {_PROPERTY: json.dumps(asdict(record))})
        try:
            with self.errors("committing to"):
                self.handle.create_write_transaction(
                    actions, "append", self.handle.schema(), commit_properties=properties
                )
        except CommitFailedError:
            return False
        except UnavailableError as error:
            self.doubt = error
            return False
        self.refresh()
        self.sync()
        return True

    def write(self, pieces: Sequence[StagedFile]) -> list[DataFile]:
        """Give each piece a new name in the table's place, durable, and return the files as `commit` takes them."""
        if not pieces:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(pieces)), "boatlift-delta") as pool:
            files = list(pool.map(self._write, pieces))
        if self.is_local:
            with self.errors("syncing"):
                self._files.sync_folder(Path(self.place))
        return files

    def _write(self, piece: StagedFile) -> DataFile:
        from boatlift.connectors.delta.pieces import statistics

        name = f"part-{uuid.uuid4()}.parquet"
        try:
            with self.errors("writing to"):
                if self.is_local:
                    path = Path(self.place, name)
                    _link_or_copy(piece, path)
                    os.utime(path)  # a full VACUUM takes what is old, and the piece may have waited
                    self._files.sync_file(path)
                else:
                    self._put(piece, name)
        except (FileNotFoundError, DataError) as error:
            gone = f"a staged piece of {self.place} is gone, or its folder is: {error}"
            raise UnavailableError("SINK_FAILED", f"{gone}; run again to stage the rows again") from error
        known = json.dumps(statistics(piece.footer.metadata, piece.footer.schema_arrow))
        return DataFile(name, piece.size, time.time_ns() // 1_000_000, known)

    def _put(self, piece: StagedFile, name: str) -> None:
        """Copy a piece on the server if it is in the same bucket, as scratch in the store is; else upload it."""
        import obstore

        client, remote = self._bucket(), remote_of(piece.place)
        bucket = "/".join(self.place.split("/")[:3])
        if remote is None or remote.endpoint != endpoint_of(None) or not remote.url.startswith(f"{bucket}/"):
            content = piece.path()
            put = partial(obstore.put, client.of(piece.size), name, content, mode="overwrite", use_multipart=False)
            client.ask(f"writing {name}", put)
            return
        client = client_of(bucket, remote.endpoint)
        origin = f"{remote.url}/{remote.name}".removeprefix(f"{bucket}/")
        copied = partial(obstore.copy, client.of(piece.size), origin, f"{self.place}/{name}".removeprefix(f"{bucket}/"))
        client.ask(f"copying {name}", copied)

    def named_files(self) -> dict[str, int]:
        """Return the data files of the handle's version, with the sizes that the table records."""
        named = self.handle.get_add_actions(flatten=True)
        names, sizes = (named.column(each).to_pylist() for each in ("path", "size_bytes"))
        return dict(zip(names, sizes, strict=True))

    def files(self) -> list[InputFile]:
        """Return the data files of the handle's version, as tasks read them."""
        named = self.named_files()
        if self.is_local:
            return [Path(self.place, name) for name in named]
        endpoint = endpoint_of(None)
        return [ObjectPlace(f"{self.place}/{name}", ObjectVersion(endpoint, size)) for name, size in named.items()]

    def sizes(self) -> dict[str, int]:
        """Return the data files that are there."""
        with self.errors("listing"):
            if not self.is_local:
                return self._bucket().sizes("")
            root = Path(self.place)
            return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return the rows of data files, at least one."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self.errors("reading"):
            return pa.concat_tables(pq.read_table(pa.BufferReader(self._read(name))) for name in names)

    def _read(self, name: str) -> bytes:
        import obstore

        if self.is_local:
            return Path(self.place, name).read_bytes()
        client = self._bucket()
        return bytes(client.ask(f"reading {name}", lambda: obstore.get(client.small, name).bytes()))

    def _ask(self, act: str, ask: Callable[[], _T]) -> _T:
        """Ask until there is an answer, or time is up: the client gives up sooner, after a torn answer at once."""
        for last in [True] if self.is_local else tries(f"{act} the table in {self.place}", RETRY_FOR):
            try:
                with self.errors(act):
                    return ask()
            except UnavailableError:
                if last:
                    raise
        raise AssertionError

    @contextmanager
    def errors(self, act: str) -> Iterator[None]:
        """Turn the errors of the client into the sink's."""
        from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

        try:
            yield
        except (CommitFailedError, TableNotFoundError, FileNotFoundError):
            raise
        except BoatliftError as error:
            if error.condition == "STORE_FAILED":
                raise UnavailableError("SINK_FAILED", error.message) from error
            raise
        except DeltaError as error:
            if "already exists" in str(error):
                raise
            raise self._error(act, error) from error
        except Exception as error:
            raise self._error(act, error) from error

    def _error(self, act: str, error: Exception) -> BoatliftError:
        words = _LAYOUT.sub(" ", str(error)).strip()
        if "Invalid data type for Delta Lake" in words:
            kind = words.partition("Invalid data type for Delta Lake:")[2].split()[0]
            return InvalidError("TYPE_REFUSED", f"a Delta table cannot hold a column of type {kind}: cast it")
        if not self.is_local:
            self._bucket().refuse_for_good(f"{act} the table", error)
        return UnavailableError("SINK_FAILED", f"{act} the table {self.place} failed: {words[:300]}; run again")

    def _bucket(self) -> BucketClient:
        return client_of(self.place, endpoint_of(None))

    def _options(self) -> dict[str, str] | None:
        if self.is_local:
            return None
        endpoint = endpoint_of(None)
        plain = {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else {}
        given = {"AWS_ENDPOINT_URL": endpoint} if endpoint else {}
        again = {"max_retries": "8", "retry_timeout": f"{RETRY_FOR:g}s", "timeout": bucket_client.TIMEOUTS[0]}
        return {"conditional_put": "etag", **again, **plain, **given}

    def sync(self) -> None:
        """Make all commits of a local table durable that this process has not synced: the client syncs nothing."""
        if not self.is_local:
            return
        log, newest = Path(self.place, "_delta_log"), self.handle.version()
        with self.errors("syncing"):
            for version in range(self._synced + 1, newest + 1):
                with suppress(FileNotFoundError):  # the table's clean-up may have removed it
                    self._files.sync_file(log / f"{version:020}.json")
            self._files.sync_folder(log)
            self._files.sync_folder(log.parent)
        self._synced = newest

    def probe(self) -> None:
        """Refuse a server on which two commits of one version could succeed. Raises as `ObjectStore.open`."""
        if not self.is_local:
            self.sizes()  # first, so that a bucket that is not there is told as that
            ObjectStore(self.place, scratch_named()[0]).probe()


def _record_in(commit: bytes) -> StepOfTable | None:
    """Return the record in a commit of the log; None in one of another writer."""
    for line in commit.splitlines():
        try:
            return StepOfTable(**json.loads(json.loads(line)["commitInfo"][_PROPERTY]))
        except (KeyError, ValueError, TypeError):
            continue
    return None


def _link_or_copy(piece: StagedFile, path: Path) -> None:
    if remote_of(piece.place) is None:  # a copy of an object has other rights
        try:
            path.hardlink_to(piece.place)
        except OSError:  # scratch is on another disk
            pass
        else:
            return
    shutil.copyfile(piece.path(), path)


def _properties(transactions: list[Any] | None = None, metadata: dict[str, str] | None = None) -> CommitProperties:
    from deltalake import CommitProperties

    return CommitProperties(custom_metadata=metadata, max_commit_retries=0, app_transactions=transactions)
