"""`bl.plan` and `bl.status`: the output of the commands of the same names, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boatlift.api.by_value import pickle_by_value
from boatlift.api.dataflow import Dataflow
from boatlift.connectors.kit import checked_options
from boatlift.dataflow import plan as planned
from boatlift.operators import operators_with_status
from boatlift.runtime.inspect.program import ProgramReport, plan_of
from boatlift.runtime.inspect.seen import Seen, seen_in
from boatlift.runtime.inspect.status import DataflowStatus, status_at
from boatlift.storage.opening import StorePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@checked_options("bl.plan")
def plan(flow: Dataflow, *, spark: SparkSession | None = None) -> ProgramReport:
    """Return a dataflow's units, determinants and costs of failures, without running it.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.plan(flow).units
        {'flights:rows': ['flights:rows']}

    Args:
        flow: The dataflow; its transformations are compiled.
        spark: The session; if not given, the active one, or a new local one.

    Raises:
        BoatliftError: An error of the program, as `bl.run` raises it.
    """
    divided = planned(flow)  # refuses a wrong program before a JVM starts
    from boatlift.api.registry import ON_SPARK
    from boatlift.api.running import session_of
    from boatlift.spark.compile.program import compile_program
    from boatlift.spark.jobs.long_running import slots_left
    from boatlift.spark.jobs.members import long_running

    spark = session_of(flow, spark)
    pickle_by_value(flow)
    program = compile_program(spark, divided, ON_SPARK)
    try:
        why = long_running(program.units, program.plan, spark)
        slots = slots_left(program.plan)

        def not_again(unit: str) -> str:
            return program.units[unit].not_again or program.units[unit].by_place

        return plan_of(program.plan, program.identity, program.queries, why, slots, not_again)
    finally:
        program.close()


@checked_options("bl.status")
def status(store: StorePlace) -> DataflowStatus:
    """Return the progress of each processor, the steps that a failure now would execute again, and the last owner.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.run(flow, "store", available_now=True)
        >>> bl.status("store").closed
        {'flights': 0}

    Args:
        store: The folder of a dataflow's durable state; a process may run the dataflow meanwhile.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`.
        DataError: The store's log cannot be read.
    """
    return status_at(store, operators_with_status())


@checked_options("bl.seen")
def seen(flow: Dataflow, store: StorePlace, source: str, item: str) -> Seen:
    """Return whether an item of input was recorded, and in which sinks its results are visible.

    The log says so, and, some seconds earlier, the report of a run on this computer.

    Args:
        flow: The dataflow.
        store: The folder of its durable state; a process may run the dataflow meanwhile.
        source: The source.
        item: A file's name below the source's folder; a message of Kafka as `topic/partition:offset`; the key of a
            push.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`; `[BAD_OPTION]` there is no such source, or its input has no names.
        DataError: The store cannot be read.

    Examples:
        >>> flights.sink("copy", bl.parquet("copy"))
        >>> bl.run(flow, "store", available_now=True)
        >>> bl.seen(flow, "store", "flights", "flights.csv").sinks
        {'copy': True}
    """
    return seen_in(planned(flow), store, source, item)
