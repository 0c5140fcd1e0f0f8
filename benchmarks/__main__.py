"""`python -m benchmarks`: measures everything, or one benchmark by name.

The result is all that it prints on standard output; what benchmarks and their processes print goes to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from benchmarks.harness.measuring import Effort, Result
from benchmarks.harness.table import markdown

NAMES = (
    "keyed_aggregation",
    "object_store",
    "causal",
    "causal_overhead",
    "causal_bytes",
    "delta_write",
    "bucket_read",
    "http_get",
    "step_latency",
    "console",
    "state_growth",
    "overhead",
    "checkpoint_size",
    "recovery",
    "restart",
    "policies",
    "approaches",
    "fast_path",
    "partial_failure",
    "operator_loss",
    "restart_replay",
    "takeover",
    "evolve",
    "rewind",
    "keep",
    "back_pressure",
    "selective",
    "solver",
    "log_growth",
    "many_files",
    "simulation",
    "kafka_read",
    "kafka_write",
    "kafka_latency",
    "postgres_write",
    "mysql_write",
    "joint",
    "catch_up",
    "push",
    "answers",
    "adhoc",
    "join",
    "distinct",
    "gathered",
    "view_latency",
    "view_paths",
    "view_top",
    "view_growth",
    "tpch",
    "processor",
    "windows",
    "dedup",
    "loop",
    "nexmark",
)

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    """Read the command line, measure, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one benchmark; without a name all, written to results/")
    parser.add_argument("--write", action="store_true", help="write one result to results/, beside those of the others")
    parser.add_argument("--json", action="store_true", help="print one JSON object; of all benchmarks, a list of them")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side takes its turn")
    parser.add_argument("--scale", type=int, default=1, help="divide state sizes by this, to try things out")
    chosen = parser.parse_args()
    # A terminated benchmark ends its sides too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    effort = Effort(chosen.rounds, chosen.scale)
    with _reserved_standard_output() as output:
        if chosen.name is not None:
            result = _measure(chosen.name, effort)
            if chosen.write:
                _write([*_others(result), result], chosen.scale)
            print(json.dumps(result.to_json()) if chosen.json else markdown([result]), file=output)
            return
        results = []
        for name in NAMES:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            results.append(_measure(name, effort))
            # The table is written after each benchmark, so that a long run that is broken off leaves what it has.
            _write(results, chosen.scale)
        everything = json.dumps([result.to_json() for result in results]) if chosen.json else markdown(results)
        print(everything, file=output)


@contextmanager
def _reserved_standard_output() -> Iterator[TextIO]:
    """Yield standard output, and turn all other prints of this process and of those that it starts to standard error.

    A benchmark may start Maven, brokers and JVMs, which inherit file descriptor 1: so the descriptor itself is turned.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        yield output


def _measure(name: str, effort: Effort) -> Result:
    result: Result = importlib.import_module(f"benchmarks.cases.{name}").measure(effort)
    return result


def _others(result: Result) -> list[Result]:
    """Return the results of the other benchmarks that are in results/."""
    path = RESULTS / "latest.json"
    written = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [Result.from_json(each) for each in written if each["name"] != result.name]


def _write(results: list[Result], scale: int) -> None:
    if scale != 1:
        return  # figures of another size must not pass for the real ones
    RESULTS.mkdir(exist_ok=True)
    results = sorted(results, key=lambda result: NAMES.index(result.name))
    text = json.dumps([result.to_json() for result in results], indent=2, ensure_ascii=False)
    (RESULTS / "latest.json").write_text(text + "\n", encoding="utf-8")
    (RESULTS / "latest.md").write_text(markdown(results) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
