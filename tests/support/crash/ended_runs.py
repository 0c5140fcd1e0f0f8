"""Runs that end at a moment: what they have not made durable is lost, as at a kill of the process."""

from __future__ import annotations

from pyspark.sql import SparkSession

import boatlift as bl

__all__ = ["KilledError", "killed"]


class KilledError(Exception):
    """Ends a run before it has taken all."""


def killed(flow: bl.Dataflow, spark: SparkSession, at: tuple[str, str, int] | None) -> bool:
    """Run a dataflow; end it when a processor reports of a step. Return whether it was ended so."""

    def watch(progress: bl.Progress) -> None:
        if at is not None and (progress.what, progress.processor) == at[:2] and progress.time >= at[2]:
            raise KilledError

    try:
        bl.run(flow, "store", available_now=True, spark=spark, on_progress=watch)
    except KilledError:
        return True
    return False
