"""The standbys of an owner as its members: what they hold for it, and what they promise to a claimant."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

from boatlift.errors import FLOW_AND_STORE, DataError, UnavailableError
from boatlift.runtime.host.event_loop import EventQueue
from boatlift.runtime.machine.events import Event
from boatlift.runtime.peers.holding import HeldTail, HeldUpTo, Hold, Holders, Promised, Refused, missing
from boatlift.storage.group_commit import StreamEntry
from boatlift.storage.records.codec import decode_tail
from boatlift.storage.records.records import Membership
from boatlift.storage.records.stream import Tail

ANSWER_SECONDS = 10.0  # a claimant waits so long before it asks whether it can do without
LOST_SECONDS = 30.0  # and so long before it gives up what others may hold, if it may
LOOK_SECONDS = 0.02

logger = logging.getLogger(__name__)


class MemberHolding:
    """`Holders` of a running owner, for the threads of its connections, of its log, and of its sinks.

    Args:
        queue: Where the record of a change of the members is asked for.
        record: Submits such a record to the log; called on the host's own thread.
        refused: A standby says that it is promised to a newer owner; called on the host's own thread.
    """

    def __init__(self, queue: EventQueue, record: Callable[[Membership], None], refused: Callable[[], None]) -> None:
        self._queue, self._record, self._refused = queue, record, refused
        self._holders: Holders | None = None
        self._wakes: dict[str, Callable[[], None]] = {}
        self._promised: dict[str, Promised] = {}
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def begin(self, holders: Holders) -> None:
        """Ask standbys to hold entries from now on."""
        with self._lock:
            self._holders = holders
            self._promised.clear()  # the claimant has begun
            for life, name in self._names.items():
                holders.connected(life, name)
        self._look()

    def promised(self) -> Mapping[str, Promised]:
        with self._lock:
            return dict(self._promised)

    def connected(self, life: str, name: str, wake: Callable[[], None]) -> None:
        with self._lock:
            if self._wakes.get(life) is wake:
                return
            self._wakes[life], self._names[life] = wake, name
            if self._holders is not None:
                self._holders.connected(life, name)
        self._look()

    def lost(self, life: str, wake: Callable[[], None]) -> None:
        with self._lock:
            if self._wakes.get(life) is not wake:
                return
            del self._wakes[life], self._names[life]
            if self._holders is not None:
                self._holders.lost(life)
        self._look()

    def to_send(self, life: str, wake: Callable[[], None]) -> Hold | None:
        with self._lock:
            if self._holders is None or self._wakes.get(life) is not wake:
                return None
            return self._holders.to_send(life)

    def answered(self, answer: HeldUpTo | Refused | Promised) -> None:
        match answer:
            case Promised():
                with self._lock:
                    if self._holders is None:
                        self._promised[answer.life] = answer
            case Refused():
                self._queue.put(self._ask_again)
            case HeldUpTo():
                with self._lock:
                    if self._holders is None:
                        return
                    if not self._holders.held(answer):
                        logger.warning("standby %s says that it holds more than it was sent", answer.life)
                    due = self._holders.due()
                for then in due:
                    then()

    def _ask_again(self) -> Iterable[Event]:
        self._refused()
        return ()

    def entered(self, place: int, entry: StreamEntry) -> None:
        with self._lock:
            assert self._holders is not None
            self._holders.entered(place, entry)
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    def stored(self, end: int) -> None:
        with self._lock:
            assert self._holders is not None
            self._holders.stored(end)
        self._look()

    def watch(self, place: int, depth: int, then: Callable[[], None]) -> None:
        """Call something, on any thread, once so many members hold an entry, unless the log has it before."""
        with self._lock:
            assert self._holders is not None
            self._holders.watch(place, depth, then)
            due = self._holders.due()
        for each in due:
            each()

    @property
    def reached(self) -> int:
        """As `Holders` has it."""
        with self._lock:
            return 0 if self._holders is None else self._holders.reached

    def bytes_held(self) -> Mapping[str, int]:
        with self._lock:
            return {} if self._holders is None else self._holders.bytes_held()

    def _look(self) -> None:
        """Have a change of the members recorded, if there is one."""
        with self._lock:
            changes = self._holders is not None and self._holders.change() is not None
        if changes:
            self._queue.put(self._change)

    def _change(self) -> Iterable[Event]:
        with self._lock:
            assert self._holders is not None
            change = self._holders.change()
        if change is not None:
            self._record(change)
        return ()


def gather(
    members: Membership,
    own: HeldTail | None,
    known_as: int,
    promised: Callable[[], Mapping[str, Promised]],
    does_without: Callable[[Collection[Tail]], bool],
    look: Callable[[], None],
    tell: Callable[[str], None],
    is_over: Callable[[], bool],
    *,
    waits: bool,
    accepts_lost: bool,
) -> tuple[list[Tail], list[str]]:
    """Wait until enough members have promised themselves to a claimant; return what they hold.

    A member with a damaged entry counts as one that has promised nothing; its other entries count.

    Args:
        own: What the claimant holds as a standby.
        known_as: The token by which sinks know the claimant.
        promised: Returns what other members have answered.
        does_without: Returns whether what is found explains all that sinks show, and nothing else shows anything.
        look: Raises if there is a newer owner.
        tell: Receives in words for which members it waits.
        waits: It waits for as long as it takes, because it may be the last one that holds something.
        accepts_lost: It goes on without them after a while.

    Returns:
        Tails, and the members that were given up.

    Raises:
        UnavailableError: `[MEMBERS_MISSING]`.
    """
    mine = None if own is None else own.promise(known_as)
    began = asked = told = looked = time.monotonic()
    held: dict[str, list[Tail]] = {}
    damaged: dict[str, list[Tail]] = {}
    while True:
        answers = [answer for answer in promised().values() if answer.token == known_as]
        for answer in (*answers, *([mine] if isinstance(mine, Promised) else ())):
            if answer.life in held or answer.life in damaged:
                continue
            sound: list[Tail] = []
            (held if _decoded(answer, sound, members, tell) else damaged)[answer.life] = sound
        needed, absent = missing(members, held)
        tails = list(chain(*held.values(), *damaged.values()))
        if not needed:
            return tails, []
        now = time.monotonic()
        beside = " (beside this process, which may hold a part, with --take-over, too)" if waits else ""
        said = (
            f"the owner before asked {len(members.lives)} standbys to hold what its log lacked, at depth "
            f"{members.depth}, and {needed} more of these must answer: {_absent(members, absent, damaged)} what they "
            f"held: boatlift run {FLOW_AND_STORE} --accept-lost{beside}"
        )
        if now - asked >= ANSWER_SECONDS:
            asked = now
            if does_without(tails):
                return tails, []
            if accepts_lost and now - began >= LOST_SECONDS:
                return tails, absent
            if not (waits or accepts_lost):
                raise UnavailableError("MEMBERS_MISSING", said)
        if is_over():
            raise UnavailableError("MEMBERS_MISSING", said)
        if now - told >= ANSWER_SECONDS:
            told = now
            tell(f"[MEMBERS_MISSING] {said}")
        if now - looked >= 1.0:
            looked = now
            look()
        time.sleep(LOOK_SECONDS)


def _absent(members: Membership, absent: Sequence[str], damaged: Collection[str]) -> str:
    """Return the names of absent members, and what can be done, up to what is lost."""
    silent, broken = ([members.lives[life] for life in absent if (life in damaged) is of] for of in (False, True))
    said = f"{', '.join((*silent, *(f'{name} (what it holds is damaged)' for name in broken)))}. "
    if not silent:
        return f"{said}Go on without"
    return f"{said}Let {', '.join(silent)} reach this process; if they have ended, go on without"


def _decoded(answer: Promised, sound: list[Tail], members: Membership, tell: Callable[[str], None]) -> bool:
    """Append the sound entries of a promise; return whether all are."""
    whole = True
    for entry in answer.entries:
        try:
            sound.append(decode_tail(entry, f"standby {answer.life}"))
        except DataError as error:  # others may hold the same
            whole = False
            tell(f"does without standby {members.lives.get(answer.life, answer.life)}: {error}")
    return whole
