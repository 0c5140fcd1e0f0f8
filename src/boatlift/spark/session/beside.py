"""A session beside the dataflow's, of the same context, for jobs that need other settings."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from boatlift.spark.plans.catalyst import java_settings


def session_beside(spark: SparkSession, others: Mapping[str, str]) -> SparkSession:
    """Return a new session with the settings of a session, but for some others."""
    made = spark.newSession()
    for name, value in {**dict(java_settings(spark)), **others}.items():
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made
