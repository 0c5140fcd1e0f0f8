"""Queries over the rows that a dataflow keeps, by its checkpoints.

A table is a processor whose state has all of its rows. Its rows are read from the runs of a checkpoint, so a query
costs the owner nothing, sees nothing that a failure could undo, and needs no owner at all. All tables of a query show
the same step. The owner may delete runs meanwhile: the query then begins again with what the log names now.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType

from boatlift.api.dataflow import Dataflow
from boatlift.api.inserted import Insertion, Insertions, insertion_of, new_key, refused
from boatlift.api.registry import ON_SPARK
from boatlift.api.sql_text import NO_CODE, tables_in
from boatlift.connectors.kit import checked_options
from boatlift.dataflow import Plan
from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError, InvalidError, UnavailableError
from boatlift.processes.environment import java_settings
from boatlift.processes.jvm import raising_jvm_died
from boatlift.processes.worker_pools import pass_credentials, session_beside
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.evolution import recorded_as_claimed
from boatlift.runtime.host.inserts import require_owner
from boatlift.runtime.inspect.explanation import monitor_from_log
from boatlift.spark.compile.operator import KeptRows, TableTask
from boatlift.spark.compile.program import CompiledProgram, compile_program
from boatlift.spark.jobs.state_parts import runs_of_state
from boatlift.spark.jobs.states import tasks_for
from boatlift.spark.plans.catalyst import jvm
from boatlift.spark.plans.lookups import MOST_KEYS, AskedTable, Literals, Lookups, NoLookupError
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.column import Hashes
from boatlift.state.key_groups import hash_of_key
from boatlift.state.opened import LocatedRun, forget_runs
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, RunRef
from boatlift.storage.store import Store
from boatlift.tasks.kept import KeptRowsTask
from boatlift.tasks.sealed_errors import TaskFailedError, unsealing
from boatlift.times import IDENTITY, last_number, maximal_of

ATTEMPTS = 10
"""The most times that a query begins again because the owner has deleted runs meanwhile."""

ASK_SECONDS = 600.0
"""The longest time for a query, unless another one is given."""

CANCEL_SECONDS = 0.1
"""From one cancellation of a late query's jobs to the next."""

_QUERY = re.compile(r"\s*(\(\s*)*(select|with|values|from|table)\b", re.IGNORECASE)

_CTE = re.compile(r"(\w+)\s+as\s*\(", re.IGNORECASE)
_WRITES = re.compile(r"\binsert\s+(into|overwrite)\b", re.IGNORECASE)
_CHOOSES = re.compile(r"\b(where|on|having|qualify)\b", re.IGNORECASE)

_OF_LOOKUPS = {
    "spark.sql.optimizer.inSetConversionThreshold": str(MOST_KEYS),  # literals stay in the plan one by one
    "spark.sql.leafNodeDefaultParallelism": "1",  # the rows at hand are one partition
}
"""Settings that change no result."""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer to a query.

    Attributes:
        rows: The rows; of an `INSERT INTO` one, with the receipt: source, key, rows, repeated, stable.
        steps: Each table of the query to its step that the rows show; -1 before the first.
    """

    rows: pa.Table
    steps: Mapping[str, int]

    def _repr_html_(self) -> str:
        from boatlift.api.notebook import answer_html

        return answer_html(self)


class KeptTables:
    """The tables of a dataflow.

    Args:
        program: The dataflow if it is compiled already.
    """

    def __init__(self, spark: SparkSession, plan: Plan, program: CompiledProgram | None = None) -> None:
        self._spark, self._own = spark, program is None
        self._program = program or compile_program(spark, plan, ON_SPARK)
        self._plan = self._program.plan
        units = self._program.units
        tops = {name: unit.top for name, unit in units.items()}
        self._rows = {name: rows for name, top in tops.items() if top is not None and (rows := top.kept_rows)}
        tables = [
            (name, (processor, table))  # with the processor whose state has it
            for processor, unit in units.items()
            if unit.decisive is not None
            for name, table in unit.decisive.kept_tables.items()
        ]
        taken = Counter(name.lower() for name in (*plan.processors, *(name for name, _ in tables)))
        self._tables = {name: found for name, found in tables if taken[name.lower()] == 1}
        self._kept = {name.lower(): name for name in (*self._rows, *self._tables)}
        self._asked: tuple[Any, SparkSession, Lookups, dict[int, str]] | None = None
        self._changing = threading.Lock()

    def close(self) -> None:
        forget_runs()  # else those that the owner deletes keep their place on the disk
        if self._own:
            self._program.close()

    def ask(self, store: Store, query: str, key: str | None = None, timeout: float = ASK_SECONDS) -> QueryAnswer:
        """Answer a query, or let the owner record the rows of an `INSERT INTO`; arguments as for `sql`.

        Raises:
            InvalidError: `[BAD_OPTION]` the text is no query; `[NOT_KEPT]` a processor in it keeps no rows, or has no
                checkpoint at the step of the others.
            DataError: `[PROGRAM_CHANGED]` the store is of another program; `[CORRUPT]`.
        """
        seconds: object = timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise InvalidError("BAD_OPTION", f"timeout={timeout!r}: it must be a number of seconds above 0")
        if (insertion := insertion_of(query)) is not None:
            return self._insert(store, insertion, new_key() if key is None else key, timeout)
        if key is not None:
            raise InvalidError("BAD_OPTION", "key names the rows of an INSERT INTO, and this is none: omit it")
        return self._asked_of(store, query, timeout)

    def _insert(self, store: Store, insertion: Insertion, key: str, timeout: float) -> QueryAnswer:
        insertions = Insertions(self._spark, self._plan)
        insertions.check(insertion)
        require_owner(store, self._plan.dataflow, key)
        found = self._asked_of(store, insertion.query, timeout)
        source, receipt = insertions.push(store, insertion, found.rows, key, timeout)
        told = {"source": source, "key": key, "rows": receipt.rows, "repeated": receipt.repeated}
        return QueryAnswer(pa.Table.from_pylist([{**told, "stable": receipt.stable}]), found.steps)

    def _asked_of(self, store: Store, query: str, timeout: float) -> QueryAnswer:
        if not isinstance(store, LocalStore) and not str(self._spark.sparkContext.master).startswith("local"):
            raise InvalidError(
                "BAD_OPTION",
                "a store in a bucket is asked on one machine: give spark=bl.session('local[2]'), or run boatlift sql",
            )
        code = NO_CODE.sub(" ", query)
        if _QUERY.match(code) is None or _WRITES.search(code):
            raise refused(query)
        own = {name.lower() for name in _CTE.findall(code)}
        named = [name for name in dict.fromkeys(tables_in(query)) if name not in own]
        known = {name.lower(): name for name in self._plan.processors if name not in self._plan.sinks}
        if lacking := [known[name] for name in named if name in known and name not in self._kept]:
            raise self._not_kept(lacking[0])
        tables = [self._kept[name] for name in named if name in self._kept]
        keepers = list(dict.fromkeys(map(self._keeper, tables)))
        log = Log.open(store, self._plan.dataflow)
        for last in [*[False] * ATTEMPTS, True]:
            log.refuse_other_program(Claim("", 0, 0, dict(self._program.identity), {}), recorded_as_claimed)
            try:
                with _ended_after(self._spark, timeout):
                    return self._answer(store, log.history, query, tables)
            except DataError:
                states, log = log.history.live_records.states, Log.open(store, self._plan.dataflow)
                if last or all(log.history.live_records.states.get(each) == states.get(each) for each in keepers):
                    raise  # else the owner has deleted runs meanwhile, and the log names others
        raise AssertionError

    def _answer(self, store: Store, history: LogHistory, query: str, tables: Sequence[str]) -> QueryAnswer:
        steps, states = _states(history, list(dict.fromkeys(map(self._keeper, tables))))
        shown = {name: steps[self._keeper(name)] for name in tables}
        tasks = {name: self._task(store, name, states[name]) for name in tables if name in self._rows}
        if tables and len(tasks) == len(tables) and _CHOOSES.search(query):
            with suppress(NoLookupError, AnalysisException):  # which another session has to confirm
                return QueryAnswer(self._looked_up(query, tasks), shown)
        of_lookups = {
            name: self._tables[name][1].task(states[self._keeper(name)], partial(_located, store))
            for name in tables
            if name in self._tables
        }
        return QueryAnswer(self._computed(query, {**tasks, **of_lookups}), shown)

    def _keeper(self, table: str) -> str:
        """Return the processor whose state has the rows of a table."""
        return table if table in self._rows else self._tables[table][0]

    def _task(self, store: Store, name: str, state: Any) -> KeptRowsTask:
        located: dict[str, list[LocatedRun]] = {}
        for part, runs in ({} if state is None else runs_of_state(state)).items():
            located[part] = [(run, _located(store, run)) for run in runs]
        rows = sum(run.rows for runs in located.values() for run, _ in runs)
        return KeptRowsTask(
            self._rows[name].kernel, located, tasks_for(rows, self._spark.sparkContext.defaultParallelism)
        )

    def _looked_up(self, query: str, tasks: Mapping[str, KeptRowsTask]) -> pa.Table:
        """Return the result of a query for some keys, without a job for the rows of its tables.

        Raises:
            NoLookupError: it is none.
        """
        session, lookups, numbers = self._asked_session(tasks)

        def look(name: str, keys: Sequence[Literals]) -> Sequence[pa.RecordBatch]:
            if name not in tasks:
                raise NoLookupError
            return tasks[name].of_keys(self._hashes(lookups, name, keys))

        tables = {
            number: AskedTable(_plain_key(self._rows[name]), self._rows[name].staged, partial(look, name))
            for number, name in numbers.items()
        }
        return lookups.result(session.sql(query), tables)

    def _hashes(self, lookups: Lookups, name: str, keys: Sequence[Literals]) -> Hashes:
        rows = self._rows[name]
        if rows.hashed_by_spark:
            return np.array([hash_of_key(*lookups.spark_hashes(key)) for key in keys], np.uint64)
        kinds = rows.kernel.output_schema
        found = lookups.rows_of(keys)
        columns = zip(rows.key, found.columns, strict=True)
        return key_hashes([each.combine_chunks().cast(kinds.field(name).type) for name, each in columns], len(keys))

    def _asked_session(self, names: Iterable[str]) -> tuple[SparkSession, Lookups, dict[int, str]]:
        """Return the session of lookups, and the number of each frame in it that stands for a table.

        It has the settings of the dataflow's session now.
        """
        with self._changing:
            settings = java_settings(self._spark)
            if self._asked is None or not self._asked[0].equals(settings):
                session = session_beside(self._spark, _OF_LOOKUPS)
                self._asked = jvm().java.util.HashMap(settings), session, Lookups(session), {}
            _, session, lookups, numbers = self._asked
            for name in set(names).difference(numbers.values()):
                frame, number = lookups.placeholder(self._rows[name].staged)
                self._show(name, frame)
                numbers[number] = name
            return session, lookups, dict(numbers)

    def _computed(self, query: str, tasks: Mapping[str, TableTask]) -> pa.Table:
        pass_credentials(self._spark.sparkContext)
        session = session_beside(self._spark, {"spark.sql.adaptive.enabled": "true"})
        for name, task in tasks.items():
            slots = session.range(0, task.tasks, 1, task.tasks)
            columns = self._rows[name].staged if name in self._rows else self._tables[name][1].columns
            self._show(name, slots.mapInArrow(task, columns))
        try:
            with unsealing(session.sparkContext):
                return session.sql(query).toArrow()
        except TaskFailedError as failed:
            raise failed.error from failed

    def _show(self, name: str, staged: DataFrame) -> None:
        result = None if name in self._tables else self._rows[name].result
        frame = staged if result is None else result(staged)
        frame.drop(WEIGHT).createOrReplaceTempView(f"`{name}`")

    def _not_kept(self, name: str) -> InvalidError:
        kept = ", ".join(sorted(self._kept.values())) or "none"
        return InvalidError(
            "NOT_KEPT",
            f"{name} keeps no rows that a query could read (those that do: {kept}): let the program keep them, as in "
            f'{name}.materialize("kept"), and ask for kept',
        )


@contextmanager
def _ended_after(session: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel the jobs of a query, which it begins in the block, after so many seconds.

    Raises:
        UnavailableError: `[QUERY_TIMEOUT]`.
    """
    context, tag = session.sparkContext, f"boatlift-query-{secrets.token_hex(8)}"
    is_late, ended = threading.Event(), threading.Event()

    def cancel() -> None:
        if not ended.wait(seconds):
            is_late.set()
        while not ended.wait(CANCEL_SECONDS):  # a job that begins later is not cancelled by an earlier call
            context.cancelJobsWithTag(tag)

    context.addJobTag(tag)
    threading.Thread(target=cancel, name="boatlift-query", daemon=True).start()
    try:
        yield
    except Exception as error:
        if is_late.is_set():
            raise UnavailableError(
                "QUERY_TIMEOUT",
                f"the query was ended after {seconds:g} s: ask for less, as for some keys, or give it a longer timeout "
                "(--timeout)",
            ) from error
        raise
    finally:
        ended.set()
        context.removeJobTag(tag)


@checked_options("bl.sql")
def sql(
    flow: Dataflow,
    store: str | Path | Store,
    query: str,
    *,
    key: str | None = None,
    timeout: float = ASK_SECONDS,
    spark: SparkSession | None = None,
) -> QueryAnswer:
    """Ask what a dataflow keeps, beside its run, behind it, or after its death; or insert rows into a source of it.

    `INSERT INTO source VALUES …`, or `SELECT …` of tables, is a push to a source of `bl.push`: the process that runs
    the dataflow records the rows, all or none, before the call returns. A value of another type is refused, and so is
    a number that would lose digits; a decimal in a FLOAT or DOUBLE is the nearest value.

    Tables are streams by `stream.materialize`, aggregates by key (`group_by(…).agg`), `top_n`, `upserts` and views
    that keep their rows, as their newest common checkpoint has them. A table of a lookup is the rows that the lookup
    has of it: `asked_prices` of `lookup("asked", prices=…)`.

    Args:
        flow: The dataflow.
        store: Its store, as for `bl.run`.
        query: A query in Spark's SQL, over its processors, or an `INSERT INTO` with one.
        key: Of an `INSERT INTO`: a name of this statement. Repeated with its key, it is taken once, also if its query
            would find other rows by then. If not given, one is made, which the answer and errors have.
        timeout: The longest time in seconds for the query; then, again, for the owner to record its rows.
        spark: The session; if not given, the active one, or a new one.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`; `[NOT_KEPT]` a processor keeps no rows; `[BAD_OPTION]` the text is no query;
            `[KEY_REUSED]` another statement, or a push, had the key.
        DataError: `[PROGRAM_CHANGED]` the store is of another program; `[BAD_ROW]` rows do not fit the source.
        UnavailableError: `[QUERY_TIMEOUT]`; `[NOT_RUNNING]`, `[OWNER_UNREACHABLE]` no run takes the rows.
        pyspark.errors.AnalysisException: Spark refuses the query.

    Examples:
        >>> delays = flights.group_by("origin").agg("delays", F.max("arr_delay").alias("worst"))
        >>> bl.run(flow, "store", available_now=True)
        >>> bl.sql(flow, "store", "SELECT worst FROM delays WHERE origin = 'JFK'").rows.to_pylist()
        [{'worst': 61}]
    """
    from boatlift.api.running import prepared

    planned, opened, found = prepared(flow, store, spark, create=False)
    with raising_jvm_died():
        tables = KeptTables(found, planned)
        try:
            return tables.ask(opened, query, key, timeout)
        finally:
            tables.close()


def _located(store: Store, run: RunRef) -> str:
    path = store.local_path(run.name)
    if path is None:
        raise InvalidError("BAD_OPTION", "runs are mapped into memory: use a store whose objects are local files")
    return str(path)


def _plain_key(rows: KeptRows) -> tuple[str, ...]:
    """Return the columns of a key if equal values have equal bits, which not every collation of texts has."""
    kinds = [rows.staged[name].dataType for name in rows.key]
    plain = all(not isinstance(kind, StringType) or kind.collation == "UTF8_BINARY" for kind in kinds)
    return rows.key if plain else ()


def _states(history: LogHistory, tables: Sequence[str]) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the step that all tables show, and their states then: those that no failure undoes."""
    program, monitor = monitor_from_log(history)
    recovery = monitor.plan(program.graph.vertices.keys()).processors if tables else {}
    if recovery.keys().isdisjoint(tables):  # no owner has claimed the store yet
        return dict.fromkeys(tables, -1), dict.fromkeys(tables)
    found: dict[str, dict[int, Any]] = {name: {} for name in tables}
    for name in tables:
        repeated = last_number(maximal_of(recovery[name].fixed))  # a failure of everything repeats the steps up to it
        for frontier, fact in history.live_records.states.get(name, {}).items():
            if last_number(frontier) <= repeated:
                found[name][last_number(frontier)] = fact.payload
    steps = {name: max(found[name], default=-1) for name in tables}
    executed = {name: history.last_executed(name) for name in tables}
    # After a clean stop all have taken the same input; but a policy may make no checkpoint of it.
    if len(tables) > 1 and not (history.stopped and steps == executed):
        sources = {_sources_in_epochs(program.graph, name) for name in tables}
        common = set.intersection(*map(set, found.values())) if len(sources) == 1 and None not in sources else set()
        steps = dict.fromkeys(tables, max(common, default=-1))
    lacking = [name for name in tables if steps[name] < 0 <= executed[name]]
    if lacking and len(tables) == 1:
        advice = "ask again later, or let it have a policy that makes some, such as Lazy(every=20)"
        raise InvalidError("NOT_KEPT", f"{tables[0]} has no checkpoint yet: {advice}")
    if lacking:
        at = "; ".join(f"{name}: {', '.join(map(str, sorted(found[name]))) or 'none'}" for name in tables)
        raise InvalidError(
            "NOT_KEPT",
            f"{', '.join(tables)} have no checkpoint at one step (checkpoints now: {at}): ask again later, ask for one "
            "of them, or let them have one policy, such as Lazy(every=20); of different sources, or behind a lookup, a "
            "merge or a batch, ask after a clean stop",
        )
    return steps, {name: found[name].get(steps[name]) for name in tables}


def _sources_in_epochs(graph: RecoveryGraph, name: str) -> frozenset[str] | None:
    """Return the sources of a processor whose step n has all that came up to their step n, and no more; else None."""
    if not graph.inputs[name]:
        return frozenset({name})
    found = [
        _sources_in_epochs(graph, edge.source) if edge.projection is IDENTITY else None for edge in graph.inputs[name]
    ]
    return None if None in found else frozenset().union(*(each for each in found if each is not None))
