"""A digest of a step's output that does not depend on the order of rows or on their division into batches.

Every row is mixed to 64 bits from its values, NULLs included. The digest is the sum of these modulo 2^64, so the
digests of the parts of an output add up to the digest of the whole. docs/formats/digest.md gives the formula.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.column import Column, text_bytes, words_of_storage

Words = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_BLOCK = 1 << 14  # rows whose words stay in the processor's cache


def digest(batch: pa.RecordBatch) -> int:
    """Return the digest of a batch's rows; the digests of several batches add up modulo 2^64."""
    words = np.zeros(batch.num_rows, np.uint64)
    for place, array in enumerate(batch.columns):
        add_column(words, place, Column.from_arrow(array, array.type, canonical=False))
    return finish(words)


def add_column(words: Words, place: int, column: Column) -> None:
    """Add a column to the words of its rows, one per row, in place."""
    multiplier = _multiplier(place)
    for values in _words_of(column, _null(place)):
        for start in range(0, len(words), _BLOCK):
            block = values[start : start + _BLOCK]
            mixed = block >> np.uint64(32)
            mixed ^= block
            mixed *= multiplier
            words[start : start + _BLOCK] += mixed
        multiplier = np.uint64((int(multiplier) * 5) & _MASK)


def add_constant(words: Words, place: int, value: int) -> Words:
    """Return the words with a constant column added."""
    value &= _MASK
    return words + np.uint64(((value ^ (value >> 32)) * int(_multiplier(place))) & _MASK)


def finish(words: Words) -> int:
    """Return the sum of all rows' words, each mixed by the finaliser of splitmix64."""
    total = 0
    for start in range(0, len(words), _BLOCK):
        x = words[start : start + _BLOCK].copy()
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        total += int(x.sum(dtype=np.uint64))
    return total & _MASK


def _words_of(column: Column, null: np.uint64) -> Sequence[Words]:
    """Return a column as one 64-bit word per row (two for decimals); equal values have equal words."""
    if isinstance(column.values, pa.Array):
        return [_text_words(column.values, null)]
    found = words_of_storage(column.values, column.type)
    if column.valid is not None:
        found = [np.where(column.valid, words, null) for words in found]
    return found


def _text_words(array: pa.Array, null: np.uint64) -> Words:
    """Return one word per text: a polynomial in the words of its bytes."""
    offsets, data = text_bytes(array)
    words = np.zeros(len(array), np.uint64)
    row = 0
    while row < len(array):
        # As many texts as a stretch of bytes holds, or one stretch of a longer text.
        start = int(offsets[row])
        stop = int(offsets.searchsorted(start + _STRETCH, "right")) - 1
        if stop > row:
            words[row:stop] = _polynomials(data[start : offsets[stop]], offsets[row : stop + 1] - start)
        else:
            stop, end, word, factor = row + 1, int(offsets[row + 1]), 0, 1
            for begin in range(start, end, _STRETCH):
                piece = data[begin : min(begin + _STRETCH, end)]
                word += int(_polynomials(piece, np.array([0, len(piece)]))[0]) * factor
                factor = (factor * int(_POWERS[_STRETCH])) & _MASK
            words[row] = word & _MASK
        row = stop
    if array.null_count:
        words[array.is_null().to_numpy(zero_copy_only=False)] = null
    return words


def _polynomials(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Words:
    """Return for each text the sum of each byte's word times base^position."""
    running = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(_BYTES[data] * _POWERS[: len(data)], out=running[1:])
    at = running[offsets]
    words: Words = (at[1:] - at[:-1]) * _INVERSES[offsets[:-1]]
    return words


def _multiplier(place: int) -> np.uint64:
    return np.uint64(_splitmix(place + 1) | 1)


def _null(place: int) -> np.uint64:
    """Return the word of NULL in a column; it differs by column, so that no value equals NULL in all columns."""
    return np.uint64(_splitmix(1 << 33 | place))


def _splitmix(number: int) -> int:
    x = (0x9E3779B97F4A7C15 * number) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _powers(base: int) -> Words:
    powers = np.full(_STRETCH + 1, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


_STRETCH = 1 << 14  # bytes of text whose words stay in the processor's cache
_BASE = 0x5851F42D4C957F2D
_POWERS, _INVERSES = _powers(_BASE), _powers(pow(_BASE, -1, 1 << 64))
_BYTES = np.array([_splitmix(1 << 32 | byte) for byte in range(256)], np.uint64)
