"""`python -m benchmarks`: measures everything, or one benchmark by name."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from pathlib import Path

from benchmarks.harness import Effort, Result
from benchmarks.table import markdown

NAMES = (
    "keyed_aggregation",
    "step_latency",
    "state_growth",
    "overhead",
    "checkpoint_size",
    "recovery",
    "policies",
    "fast_path",
    "partial_failure",
    "selective",
    "solver",
    "simulation",
    "kafka_read",
    "kafka_write",
    "kafka_latency",
    "push",
)

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    """Reads the command line, measures, and tells."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one benchmark; without a name all, written to results/")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side takes its turn")
    parser.add_argument("--scale", type=int, default=1, help="divide state sizes by this, to try things out")
    chosen = parser.parse_args()
    # A terminated benchmark ends its sides too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    effort = Effort(chosen.rounds, chosen.scale)
    if chosen.name is not None:
        result = _measure(chosen.name, effort)
        print(json.dumps(result.to_json()) if chosen.json else markdown([result]))
        return
    results = []
    for name in NAMES:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        results.append(_measure(name, effort))
        # Written after each, so that a long run that is broken off leaves what it has.
        _write(results, chosen.scale)
    print(json.dumps([result.to_json() for result in results]) if chosen.json else markdown(results))


def _measure(name: str, effort: Effort) -> Result:
    result: Result = importlib.import_module(f"benchmarks.{name}").measure(effort)
    return result


def _write(results: list[Result], scale: int) -> None:
    if scale != 1:
        return  # figures of another size must not pass for the real ones
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps([result.to_json() for result in results], indent=2, ensure_ascii=False)
    (RESULTS / "latest.json").write_text(text + "\n", encoding="utf-8")
    (RESULTS / "latest.md").write_text(markdown(results) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
