"""The loop of a host.

One event at a time goes into the machine, and every instruction to the part of the host that carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from boatlift.runtime.host.event_queue import EventQueue
from boatlift.runtime.machine import StateMachine
from boatlift.runtime.machine.instructions import Instruction

__all__ = ["EventLoop", "Handlers"]

Handlers = Mapping[type[Any], Callable[[Any], None]]
"""Each kind of instruction to what carries it out; called on the host's own thread, and returns at once."""


class EventLoop:
    """Drives a machine.

    Args:
        machine: Decides.
        queue: Answers, as they come.
        handlers: Carry instructions out.
    """

    def __init__(self, machine: StateMachine, queue: EventQueue, handlers: Handlers) -> None:
        self._machine, self._queue, self._handlers = machine, queue, handlers

    def run(self, first: Iterable[Instruction], is_over: Callable[[], bool]) -> None:
        """Carry out instructions, and hand answers to the machine, until all is over.

        An answer may yield several events. The instructions that follow from one are carried out before the next is
        asked for.
        """
        self._carry_out(first)
        while not is_over():
            for event in self._queue.next()():
                self._carry_out(self._machine.handle(event))

    def _carry_out(self, ordered: Iterable[Instruction]) -> None:
        for instruction in ordered:
            self._handlers[type(instruction)](instruction)
