"""Hashes of rows with any columns: equal values have equal hashes, in every batch.

A hash has 64 bits. Different seeds give independent hashes, so that two of them identify a row. −0.0 counts as 0.0, and
all NaNs are equal. docs/formats/run.md has the formula: runs on disk are sorted by these hashes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import InvalidError
from boatlift.state.column import Column, Ints, storage_of, text_bytes, words_of_storage

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BYTES = np.arange(8)
_TAILS = np.array([(1 << (8 * count)) - 1 for count in range(1, 9)], np.uint64)


def hash_rows(columns: Sequence[pa.Array], rows: int, seed: int) -> Words:
    """Return a hash of each row.

    Args:
        rows: The number of rows, because there may be no columns.
        seed: Any number from 0 to 2^32 − 1.

    Raises:
        InvalidError: `[TYPE_REFUSED]` a column has a type whose values cannot be compared.
    """
    hashes: Words = np.full(rows, _mixed(_word(seed + 1)), np.uint64)
    for column in columns:
        hashes = _folded(hashes, column, seed)
    return hashes


def _folded(hashes: Words, column: pa.Array, seed: int) -> Words:
    kind = column.type
    if pa.types.is_struct(kind):
        folded = hashes
        for field in column.flatten():
            folded = _folded(folded, field, seed)
        return _with_nulls(hashes, folded, column, seed)
    if pa.types.is_map(kind):
        raise InvalidError("TYPE_REFUSED", f"type {kind} cannot be compared: take the map apart with map_entries")
    if pa.types.is_null(kind):
        return _mixed(hashes ^ _null(seed))
    folded = hashes
    for words in _words_of(column, seed):
        folded = _mixed(folded ^ words)
    return _with_nulls(hashes, folded, column, seed)


def _with_nulls(before: Words, folded: Words, column: pa.Array, seed: int) -> Words:
    """Return the hashes, with the hash of NULL for rows with NULL."""
    if not column.null_count:
        return folded
    null = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(null, _mixed(before ^ _null(seed)), folded)


def _words_of(column: pa.Array, seed: int) -> list[Words]:
    """Return a column as one or two words per row; words of NULLs have no meaning."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        # Of each list the sum of its elements' hashes, each mixed with its position.
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        elements = column.flatten()
        return [_sums(hash_rows([elements], len(elements), seed), lengths, seed)]
    if storage_of(kind) is None:
        return [_text_words(column, seed)]
    return words_of_storage(Column.from_arrow(column, kind, canonical=False).values, kind)


def _text_words(column: pa.Array, seed: int) -> Words:
    """Return for each text the sum of its eight-byte words, each mixed with its position."""
    offsets, data = text_bytes(column)
    lengths = offsets[1:] - offsets[:-1]
    counts = (lengths + 7) // 8
    starts = np.repeat(offsets[:-1], counts) + 8 * _places_in(counts)
    padded = np.concatenate([data[: int(offsets[-1]) if len(offsets) else 0], np.zeros(8, np.uint8)])
    words = padded[starts[:, None] + _BYTES].view("<u8").reshape(-1)
    left = np.minimum(np.repeat(offsets[1:], counts) - starts, 8)
    return _sums(words & _TAILS[left - 1], counts, seed) ^ lengths.view(np.uint64)


def _sums(words: Words, counts: Ints, seed: int) -> Words:
    """Return for each group the sum of its words, each mixed with its position, and of their mixed number."""
    mixed = _mixed(words ^ _mixed(_places_in(counts).view(np.uint64) + _word(seed + 2)))
    running = np.zeros(len(mixed) + 1, np.uint64)
    np.cumsum(mixed, out=running[1:])
    ends = np.cumsum(counts)
    totals: Words = running[ends] - running[ends - counts]
    return totals + counts.view(np.uint64) * _GOLDEN


def _places_in(counts: Ints) -> Ints:
    """Return 0, 1, …, below the count of each group, concatenated."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)


def _null(seed: int) -> np.uint64:
    """Return the word of NULL, which differs by seed, so that no value equals NULL in two hashes."""
    word: int = _mixed(_word(seed + 3)).item()
    return np.uint64(word)


def _word(number: int) -> Words:
    word: Words = np.array(number * int(_GOLDEN) % 2**64, np.uint64)
    return word


def _mixed(words: Words) -> Words:
    with np.errstate(over="ignore"):
        x = words ^ (words >> np.uint64(30))
        x = x * np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x = x * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        return x
