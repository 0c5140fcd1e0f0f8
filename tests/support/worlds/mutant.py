"""A deliberate fault of the core, which can be put to work for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

__all__ = ["Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault.

    Attributes:
        what: What is wrong.
        patches: (owner, attribute) to what is put in its place.
        evolving: It is one of programs that change: lives of such stores catch it.
    """

    what: str
    patches: Mapping[tuple[Any, str], Any]
    evolving: bool = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Puts the fault into the core for a while."""
        with ExitStack() as stack:
            for (owner, name), replacement in self.patches.items():
                stack.enter_context(patch.object(owner, name, replacement))
            yield
