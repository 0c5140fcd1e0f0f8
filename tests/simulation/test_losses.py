"""Seeds in which owners die with their standbys, and the log is slow: nothing that was shown is lost."""

from __future__ import annotations

from itertools import pairwise

from boatlift.simulation.disk import DATAFLOW, CommitInTwo, Disk
from boatlift.simulation.recipes import Role
from boatlift.simulation.simulation import Simulation
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.records import Claim


def test_owners_die_with_standbys_and_sinks_are_as_they_would_be_or_the_run_says_what_is_missing() -> None:
    found = [simulation for seed in range(120) if (simulation := Simulation(seed)).losses.happen]
    found = [simulation for simulation in found if simulation.holds]
    assert len(found) > 8
    together = still = 0
    for simulation in found:
        simulation.run()
        trace = simulation.trace
        together += any(a.endswith(" dies") and b == "the driver dies" for a, b in pairwise(trace))
        still += simulation.stands_still
        assert not simulation.stands_still or trace[-1].startswith("it stands still: Membership(")
    assert together
    assert still < len(found)


def test_all_sinks_of_some_programs_keep_a_ledger_or_none_does() -> None:
    seen = set()
    for seed in range(200):
        simulation = Simulation(seed)
        if simulation.holds and simulation.losses.happen and simulation.losses.loose is not None:
            ledgers = {part.ledger for part in simulation.recipe.parts.values() if part.role is Role.SINK}
            assert ledgers == {not simulation.losses.loose}
            seen.add(simulation.losses.loose)
    assert seen == {True, False}


def test_what_is_submitted_while_a_group_is_written_goes_into_a_later_object() -> None:
    disk = Disk(lambda: None)
    log = Log.open(disk, DATAFLOW)
    log.claim(Claim("host", 0, 0, {}, {}))
    commit, durable = CommitInTwo(log), list[int]()

    def submit(number: int) -> None:
        commit.submit([Determinant("source", number, None, None)], lambda error: durable.append(number))

    submit(1)
    submit(2)
    assert commit.take() == []
    submit(3)
    commit.write(commit.take())
    assert durable == [1, 2]
    assert commit.take() == []
    commit.write(commit.take())
    assert durable == [1, 2, 3]
    reader = LogReader(disk, DATAFLOW)
    reader.load()
    assert [len(group.records) for group in reader.groups()] == [1, 2, 1]
