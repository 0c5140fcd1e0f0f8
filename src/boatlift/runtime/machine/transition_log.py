"""What a state machine did last, to be told when an invariant breaks."""

from __future__ import annotations

from collections import deque

__all__ = ["TransitionLog"]


class TransitionLog:
    """The last transitions, told when an invariant breaks."""

    def __init__(self, length: int = 40) -> None:
        self._lines: deque[tuple[str, object]] = deque(maxlen=length)

    def tell(self, kind: str, what: object) -> None:
        """Adds a transition."""
        self._lines.append((kind, what))

    def __str__(self) -> str:
        return "the last transitions were:\n" + "\n".join(f"  {kind:5} {what}" for kind, what in self._lines)
