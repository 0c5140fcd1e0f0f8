"""The messages that wait on an edge, and the bytes of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["MessageQueue"]


class MessageQueue(dict[Any, Any]):
    """Sender's time to payload, in the order in which messages came.

    Law: `size` is the sum of the sizes of all payloads in the queue. It is kept up to date message by message, because
    an open epoch of a batch may hold many.

    Args:
        size_of: A payload to the bytes of its rows in scratch.

    Attributes:
        size: In bytes.
    """

    __slots__ = ("_size_of", "size")

    def __init__(self, size_of: Callable[[Any], int]) -> None:
        super().__init__()
        self._size_of = size_of
        self.size = 0

    def add(self, time: Any, payload: Any) -> None:
        """Add a message, unless one of its time is there."""
        if time not in self:
            self[time] = payload
            self.size += self._size_of(payload)

    def remove(self, time: Any) -> None:
        """Remove the message of a time, if there is one."""
        if time in self:
            self.size -= self._size_of(self.pop(time))

    def clear(self) -> None:
        """Remove all messages."""
        super().clear()
        self.size = 0
