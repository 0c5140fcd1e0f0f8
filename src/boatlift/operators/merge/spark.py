"""The merge on Spark."""

from __future__ import annotations

from boatlift.operators.merge.operator import Merge
from boatlift.spark.compile.united import compile_united

COMPILERS = {Merge: compile_united}
