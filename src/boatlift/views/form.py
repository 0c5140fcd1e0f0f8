"""The forms of stages."""

from __future__ import annotations

from enum import Enum


class Form(Enum):
    """How a stage is computed: by a kernel, or by Spark from the rows of the touched keys."""

    JOIN = "inner join"
    OUTER = "outer join"
    SEMI = "semi, anti or existence join"
    NOT_IN = "null-aware anti join"
    DISTINCT = "distinct"
    AGGREGATE = "linear aggregate"
    FIRST = "first rows of a key"
    LOOP = "loop"
    GENERAL = "general form"
