"""`bl.run`: a dataflow, a store, go."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession

from boatlift.dataflow import Dataflow, Plan, plan
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.spark.engine import SparkEngine
from boatlift.spark.session.jvm import told_of_jvm
from boatlift.spark.session.session import check_session, session
from boatlift.storage.local import LocalStore
from boatlift.storage.store import Store

__all__ = ["Running", "run", "run_plan", "start"]


def _silent(progress: Progress) -> None:
    """Watches nothing."""


def run(
    flow: Dataflow,
    store: str | Path | Store,
    *,
    available_now: bool = False,
    accept_released: bool = False,
    skip: Collection[tuple[str, int]] = (),
    spark: SparkSession | None = None,
    on_progress: Callable[[Progress], None] = _silent,
) -> None:
    """Runs a dataflow until it is stopped, from where the store says it was.

    Ctrl-C and SIGTERM stop it cleanly: the steps that run are finished and everything is checkpointed. A second Ctrl-C
    stops it at once; that costs a replay and loses nothing.

    Args:
        flow: The dataflow.
        store: A folder, made if absent, that every executor sees; or a store.
        available_now: Stop when every source has nothing new.
        accept_released: Let stand what sinks hold of a step that a replay now gives differently (`[DIVERGED]`), and put it on the record;
            what follows is computed from what the replay gave.
        skip: Steps that fail whenever they are tried, each with its processor, as `("clean", 7)`: they give nothing, and that is put on
            the record. `boatlift look` shows what such a step takes.
        spark: The session; the active one, or a new local one, if not given.
        on_progress: Called for each step, commit and checkpoint.

    Raises:
        BoatliftError: What stopped it. The same call goes on from there.
    """
    spark = spark or _session_of(flow)
    opened = LocalStore.open(Path(store), create=True) if isinstance(store, str | Path) else store
    run_plan(
        plan(flow),
        opened,
        spark,
        available_now=available_now,
        accept_released=accept_released,
        skip=skip,
        on_progress=on_progress,
    )


def run_plan(
    planned: Plan,
    store: Store,
    spark: SparkSession,
    *,
    available_now: bool = False,
    accept_released: bool = False,
    skip: Collection[tuple[str, int]] = (),
    on_progress: Callable[[Progress], None] = _silent,
) -> None:
    """Runs a dataflow that is divided into units already; as `run`."""
    with told_of_jvm():
        host = _host(planned, store, available_now, accept_released, skip, spark, on_progress)
        with _stopped_by_signals(host):
            host.run()


class Running:
    """A dataflow that runs in the background of a notebook; `start` gives one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="boatlift")
        self._thread.start()

    def _run(self) -> None:
        try:
            with told_of_jvm():
                self._host.run()
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._error = error

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stops it cleanly and waits; raises what stopped it, if something else did."""
        self._host.stop()
        self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has ended, at most so many seconds; raises what stopped it.

        Returns:
            Whether it has ended.
        """
        self._thread.join(timeout)
        if not self._thread.is_alive() and self._error is not None:
            raise self._error
        return not self._thread.is_alive()


def start(
    flow: Dataflow,
    store: str | Path | Store,
    *,
    available_now: bool = False,
    accept_released: bool = False,
    skip: Collection[tuple[str, int]] = (),
    spark: SparkSession | None = None,
    on_progress: Callable[[Progress], None] = _silent,
) -> Running:
    """Runs a dataflow in the background; arguments as for `run`."""
    spark = spark or _session_of(flow)
    opened = LocalStore.open(Path(store), create=True) if isinstance(store, str | Path) else store
    with told_of_jvm():
        host = _host(plan(flow), opened, available_now, accept_released, skip, spark, on_progress)
    return Running(host)


def _session_of(flow: Dataflow) -> SparkSession:
    with told_of_jvm():  # the one of before may be gone
        return SparkSession.getActiveSession() or session(app_name=flow.name)


def _host(
    planned: Plan,
    store: Store,
    available_now: bool,
    accept_released: bool,
    skip: Collection[tuple[str, int]],
    spark: SparkSession,
    on_progress: Callable[[Progress], None],
) -> Host:
    check_session(spark)
    on_progress(Progress("compile", planned.dataflow, -1))
    engine = SparkEngine(spark, planned)
    on_progress(Progress("recover", planned.dataflow, -1))
    return Host(
        engine, store, available_now=available_now, accept_released=accept_released, skip=skip, watch=on_progress
    )


@contextmanager
def _stopped_by_signals(host: Host) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        host.stop()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
