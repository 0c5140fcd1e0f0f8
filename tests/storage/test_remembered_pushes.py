"""Remembered pushes are found as in a dict, and cost a small part of one."""

from __future__ import annotations

import sys
import tracemalloc

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from boatlift.storage.records.codec import Push
from boatlift.storage.remembered_pushes import RememberedPushes

KEYS = st.lists(st.text(max_size=3), unique=True, max_size=80)


def push_of(number: int, key: str) -> Push:
    return Push(key, number + 1, xxhash.xxh3_128_digest(key.encode()), 1_700_000_000_000 + number, number)


@given(
    keys=KEYS,
    cut=st.integers(0, 80),
    others=st.lists(st.text(max_size=3), max_size=20),
    modulus=st.sampled_from([1, 3, 2**64]),
)
def test_pushes_are_found_as_in_a_dict(keys: list[str], cut: int, others: list[str], modulus: int) -> None:
    """Also where hashes are equal: each is taken modulo a small number."""
    pushes = [push_of(number, key) for number, key in enumerate(keys)]
    known = {push.key: push for push in pushes if push.key}
    real = xxhash.xxh3_64_intdigest
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("xxhash.xxh3_64_intdigest", lambda key: real(key) % modulus)
        remembered = RememberedPushes(pushes[:cut])
        remembered.add(pushes[cut:])
        assert list(remembered) == list(known.values())
        assert len(remembered) == len(known)
        for key in {*keys, *others, "", "not there"}:
            assert remembered.find(key) == known.get(key)


@given(keys=KEYS, most=st.integers(0, 90), since=st.integers(0, 90))
def test_the_newest_are_kept_and_packed_as_they_are_read(keys: list[str], most: int, since: int) -> None:
    pushes = [push_of(number, key) for number, key in enumerate(keys) if key]
    kept = RememberedPushes(pushes).newest(most, 1_700_000_000_000 + since)
    expected = [push for push in pushes if push.at >= 1_700_000_000_000 + since]
    expected = expected[max(0, len(expected) - most) :]
    assert list(kept) == expected
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([kept.packed()]), type=list[list[Push]]) == [expected]


def test_a_push_costs_about_a_hundred_bytes() -> None:
    count = 20_000
    tracemalloc.start()
    try:
        remembered = RememberedPushes(push_of(number, f"{number:036d}") for number in range(count))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(remembered) == count
    assert held < 120 * count, f"{held / count:.0f} bytes a push"
    assert sys.getsizeof(push_of(1, "x")) > 50, "and that is an object alone, without its fields"
