"""The process from which Spark forks its Python workers (`spark.python.daemon.module`), set up so that tasks begin quickly.

A worker takes half a second until it begins with its first task. After a failure several are new, just when others need the cores. Part of it
goes into PySpark's own imports, so they are done here, before workers are forked; not those of Arrow and NumPy, which start threads, and a
process must not have any when it forks. More goes into zip archives: with the first task PySpark lets all importers forget what they
know, and those of archives then read the archive's directory again, for each package in it. On the path are PySpark itself and a jar
of thousands of entries; what workers find elsewhere on it too is taken off it.

After each task a worker collects garbage, and takes no other before it is done. To look through all that Arrow, NumPy and PySpark keep takes longer than a small
task; so what a worker keeps from task to task is not looked through again.

A worker whose task the JVM gives up, since another part of the job has failed or the JVM stops, cannot write its last rows. It ends without a traceback.
"""

from __future__ import annotations

import gc
import select
import socket
import sys
from collections.abc import Callable
from functools import wraps
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

__all__ = ["keeping", "peer_is_gone", "without_archives"]

MANY_OBJECTS = 10_000
"""So many new objects that outlive a task are modules that it imported, and what they hold."""

UNHEARD = 1
"""The exit code of a task that its JVM has given up: the worker ends, and its JVM has no use for a traceback."""

Task = Callable[..., int]


def keeping(task: Task) -> Task:
    """Gives what runs a task, and then sets aside what outlives it, if that is much: the next collection passes it over."""

    @wraps(task)
    def run(*arguments: Any) -> int:
        try:
            code = task(*arguments)
        except ConnectionError:
            # Raised by the last write to the socket: what the user's functions raise is caught before.
            if not peer_is_gone(arguments[0]):
                raise
            return UNHEARD
        gc.collect()
        if len(gc.get_objects()) > MANY_OBJECTS:
            gc.freeze()
        return code

    return run


def peer_is_gone(connection: socket.socket) -> bool:
    """Return whether the other end of a connection is closed."""
    poller = select.poll()
    poller.register(connection, 0)  # what cannot go on is told without being asked for
    return bool(poller.poll(0))


def without_archives(path: list[str]) -> list[str]:
    """Gives a module search path without the archives that Spark puts there; the order of what is left stays.

    PySpark's own go if what is left has the PySpark that they came with. The jar has no modules in it. Archives of users (`--py-files`)
    stay.
    """
    left = [entry for entry in path if not _is_jar_of_spark(Path(entry))]
    archive = next((Path(entry) for entry in left if Path(entry).name == "pyspark.zip"), None)
    if archive is None:
        return left
    without = [entry for entry in left if not _is_of_pyspark(Path(entry))]
    found = {name: PathFinder.find_spec(name, without) for name in ("pyspark", "py4j")}
    origins = [Path(spec.origin).parents[1] for spec in found.values() if spec is not None and spec.origin is not None]
    # Of a distribution of Spark its folder `python`, of the package from PyPI the folder that it is installed in.
    came_with = [*archive.parents[1:2], *archive.parents[3:4]]
    return without if len(origins) == 2 and all(origin in came_with for origin in origins) else left


def _is_jar_of_spark(entry: Path) -> bool:
    return entry.name.startswith("spark-core_") and entry.suffix == ".jar"


def _is_of_pyspark(entry: Path) -> bool:
    return entry.name == "pyspark.zip" or (entry.name.startswith("py4j-") and entry.suffix == ".zip")


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    sys.modules.pop("org", None)  # which `copy` of the standard library looks for, and finds in the jar

    import pyspark.worker  # noqa: F401 - so that forked workers find it imported
    from pyspark import daemon

    daemon.worker = keeping(daemon.worker)
    gc.freeze()
    daemon.manager()
