"""The input: Parquet files of 64-bit keys and doubles, made once and kept in `artifacts/`.

Key number i is a bijective mix of i, so keys are uniform over 64 bits, and n different numbers are n different keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ARTIFACTS", "all_keys", "drawn_keys", "half_new", "keys", "score_changes", "scores", "written"]

Numbers = npt.NDArray[np.uint64]

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts" / "benchmarks"

_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])
_WEIGHTED = _SCHEMA.append(pa.field("_weight", pa.int64()))


def keys(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the keys of these numbers (the finaliser of SplitMix64)."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.int64)


def drawn_keys(rows: int, distinct: int, files: int, seed: int = 0) -> list[Path]:
    """Return files of rows whose keys are drawn uniformly from the first `distinct` ones."""

    def draw(index: int) -> Numbers:
        return np.random.default_rng((seed, 1, index)).integers(0, distinct, rows, np.uint64)

    return [
        _file(f"drawn-{rows}-of-{distinct}-{seed}-{index}", partial(draw, index), (seed, 2, index))
        for index in range(files)
    ]


def half_new(rows: int, distinct: int, files: int) -> list[Path]:
    """Return files of rows, of which half have keys drawn from the first `distinct` ones, and half each a new key."""

    def draw(index: int) -> Numbers:
        chance = np.random.default_rng((rows, 4, index))
        new = np.arange(rows // 2, dtype=np.uint64) + np.uint64(distinct + index * (rows // 2))
        return chance.permutation(np.concatenate([chance.integers(0, distinct, rows - len(new), np.uint64), new]))

    return [
        _file(f"half-new-{rows}-of-{distinct}-{index}", partial(draw, index), (rows, 5, index))
        for index in range(files)
    ]


def all_keys(distinct: int, rows: int) -> list[Path]:
    """Return files of `rows` rows that hold each of the first `distinct` keys once, in no order."""

    @cache
    def order() -> Numbers:
        return np.random.default_rng(distinct).permutation(distinct).astype(np.uint64)

    def cut(start: int) -> Numbers:
        return order()[start : start + rows]

    return [
        _file(f"all-{distinct}-by-{rows}-{index}", partial(cut, start), (distinct, 3, index))
        for index, start in enumerate(range(0, distinct, rows))
    ]


def scores(rows: int, groups: int, by: int) -> list[Path]:
    """Return files of rows that come: each has a group, drawn uniformly, and a score."""
    files = range(0, rows, by)
    return [
        written(
            f"scores-{rows}-of-{groups}-by-{by}-{at}", partial(_came, _drawn_scores(rows, groups), slice(at, at + by))
        )
        for at in files
    ]


def score_changes(rows: int, groups: int, changes: int, files: int) -> list[Path]:
    """Return files of changes to the rows of `scores`: in each one half goes, and as many come; no row goes twice."""
    half = changes // 2

    def make(index: int) -> pa.Table:
        group, score = _drawn_scores(rows, groups)
        step = np.random.default_rng((rows, 7)).permutation(rows)[index * half : (index + 1) * half]
        chance = np.random.default_rng((rows, 8, index))
        came = chance.integers(0, groups, half), chance.normal(100.0, 15.0, half)
        columns = np.concatenate([group[step], came[0]]), np.concatenate([score[step], came[1]])
        return pa.table([*columns, np.repeat([-1, 1], half)], schema=_WEIGHTED)

    return [
        written(f"score-changes-{changes}-{rows}-of-{groups}-{index}", partial(make, index)) for index in range(files)
    ]


@cache
def _drawn_scores(rows: int, groups: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    chance = np.random.default_rng((rows, 6))
    return chance.integers(0, groups, rows), chance.normal(100.0, 15.0, rows)


def _came(drawn: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]], rows: slice) -> pa.Table:
    group, score = (column[rows] for column in drawn)
    return pa.table([group, score, np.ones(len(group), np.int64)], schema=_WEIGHTED)


def _file(name: str, make: Callable[[], Numbers], seed: tuple[int, ...]) -> Path:
    def table() -> pa.Table:
        numbers = make()
        values = np.random.default_rng(seed).normal(100.0, 15.0, len(numbers))
        return pa.table([keys(numbers), values], schema=_SCHEMA)

    return written(name, table)


def written(name: str, make: Callable[[], pa.Table]) -> Path:
    """Return the file of a table, made once."""
    path = ARTIFACTS / "data" / f"{name}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        pq.write_table(make(), unfinished, compression="snappy", row_group_size=1 << 18)
        unfinished.rename(path)
    return path
