"""Shares of the key groups: those of one number of tasks have every key group once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import InternalError
from boatlift.state.key_groups import ALL_KEY_GROUPS, KEY_GROUPS, Share, key_hash, residues

ONE_HASH_EACH = np.arange(KEY_GROUPS, dtype=np.uint64) << np.uint64(52) | np.uint64(12345)

some_share = st.integers(0, 12).flatmap(
    lambda power: st.builds(Share, st.just(1 << power), st.integers(0, 2**power - 1))
)


@given(some_share, some_share)
def test_shares_meet_where_they_hold_the_same(left: Share, right: Share) -> None:
    both = left.holds(ONE_HASH_EACH) & right.holds(ONE_HASH_EACH)
    assert left.meets(right) == both.any()
    assert left.holds(ONE_HASH_EACH).sum() == KEY_GROUPS // left.modulus
    assert (residues(ONE_HASH_EACH[left.holds(ONE_HASH_EACH)], left.modulus) == left.residue).all()


def test_hashes_of_other_key_groups_are_refused() -> None:
    ALL_KEY_GROUPS.check(ONE_HASH_EACH)
    Share(4, 3).check(ONE_HASH_EACH[3::4])
    with pytest.raises(InternalError, match="task 3 of 4 was handed rows of other key groups"):
        Share(4, 3).check(ONE_HASH_EACH[2:4])


@pytest.mark.parametrize(("modulus", "residue"), [(0, 0), (3, 0), (8192, 0), (4, 4), (4, -1)])
def test_what_is_no_share_is_refused(modulus: int, residue: int) -> None:
    with pytest.raises(InternalError, match="INTERNAL"):
        Share(modulus, residue)


def test_the_hash_of_rows_without_keys_is_constant() -> None:
    assert key_hash([]) == "0L"
    assert "`a``b`" in key_hash(["a`b"])
