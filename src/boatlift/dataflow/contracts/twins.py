"""Stand-ins of connectors for crash tests: a sink elsewhere, and a source that ends (`testing/twins.py`).

A crash test runs a user's dataflow many times. It must touch nothing of the user's, and each of its runs must read the
same input and come to an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.dataflow.contracts.values import Json

if TYPE_CHECKING:
    from pathlib import Path

    from boatlift.dataflow.contracts.sink import Sink
    from boatlift.dataflow.contracts.source import Source


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A row in the place of a sink, as other programs read it.

    Attributes:
        values: The user's columns.
        weight: −1 for a row that takes another one back.
        delivered: In a place that may have a step twice: the part of the step, and a name for this delivery of it.
    """

    values: Mapping[str, Any]
    weight: int = 1
    delivered: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SinkTwin:
    """A sink of the same kind in a temporary place.

    Laws:
        * The twin has the options of the sink, but for its place; twins of sinks that share a transaction share theirs.
        * Made again with the same folder and name, it is the same twin, with what it holds.
        * `held` reads what other programs see there, after the last run has ended: not by the sink's own code where
          another reader is installed.
    """

    sink: Sink
    held: Callable[[], Iterable[HeldRow]]


class BoundedInput(Protocol):
    """Bounds a source to input that is there now.

    Laws:
        * Neither method has an effect on the source's system.
        * `within(b)` has the positions and rows of the source up to the bounds b, however often and whenever it reads
          them, and `next` returns None after them.
    """

    def bounds(self, folder: Path, steps: int | None, given: Path | None) -> Json:
        """Determine what is read.

        Args:
            folder: An empty folder for copies or links.
            steps: The most steps; None for all that is there.
            given: A folder to read in place of the source's own; None for that.

        Raises:
            InvalidError: `[NO_TWIN]` the source has no end, or cannot be given a folder.
        """

    def within(self, bounds: Json) -> Source:
        """Return the source within its bounds."""
