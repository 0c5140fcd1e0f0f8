"""Long tests take turns: a run has every short test and one share of the long ones, and the shares change by commit.

A test is long if its last measured time, in `tests/durations.json`, is `LONG_SECONDS` or more. The long tests are dealt
into `TURNS` shares of about the same time: the longest first, each to the share with the least time so far. A run takes
the share `TURN` modulo `TURNS`; `scripts/test.sh` sets `TURN` to the number of commits. So the same commit always runs
the same tests, and successive commits run all. A run without `TURN` in its environment runs everything.

The head of a run names its share, and the end lists what the share left out. `TURN=record` runs everything and writes
the measured times (`make test-all`).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

LONG_SECONDS = 2.0
ROOT = Path(__file__).resolve().parent.parent.parent
DURATIONS = ROOT / "tests" / "durations.json"
LEFT_OUT = ROOT / "artifacts" / "left-out.txt"
RECORD = "record"


def deal(seconds: Mapping[str, float], turns: int) -> dict[str, int]:
    """The share, 0 to `turns - 1`, of each test; the shares differ by no more than the longest test."""
    shares: dict[str, int] = {}
    dealt = [0.0] * turns
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        share = dealt.index(min(dealt))
        dealt[share] += seconds[name]
        shares[name] = share
    return shares


def left_out(seconds: Mapping[str, float], turn: str | None, turns: int) -> frozenset[str]:
    """The tests that a run with this `TURN` does not run."""
    if turn is None or turn == RECORD:
        return frozenset()
    return frozenset(name for name, share in deal(seconds, turns).items() if share != int(turn) % turns)


class Turns:
    """The plugin: deselects, orders, reports and records."""

    def __init__(self, environment: Mapping[str, str], durations: Path = DURATIONS) -> None:
        self._turn = environment.get("TURN")
        self._turns = int(environment.get("TURNS", "32"))
        self._durations = durations
        self._seconds: dict[str, float] = json.loads(durations.read_text()) if durations.exists() else {}
        self._left_out = left_out(self._seconds, self._turn, self._turns)
        self._measured: dict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has another turn, and put the longest files first, so that two workers end together."""
        gone = [item for item in items if item.nodeid in self._left_out]
        config.hook.pytest_deselected(items=gone)
        run = [item for item in items if item.nodeid not in self._left_out]
        files: dict[Path, float] = defaultdict(float)
        for item in run:
            files[item.path] += self._seconds.get(item.nodeid, 0.0)
        items[:] = sorted(run, key=lambda item: -files[item.path])

    def pytest_report_header(self) -> str:
        if self._turn is None or self._turn == RECORD:
            return f"turns: all {len(self._seconds)} long tests run"
        runs = len(self._seconds) - len(self._left_out)
        return (
            f"turns: {runs} of {len(self._seconds)} tests of {LONG_SECONDS:.0f} s and more run: "
            f"share {int(self._turn) % self._turns} of {self._turns} (TURN={self._turn})"
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._measured[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._left_out:
            return
        files = Counter(name.partition("::")[0] for name in self._left_out)
        LEFT_OUT.parent.mkdir(exist_ok=True)
        LEFT_OUT.write_text("".join(f"{name}\n" for name in sorted(self._left_out)))
        terminalreporter.section("left out for another turn")
        terminalreporter.write_line(
            ", ".join(f"{name.removeprefix('tests/')} {n}" for name, n in sorted(files.items()))
        )
        terminalreporter.write_line(f"by name: {LEFT_OUT.relative_to(ROOT)}; `make test-all` runs everything")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._turn == RECORD and not hasattr(session.config, "workerinput"):
            self._record()

    def _record(self) -> None:
        """Write the times of this run's long tests; those of tests that this run did not have stay, if they exist."""
        stays = {name: took for name, took in self._seconds.items() if name not in self._measured and _exists(name)}
        long = {name: round(took) for name, took in self._measured.items() if took >= LONG_SECONDS}
        text = json.dumps(dict(sorted({**stays, **long}.items())), indent=0, ensure_ascii=False)
        self._durations.write_text(text + "\n")


def _exists(name: str) -> bool:
    """Return whether a test may still be there: a class may have inherited it."""
    file, _, rest = name.partition("::")
    owner = re.match(r"\w+", rest)
    text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
    return owner is not None and re.search(rf"^(class|def) {owner[0]}\b", text, re.MULTILINE) is not None


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the run."""
    config.pluginmanager.register(Turns(os.environ), "turns")
