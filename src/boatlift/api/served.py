"""What is served and sent beside a run: the page about its store, metrics and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from boatlift.dataflow import Plan
from boatlift.dataflow.contracts import RowReader, ShownRows, SinkPlace
from boatlift.errors import InvalidError
from boatlift.runtime.host.progress import Progress
from boatlift.storage.opening import StorePlace

if TYPE_CHECKING:
    from boatlift.storage.store import Store
    from boatlift.web.documents import Documents

NEWS = {"step", "commit", "checkpoint", "failure", "over"}
"""The reports after which readers look at the store again."""


def _sqlite(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    from boatlift.connectors.sqlite.shown import rows_of_table

    return rows_of_table(of, begin, limit)


def _parquet(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    from boatlift.connectors.parquet.shown import rows_of_folder

    return rows_of_folder(of, begin, limit)


ROW_READERS: Mapping[str, RowReader] = MappingProxyType({"sqlite": _sqlite, "parquet": _parquet})
"""What shows the rows of a sink, by the kind of its place; imported when it is used."""


@contextmanager
def beside_run(
    store: StorePlace | Store,
    *,
    console: str = "",
    rows: bool | None = None,
    traced: Plan | None = None,
    said: Callable[[str], None],
    noticed: Callable[[str], None],
) -> Iterator[Callable[[Progress], None]]:
    """Serve the page about a store, which may be made later, and send metrics and traces, in a block.

    Args:
        console: Where the page is served, as `host:port`; empty: nowhere.
        rows: Whether the page shows rows of sinks; None: only to this computer.
        traced: The program whose metrics and traces are sent by OTLP; None: nothing is sent.
        said: Is told the address of the page, with the token.
        noticed: Is told that the port is taken, and which one is used.

    Yields:
        What is told the progress of the run.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.
        UnavailableError: `[LISTEN_FAILED]`.
    """
    watches: list[Callable[[Progress], None]] = []
    with ExitStack() as block:
        if console or traced is not None:
            if not isinstance(store, StorePlace):
                what = "the console" if console else "otel"
                raise InvalidError("BAD_OPTION", f"{what} reads a store by its place: run with store='FOLDER'")
            from boatlift.http.admission import address_of, is_loopback
            from boatlift.operators import operators_with_status
            from boatlift.web.documents import Documents

            shows = is_loopback(address_of(console)[0]) if rows is None and console else bool(rows)
            documents = Documents(store, operators_with_status(), readers=ROW_READERS if shows else None)
            if console:
                watches.append(block.enter_context(_served(documents, console, said, noticed)))
            if traced is not None:
                watches.append(block.enter_context(_sent(documents, traced)))

        def watch(progress: Progress) -> None:
            for each in watches:
                each(progress)

        yield watch


@contextmanager
def _served(
    documents: Documents, listen: str, said: Callable[[str], None], noticed: Callable[[str], None]
) -> Iterator[Callable[[Progress], None]]:
    from boatlift.http.admission import address_of

    address = address_of(listen)
    from boatlift.web.server import Console, listener_at, refuse_open_console

    refuse_open_console(address)
    served = Console(documents, listener_at(address, noticed))

    def hint(progress: Progress) -> None:
        if progress.what in NEWS:
            served.hint()

    try:
        served.serve()
        said(served.url)
        yield hint
    finally:
        served.close()


@contextmanager
def _sent(documents: Documents, plan: Plan) -> Iterator[Callable[[Progress], None]]:
    from boatlift.metrics.otlp import MetricsSender, end_spans, refuse_without_otel, span_provider
    from boatlift.metrics.traces import Traces, clocks_of

    refuse_without_otel()
    provider = span_provider(plan.dataflow)
    sender = MetricsSender(documents, plan.dataflow)
    try:
        yield Traces(provider, clocks_of(plan)).watch
    finally:
        end_spans(provider)
        sender.close()
