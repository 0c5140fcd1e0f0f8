"""The state machine over any processors: every time domain, every policy, partial failure (design, sections 3, 4 and 6). Pure.

In reading order: `regime` (a policy as the machine takes it), `program` (what is driven), `acts` (events and instructions), `processor`
(where one is, and what it can do next: `structured`, `ordered`, `coarse`, `ends` are the kinds), `durable` (what is and is to be durable),
`machine`, `invariants`.
"""

from boatlift.runtime.machine.build import monitor_of
from boatlift.runtime.machine.durability import Durability
from boatlift.runtime.machine.events import Event
from boatlift.runtime.machine.instructions import Instruction
from boatlift.runtime.machine.machine import StateMachine
from boatlift.runtime.machine.program import Program

__all__ = ["Durability", "Event", "Instruction", "Program", "StateMachine", "monitor_of"]
