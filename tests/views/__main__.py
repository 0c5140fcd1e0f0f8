"""`make views SEEDS=n`: random queries, random rows, every step against Spark; what fails is shrunk."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import boatlift as bl
from views.disturbed import DifferentError, judge_disturbed
from views.judge import QUICK, CaseError, judge
from views.random_queries import random_case
from views.shrinking import shrunk


def main() -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(prog="make views", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--queries", type=int, default=10, help="queries a seed")
    parser.add_argument("--steps", type=int, default=20, help="steps of each table")
    parser.add_argument("--disturbed", action="store_true", help="kill each run at random moments, change its policies")
    parser.add_argument("--compiled", action="store_true", help="let Spark compile each query: three times as slow")
    asked = parser.parse_args()
    spark = bl.session(**({} if asked.compiled else QUICK))
    return run_seeds(spark, asked)


def run_seeds(spark: SparkSession, asked: argparse.Namespace) -> int:
    """Run seeds, one after the other, whatever comes of each; return 1 if a view was wrong or raised an error."""
    queries = steps = kills = 0
    wrong = []
    root = Path(tempfile.mkdtemp(prefix="boatlift-views-"))
    for seed in range(asked.first, asked.first + asked.seeds):
        began = time.monotonic()
        case = random_case(seed, queries=asked.queries, steps=asked.steps, rows=4)
        try:
            if asked.disturbed:
                kills += judge_disturbed(spark, seed, case, root / str(seed))
                steps += asked.queries * asked.steps
            else:
                steps += judge(spark, case, root / str(seed))
        except DifferentError as error:
            wrong.append(seed)
            print(f"seed {seed} is wrong: {error}", flush=True)
        except CaseError as error:
            wrong.append(seed)
            small, least = shrunk(spark, case, error, root / f"{seed}-small")
            print(f"seed {seed} is wrong: {least}", flush=True)
            for table in small.tables:
                print(f"  {table.name} ({table.ddl}): {table.steps}", flush=True)
        queries += asked.queries
        shutil.rmtree(root / str(seed), ignore_errors=True)
        print(f"seed {seed}: {queries} queries, {steps} steps, {time.monotonic() - began:.0f} s", flush=True)
    shutil.rmtree(root, ignore_errors=True)
    print(f"{queries} queries, {steps} steps compared, {kills} kills, wrong seeds: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
