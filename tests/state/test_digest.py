"""The digest of an output: neither order nor division can change it, everything else does."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.state.digest import digest

MOMENTS = dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1)  # noqa: DTZ001 - timestamps without a zone are meant
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("n", pa.int16()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("t", pa.string()),
        ("b", pa.binary()),
        ("f", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.timestamp("us")),
        ("c", pa.decimal128(30, 2)),
        ("_weight", pa.int64()),
    ]
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "n": st.none() | st.integers(-(2**15), 2**15 - 1),
            "x": st.none() | st.floats(),
            "y": st.none() | st.floats(width=32),
            "t": st.none() | st.text(max_size=4),
            "b": st.none() | st.binary(max_size=4),
            "f": st.none() | st.booleans(),
            "d": st.none() | st.dates(),
            "m": st.none() | st.datetimes(MOMENTS[0], MOMENTS[1]),
            "c": st.none() | st.integers(-(10**28), 10**28).map(lambda i: Decimal(i).scaleb(-2)),
            "_weight": st.sampled_from([-1, 1]),
        }
    ),
    max_size=20,
)


def batch(content: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(content, schema=SCHEMA)


@given(rows, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_division_cannot_be_seen(content: list[dict[str, Any]], chance: Any, cut: int) -> None:
    whole = digest(batch(content))
    chance.shuffle(content)
    shuffled = batch(content)
    assert (digest(shuffled.slice(0, cut)) + digest(shuffled.slice(cut))) % 2**64 == whole


@given(rows.filter(bool), st.data())
def test_every_value_counts(content: list[dict[str, Any]], data: st.DataObject) -> None:
    before = digest(batch(content))
    row, name = data.draw(st.integers(0, len(content) - 1)), data.draw(st.sampled_from(SCHEMA.names))
    old = content[row][name]
    content[row] = {**content[row], name: None}
    if name != "_weight":
        assert (digest(batch(content)) != before) == (old is not None)


EQUAL = [(0.0, -0.0), (float("nan"), np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)[0])]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_zeros_and_nans_are_one(a: float, b: float) -> None:
    assert digest(pa.record_batch({"x": [a]})) == digest(pa.record_batch({"x": np.array([b])}))


def test_values_change_places_with_their_columns() -> None:
    one, other = pa.record_batch({"a": [1], "b": [2]}), pa.record_batch({"a": [2], "b": [1]})
    assert digest(one) != digest(other)
    assert digest(pa.record_batch({"a": [1, 2], "b": [1, 2]})) != digest(pa.record_batch({"a": [1, 2], "b": [2, 1]}))
    assert digest(pa.record_batch({"a": [1, 1]})) != digest(pa.record_batch({"a": [2, 2]})) != 0


def test_no_two_of_many_rows_are_alike() -> None:
    grid = np.arange(1 << 16)
    table = {"a": (grid & 255) * 0.5, "b": (grid >> 8) * 2.0**40, "w": np.ones(1 << 16, np.int64)}
    seen = {digest(pa.record_batch({name: values[i : i + 1] for name, values in table.items()})) for i in range(2000)}
    assert len(seen) == 2000


def test_the_formula_is_that_of_the_format_page() -> None:
    """docs/formats/digest.md, in plain Python."""
    mask = 2**64 - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    def sequence(number: int) -> int:
        return mix((0x9E3779B97F4A7C15 * number) & mask)

    def factor(place: int) -> int:
        return sequence(place + 1) | 1

    def text(content: bytes) -> int:
        base = 0x5851F42D4C957F2D
        return sum(sequence(2**32 + byte) * pow(base, place, 2**64) for place, byte in enumerate(content)) & mask

    def row(*words: int) -> int:
        return mix(sum(((w ^ (w >> 32)) * factor(place)) & mask for place, w in enumerate(words)) & mask)

    half = int(np.float64(0.5).view(np.uint64))
    long = b"".join(b"%d," % i for i in range(12_000))  # longer than what is taken at once, several times
    texts = [b"ab", None, long, b"", b"z" * 16_384, b"y" * 16_383, b"x" * 16_385, b"end"]
    content = pa.record_batch({"i": [-3, *[None] * 7], "x": [0.5] * 8, "t": pa.array(texts, pa.binary())})
    rows_ = [
        row(mask - 2 if i == 0 else sequence(2**33), half, sequence(2**33 + 2) if value is None else text(value))
        for i, value in enumerate(texts)
    ]
    assert digest(content) == sum(rows_) % 2**64
    assert digest(content.slice(2)) == sum(rows_[2:]) % 2**64
    large = content.set_column(2, "t", content["t"].cast(pa.large_binary()))
    assert digest(large) == digest(content)


def test_text_is_distinguished_by_order_and_length() -> None:
    texts = ["", "a", "b", "ab", "ba", "aab", "aba", "baa", "a" * 16, "a" * 17, "ÿ", "\0", "\0\0"]
    assert len({digest(pa.record_batch({"t": [text]})) for text in texts}) == len(texts)
