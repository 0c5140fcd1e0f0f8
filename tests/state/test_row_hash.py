"""Hashes of rows: equal rows have equal hashes, however they are stored; others differ."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import InvalidError
from boatlift.state.row_hash import hash_rows

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), st.text(max_size=40)),
    "binary": (pa.binary(), st.binary(max_size=40)),
    "decimal": (pa.decimal128(20, 2), st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-2))),
}
KINDS["list"] = (pa.list_(pa.string()), st.lists(st.one_of(st.none(), st.text(max_size=9)), max_size=4))
KINDS["struct"] = (
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]),
    st.fixed_dictionaries(
        {
            "a": st.one_of(st.none(), st.integers(0, 3)),
            "b": st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=2)),
        }
    ),
)
some_kind = st.sampled_from(list(KINDS))


def same(a: Any, b: Any) -> bool:
    """Whether two values count as one."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


def hashes(kind: pa.DataType, values: list[Any], seed: int = 1) -> list[int]:
    return [int(word) for word in hash_rows([pa.array(values, kind)], len(values), seed)]


@given(st.data(), some_kind)
def test_values_are_equal_if_their_hashes_are(data: st.DataObject, name: str) -> None:
    kind, some = KINDS[name]
    values = data.draw(st.lists(st.one_of(st.none(), some), max_size=8))
    found = hashes(kind, values)
    for a, left in zip(values, found, strict=True):
        for b, right in zip(values, found, strict=True):
            assert (left == right) == same(a, b), (a, b)


@given(st.data(), some_kind)
def test_the_batch_of_a_value_does_not_matter(data: st.DataObject, name: str) -> None:
    kind, some = KINDS[name]
    values = data.draw(st.lists(st.one_of(st.none(), some), min_size=3, max_size=8))
    whole = pa.array(values, kind)
    expected = hash_rows([whole], len(values), 7)
    cut = whole.slice(1, len(values) - 2)
    assert (hash_rows([cut], len(cut), 7) == expected[1:-1]).all()
    alone = [int(hash_rows([pa.array([value], kind)], 1, 7)[0]) for value in values]
    assert alone == expected.tolist()


def test_columns_have_an_order_and_one_of_them_is_null() -> None:
    one, two = pa.array([1, None, 2, None]), pa.array([2, 1, 1, None])
    found = hash_rows([one, two], 4, 1)
    turned = hash_rows([two, one], 4, 1)
    assert len(set(found.tolist())) == 4
    assert set(found.tolist()) & set(turned.tolist()) == {found[0], found[2], found[3]}, "rows that are in both"


def test_seeds_give_independent_hashes() -> None:
    values = pa.array(range(100_000))
    first, second = (hash_rows([values], len(values), seed) for seed in (1, 2))
    assert len(np.unique(first)) == len(np.unique(second)) == len(values)
    bits = np.unpackbits((first ^ second).view(np.uint8)).mean()
    assert abs(bits - 0.5) < 0.01


def test_key_groups_are_spread() -> None:
    """The upper 12 bits are the key group."""
    for values in (pa.array(range(40_960)), pa.array([f"key-{n}" for n in range(40_960)])):
        counts = np.bincount((hash_rows([values], len(values), 0) >> np.uint64(52)).astype(np.int64), minlength=4096)
        assert counts.max() < 40
        assert counts.min() > 0 or (counts == 0).sum() < 5


def test_texts_that_repeat_a_pattern_differ() -> None:
    """Sequences of Thue and Morse have equal hashes by any polynomial modulo 2^64."""
    word = "a"
    for _ in range(12):
        word += word.translate(str.maketrans("ab", "ba"))
    other = word.translate(str.maketrans("ab", "ba"))
    assert len(set(hashes(pa.string(), [word, other]))) == 2


def test_no_columns_give_one_hash() -> None:
    assert len(set(hash_rows([], 5, 3).tolist())) == 1


def test_a_map_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"\[TYPE_REFUSED\].*map_entries"):
        hash_rows([pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))], 1, 0)
