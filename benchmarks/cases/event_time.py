"""The rates of event time: both sides take the same files in turns, and their outputs are compared at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Side

__all__ = ["compared", "steps"]

WARM_UP, TURN = 4, 4


def steps(effort: Effort) -> int:
    """Return how many files a side takes in all."""
    return WARM_UP + TURN * effort.rounds


def compared(name: str, effort: Effort, files: Sequence[Path], rows: int, *, lateness: str, target: str) -> Result:
    """Return the rates of our side and of Structured Streaming's, on RocksDB and in memory.

    Args:
        name: The benchmark, and the query of the sides.
        effort: How much is measured.
        files: The files, each a step of so many rows.
        rows: Rows of a file.
        lateness: How late rows can be.
        target: In words.

    Raises:
        ValueError: The sides' outputs differ: no rate is worth anything.
    """
    fed = dict.fromkeys(("boatlift", "rocksdb", "memory"), 0)

    def turn(side_name: str, side: Side, count: int = TURN) -> float:
        answer = side.ask("run", files=[str(file) for file in files[fed[side_name] : fed[side_name] + count]])
        fed[side_name] += count
        return rows_per_second(answer, rows)

    with ExitStack() as stack:
        sides = {
            "boatlift": stack.enter_context(Side("benchmarks.sides.event_time_side", query=name, lateness=lateness)),
        }
        for state in ("rocksdb", "memory"):
            peer = Side("benchmarks.peers.event_time_peer", state=state, query=name, lateness=lateness)
            sides[state] = stack.enter_context(peer)
        for side_name, side in sides.items():
            turn(side_name, side, WARM_UP)
        rates = rounds(effort.rounds, sides, turn)
        # The peer shows a window a batch later than we do, so the last windows are left out.
        held = {side_name: side.ask("held", ended=len(files) - 4) for side_name, side in sides.items()}
    if len({tuple(each.values()) for each in held.values()}) > 1:
        raise ValueError(f"the outputs of {name} differ: {held}")
    ratios = {
        "Structured Streaming, RocksDB": median_ratio(rates["boatlift"], rates["rocksdb"]),
        "Structured Streaming, in memory": median_ratio(rates["boatlift"], rates["memory"]),
    }
    figures = {side_name: Figure.of("rows/s", values) for side_name, values in rates.items()}
    figures["rows of each output"] = Figure.of("", [float(held["boatlift"]["rows"])])
    return Result(
        name=name,
        target=target,
        met=ratios["Structured Streaming, RocksDB"] >= 5,
        ratios=ratios,
        figures=figures,
    )
