"""`bl.run` and `bl.start`: a dataflow runs on a store."""

from __future__ import annotations

import logging
import math
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

from pyspark.sql import SparkSession

from boatlift.api.by_value import pickle_by_value
from boatlift.api.dataflow import Dataflow
from boatlift.api.registry import ON_SPARK
from boatlift.api.rehearsal import Rehearsals
from boatlift.api.served import beside_run
from boatlift.connectors.kit import checked_options
from boatlift.dataflow import Plan, plan
from boatlift.errors import InvalidError
from boatlift.processes.jvm import kill_jvm_if_hung, raising_jvm_died
from boatlift.processes.session import check_session, session
from boatlift.runtime.host.admission import wait_for_store
from boatlift.runtime.host.context import BYTES_IN_FLIGHT, RunOptions
from boatlift.runtime.host.health import Health, HealthPort
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.overrides import source_named
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.standby import run_as_standby
from boatlift.runtime.peers.holding import HeldTail
from boatlift.runtime.peers.owner import LOOPBACK
from boatlift.spark.engine import SparkEngine
from boatlift.storage.bucket_client import RETRY_FOR
from boatlift.storage.object_cache import CACHE_BYTES, CACHE_VARIABLE
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.opening import StorePlace, open_store, reopened, suited_to
from boatlift.storage.store import Store

_LONGEST_LINGER = 60.0
_LEAST_CACHE = 64 << 20

logger = logging.getLogger(__name__)

_DEFAULTS = RunOptions()


@checked_options("bl.run")
def run(
    flow: Dataflow,
    store: str | Path | Store,
    *,
    available_now: bool = False,
    accept_released: bool = False,
    skip: Collection[tuple[str, int | str]] = (),
    set_aside: Collection[str] = (),
    bytes_in_flight: int = BYTES_IN_FLIGHT,
    long_running: bool = True,
    take_over: bool = False,
    pause: Collection[str] = (),
    step_timeout: float | None = None,
    standby: bool = False,
    for_handover: bool = False,
    listen: str = LOOPBACK,
    plain: bool = False,
    health: str = "",
    replica: bool = False,
    evolve: str = "",
    change: Mapping[str, str] | None = None,
    accept_lost: bool = False,
    console: str = "",
    otel: bool = False,
    spark: SparkSession | None = None,
    on_progress: Callable[[Progress], None] = _DEFAULTS.on_progress,
) -> None:
    """Run a dataflow until it is stopped, from the state of its store.

    Ctrl-C and SIGTERM stop it cleanly: running steps are finished and everything is checkpointed. A second Ctrl-C stops
    it at once, even if the JVM of Spark hangs; that costs a replay and loses nothing.

    Args:
        flow: The dataflow.
        store: A folder that every executor sees, made if absent; the URL of an object store, as
            `s3://bucket/flows/delays`; or an open store (`bl.store`).
        available_now: Stop when every source has nothing new.
        accept_released: Accept the rows that sinks hold of a step that a replay now computes differently
            (`[DIVERGED]`), and record that; later steps are computed from the replay.
        skip: Steps that fail at each try, each with its processor, as `("clean", 7)`: they have no rows, and that is
            recorded. `boatlift look` shows the input of such a step. Or steps that the receiver of an at-least-once
            sink refuses, each with the sink: the sink does not get them. Or single bad rows, each with its source, as
            `("orders", "orders.csv:7")`: see `set_aside`.
        set_aside: Sources whose bad rows are set aside, now and in later runs: the store keeps each row with its place
            and the reason (`boatlift bad-rows`), and that is recorded.
        bytes_in_flight: A source is asked for no further step while so many bytes of rows wait behind it on disk,
            unless the open epoch of a batch cannot end without it.
        long_running: Whether small steps in quick succession may share a long-running job. Such a job answers in
            milliseconds, and holds a slot of Spark's as long as steps come; results are the same without it.
            `boatlift plan` shows the units whose steps it takes.
        take_over: Take the store over from a run on this host that has not ended. That run ends with `[FENCED]` within
            seconds, and no row is lost or doubled.
        pause: Sources that take nothing new in this run, such as `("orders",)`.
        step_timeout: A step that makes no progress for so many seconds is ended and executed again: no task of it has
            begun, ended or moved rows. A step that is ended four times in a row ends the run. If not given: the larger
            of 30 s and 20 times the longest of the unit's last 100 steps, then twice as long each time, without end.
            Batches may take any time.
        standby: Follow the run that owns the store, and take over as soon as it dies, is stopped, or hands over. It may
            come before the store.
        for_handover: A standby under other versions or settings than the owner: it takes over from an owner that stops
            cleanly and hands over (`boatlift handover`), and never by suspicion.
        listen: Where the owner listens for standbys and commands, as `host:port`; port 0 takes a free one.
        plain: At an address that other hosts see, speak in clear text and not TLS, which needs the extra `tls`. Both
            sides prove that they can read the store.
        health: Where `GET /livez` and `GET /readyz` are answered, as `host:port`: whether the process makes progress,
            and whether it owns the dataflow. Nothing is secret there, and nobody has to prove who they are.
        replica: Be one of several equal processes: own the dataflow if none of the others does, also after a clean
            stop; otherwise be a standby, and under other versions or settings than the owner one for a handover.
        evolve: The id of the plan by which the store's program becomes this one, as `bl.evolution` or `boatlift plan
            --store` shows it. Any other plan is refused (`[PLAN_CHANGED]`).
        change: Processor to the way in which its change is brought about, as in `bl.evolution`.
        accept_lost: Go on without the standbys that may have held what the store lacks (`[MEMBERS_MISSING]`), and
            record that.
        console: Where the page about the dataflow and its metrics are served, as `host:port`, such as "127.0.0.1:8642".
            The address is written to standard error.
        otel: Send metrics and traces by OTLP over HTTP, to where the environment's `OTEL_EXPORTER_OTLP_ENDPOINT` says;
            needs the extra `otel`.
        spark: The session; if not given, the active one, or a new local one.
        on_progress: Called for each step, commit and checkpoint. If not given, a takeover, and a step or a commit
            without progress, is logged as a warning.

    Raises:
        InvalidError: `[BAD_OPTION]`; `[STORE_IN_USE]` a run on this host owns the store.
        BoatliftError: The cause of the end. The same call goes on from there.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.run(flow, "store", available_now=True)
    """
    options = RunOptions(
        available_now, accept_released, skip, set_aside, bytes_in_flight, on_progress, long_running, take_over, pause,
        step_timeout, standby or for_handover or replica, for_handover, listen, plain, health, replica, evolve,
        change or {}, accept_lost=accept_lost,
    )  # fmt: skip
    with beside(flow, store, options, console, _announce, otel=otel) as watched:
        run_with(flow, store, watched, spark)


@contextmanager
def beside(
    flow: Dataflow,
    store: str | Path | Store,
    options: RunOptions,
    console: str,
    said: Callable[[str], None],
    *,
    otel: bool,
) -> Iterator[RunOptions]:
    """Serve the console of a run, and send its metrics and traces, in a block.

    Yields:
        The options of the run, by which it tells them of its progress.
    """

    def noticed(told: str) -> None:
        logger.warning("%s: %s", flow.name, told)

    traced = plan(flow) if otel else None
    with beside_run(store, console=console, traced=traced, said=said, noticed=noticed) as told:

        def watch(progress: Progress) -> None:
            options.on_progress(progress)
            told(progress)

        yield replace(options, on_progress=watch)


def _announce(url: str) -> None:
    sys.stderr.write(f"boatlift: the console is at {url}\n")


def run_with(flow: Dataflow, store: str | Path | Store, options: RunOptions, spark: SparkSession | None) -> None:
    """Run a dataflow by options; as `run`."""
    creates = options.replica or not (options.standby or options.goes_back)
    if options.standby and not creates and not store_awaited(flow.name, store, options.on_progress):
        return
    run_plan(*prepared(flow, store, spark, create=creates), options)


def store_awaited(name: str, store: str | Path | Store, on_progress: Callable[[Progress], None]) -> bool:
    """Wait until there is a store for a standby; return False if a signal came before.

    Args:
        name: Of the dataflow.
    """
    if not isinstance(store, StorePlace):
        return True

    def tell(said: str) -> None:
        on_progress(Progress("standby", name, -1, said=said))

    with _Signals() as signals:
        return wait_for_store(store, tell, lambda: signals.received)


def run_plan(planned: Plan, store: Store, spark: SparkSession, options: RunOptions = _DEFAULTS) -> None:
    """Run a dataflow that is already divided into units; as `run`."""
    health = Health()
    with raising_jvm_died(), _Signals() as signals, HealthPort(options.health, health) as port:
        if port.url:
            options.on_progress(Progress("listening", planned.dataflow, -1, where=f"{port.url}/readyz"))
        if not options.standby:
            signals.stopping(host_of(planned, store, spark, options, health)).run()
            return
        tail = HeldTail(secrets.token_hex(8))

        def new_host() -> Host:
            return signals.stopping(host_of(planned, reopened(store), spark, options, health, tail))

        def report(said: str) -> None:
            options.on_progress(Progress("standby", planned.dataflow, -1, said=said))

        rehearsals = partial(Rehearsals, planned, store, spark, options.bytes_in_flight)
        run_as_standby(new_host, rehearsals, report, lambda: signals.received)


@checked_options("bl.store")
def store(
    url: str,
    *,
    endpoint: str | None = None,
    scratch: str | Path | None = None,
    retry_for: float = RETRY_FOR,
    linger: float = 0.0,
    cache: int = CACHE_BYTES,
) -> ObjectStore:
    """Open a store in an object store with options of its own, for `bl.run` and `bl.status`.

    Without options the URL alone does, as in `bl.run(flow, "s3://bucket/flows/delays")`. Credentials and region are
    those of the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`), or of the machine's role.

    Args:
        url: `s3://BUCKET/PREFIX`; the bucket must be there, and its server keep to `If-None-Match`.
        endpoint: The address of a server other than that of AWS; if not given, `AWS_ENDPOINT_URL`.
        scratch: The folder for files of running tasks and for the cache, which every task must see. `store`: machines
            share nothing but the store, and tasks upload their files; `store:FOLDER` names the folder that each machine
            has for them. If not given: `BOATLIFT_SCRATCH`; else `store` on a cluster, and a folder in the user's cache
            with `local[…]`.
        retry_for: The seconds for which a request without a clear answer is sent again, before the run ends.
        linger: The seconds for which steps wait for others before they are recorded together. Rows are visible so much
            later, and there are at most `1 / linger` requests a second for the log, which is a bound for their price.
        cache: The most bytes of the cache, on each machine.

    Raises:
        InvalidError: `[BAD_OPTION]`; `[STORE_NOT_FOUND]` there is no such bucket; `[NOT_ADMITTED]`;
            `[STORE_UNSUITABLE]` the server cannot fence an older run; `[MISSING_EXTRA]`.
        UnavailableError: `[STORE_FAILED]` the server does not answer.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.run(flow, bl.store("s3://boatlift/examples/copy", linger=0.2), available_now=True)
    """
    return open_bucket(url, endpoint, scratch, retry_for, linger, cache)


def open_bucket(
    url: str,
    endpoint: str | None = None,
    scratch: str | Path | None = None,
    retry_for: float = RETRY_FOR,
    linger: float = 0.0,
    cache: int = CACHE_BYTES,
    *,
    create: bool = True,
) -> ObjectStore:
    """Open a store in an object store; as `store`.

    Args:
        create: The store may be new, and its server is probed, which writes.
    """
    if not url.startswith("s3://"):
        raise InvalidError("BAD_OPTION", f"url is {url!r}: give s3://BUCKET/PREFIX; a folder needs no bl.store")
    if not 0 < retry_for < math.inf:
        raise InvalidError("BAD_OPTION", f"retry_for is {retry_for}: give seconds, more than 0")
    if not 0 <= linger <= _LONGEST_LINGER:
        raise InvalidError("BAD_OPTION", f"linger is {linger}: give seconds, 0 to {_LONGEST_LINGER:g}")
    if cache < _LEAST_CACHE:
        raise InvalidError("BAD_OPTION", f"cache is {cache}: give bytes, {_LEAST_CACHE} (64 MiB) or more")
    options = BucketOptions(endpoint, retry_for, linger, cache)
    opened = open_store(url, create=create, scratch=scratch, options=options)
    assert isinstance(opened, ObjectStore)
    return opened


def opened_store(store: str | Path | Store, *, create: bool) -> Store:
    """Return an open store, as a run uses it."""
    if isinstance(store, ObjectStore):
        return store.reopened()  # a failure of the run before is not this one's
    if isinstance(store, StorePlace):
        return open_store(store, create=create)
    if not isinstance(store, Store):
        raise InvalidError("BAD_OPTION", f"store={store!r}: give a folder, such as 'flights_store', or an s3:// URL")
    return store


def prepared(
    flow: Dataflow, store: str | Path | Store, spark: SparkSession | None, *, create: bool = True
) -> tuple[Plan, Store, SparkSession]:
    """Return the plan of a dataflow, its store, and its session; arguments as for `run`."""
    opened, found = opened_store(store, create=create), session_of(flow, spark)
    opened = suited_to(opened, str(found.sparkContext.master))
    if isinstance(opened, ObjectStore):  # workers of other machines have no file that says so
        found.sparkContext.environment[CACHE_VARIABLE] = str(opened.options.cache)
    pickle_by_value(flow)
    return plan(flow), opened, found


def session_of(flow: Dataflow, spark: SparkSession | None) -> SparkSession:
    """Return the session of a dataflow, with the settings of steps: the given one, the active one, or a new one.

    Raises:
        InvalidError: `[BAD_OPTION]` the session would break guarantees; or as `bl.session`.
    """
    with raising_jvm_died():  # the JVM of an earlier session may be gone
        found = spark or SparkSession.getActiveSession() or session(app_name=flow.name)
    check_session(found)
    return found


def host_of(
    planned: Plan,
    store: Store,
    spark: SparkSession,
    options: RunOptions,
    health: Health | None = None,
    tail: HeldTail | None = None,
) -> Host:
    """Return the host of a run, whose engine has not started."""
    check_session(spark)
    for name in options.pause:
        source_named(planned, name)
    options.on_progress(Progress("compile", planned.dataflow, -1))
    engine = SparkEngine(spark, planned, ON_SPARK, long_running=options.long_running)
    options.on_progress(Progress("recover", planned.dataflow, -1))
    return Host(engine, store, options, tail=tail, health=health)


class _Signals:
    """Stops a host cleanly at the first SIGINT or SIGTERM, and raises `KeyboardInterrupt` at the second.

    Attributes:
        received: Whether there was one.
    """

    def __init__(self) -> None:
        self.received = False
        self._at_once = False
        self._host: Host | None = None
        self._ended = threading.Event()
        self._before: dict[int, Any] = {}

    def stopping(self, host: Host) -> Host:
        """Let signals stop this host from now on, as one did already if it came before."""
        self._host = host
        if self.received:
            host.stop()
        return host

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.received:
            self._at_once = True
            threading.Thread(target=kill_jvm_if_hung, args=(self._ended,), name="end of a run", daemon=True).start()
            raise KeyboardInterrupt
        self.received = True
        if self._host is not None:
            self._host.stop()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._ended.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        # What is tidied up after the interrupt fails too if the JVM had to be killed.
        if self._at_once and isinstance(error, Exception):
            raise KeyboardInterrupt from error
