"""The rounds in which the sides take turns, figures, ratios, and the machine: shared by all benchmarks."""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.harness.side import Answer, Side

__all__ = [
    "Effort",
    "Figure",
    "Result",
    "cycled",
    "describe_machine",
    "median_ratio",
    "percentile",
    "rounds",
    "rows_per_second",
    "step_rates",
]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a run.

    Attributes:
        rounds: How often each side takes its turn.
        scale: The divisor of state sizes; 1 measures, a larger one is for trying out.
    """

    rounds: int = 3
    scale: int = 1

    def keys(self, count: int) -> int:
        """Return a number of keys, or of rows, at this scale."""
        return max(1000, count // self.scale)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured quantity over all rounds."""

    unit: str
    min: float
    median: float
    max: float

    @classmethod
    def of(cls, unit: str, values: Sequence[float]) -> Figure:
        """Summarise one value a round."""
        low, middle, high = (_rounded(v) for v in (min(values), statistics.median(values), max(values)))
        return cls(unit, low, middle, high)


def describe_machine() -> Mapping[str, Any]:
    """Describe the machine, and its load now."""
    return {**_machine(), "load_at_start": round(os.getloadavg()[0], 2)}


@cache
def _machine() -> Mapping[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        **{name: version(name) for name in ("pyspark", "pyarrow", "numpy", "boatlift")},
        "commit": _first_line(["git", "describe", "--always", "--dirty", "--exclude", "*"]),
    }


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a benchmark.

    Attributes:
        name: The benchmark.
        target: The target of `ratio`, in words.
        met: Whether it was reached, by the headline and by every peer that has a target.
        ratio: The headline: the first of `ratios`.
        ratios: By peer, or by variant.
        figures: The figures that the ratios come from, and more.
        machine: The machine that measured.
    """

    name: str
    target: str
    met: bool
    ratios: Mapping[str, float]
    figures: Mapping[str, Figure]
    machine: Mapping[str, Any] = field(default_factory=describe_machine)

    @property
    def ratio(self) -> float:
        """The headline."""
        return next(iter(self.ratios.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "name": self.name,
            "ratio": self.ratio,
            "target": self.target,
            "met": self.met,
            "ratios": dict(self.ratios),
            "figures": {name: asdict(figure) for name, figure in self.figures.items()},
            "machine": dict(self.machine),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Result:
        """Return the result that `to_json` has made an object of."""
        figures = {name: Figure(**figure) for name, figure in fields["figures"].items()}
        return cls(fields["name"], fields["target"], fields["met"], fields["ratios"], figures, fields["machine"])


def rounds(count: int, sides: Mapping[str, Side], turn: Callable[[str, Side], _T]) -> dict[str, list[_T]]:
    """Let the sides take turns, beginning with another one each round, so that drift of the machine hits all alike."""
    taken: dict[str, list[_T]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(count):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            taken[name].append(turn(name, sides[name]))
    return taken


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median over rounds of the ratio within a round."""
    return _rounded(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)))


def rows_per_second(answer: Answer, rows: int) -> float:
    """Return the steady rate of a run of steps: from the first output that was seen to the last."""
    visible = answer["visible"]
    rate: float = rows * (len(visible) - 1) / (visible[-1] - visible[0])
    return rate


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def step_rates(
    effort: Effort, sides: Mapping[str, Side], files: Sequence[Path], rows: int, *, warm_up: int, count: int
) -> dict[str, list[float]]:
    """Return the rates in rows a second of sides that take files, each of so many rows, in turns of `count` files.

    Args:
        files: Taken one after the other, from the beginning again after the last.
        warm_up: The number of files that each side takes before.
    """
    fed = dict.fromkeys(sides, 0)

    def turn(name: str, side: Side, count: int = count) -> float:
        answer = side.run(cycled(files, fed[name], count))
        fed[name] += count
        return rows_per_second(answer, rows)

    for name, side in sides.items():
        turn(name, side, warm_up)
    return rounds(effort.rounds, sides, turn)


def cycled(files: Sequence[Path], start: int, count: int) -> list[Path]:
    """Return `count` files from number `start` on, from the beginning again after the last."""
    return list(islice(cycle(files), start, start + count))


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return (answer.stdout + answer.stderr).partition("\n")[0]


def _rounded(value: float) -> float:
    """Round to four significant digits: more is noise."""
    return float(f"{value:.4g}")
