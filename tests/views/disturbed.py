"""Random queries as views, killed at random moments, under other policies and numbers of tasks: the same steps.

Run as a module it is the process that is killed: it runs the views of a case in its working directory to the end.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import boatlift as bl
from views.judge import QUICK, flow_of, judge, rows_of, write
from views.random_queries import Generated, random_case

__all__ = ["DifferentError", "judge_disturbed"]

MOST_LIVES = 12


class DifferentError(AssertionError):
    """A disturbed run whose steps differ from those of an undisturbed one."""


def judge_disturbed(spark: SparkSession, seed: int, case: Generated, folder: Path) -> int:
    """Run a case undisturbed and disturbed, and compare the two step by step; return how often it was killed.

    Raises:
        CaseError: the undisturbed run fails already.
        DifferentError: the disturbed run is another.
    """
    judge(spark, case, folder / "undisturbed")
    disturbed = folder / "disturbed"
    disturbed.mkdir()
    before = Path.cwd()
    os.chdir(disturbed)
    write(case)
    os.chdir(before)
    chance = random.Random(f"disturbed {seed}")
    kills = 0
    for life in range(MOST_LIVES):
        lasts = chance.uniform(6, 25) if life < MOST_LIVES - 1 else None
        if _lives(disturbed, seed, case, life, lasts):
            break
        kills += 1
    for number, query in enumerate(case.queries):
        for path in sorted((folder / "undisturbed" / "out" / str(number)).glob("*.parquet")):
            other = disturbed / "out" / str(number) / path.name
            mine, its = rows_of(path), rows_of(other) if other.exists() else Counter()
            if mine != its:  # as bags of rows: several tasks write a file in another order than one
                raise DifferentError(
                    f"seed {seed}, query {number}, {path.name} after {kills} kills: {query}\n"
                    f"undisturbed alone: {dict(mine - its)}\ndisturbed alone: {dict(its - mine)}"
                )
    return kills


def _lives(folder: Path, seed: int, case: Generated, life: int, lasts: float | None) -> bool:
    """Run a process until it ends or is killed; return whether it came to the end of the input."""
    shape = ["--queries", str(len(case.queries)), "--steps", str(len(case.tables[0].steps))]
    command = [sys.executable, "-m", "views.disturbed", "--seed", str(seed), "--life", str(life), *shape]
    paths = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    with (folder / "log.txt").open("a") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            status = process.wait(lasts)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False
    if status:
        raise DifferentError(f"seed {seed} ended with status {status}: {(folder / 'log.txt').read_text()[-2000:]}")
    return True


def main() -> None:
    """Run the views of a seed, under policies and with a number of tasks drawn for this life of the process."""
    parser = argparse.ArgumentParser()
    for name in ("seed", "life", "queries", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args()
    chance = random.Random(f"life {asked.seed} {asked.life}")
    if chance.random() < 0.5:
        from boatlift.spark.jobs import planner

        planner.ONE_TASK_BYTES = 0  # several tasks
    case = random_case(asked.seed, queries=asked.queries, steps=asked.steps, rows=4)
    policies = [
        chance.choice((bl.Lazy(every=1), bl.Lazy(every=3), bl.Lazy(every=50), bl.Eager())) for _ in case.queries
    ]
    bl.run(flow_of(case, policies), "store", available_now=True, spark=bl.session(**QUICK))


if __name__ == "__main__":
    main()
