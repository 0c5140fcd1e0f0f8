"""The process that forks Spark's Python workers (`spark.python.daemon.module`), tuned so that tasks begin quickly.

A plain worker needs half a second before its first task, just when other jobs need the cores: after a failure several
workers are new. Two parts of that time are saved:

* PySpark is imported before workers are forked. Arrow and NumPy are not: they start threads, and a process must have
  none when it forks.
* At its first task PySpark invalidates all importers, and importers of zip archives then read the archive's directory
  again for each package in it. The module search path has two archives, PySpark itself and a jar of thousands of
  entries. An archive is removed from the path if its modules are found elsewhere on it.

After each task a worker collects garbage before it takes another one. A traversal of all objects of Arrow, NumPy and
PySpark takes longer than a small task. So objects that a worker keeps from task to task are frozen.

Workers of long-running jobs write to the JVM almost without a buffer, which would hold back a step's last rows.

A worker that was stopped by a signal would hold its task up for ever. It is killed after three seconds, and Spark runs
the task again in another worker.

The JVM gives a task up if another part of the job has failed, or if the JVM stops. The worker cannot write its last
rows then, and ends without a traceback.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

MANY_OBJECTS = 10_000
"""If more new objects than this outlive a task, they are the contents of imported modules."""

VARIABLE, LONG_RUNNING = "BOATLIFT_WORKERS", "long_running"
"""As in `worker_pools`, which this process must not import."""

UNHEARD = 1
"""The exit code of a worker whose task the JVM has given up."""

Task = Callable[..., int]


def keeping(task: Task) -> Task:
    """Return a function that runs a task, and freezes the objects that outlive the task if they are many."""

    @wraps(task)
    def run(*arguments: Any) -> int:
        try:
            code = task(*arguments)
        except ConnectionError:
            # The last write to the socket raised this: errors of users' functions are caught earlier.
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
    poller.register(connection, 0)  # a closed connection is reported without being asked for
    return bool(poller.poll(0))


STOPPED_LOOKS = 3
"""A worker that was stopped at so many looks in a row, one a second, is killed."""


class StoppedWorkers:
    """Kills the children of this process that were stopped by a signal, such as SIGSTOP."""

    def __init__(self) -> None:
        self._looks: Counter[int] = Counter()

    def begin(self) -> None:
        """Look once a second from now on; a forked process does not look."""
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL))
        signal.signal(signal.SIGALRM, lambda *_: self.look())
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)

    def look(self) -> None:
        """Look at the children once, and kill those that have been stopped for `STOPPED_LOOKS` looks."""
        stopped = [pid for pid in _children() if _is_stopped(pid)]
        self._looks = Counter({pid: self._looks[pid] + 1 for pid in stopped})
        for pid in stopped:
            if self._looks[pid] == STOPPED_LOOKS:
                where = f"Python worker {pid} on {socket.gethostname()}"
                sys.stderr.write(f"boatlift: {where} was stopped for {STOPPED_LOOKS} s, and is killed\n")
                sys.stderr.flush()
                os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()]
    except OSError:  # no Linux, or a kernel without this file
        return []


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def without_archives(path: list[str]) -> list[str]:
    """Return a module search path without the archives that Spark has added, in the same order.

    The archives of PySpark go if the rest of the path has the same PySpark. The jar has no Python modules. Archives of
    users (`--py-files`) stay.
    """
    left = [entry for entry in path if not _is_jar_of_spark(Path(entry))]
    archive = next((Path(entry) for entry in left if Path(entry).name == "pyspark.zip"), None)
    if archive is None:
        return left
    without = [entry for entry in left if not _is_of_pyspark(Path(entry))]
    found = {name: PathFinder.find_spec(name, without) for name in ("pyspark", "py4j")}
    origins = [Path(spec.origin).parents[1] for spec in found.values() if spec is not None and spec.origin is not None]
    # A distribution of Spark has its folder `python`; the package from PyPI is in its installation folder.
    came_with = [*archive.parents[1:2], *archive.parents[3:4]]
    return without if len(origins) == 2 and all(origin in came_with for origin in origins) else left


def _is_jar_of_spark(entry: Path) -> bool:
    return entry.name.startswith("spark-core_") and entry.suffix == ".jar"


def _is_of_pyspark(entry: Path) -> bool:
    return entry.name == "pyspark.zip" or (entry.name.startswith("py4j-") and entry.suffix == ".zip")


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all times here

Converter = Callable[[Any], Any]


def in_utc() -> None:
    """Set the zone UTC for this process and its children, and let PySpark convert times exactly.

    PySpark converts times by the local zone of the worker. Even if that is UTC, Python cannot convert its first day.
    """
    os.environ["TZ"] = "UTC"
    time.tzset()

    from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
    from pyspark.sql.types import TimestampType

    kind: Any = TimestampType
    kind.fromInternal = lambda _, value: _of_microseconds(value)
    kind.toInternal = lambda _, value: _microseconds(value)
    _convert(ArrowTableToRowsConversion, lambda _: _naive)
    _convert(LocalDataToArrowConversion, lambda plain: lambda value: plain(_aware(value)))


def _convert(conversion: Any, made: Callable[[Converter], Converter]) -> None:
    """Wrap the converter of times of a conversion of PySpark's."""
    from pyspark.sql.types import TimestampType

    create = conversion._create_converter  # noqa: SLF001 - there is no public name

    def creating(kind: Any, *arguments: Any, **named: Any) -> Any:
        plain = create(kind, *arguments, **named)
        return made(plain) if isinstance(kind, TimestampType) else plain

    conversion._create_converter = staticmethod(creating)  # noqa: SLF001


def _of_microseconds(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(microseconds=value)


def _microseconds(value: datetime | None) -> int | None:
    return None if value is None else (_naive(value) - _EPOCH) // timedelta(microseconds=1)


def _naive(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    sys.modules.pop("org", None)  # `copy` of the standard library imports it, and finds it in the jar

    import pyspark.worker  # noqa: F401 - imported before workers are forked
    from pyspark import daemon

    in_utc()
    if os.environ.get(VARIABLE) == LONG_RUNNING:
        os.environ["SPARK_BUFFER_SIZE"] = "64"
    daemon.worker = keeping(daemon.worker)
    StoppedWorkers().begin()
    gc.freeze()
    daemon.manager()
