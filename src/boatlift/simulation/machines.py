"""The machines of simulated drivers, and checks of what they recover to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from boatlift.runtime.machine import StateMachine
from boatlift.simulation.disk import DATAFLOW, Disk
from boatlift.simulation.faults import Settings
from boatlift.simulation.processors import Memory, clock_of
from boatlift.simulation.recipes import Role
from boatlift.simulation.world import World
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.facts import Fact
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.stream import FoundEntries, Tail, found_behind
from boatlift.times import AnyFrontier, Frontier, frontier_of


def machine_of(facts: Sequence[Fact], held: Mapping[str, AnyFrontier], settings: Settings) -> StateMachine:
    """Return a machine over durable facts and the frontiers of sinks."""
    sinks = {name for name, part in settings.recipe.parts.items() if part.role is Role.SINK and part.ledger}
    return StateMachine(
        settings.recipe.program(),
        LiveRecords.of(facts),
        held,
        checked=settings.checked,
        collect_after=settings.collect_after,
        messages_ahead=settings.messages_ahead,
        bytes_ahead=settings.bytes_ahead,
        steps_per_job=settings.steps_per_job,
        clock_of=clock_of,
        size_of=lambda payload: int(payload is not None),
        carriers=sinks & settings.carriers,
        depths=settings.depths,
        unawaited=settings.unawaited,
    )


def check_nothing_lost(world: World, machine: StateMachine) -> None:
    """Check that every processor recovers to its stable frontier at least, and every source to its acknowledged one.

    Raises:
        AssertionError: A processor does not.
    """
    collected = machine.durable.records.collected.states
    for name, p in machine.processors.items():
        stable = frontier_of(p.vertex.domain, collected.get(name, ()))
        assert stable <= p.done, f"{name} was stable at {stable}, and recovers to {p.done}"
    for source, acknowledged in world.acknowledged.items():
        done = machine.processors[source].done
        assert acknowledged <= done, f"{acknowledged} was acknowledged to {source}, which begins after {done}"


def carried_behind(world: World, log: LogReader, held: Iterable[Tail] = ()) -> FoundEntries:
    """Return what the sinks carry, and standbys hold, behind the end of a log."""
    return found_behind([*world.notes.values(), *held], log.store_id, log.begun, log.entries)


def try_recovery(disk: Disk, world: World, settings: Settings, held: Iterable[Tail]) -> None:
    """Try a recovery after a failure of everything: it must not need what was just collected.

    Args:
        held: By the standbys, which do not fail.

    Raises:
        AssertionError: It does.
    """
    log = Log.open(disk, DATAFLOW)
    history = log.history
    for record in carried_behind(world, log, held).records:
        history.apply(record)
    recorded = {sink: Frontier.up_to(history.committed.get(sink, -1)) for sink in world.without_ledger}
    machine = machine_of(tuple(history.live_records.facts()), {**world.held, **recorded}, settings)
    memory = Memory(settings.recipe, world.nodes, world.kept)
    for order in machine.start():
        memory.check(order)
    check_nothing_lost(world, machine)
