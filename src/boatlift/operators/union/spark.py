"""The union on Spark."""

from __future__ import annotations

from boatlift.operators.union.operator import Union
from boatlift.spark.compile.united import compile_united

COMPILERS = {Union: compile_united}
