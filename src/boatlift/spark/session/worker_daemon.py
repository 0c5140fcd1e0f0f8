"""The process that forks Spark's Python workers (`spark.python.daemon.module`), set up so that tasks begin quickly.

A plain worker takes half a second until its first task begins. After a failure several workers are new, just when other
jobs need the cores. Two parts of that time are saved here:

* PySpark's own imports are done before workers are forked. Arrow and NumPy are not imported: they start threads, and a
  process must have none when it forks.
* At its first task PySpark invalidates all importers, and those of zip archives then read the archive's directory again
  for each package in it. The module search path has two archives, PySpark itself and a jar of thousands of entries. An
  archive is taken off the path if its modules are found elsewhere on it.

After each task a worker collects garbage, and takes no other task before that is done. To traverse all objects of
Arrow, NumPy and PySpark takes longer than a small task. So the objects that a worker keeps from task to task are
frozen.

The workers of jobs that live for many steps write to the JVM without a buffer worth the name: a step's last rows
would stay in it.

Times of Python are in UTC here (`worker_times`).

The JVM gives up a task if another part of the job has failed, or if the JVM stops. The worker cannot write its last
rows then, and ends without a traceback.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
from collections.abc import Callable
from functools import wraps
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

MANY_OBJECTS = 10_000
"""If so many new objects outlive a task, they are modules that the task has imported, and their contents."""

VARIABLE, LONG_RUNNING = "BOATLIFT_WORKERS", "long_running"
"""As in `worker_pools`, which imports more than this process may have."""

UNHEARD = 1
"""The exit code of a task that its JVM has given up: the worker ends without a traceback."""

Task = Callable[..., int]


def keeping(task: Task) -> Task:
    """Return a function that runs a task, and then freezes the objects that outlive it if they are many."""

    @wraps(task)
    def run(*arguments: Any) -> int:
        try:
            code = task(*arguments)
        except ConnectionError:
            # The last write to the socket raised this: errors of the user's functions are caught before.
            if not peer_is_gone(arguments[0]):
                raise
            return UNHEARD
        gc.collect()
        if len(gc.get_objects()) > MANY_OBJECTS:
            gc.freeze()
        return code

    return run


def peer_is_gone(connection: socket.socket) -> bool:
    """Return True if the other end of a connection is closed."""
    poller = select.poll()
    poller.register(connection, 0)  # a closed connection is reported without being asked for
    return bool(poller.poll(0))


def without_archives(path: list[str]) -> list[str]:
    """Return a module search path without the archives that Spark has added; the order of the others stays.

    The archives of PySpark go if the rest of the path has the PySpark that they came with. The jar has no modules in
    it. Archives of users (`--py-files`) stay.
    """
    left = [entry for entry in path if not _is_jar_of_spark(Path(entry))]
    archive = next((Path(entry) for entry in left if Path(entry).name == "pyspark.zip"), None)
    if archive is None:
        return left
    without = [entry for entry in left if not _is_of_pyspark(Path(entry))]
    found = {name: PathFinder.find_spec(name, without) for name in ("pyspark", "py4j")}
    origins = [Path(spec.origin).parents[1] for spec in found.values() if spec is not None and spec.origin is not None]
    # A distribution of Spark has its folder `python`; the package from PyPI is in the folder of its installation.
    came_with = [*archive.parents[1:2], *archive.parents[3:4]]
    return without if len(origins) == 2 and all(origin in came_with for origin in origins) else left


def _is_jar_of_spark(entry: Path) -> bool:
    return entry.name.startswith("spark-core_") and entry.suffix == ".jar"


def _is_of_pyspark(entry: Path) -> bool:
    return entry.name == "pyspark.zip" or (entry.name.startswith("py4j-") and entry.suffix == ".zip")


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    sys.modules.pop("org", None)  # `copy` of the standard library imports it, and finds it in the jar

    import pyspark.worker  # noqa: F401 - so that forked workers find it imported
    from pyspark import daemon

    from boatlift.spark.session.worker_times import in_utc

    in_utc()
    if os.environ.get(VARIABLE) == LONG_RUNNING:
        os.environ["SPARK_BUFFER_SIZE"] = "64"
    daemon.worker = keeping(daemon.worker)
    gc.freeze()
    daemon.manager()
