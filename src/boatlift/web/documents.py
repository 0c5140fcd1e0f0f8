"""The documents of the console: each is JSON, made from a store as it is now.

| document | arguments | content |
|---|---|---|
| `snapshot` | | the picture, the status, and the cost of a failure of everything: what the first view needs |
| `status` | | as `boatlift status --json` |
| `picture` | `around` | as in the snapshot, or around one unit of a large program |
| `explain` | `fail` | as `boatlift explain --fail … --json` |
| `alone` | | unit to the steps and seconds that its failure alone would cost |
| `checkpoints`, `kept`, `points` | | as `boatlift checkpoints`, `gc` and `keep` with `--json` |
| `log` | `before`, `limit`, `processor` | as `boatlift log --json`, newest first |
| `steps` | | the steps that the log still has, with checkpoints, commits and rollbacks |
| `series` | `seconds` | rates, latency and waiting steps over time, with claims and failures as marks |
| `rows` | `of`, `from` | rows of a sink as they are visible, and where the sinks are |
| `operations` | | claims, stops, recoveries, decisions, changes of the program |

All have a `version`, and `now`, the milliseconds since 1970 by the clock of the console.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from boatlift.dataflow.contracts import RowReader
from boatlift.dataflow.operator import Operator
from boatlift.errors import DataError, InvalidError
from boatlift.metrics.samples import Sample, samples_of
from boatlift.runtime.inspect.contents import (
    KeptReport,
    checkpoints_of,
    kept_in,
    log_records,
    place_of,
    points_of,
    reader_of,
    store_at,
)
from boatlift.runtime.inspect.explanation import Explanation, TotalFailure, explanation_of, total_failure
from boatlift.runtime.inspect.past import steps_of
from boatlift.runtime.inspect.picture import MOST_UNITS, picture_of
from boatlift.runtime.inspect.status import DataflowStatus, reported_status
from boatlift.web.past import JournalDocuments
from boatlift.web.rows import SinkRows

if TYPE_CHECKING:
    from boatlift.storage.local import LocalStore
    from boatlift.storage.log_reader import LogReader
    from boatlift.storage.object_store import ObjectStore
    from boatlift.storage.opening import StorePlace

VERSION = 1
"""Rises when a field of a document is removed or changes its meaning; new fields may come at any time."""

FRESH_SECONDS = 1.0
"""Until the store was read so long ago, documents of that reading answer."""

KEPT_SECONDS = 60.0
"""Metrics say what the store keeps as it was so long ago at most, since each of its objects is looked at for that."""

MOST_RECORDS = 1_000
"""The most records of the log in one document."""

MOST_CACHED = 64
"""The most documents that are remembered: `explain` has one for each set of processors that somebody asked for."""

ROWS = "rows"
"""The document that reads elsewhere than in the store, and may take long."""

_Key = tuple[str, tuple[tuple[str, str], ...]]  # a document and its arguments


class Document(msgspec.Struct, frozen=True):
    """A document as it is sent.

    Attributes:
        content: JSON.
        tag: Is equal if the content is, `now` aside.
    """

    content: bytes
    tag: str


class Documents:
    """Makes the documents of one store; any thread.

    Documents of the store are made one at a time. The rows of a sink are read one at a time, too, and keep no other
    document waiting, nor those of another sink.

    The store is opened with the first document: a run that makes it may serve its console before.

    Laws:
        * The store is read once in `fresh_seconds` at most, and a document made once of each reading, for all readers
          together. What several documents show is found once for all of them.
        * Nothing is written into the store.

    Args:
        store: A folder, the URL of an object store, or a store that is open.
        operators: Those with numbers of their own, by kind, as for `status_at`.
        clock: Milliseconds since 1970.
        steady: Seconds that only grow.
        readers: What reads the rows of sinks, by the kind of a place; None: rows are not shown.
    """

    def __init__(
        self,
        store: StorePlace,
        operators: Mapping[str, type[Operator]],
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        steady: Callable[[], float] = time.monotonic,
        fresh_seconds: float = FRESH_SECONDS,
        readers: Mapping[str, RowReader] | None = None,
    ) -> None:
        self._place, self._operators, self._clock, self._steady = store, operators, clock, steady
        self._fresh, self._rows = fresh_seconds, SinkRows(readers)
        self._opened: tuple[LocalStore | ObjectStore, LogReader] | None = None
        self._read_at = 0.0
        self._making = threading.Lock()  # of the log and of what was made
        self._showing: dict[str, threading.Lock] = {}  # by sink; taken before the other
        self._metrics: tuple[str, list[Sample]] | None = None
        self._kept: tuple[float, list[KeptReport]] | None = None
        # Of the newest reading:
        self._made: dict[_Key, Document] = {}
        self._total: TotalFailure | None = None
        self._told: DataflowStatus | None = None
        self._cost: Explanation | None = None
        self._makers: dict[str, tuple[frozenset[str], Callable[[Mapping[str, str]], dict[str, Any]]]] = {
            "snapshot": (frozenset(), self._snapshot),
            "status": (frozenset(), lambda _: self._status().as_json()),
            "picture": (frozenset({"around"}), self._picture),
            "explain": (frozenset({"fail"}), self._explain),
            "alone": (frozenset(), self._alone),
            "checkpoints": (frozenset(), lambda _: {"checkpoints": checkpoints_of(self._log)}),
            "kept": (frozenset(), lambda _: {"kept": kept_in(self._store, self._log)}),
            "points": (frozenset(), lambda _: {"points": points_of(self._log)}),
            "log": (frozenset({"before", "limit", "processor"}), self._records),
            "steps": (frozenset(), lambda _: msgspec.to_builtins(steps_of(self._log, self._past.events()))),
            "series": (frozenset({"seconds"}), self._series),
            "operations": (frozenset(), self._operations),
            ROWS: (frozenset({"of", "from"}), lambda _: {}),  # `_sink_rows`
        }

    def get(self, name: str, arguments: Mapping[str, str]) -> Document:
        """Return a document.

        Raises:
            InvalidError: `[NOT_SERVED]` there is no such document; `[BAD_OPTION]` an argument is unknown or wrong;
                `[STORE_NOT_FOUND]`.
            DataError: the store cannot be read.
            UnavailableError: the same, for a while.
        """
        if name not in self._makers:
            raise InvalidError("NOT_SERVED", f"there is no document {name[:80]}: there are {', '.join(self._makers)}")
        known, make = self._makers[name]
        if unknown := arguments.keys() - known:
            choice = f"choose from {', '.join(sorted(known))}" if known else "it takes none"
            raise InvalidError("BAD_OPTION", f"{name} has no argument {min(unknown)[:80]}: {choice}")
        key = (name, tuple(sorted(arguments.items())))
        if name == ROWS:
            return self._sink_rows(key, arguments)
        with self._making:
            self._read()
            if made := self._made.get(key):
                return made
            try:
                return self._kept_as(key, make(arguments))
            except DataError as error:
                if error.condition != "MISSING_OBJECT":
                    raise
            self._read(again=True)  # an owner has truncated the log since it was read
            return self._kept_as(key, make(arguments))

    def sink_of(self, arguments: Mapping[str, str]) -> str:
        """Return the sink whose rows a document shows; empty if there is none of that name."""
        with self._making:
            self._read()
            sinks = picture_of(self._log.history.program).sinks
            name = self._rows.sink_of(self._log, sinks, arguments)
            return name if name in sinks else ""

    def _sink_rows(self, key: _Key, arguments: Mapping[str, str]) -> Document:
        with self._making:
            self._read()
            if key in self._made:
                return self._made[key]
            sinks = picture_of(self._log.history.program).sinks
            make = self._rows.document(self._log, sinks, arguments)
            showing = self._showing.setdefault(self._rows.sink_of(self._log, sinks, arguments), threading.Lock())
        with showing:
            with self._making:
                if key in self._made:  # another reader has waited for the same
                    return self._made[key]
            content = make()
            with self._making:
                return self._kept_as(key, content)

    def _kept_as(self, key: _Key, made: dict[str, Any]) -> Document:
        content = msgspec.json.encode(made, enc_hook=str)
        head = msgspec.json.encode({"version": VERSION, "now": self._clock()})
        whole = head[:-1] + b"," + content[1:] if made else head
        document = self._made[key] = Document(whole, xxhash.xxh3_64_hexdigest(content))
        if len(self._made) > MOST_CACHED:
            del self._made[next(iter(self._made))]
        return document

    def metrics(self) -> tuple[str, list[Sample]]:
        """Return the name of the dataflow, and the samples of its metrics; made as rarely as a document.

        Raises:
            BoatliftError: as `get`.
        """
        with self._making:
            self._read()
            if self._metrics is None:
                now, status = self._steady(), self._status()
                if self._kept is None or now - self._kept[0] >= KEPT_SECONDS:
                    self._kept = now, kept_in(self._store, self._log)
                samples = samples_of(status, self._everything(), self._kept[1], self._clock())
                self._metrics = status.dataflow, samples
            return self._metrics

    def _read(self, *, again: bool = False) -> None:
        """Read what was written into the log since the last reading, if that is old."""
        if self._opened is None:
            store = store_at(self._place)
            log = reader_of(store)
            self._opened, self._past = (store, log), JournalDocuments(store, log)
        if self._log.last and not again and self._steady() - self._read_at < self._fresh:
            return
        self._made.clear()
        self._metrics = self._total = self._told = self._cost = None
        if self._log.last:
            self._log.catch_up()
        else:
            self._log.load()
        self._read_at = self._steady()

    @property
    def _store(self) -> LocalStore | ObjectStore:
        assert self._opened is not None, "a document reads first"
        return self._opened[0]

    @property
    def _log(self) -> LogReader:
        assert self._opened is not None, "a document reads first"
        return self._opened[1]

    def _total_failure(self) -> TotalFailure:
        self._total = self._total or total_failure(self._log.history)
        return self._total

    def _status(self) -> DataflowStatus:
        if self._told is None:
            total = self._total_failure()
            self._told = reported_status(self._log, self._store, self._operators, clock=self._clock, total=total)
        return self._told

    def _everything(self) -> Explanation:
        """Return what a failure of everything would cost."""
        if self._cost is None:
            self._cost = explanation_of(self._log, frozenset(), self._total_failure())
        return self._cost

    def _snapshot(self, _: Mapping[str, str]) -> dict[str, Any]:
        place = place_of(self._place)
        return {
            "place": place,
            "again": shlex.join(("boatlift", "run", "FLOW", "--store", place)),
            "picture": picture_of(self._log.history.program),
            "status": self._status().as_json(),
            "explain": self._everything(),
        }

    def _picture(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        return {"picture": picture_of(self._log.history.program, arguments.get("around", ""))}

    def _explain(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        failed = frozenset(filter(None, arguments.get("fail", "").split(",")))
        explained: dict[str, Any] = msgspec.structs.asdict(
            explanation_of(self._log, failed) if failed else self._everything()
        )
        return explained

    def _alone(self, _: Mapping[str, str]) -> dict[str, Any]:
        """Return what the failure of each unit costs; of a large program nothing, since each asks the solver."""
        units = self._status().processors
        alone = {}
        for name in units if len(units) <= MOST_UNITS else ():
            costs = explanation_of(self._log, frozenset({name})).processors.values()
            alone[name] = {"steps": sum(c.steps for c in costs), "seconds": round(sum(c.seconds for c in costs), 3)}
        return {"alone": alone}

    def _records(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        before, limit = (_whole(arguments, name, usual) for name, usual in (("before", 10**12), ("limit", 200)))
        if not 1 <= limit <= MOST_RECORDS:
            raise InvalidError("BAD_OPTION", f"limit is {limit}: give 1 to {MOST_RECORDS}")
        lines = log_records(self._log, processor=arguments.get("processor") or None)
        found = [line for line in lines if line.object < before]
        oldest = found[-limit:][0].object if found else 0  # it is given whole, so that `before` can go on from there
        return {"records": [line.as_json() for line in reversed(found) if line.object >= oldest]}

    def _series(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        return self._past.series(self._status().state, self._clock(), _whole(arguments, "seconds", 300))

    def _operations(self, _: Mapping[str, str]) -> dict[str, Any]:
        status, operations = self._status(), self._past.operations()
        return {"operations": operations, "environment": status.environment, "store": status.store}


def _whole(arguments: Mapping[str, str], name: str, usual: int) -> int:
    text = arguments.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise InvalidError("BAD_OPTION", f"{name} is {text[:80]!r}: give a whole number")
    return int(text or usual)
