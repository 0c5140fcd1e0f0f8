"""What one standby holds, and what an owner may rely on."""

from __future__ import annotations

import random

import pytest

from boatlift.runtime.peers import holding
from boatlift.runtime.peers.holding import HeldTail, HeldUpTo, Hold, Holders, Promised, Refused, missing
from boatlift.storage.records.records import Membership, Stopped


def entry(place: int) -> bytes:
    return f"entry {place}".encode()


def hold(token: int, start: int, end: int, stored: int = 0, life: str = "a") -> Hold:
    return Hold(token, life, start, tuple(map(entry, range(start, end))), stored)


def holders(entries: int = 0, *members: str, depth: int = 1) -> Holders:
    """An owner whose members are in force, and which has submitted so many entries since."""
    made = Holders(3, 3, depth, lambda place, _: entry(place))
    for life in members:
        made.connected(life, "host")
    change = made.change()
    if change is not None:
        made.entered(0, (change,))
        made.stored(1)
    for place in range(1, entries + 1):
        made.entered(place, (Stopped(),))
    return made


def say(made: Holders, life: str) -> None:
    """Let a standby hold all that it is sent."""
    sent = made.to_send(life)
    assert sent is not None
    assert made.held(HeldUpTo(3, life, sent.start + len(sent.entries)))


def test_a_standby_holds_an_interval_of_the_newest_stream() -> None:
    tail = HeldTail("a")
    assert tail.hold(hold(3, 5, 7)) == HeldUpTo(3, "a", 7)
    assert tail.hold(hold(3, 6, 9)) == HeldUpTo(3, "a", 9), "what it has already counts once"
    assert tail.hold(hold(3, 11, 12)) == HeldUpTo(3, "a", 9), "a gap is not bridged"
    assert tail.promise(4) == Promised(4, "a", tuple(map(entry, range(5, 9))))
    assert tail.hold(hold(4, 1, 2)) == HeldUpTo(4, "a", 2)
    assert tail.promise(4) == Promised(4, "a", (entry(1),)), "what it held of the owner before is stored, or void"


def test_what_is_stored_is_dropped_and_what_comes_behind_it_joins() -> None:
    tail = HeldTail("a")
    tail.hold(hold(3, 0, 4))
    assert tail.hold(hold(3, 4, 5, stored=3)) == HeldUpTo(3, "a", 5)
    assert tail.hold(hold(3, 8, 9, stored=8)) == HeldUpTo(3, "a", 9), "all before is in the log"
    assert tail.promise(3) == Promised(3, "a", (entry(8),))


def test_after_a_promise_an_older_owner_is_refused() -> None:
    tail = HeldTail("a")
    tail.hold(hold(3, 0, 1))
    assert tail.promise(5) == Promised(5, "a", (entry(0),))
    assert tail.hold(hold(3, 1, 2)) == tail.hold(hold(4, 0, 1)) == Refused(5)
    assert tail.promise(4) == Refused(5)
    assert tail.promise(5) == Promised(5, "a", (entry(0),)), "a claimant that asks again gets the same"


def test_another_life_is_nothing_to_it() -> None:
    assert HeldTail("b").hold(hold(3, 0, 1, life="a")) is None


def test_as_many_members_as_the_depth_says_must_hold_an_entry() -> None:
    made = holders(3, "a", "b", "c")
    assert [made.count(depth) for depth in (1, 2, 3, 4)] == [1, 1, 1, 1], "all of that is stored"
    say(made, "a")
    assert [made.count(depth) for depth in (1, 2, 3)] == [4, 1, 1]
    say(made, "c")
    assert [made.count(depth) for depth in (1, 2, 3)] == [4, 4, 1]
    made.lost("a")
    assert made.count(2) == 1
    assert made.reached == 0, "nothing was asked since"


def test_a_standby_that_is_no_member_does_not_count() -> None:
    made = holders(2, "a")
    made.connected("b", "host")
    say(made, "b")
    assert made.count(1) == 1


def test_behind_a_change_of_the_members_nothing_counts_until_it_is_stored() -> None:
    made = holders(1, "a")
    made.connected("b", "host")
    change = made.change()
    assert change == Membership(3, {"a": "host", "b": "host"}, 1)
    made.entered(2, (change,))
    made.entered(3, (Stopped(),))
    say(made, "a")
    assert made.change() is None, "one change at a time"
    assert made.count(1) == 3
    made.stored(3)
    assert made.count(1) == 4


def test_a_standby_cannot_hold_more_than_it_was_sent() -> None:
    made = holders(2, "a")
    made.to_send("a")
    made.entered(3, (Stopped(),))
    assert not made.held(HeldUpTo(3, "a", 9))
    assert made.count(1) == 3, "the entries that it was sent are all that counts"
    assert made.held(HeldUpTo(2, "a", 99)), "an answer to another owner says nothing"
    assert made.held(HeldUpTo(3, "z", 99))
    assert made.count(1) == 3


def test_a_standby_that_comes_back_is_sent_everything_that_the_log_lacks() -> None:
    made = holders(3, "a")
    say(made, "a")
    made.lost("a")
    made.connected("a", "host")
    sent = made.to_send("a")
    assert sent is not None
    assert (sent.start, len(sent.entries)) == (1, 3)
    assert made.to_send("a") is None


def test_a_standby_is_sent_no_more_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "MOST_HELD_BYTES", 2 * len(entry(1)))
    made = holders(4, "a")
    say(made, "a")
    assert made.count(1) == 3
    assert made.to_send("a") is None
    assert made.bytes_held() == {"a": 2 * len(entry(1))}
    made.stored(3)
    say(made, "a")
    assert made.count(1) == 5


def test_what_is_watched_is_due_once_and_never_once_the_log_has_it() -> None:
    made, told = holders(3, "a", "b"), list[str]()
    made.watch(1, 1, lambda: told.append("1 by one"))
    made.watch(1, 2, lambda: told.append("1 by two"))
    made.watch(3, 1, lambda: told.append("3 by one"))
    made.watch(0, 1, lambda: told.append("0, which is stored"))
    assert made.due() == []
    say(made, "a")
    for each in (*made.due(), *made.due()):
        each()
    assert told == ["1 by one", "3 by one"]
    assert made.reached == 4
    made.stored(2)
    say(made, "b")
    assert made.due() == []


@pytest.mark.parametrize(
    ("lives", "depth", "promised", "needed"),
    [
        ("a", 1, "", 1),
        ("a", 1, "a", 0),
        ("ab", 1, "a", 1),
        ("ab", 2, "b", 0),
        ("abc", 2, "a", 1),
        ("abc", 3, "c", 0),
        ("a", 2, "", 0),
        ("ab", 1, "xyz", 2),
    ],
)
def test_so_many_promises_that_one_of_the_holders_is_among_them(
    lives: str, depth: int, promised: str, needed: int
) -> None:
    members = Membership(3, dict.fromkeys(lives, "host"), depth)
    assert missing(members, promised) == (needed, sorted(set(lives) - set(promised)))


@pytest.mark.parametrize("seed", range(200))
def test_what_counts_is_found_by_any_claimant_with_enough_promises(seed: int) -> None:
    """Messages are late, connections break, standbys die and come back as others, and the log goes on in between."""
    rng = random.Random(seed)
    depth = rng.randint(1, 3)
    owner, tails = Holders(3, 3, depth, lambda place, _: entry(place)), dict[str, HeldTail]()
    on_the_way: dict[str, list[Hold]] = {}
    submitted = stored = counted = 0
    members: Membership | None = None
    changes: dict[int, Membership] = {}
    for number in range(rng.randint(5, 120)):
        match rng.choice(
            ("submit", "submit", "store", "join", "die", "break", "send", "send", "come", "come", "change")
        ):
            case "submit":
                owner.entered(submitted, (Stopped(),))
                submitted += 1
            case "change" if (change := owner.change()) is not None:
                owner.entered(submitted, (change,))
                changes[submitted] = change
                submitted += 1
            case "store" if stored < submitted:
                stored = rng.randint(stored + 1, submitted)
                members = next((changes[at] for at in sorted(changes, reverse=True) if at < stored), members)
                if rng.random() < 0.7:  # else the owner does not know it yet
                    owner.stored(stored)
            case "join":
                tails[f"s{number}"] = HeldTail(f"s{number}")
                owner.connected(f"s{number}", "host")
            case "die" if tails:
                life = rng.choice(sorted(tails))
                del tails[life]
                owner.lost(life)
                on_the_way.pop(life, None)
            case "break" if tails:
                life = rng.choice(sorted(tails))
                on_the_way.pop(life, None)
                owner.connected(life, "host")
            case "send" if tails:
                life = rng.choice(sorted(tails))
                if (sent := owner.to_send(life)) is not None:
                    on_the_way.setdefault(life, []).append(sent)
            case "come" if any(on_the_way.values()):
                life = rng.choice([life for life, sent in on_the_way.items() if sent])
                answer = tails[life].hold(on_the_way[life].pop(0))
                assert isinstance(answer, HeldUpTo)
                assert owner.held(answer)
        counted = max(counted, owner.count(depth))
        if members is None or missing(members, tails)[0]:
            continue
        enough = sorted(members.lives.keys() & tails.keys())
        while len(enough) > 1 and not missing(members, enough[1:])[0] and rng.random() < 0.8:
            enough.pop(rng.randrange(len(enough)))
            if missing(members, enough)[0]:
                break
        else:
            ends = [stored]
            for life in enough:
                tail = tails[life]
                end = tail._start + len(tail._entries)
                if tail._start <= stored:
                    ends.append(end)
            assert max(ends) >= counted, f"{counted} entries count, and {max(ends)} are found in {enough}"
