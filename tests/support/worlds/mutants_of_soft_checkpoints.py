"""Deliberate faults of soft checkpoints: what is kept of them, and what of them is adopted."""

from __future__ import annotations

from typing import Any

import msgspec

from boatlift.recovery import Monitor
from boatlift.runtime.machine import machine, soft_frames
from boatlift.runtime.machine.kinds.processor import MachineProcessor
from boatlift.runtime.machine.soft_frames import SoftFrames
from boatlift.simulation import disk
from boatlift.storage.group_commit import KeptFrames
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint, memory_at_the_end
from support.worlds.mutant import Mutant

__all__ = ["MUTANTS_OF_SOFT_CHECKPOINTS"]

_take, _adopt, _apply, _part = SoftFrames.take, soft_frames.adopt, SoftCheckpoint.apply, SoftFrames._part
_adopt_part = MachineProcessor.adopt
_replace = msgspec.structs.replace


def _all_frames(kept: Any, acted: int, fenced: int) -> Any:
    return memory_at_the_end(kept, acted, max(fenced, *(number + 1 for number, _ in kept)))


def _frames_but_the_last(kept: Any, _acted: int, fenced: int) -> Any:
    valid = [each for each in kept if each[0] < fenced]
    return memory_at_the_end(valid[:-1] or valid, 0, fenced)


def _adopt_without_waiting(memory: Any, *others: Any) -> Any:
    memory.waiting = ()
    return _adopt(memory, *others)


def _adopt_without_unrecorded(self: Any, part: Any, sent: Any) -> None:
    _adopt_part(self, _replace(part, unrecorded=()), sent)


def _adopt_without_messages(memory: Any, *others: Any) -> Any:
    memory._sent = {name: {edge: {} for edge in sent} for name, sent in memory._sent.items()}
    return _adopt(memory, *others)


def _adopt_without_empty_messages(memory: Any, *others: Any) -> Any:
    memory._sent = {
        name: {edge: {time: each for time, each in messages.items() if each} for edge, messages in sent.items()}
        for name, sent in memory._sent.items()
    }
    return _adopt(memory, *others)


def _never_anew(self: Any) -> None:
    self._changed = set(self._of)


def _part_without_state(self: Any, name: str) -> Any:
    part = _part(self, name)
    return part if part.begins else _replace(part, state=None)


def _take_rebuilding_too(self: Any, failed: Any) -> Any:
    rebuilding = {name: p.rebuild for name, p in self._of.items()}
    for p in self._of.values():
        p.rebuild = type(p.rebuild)()
    try:
        return _take(self, failed)
    finally:
        for name, p in self._of.items():
            p.rebuild = rebuilding[name]


MUTANTS_OF_SOFT_CHECKPOINTS = {
    "soft-ahead": Mutant(
        "a frame counts whose object the log does not have", {(disk, "memory_at_the_end"): _all_frames}
    ),
    "soft-behind": Mutant(
        "the memory of an earlier moment than that of the log is adopted",
        {(disk, "memory_at_the_end"): _frames_but_the_last},
    ),
    "soft-not-anew": Mutant(
        "the frame after a recovery has no more than what follows", {(SoftFrames, "begin_anew"): _never_anew}
    ),
    "soft-no-facts": Mutant("facts that waited are not added again", {(machine, "adopt"): _adopt_without_waiting}),
    "soft-no-order": Mutant(
        "the order of what an adopted state had taken is not made durable with the next state",
        {(MachineProcessor, "adopt"): _adopt_without_unrecorded},
    ),
    "soft-no-repeat": Mutant(
        "choices that are not in the log are not repeated", {(soft_frames, "_repeat"): lambda *_: None}
    ),
    "soft-no-messages": Mutant("messages are not adopted", {(machine, "adopt"): _adopt_without_messages}),
    "soft-no-nothings": Mutant(
        "times without a message are not adopted", {(machine, "adopt"): _adopt_without_empty_messages}
    ),
    "soft-rebuilding": Mutant("half of a state is adopted", {(SoftFrames, "take"): _take_rebuilding_too}),
    "soft-stateless": Mutant("a state is forgotten", {(SoftFrames, "_part"): _part_without_state}),
    "soft-deleted": Mutant("files that a successor needs are deleted", {(KeptFrames, "payloads"): lambda _self: []}),
    "soft-durable": Mutant(
        "an adopted state counts as durable",
        {(Monitor, "holds"): lambda self, name, frontiers: [self.durable_checkpoint(name, f) for f in frontiers[-1:]]},
    ),
}
