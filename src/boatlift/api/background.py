"""`bl.start`: a dataflow runs in the background of a notebook."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from weakref import WeakKeyDictionary, ref

from pyspark.sql import SparkSession

from boatlift.api.asked import ASK_SECONDS, KeptTables, QueryAnswer
from boatlift.api.dataflow import Dataflow
from boatlift.api.reports import status
from boatlift.api.running import beside, host_of, opened_store, prepared
from boatlift.connectors.kit import checked_options
from boatlift.dataflow import Plan
from boatlift.errors import BoatliftError, FencedError, InvalidError, UnavailableError
from boatlift.processes.jvm import raising_jvm_died
from boatlift.runtime.host.context import BYTES_IN_FLIGHT, RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.inspect.status import DataflowStatus
from boatlift.runtime.peers.owner import LOOPBACK
from boatlift.storage.opening import StorePlace
from boatlift.storage.store import Store

logger = logging.getLogger(__name__)

_STARTED: WeakKeyDictionary[Dataflow, ref[Running]] = WeakKeyDictionary()
"""The last run of each dataflow that was started in this process."""

_DEFAULTS = RunOptions()


DRAWN_SECONDS = 5.0
"""The longest wait for the last drawing of a run in a notebook."""


class Running:
    """A dataflow that runs in the background of a notebook; `start` returns it.

    Attributes:
        console: The address of its console, with the token; empty if it has none.
    """

    console = ""

    def __init__(
        self, host: Host, store: str | Path | Store, planned: Plan, spark: SparkSession, beside: ExitStack
    ) -> None:
        self._host, self._name, self._store = host, planned.dataflow, store
        self._beside = beside
        self._planned, self._spark = planned, spark
        self._tables: KeptTables | None = None
        self._error: BaseException | None = None
        self._drawing: threading.Thread | None = None
        try:
            with raising_jvm_died():
                host.claim()
        except BaseException:
            beside.close()
            raise
        self._ended = threading.Event()  # an interrupted `Thread.join` takes its thread for ended (Python 3.11)
        threading.Thread(target=self._run, name="boatlift").start()

    def _run(self) -> None:
        try:
            self._execute()
        finally:
            self._ended.set()

    def _execute(self) -> None:
        try:
            with raising_jvm_died():
                self._host.run()
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._error = error
        self._beside.close()
        if (ended := self._error) is not None:
            told = str(ended) if isinstance(ended, BoatliftError) else repr(ended)
            advice = "" if isinstance(ended, FencedError) else "; start it again, and it goes on"
            logger.error("%s runs no longer: %s (wait() raises it%s)", self._name, told, advice)

    @property
    def is_active(self) -> bool:
        """Return whether the dataflow still runs."""
        return not self._ended.is_set()

    @property
    def exception(self) -> BaseException | None:
        """The error that ended the dataflow; None if it runs, or has ended well."""
        return self._error

    def status(self) -> DataflowStatus:
        """Return the status of the dataflow, as `bl.status` does.

        Raises:
            InvalidError: `[BAD_OPTION]` the dataflow runs on a store of another kind than `bl.run` opens.
        """
        if not isinstance(self._store, StorePlace):
            raise InvalidError("BAD_OPTION", "status() reads a store by its place: start with store='FOLDER'")
        return status(self._store)

    def sql(self, query: str, *, key: str | None = None, timeout: float = ASK_SECONDS) -> QueryAnswer:
        """Ask what the dataflow keeps, or insert rows into a source, as `bl.sql` does."""
        with raising_jvm_died():
            self._tables = self._tables or KeptTables(self._spark, self._planned)
            return self._tables.ask(opened_store(self._store, create=False), query, key, timeout)

    def stop(self) -> None:
        """Stop the dataflow cleanly, and wait for its end; raise the error that ended it, if one did."""
        self._host.stop()
        if self._tables is not None:
            self._tables.close()
        self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the dataflow; raise the error that ended it, if one did.

        Args:
            timeout: The longest wait, in seconds.

        Returns:
            Whether the dataflow has ended.
        """
        if self._ended.wait(timeout) and self._drawing is not None:
            self._drawing.join(DRAWN_SECONDS)  # a notebook drops what comes after the end of the cell
        if self._ended.is_set() and self._error is not None:
            raise self._error
        return self._ended.is_set()

    def show(self) -> None:
        """Show the dataflow in a notebook, drawn again every second until it has ended.

        The call returns at once. It needs the extra `notebook`; outside a notebook it prints one line.

        Raises:
            InvalidError: `[MISSING_EXTRA]`.

        Examples:
            >>> flights.sink("copy", bl.parquet("copy"))
            >>> running = bl.start(flow, "store", available_now=True)
            >>> running.wait()
            True
            >>> running.show()
            <flights has ended>
        """
        from boatlift.api.notebook import show_until_ended

        def ended(seconds: float) -> bool:
            return self._ended.wait(seconds)

        self._drawing = show_until_ended(self, ended)

    def _repr_html_(self) -> str:
        from boatlift.api.notebook import run_html

        try:
            found = self.status()
        except BoatliftError:  # the store is elsewhere for a while, or of a kind that has no status
            found = None
        return run_html(found, repr(self).strip("<>"), self._error)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows: state and frontiers as a table, and text where there is none."""
        del include, exclude  # IPython takes of it what it needs
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        how = "runs" if self.is_active else "has ended" if self._error is None else f"failed: {self._error}"
        return f"<{self._name} {how}>"


@checked_options("bl.start")
def start(
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
    listen: str = LOOPBACK,
    plain: bool = False,
    console: str = "",
    otel: bool = False,
    spark: SparkSession | None = None,
    on_progress: Callable[[Progress], None] = _DEFAULTS.on_progress,
) -> Running:
    """Run a dataflow in the background; arguments as for `run`.

    The call returns when the run owns the store, and raises what keeps the run from that. An error that ends the run
    later is logged as it happens, which Python prints to standard error if logging is not set up.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> running = bl.start(flow, "store", available_now=True)
        >>> running.wait()
        True
    """
    options = RunOptions(
        available_now, accept_released, skip, set_aside, bytes_in_flight, on_progress, long_running, take_over, pause,
        step_timeout, listen=listen, plain=plain,
    )  # fmt: skip
    served: list[str] = []
    with raising_jvm_died(), ExitStack() as block:
        watched = block.enter_context(beside(flow, store, options, console, served.append, otel=otel))
        planned, opened, found = prepared(flow, store, spark)
        running = Running(host_of(planned, opened, found, watched), store, planned, found, block.pop_all())
        running.console = "".join(served)
        _STARTED[flow] = ref(running)
        return running


def started(flow: Dataflow) -> Running:
    """Return the run of a dataflow that this process has started.

    Raises:
        UnavailableError: `[NOT_RUNNING]` there is none, or nothing refers to one that has ended.
    """
    found = _STARTED.get(flow)
    running = None if found is None else found()
    if running is None:
        raise UnavailableError(
            "NOT_RUNNING",
            f"this process has not started {flow.name}: write running = bl.start(flow, store), or ask its store with "
            "bl.sql(flow, store, query)",
        )
    return running
