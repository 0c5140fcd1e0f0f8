"""Several drivers at once: standbys that take over, rightly and wrongly, over bad links and a store that fails."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from boatlift.errors import FencedError, UnavailableError
from boatlift.runtime.peers.channel import Beat
from boatlift.runtime.peers.follower import Lost
from boatlift.simulation.disk import Disk
from boatlift.simulation.links import BeatLink, LinkCut
from boatlift.simulation.mounts import Mount, Outages
from boatlift.simulation.simulation import Case, Simulation

SAID = {
    "claim": " claims",
    "claim that fails": " goes on as one: [FENCED]",
    "stop": "the driver has stopped",
    "handover": "the driver hands over to ",
    "death of a standby": " dies",
    "adoption": "the driver adopts ",
    "unknown write": " is unknown: run again",
    "store that cannot be read": "the store cannot be read",
    "zombie": "a zombie goes on",
}


def test_the_seeds_have_every_takeover_in_them():
    seen, compared, taken_over = Counter(), 0, 0
    for seed in range(80):
        simulation = Simulation(seed)
        simulation.run()
        compared += simulation.replicas.compared
        trace = simulation.trace
        taken_over += sum(
            line.endswith(" claims") and after.endswith(" owns the dataflow") for line, after in pairwise(trace)
        )
        seen.update(what for line in trace for what, said in SAID.items() if said in line and line[0] != "A")
    assert min(seen[what] for what in SAID) > 2, seen
    assert taken_over > 40
    assert compared > 15, "replicas against the machines of their owners"


def link(*cuts, seed=0):
    made = BeatLink(random.Random(seed), list(cuts))
    made._loss, made._delay = 0.0, 0.0
    return made


def test_a_cut_in_one_direction_silences_a_link_and_closes_nothing():
    cut = link(LinkCut(1.0, 2.0, to_standby=True))
    assert cut.hear(0.0, runs=True) == []
    cut.send(0.5, Beat(1, 7))
    cut.send(1.5, Beat(1, 8))
    cut.send(2.5, Beat(1, 9))
    assert cut.hear(1.5, runs=True) == [Beat(1, 7)]
    assert cut.hear(3.0, runs=True) == [Beat(1, 9)]


def test_an_owner_that_has_ended_closes_its_links_and_refuses_new_ones():
    closed = link()
    closed.hear(0.0, runs=True)
    assert closed.hear(0.1, runs=False) == [Lost.CLOSED]
    assert closed.hear(0.4, runs=False) == [Lost.REFUSED]
    assert link(LinkCut(0.0, 9.0, to_standby=False)).hear(0.1, runs=True) == [Lost.UNREACHED]


def test_messages_overtake_each_other():
    slow = link()
    slow.hear(0.0, runs=True)
    slow._delay = 1.0
    for number in range(20):
        slow.send(0.01 * number, Beat(1, number))
    heard = [beat.number for beat in slow.hear(2.0, runs=True)]
    assert sorted(heard) == list(range(20))
    assert heard != sorted(heard)


class Failing(Outages):
    """The next write has an unknown outcome, and lands when it is told to."""

    def __init__(self, disk, outcome):
        super().__init__(0, disk)
        self._writes, self._share, self._unread = 1, 1.0, []
        self._rng = self
        self.outcome = outcome

    def random(self):
        return 0.0

    def randrange(self, _end):
        return 0

    def choice(self, _among):
        return self.outcome

    def pass_by(self, share=1.0):
        if share == 1.0:
            super().pass_by(share)


def test_a_process_writes_no_more_after_a_write_whose_outcome_is_unknown():
    disk = Disk()
    mount = Mount(disk, Failing(disk, "now"))
    with pytest.raises(UnavailableError, match="STORE_FAILED"):
        mount.create("log/1", b"a")
    assert disk.objects == {"log/1": b"a"}, "it was written"
    with pytest.raises(UnavailableError, match="STORE_FAILED"):
        mount.create("log/2", b"b")


def test_a_late_write_is_lost_if_another_process_was_faster():
    for faster in (True, False):
        disk = Disk()
        outages = Failing(disk, "later")
        with pytest.raises(UnavailableError, match="STORE_FAILED"):
            Mount(disk, outages).create("log/1", b"late")
        if faster:
            Mount(disk, outages).create("log/1", b"other")
        outages.pass_by()
        assert disk.objects == {"log/1": b"other" if faster else b"late"}
    with pytest.raises(FencedError):
        Mount(disk, outages).create("log/1", b"again")


def test_standbys_and_failures_of_the_store_can_be_left_out():
    seed = next(seed for seed in range(50) if Simulation(seed).standbys.count and Simulation(seed).outages)
    faults = len(Simulation(seed).faults)
    simulation = Case(seed, frozenset({faults, faults + 1})).simulation()
    assert not simulation.standbys.count
    assert not simulation.outages
    simulation.run()
    assert not any("standby" in line for line in simulation.trace)
