"""The state machine over any processors: every time domain, every policy, partial failure (design, sections 3, 4 and 6). Pure.

In reading order: `regime` (a policy as the machine takes it), `program` (what is driven), `acts` (events and instructions), `processor`
(where one is, and what it can do next: `structured`, `ordered`, `coarse`, `ends` are the kinds), `durable` (what is and is to be durable),
`machine`, `invariants`.
"""

from boatlift.runtime.regimes.acts import Event, Instruction
from boatlift.runtime.regimes.building import monitor_of
from boatlift.runtime.regimes.machine import StateMachine
from boatlift.runtime.regimes.program import Program
from boatlift.runtime.regimes.regime import Regime

__all__ = ["Event", "Instruction", "Program", "Regime", "StateMachine", "monitor_of"]
