"""`boatlift sql` and `boatlift seen`: what a dataflow keeps, and what became of an item of its input."""

from __future__ import annotations

import sys

from boatlift.console.messages import Json, JsonLines, Master, StorePath


def sql(
    flow: str,
    query: str,
    *,
    store: StorePath,
    key: str | None = None,
    timeout: float = 600.0,
    master: Master = "local[2]",
    as_json: JsonLines = False,
) -> None:
    """Ask what a dataflow keeps, beside its run, behind it, or after its death; or insert rows into a source of it.

    Tables are aggregates by key, at their newest common checkpoint; the first line says at which step. The rows of
    INSERT INTO are a push, which the process that runs the dataflow records.

    Args:
        flow: The dataflow, as module:attribute.
        query: A query in Spark's SQL, over processors of the dataflow, or INSERT INTO with one.
        key: Of an INSERT INTO: repeated with its key, a statement is taken once. If not given, one is made and printed.
        timeout: The longest time in seconds for the query; then, again, for the rows to be recorded.
        master: Spark's master URL.
        as_json: Print JSON, one row a line.
    """
    from boatlift.api.asked import sql as answer_to
    from boatlift.api.inserted import insertion_of, new_key
    from boatlift.api.named import OneSession, check_flow, load_flow
    from boatlift.connectors.kit.arrow_text import json_objects
    from boatlift.console.messages import notice
    from boatlift.console.tables import show, table
    from boatlift.runtime.inspect.contents import store_at

    store_at(store)  # a missing store is told before a JVM starts
    check_flow(flow)
    session = OneSession(master, flow)
    if key is None and insertion_of(query) is not None:
        key = new_key()
        notice(f"a repetition of this statement needs its key: --key {key}")
    answer = answer_to(load_flow(flow, session), store, query, key=key, timeout=timeout, spark=session.begin())
    notice("; ".join(f"{name} at step {step}" for name, step in answer.steps.items()), quiet=not answer.steps)
    if as_json:
        columns = [column.combine_chunks() for column in answer.rows.columns]
        print(*json_objects(answer.rows.column_names, columns).to_pylist(), sep="\n")
        return
    shown = table(*answer.rows.column_names)
    for row in answer.rows.to_pylist():
        shown.add_row(*("NULL" if value is None else str(value) for value in row.values()))
    show(shown)


NOT_YET = 3
"""The exit status if an item is not visible in each sink: that of what may succeed later."""


def seen(flow: str, source: str, item: str, *, store: StorePath, as_json: Json = False) -> None:
    """Show whether an item of input was recorded, and in which sinks its results are visible.

    The exit status is 0 if they are in each sink that the source leads to, and 3 if not yet.

    Args:
        flow: The dataflow, as module:attribute.
        source: The source.
        item: A file's name; a message of Kafka, as topic/partition:offset; the key of a push.
        as_json: Print JSON.
    """
    from boatlift.api.named import OneSession, check_flow, load_flow
    from boatlift.api.reports import seen as found
    from boatlift.console.tables import print_json, show

    check_flow(flow)
    report = found(load_flow(flow, OneSession("local[1]", flow)), store, source, item)
    if as_json:
        print_json(report)
    elif report.step < 0:
        show(f"no step has taken {item} of {source} yet")
    else:
        show(f"{item} of {source} was taken by step {report.step}")
        for name, visible in report.sinks.items():
            show(f"  {name}: {'visible' if visible else 'not yet'}")
    sys.exit(0 if report.everywhere else NOT_YET)
