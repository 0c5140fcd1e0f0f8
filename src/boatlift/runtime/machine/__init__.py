"""The state machine: every time domain, every policy, partial failure (design, sections 3, 4 and 6). Pure.

In reading order: `instructions` and `events` (the language between machine and shell), `program` (graph and
durabilities), `kinds` (processors: first `processor`, then one kind), `durable_facts` and `steps` (what becomes
durable; the orders of steps), `machine`, and its collaborators: `pressure`, `liveness`, `garbage`, `recover`;
at last `build`. `progress` is the view for people.
"""

from boatlift.runtime.machine.build import monitor_of
from boatlift.runtime.machine.machine import StateMachine
from boatlift.runtime.machine.program import Durability, Program
