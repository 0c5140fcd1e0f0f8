"""The last transitions of a state machine, for the message of a broken invariant."""

from __future__ import annotations

from collections import deque

__all__ = ["TransitionLog"]


class TransitionLog:
    """A bounded list of transitions.

    Args:
        length: The number of transitions that are kept.
    """

    def __init__(self, length: int = 40) -> None:
        self._lines: deque[tuple[str, object]] = deque(maxlen=length)

    def add(self, kind: str, what: object) -> None:
        """Append a transition."""
        self._lines.append((kind, what))

    def __str__(self) -> str:
        return "the last transitions were:\n" + "\n".join(f"  {kind:5} {what}" for kind, what in self._lines)
