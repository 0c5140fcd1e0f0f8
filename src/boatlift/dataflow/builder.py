"""How a user writes a dataflow.

flow = bl.Dataflow("flights")
flights = flow.source("flights", bl.files("data/*.csv", schema=SCHEMA))
clean = flights.transform("clean", lambda df: df.where("arr_delay IS NOT NULL"))
delays = clean.group_by("origin").agg("delays", F.count("*").alias("flights"), policy=bl.Lazy(every=20))
delays.sink("answers", bl.sqlite("answers.db", table="delays", key=["origin"]))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from boatlift.dataflow.contracts import Sink, Source
from boatlift.dataflow.policies import Eager, Ephemeral, History, Lazy
from boatlift.dataflow.processors import Aggregate, Processor, SinkProcessor, SourceProcessor, Transform
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Dataflow", "Grouped", "Stream"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Dataflow:
    """A named graph of processors; nothing runs until it is given to `bl.run` or `boatlift run`.

    Args:
        name: Letters, digits, `-` and `_`; it stands in every store and sink that the dataflow writes.
    """

    def __init__(self, name: str) -> None:
        self.name = _checked(name)
        self._processors: dict[str, Processor] = {}

    @property
    def processors(self) -> Mapping[str, Processor]:
        """All processors by name, each after the one it reads from."""
        return MappingProxyType(self._processors)

    def source(self, name: str, source: Source) -> Stream:
        """Adds a source of append-only rows."""
        return self._add(SourceProcessor(_checked(name), source))

    def _add(self, processor: Processor) -> Stream:
        if processor.name in self._processors:
            raise InvalidError("DUPLICATE_NAME", f"{self.name} has two processors named {processor.name}: rename one")
        self._processors[processor.name] = processor
        return Stream(self, processor.name)

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, {len(self._processors)} processors)"


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a processor: rows, or changes of rows."""

    dataflow: Dataflow
    name: str

    def transform(
        self,
        name: str,
        function: Callable[[DataFrame], DataFrame],
        *,
        deterministic: Literal[True] | None = None,
        policy: Ephemeral | Eager | None = None,
    ) -> Stream:
        """Applies a row-wise function: projections, filters, `explode`, joins with a static table.

        Args:
            name: The processor's name.
            function: Takes the DataFrame of a step and gives another one. It is called for every step, so it must
                build the same plan each time; `bl.now()`, `bl.rand()` and `bl.uuid()` may be called inside it.
            deterministic: True if it has Python UDFs, to vouch that they give the same value for the same arguments:
                Spark believes it of every UDF, so it cannot be checked.
            policy: What a crash may cost: `Ephemeral()` if not given; `Eager()` makes its rows durable, so that they are never
                made again.

        Raises:
            InvalidError: `[BAD_OPTION]` deterministic=False: its results could not be repeated after a crash. `[BAD_POLICY]`.
        """
        if policy is not None and not isinstance(policy, Ephemeral | Eager):
            raise InvalidError(
                "BAD_POLICY",
                f"{name} keeps no state that {type(policy).__name__} could save: use Ephemeral() or Eager()",
            )
        if deterministic is not None and deterministic is not True:
            raise InvalidError(
                "BAD_OPTION",
                f"{name}: a transform that is not deterministic cannot be repeated after a crash: take clock and chance "
                "from bl.now(), bl.rand() and bl.uuid()",
            )
        return self.dataflow._add(Transform(_checked(name), self.name, function, deterministic, policy or Ephemeral()))

    def group_by(self, *keys: str) -> Grouped:
        """Groups by columns, to be aggregated. NULL is a key like any other."""
        if not keys or len(set(keys)) != len(keys):
            raise InvalidError("BAD_OPTION", f"group_by{keys}: name at least one column, and each only once")
        return Grouped(self, keys)

    def sink(self, name: str, sink: Sink) -> None:
        """Hands every step to the outside, exactly once."""
        self.dataflow._add(SinkProcessor(_checked(name), self.name, sink))


@dataclass(frozen=True, slots=True)
class Grouped:
    """A stream grouped by key columns."""

    stream: Stream
    keys: tuple[str, ...]

    def agg(self, name: str, *columns: Column, policy: Lazy | Eager | History | None = None) -> Stream:
        """Keeps aggregates by key, and gives one change for each change of its input.

        Args:
            name: The processor's name.
            columns: Spark's `count`, `sum`, `avg`, `min` and `max`, each with an `alias`.
            policy: What a crash may cost; `Lazy()` if not given.
        """
        if not columns:
            raise InvalidError("BAD_OPTION", f"{name}: agg needs at least one aggregate")
        if policy is not None and not isinstance(policy, Lazy | Eager | History):
            raise InvalidError(
                "BAD_POLICY",
                f"{name} keeps state, which {type(policy).__name__} cannot: use Lazy(…), Eager() or History()",
            )
        flow = self.stream.dataflow
        return flow._add(Aggregate(_checked(name), self.stream.name, self.keys, columns, policy or Lazy()))


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidError("BAD_NAME", f"{name!r} is no name: use up to 64 letters, digits, - and _, a letter first")
    return name
