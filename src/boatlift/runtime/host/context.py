"""The parts of a host that its handlers share, and the registration of handlers by instruction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from boatlift.dataflow import Plan
from boatlift.errors import InvalidError
from boatlift.runtime.engine import Engine
from boatlift.runtime.host.counters import Counters
from boatlift.runtime.host.event_loop import EventQueue, Workers
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import Instruction
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.runtime.peers.channel import split
from boatlift.runtime.peers.owner import LOOPBACK, OwnerLink, refuse_unencrypted
from boatlift.storage.log import Log

BYTES_IN_FLIGHT = 16 * 2**30  # the default limit of data in flight

Handlers = Mapping[type[Any], Callable[[Any], None]]
"""Each kind of instruction to its handler: called on the host's own thread, it returns at once."""

_Method = TypeVar("_Method", bound=Callable[[Any, Any], None])


logger = logging.getLogger(__name__)


def _log_notable(progress: Progress) -> None:
    if progress.what == "takeover":
        logger.warning("%s: %s", progress.processor, progress.said)
    if progress.what == "stuck":
        seconds = progress.durationMs / 1000
        logger.warning(
            "%s has made no progress at step %d for %.0f s: %s",
            progress.processor,
            progress.time,
            seconds,
            progress.said,
        )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of one run, as `bl.run` explains them; none of them belongs to the program.

    `on_progress` is called on the host's own thread. A paused source still reads input that is recorded already.
    """

    available_now: bool = False
    accept_released: bool = False
    skip: Collection[tuple[str, int | str]] = ()
    set_aside: Collection[str] = ()
    bytes_in_flight: int = BYTES_IN_FLIGHT
    on_progress: Callable[[Progress], None] = _log_notable
    long_running: bool = True
    take_over: bool = False
    pause: Collection[str] = ()
    step_timeout: float | None = None
    standby: bool = False
    for_handover: bool = False
    listen: str = LOOPBACK
    plain: bool = False
    health: str = ""
    replica: bool = False  # also a standby
    evolve: str = ""
    change: Mapping[str, str] = field(default_factory=dict)
    rewind: str | None = None  # the restore point to go back to, and then to stop; empty for the beginning
    from_copy: bool = False  # sinks come to a store that is restored from an older copy; then it stops
    accept_lost: bool = False

    @property
    def goes_back(self) -> bool:
        """Whether the run ends with its transition, which concerns every sink."""
        return self.rewind is not None or self.from_copy

    def __post_init__(self) -> None:
        given: object = self.bytes_in_flight
        if isinstance(given, bool) or not (isinstance(given, int) and given >= 1):
            raise InvalidError("BAD_OPTION", f"bytes_in_flight={given!r}: it must be a number of bytes, at least 1")
        if (seconds := self.step_timeout) is not None and not _is_positive(seconds):
            raise InvalidError("BAD_OPTION", f"step_timeout={seconds!r}: it must be a number of seconds above 0")
        for name in ("skip", "set_aside", "pause"):
            if isinstance(value := getattr(self, name), str):
                raise InvalidError("BAD_OPTION", f"{name}={value!r} is one text: write {name}=[{value!r}]")
        refuse_unencrypted(self.listen, plain=self.plain)
        if self.health:
            split(self.health)
        if self.replica and (self.available_now or self.for_handover):
            other = "available_now" if self.available_now else "for_handover"
            raise InvalidError("BAD_OPTION", f"replica=True goes on after every clean stop: omit {other}=True")
        if self.accept_lost and self.standby:
            raise InvalidError(
                "BAD_OPTION",
                "accept_lost=True is for a run that begins now, and a standby begins at any time: omit it",
            )
        skips: Collection[object] = self.skip
        for each in skips:
            if not (isinstance(each, tuple) and len(each) == 2):
                raise InvalidError("BAD_OPTION", f"skip has {each!r}: write a pair, such as ('clean', 7)")


def _is_positive(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < float("inf")


@dataclass(frozen=True, slots=True)
class HostContext:
    """The parts that every handler may use.

    Attributes:
        queue, workers: Where answers go, and the threads that blocking calls run on.
        progress: A read-only view of the machine.
        link: Where standbys listen.
        counters: What has been done.
    """

    engine: Engine
    plan: Plan
    log: Log
    queue: EventQueue
    workers: Workers
    progress: MachineProgress
    options: RunOptions
    link: OwnerLink
    counters: Counters


def handles(instruction: type[Any]) -> Callable[[_Method], _Method]:
    """Mark a method as the handler of a kind of instruction."""

    def marked(method: _Method) -> _Method:
        method.__dict__["instruction"] = instruction
        return method

    return marked


def handlers_of(*parts: object) -> Handlers:
    """Return the marked methods of some objects; every kind of instruction must have one."""
    handlers = {
        method.__dict__["instruction"]: method.__get__(part)
        for part in parts
        for method in vars(type(part)).values()
        if "instruction" in getattr(method, "__dict__", ())
    }
    assert handlers.keys() == set(get_args(Instruction)), "an instruction has no handler"
    return handlers
