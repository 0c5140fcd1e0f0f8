"""Simulated standbys: each follows the log and hears beats over links; one that suspects the owner takes over."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from boatlift.errors import UnavailableError
from boatlift.runtime.peers.channel import Beat
from boatlift.runtime.peers.detector import Detector, ProcessState
from boatlift.runtime.peers.follower import Lost
from boatlift.runtime.peers.holding import HeldTail
from boatlift.simulation.disk import DATAFLOW, FACTS_AN_OBJECT, Disk
from boatlift.simulation.driver import SimulatedDriver
from boatlift.simulation.links import SECONDS_AN_ACT, BeatLink, LinkCut
from boatlift.simulation.mounts import Mount, Outages
from boatlift.storage.log import Log

ACTS_A_BEAT = 5
READS = 0.1  # how often a standby reads the log without news of it
STARTS = 0.02  # how often a standby starts, if one is missing
RESTARTS = 0.05  # how often a driver starts, while standbys could take over
HOSTS = ("host0", "host0", "host1", "host2")  # drivers that start are on the first


@dataclass(frozen=True, slots=True)
class OwnerProcesses:
    """The processes of owners that have not ended, by their tokens; `paused` are those that a signal has stopped."""

    living: Mapping[int, SimulatedDriver]
    paused: AbstractSet[int] = field(default_factory=frozenset)

    def state(self, token: int, *, here: bool) -> ProcessState:
        """Return what the system says of a process; `here`: it is on the host that asks."""
        if not here:
            return ProcessState.UNKNOWN
        if token not in self.living:
            return ProcessState.ENDED
        return ProcessState.STOPPED if token in self.paused else ProcessState.RUNNING


class SimulatedStandby:
    """A standby as `Standby` is one, in simulated time.

    Args:
        check: Called with the log after some readings.

    Attributes:
        after: The token of the owner to take over from, once it is suspected.
        claims_at: The act in which the claim is made.
        suspects: The schedule has it suspect its owner, whatever it hears.
        dies_at: The act in which it dies as an heir; 0 for none.
        reads: How often it reads the log without news of it.
        tail: The entries of owners that this standby holds, for its life.
    """

    def __init__(
        self,
        life: str,
        host: str,
        rng: random.Random,
        mount: Callable[[], Mount],
        cuts: list[LinkCut],
        check: Callable[[Log, random.Random], None],
    ) -> None:
        self.life, self.host = life, host
        self._rng, self._mount, self._cuts, self._check = rng, mount, cuts, check
        self.log: Log | None = None
        self.tail = HeldTail(life)
        self.token, self.after, self.claims_at = 0, 0, 0
        self.suspects, self.dies_at, self.reads = False, 0, READS
        self._here = False
        self._detector, self._link = Detector(0.0), BeatLink(rng, cuts)

    def begin_anew(self) -> None:
        """Follow on with a store that is opened anew, as after a claim that failed."""
        self.log, self.token, self.after = None, 0, 0

    def hear_beat(self, now: float, beat: Beat) -> None:
        self._link.send(now, beat)

    def look(self, now: float, owners: OwnerProcesses) -> bool:
        """Look at the owner and at the log; return whether the dataflow has to be claimed."""
        try:
            if self.log is None:
                self.log = Log.open(self._mount(), DATAFLOW, facts_an_object=FACTS_AN_OBJECT)
            return self._follow(self.log, now, owners) if self.token else self._find(self.log, now)
        except UnavailableError:
            self.token = 0  # the store is away
            return False

    def _find(self, log: Log, now: float) -> bool:
        """Look for an owner to follow; return whether this standby is the heir of the last one."""
        self._read(log)
        owner = log.claim_of(log.owner)
        if owner is not None and not log.history.stopped:
            self.token, self._here = log.owner, owner.host == self.host
            self._detector, self._link = Detector(now), BeatLink(self._rng, self._cuts)
            return False
        self.after = log.owner
        return log.history.heir == self.life

    def _follow(self, log: Log, now: float, owners: OwnerProcesses) -> bool:
        news = self._hear(log, now, runs=self.token in owners.living)
        if news or self._rng.random() < self.reads:
            self._detector.woke(now)
            if self._read(log):
                self._detector.grew(now)
            self._detector.looked(now)
            if self._is_over(log):
                return False
        state = owners.state(self.token, here=self._here)
        suspects, self.suspects = self.suspects, False
        if not (self._detector.suspicion(now, state) or suspects):
            return False
        if self._read(log) and state is not ProcessState.ENDED and not suspects:
            self._detector.grew(now)
            return False
        self.after = self.token
        return not self._is_over(log)

    def _is_over(self, log: Log) -> bool:
        """Return whether the owner is no longer the one that is followed; then another one is looked for."""
        if log.owner == self.token and not log.history.stopped:
            return False
        self.token = 0
        return True

    def _hear(self, log: Log, now: float, *, runs: bool) -> bool:
        """Hear all that has come, and return whether the log has to be read."""
        news = False
        for heard in self._link.hear(now, runs=runs):
            match heard:
                case Beat(token, number) if token == self.token:
                    self._detector.heard_beat(now)
                    news = news or number > log.last
                case Lost.CLOSED:
                    news = True
                case Lost():
                    self._detector.unreached(refused=heard is Lost.REFUSED)
        return news

    def _read(self, log: Log) -> bool:
        grew = log.catch_up()
        self._check(log, self._rng)
        return grew


class Standbys:
    """The standbys of a seed, and what the schedule does to them and to their owners.

    Args:
        check: Called with a standby's log after some readings.

    Attributes:
        count: So many standbys wait; 0 for a seed without.
        waiting: Those that have neither died nor claimed.
    """

    def __init__(
        self,
        seed: int,
        acts: int,
        disk: Disk,
        outages: Outages,
        trace: Callable[[object], None],
        check: Callable[[Log, random.Random], None],
    ) -> None:
        self._rng = rng = random.Random(f"standbys {seed}")
        self._disk, self._outages, self._trace, self._check = disk, outages, trace, check
        self.count = rng.choice((0, 0, 0, 1, 2, 3))
        self.waiting: list[SimulatedStandby] = []
        self._started, self._reads = 0, READS
        self._suspicions = self._moments(acts, (0, 1, 2))
        self._deaths = self._moments(acts, (0, 0, 1, 2))
        self._handovers = self._moments(acts, (0, 0, 1))
        self._pauses = [(at, at + rng.choice((10, 30, 80))) for at in self._moments(acts, (0, 0, 1, 2))]
        self._heirs_die = rng.random() < 0.3
        self._cuts: list[LinkCut] = []
        for _ in range(rng.choice((0, 1, 3, 6))):
            begin = rng.uniform(0.0, acts * SECONDS_AN_ACT)
            self._cuts.append(LinkCut(begin, begin + rng.choice((0.2, 1.0, 15.0)), rng.random() < 0.6))

    def __str__(self) -> str:
        paused = ", ".join(f"{begin} to {end}" for begin, end in self._pauses)
        return (
            f"{self.count} standbys: acts of wrong suspicions {self._suspicions}, of deaths {self._deaths}, "
            f"of handovers {self._handovers}; owners are paused in acts {paused or 'none'}; "
            f"links are cut {len(self._cuts)} times"
        )

    def waits(self) -> bool:
        """Return whether a driver waits before it starts, because a standby could be faster."""
        return bool(self.waiting) and self._rng.random() >= RESTARTS

    def paused(self, acts: int) -> bool:
        """Return whether the driver is stopped by a signal."""
        return bool(self.count) and any(begin <= acts < end for begin, end in self._pauses)

    def lets_zombies_act(self) -> bool:
        """Return whether a zombie acts between two acts of a driver that starts."""
        return bool(self.count) and self._rng.random() < 0.3

    def act(self, acts: int, owners: OwnerProcesses) -> SimulatedStandby | None:
        """Let standbys hear and look; return one whose claim is due, which waits no longer."""
        if not self.count:
            return None
        now, rng = acts * SECONDS_AN_ACT, self._rng
        if len(self.waiting) < self.count and (acts == 1 or rng.random() < STARTS):
            self._start()
        if self.waiting and self._due(self._deaths, acts):
            rng.choice(self.waiting).dies_at = acts
        for standby in [each for each in self.waiting if 0 < each.dies_at <= acts]:
            self._trace(f"standby {standby.life} dies")
            self.waiting.remove(standby)
        if self.waiting and self._due(self._suspicions, acts):
            rng.choice(self.waiting).suspects = True
        for token, driver in owners.living.items():
            if acts % ACTS_A_BEAT == token % ACTS_A_BEAT and token not in owners.paused:
                for standby in self.waiting:
                    if standby.token == token:
                        standby.hear_beat(now, Beat(token, driver.last))
        for standby in self.waiting:
            if standby.claims_at:
                if acts >= standby.claims_at:
                    self.waiting.remove(standby)
                    return standby
            elif standby.look(now, owners):
                standby.claims_at = acts + rng.choice((0, 0, 1, 3, 10, 50))
                self._trace(f"standby {standby.life} is to take over from {standby.after}")
        return None

    def heir(self, acts: int) -> str:
        """Return the life of a standby that the dataflow is handed over to now; empty if there is no handover."""
        if not (self.waiting and self._due(self._handovers, acts)):
            return ""
        heir = self._rng.choice(self.waiting)
        if self._heirs_die:
            heir.dies_at = acts + self._rng.randint(1, 40)
        return heir.life

    def endure(self, count: int, suspicions: Iterable[int], reads: float) -> None:
        """Let so many wait at least, suspect their owner in further acts, and read the log so often."""
        self.count, self._reads = max(self.count, count), reads
        self._suspicions += suspicions

    def die(self, count: int) -> None:
        """Let so many die at once."""
        for standby in self._rng.sample(self.waiting, min(count, len(self.waiting))):
            self._trace(f"standby {standby.life} dies")
            self.waiting.remove(standby)

    def follow_on(self, standby: SimulatedStandby) -> None:
        """Let a standby wait again, because its claim has failed."""
        standby.begin_anew()
        standby.claims_at = 0
        self.waiting.append(standby)

    def _start(self) -> None:
        self._started += 1
        host, rng = self._rng.choice(HOSTS), random.Random(self._rng.getrandbits(64))
        mount = lambda: Mount(self._disk, self._outages)  # noqa: E731
        self.waiting.append(SimulatedStandby(f"s{self._started}", host, rng, mount, self._cuts, self._check))
        self.waiting[-1].reads = self._reads
        self._trace(f"standby s{self._started} starts on {host}")

    def _moments(self, acts: int, counts: tuple[int, ...]) -> list[int]:
        return [self._rng.randint(1, acts) for _ in range(self._rng.choice(counts))]

    @staticmethod
    def _due(moments: list[int], acts: int) -> bool:
        """Return whether a moment has come; it comes once."""
        due = [at for at in moments if at <= acts]
        if due:
            moments.remove(due[0])
        return bool(due)
