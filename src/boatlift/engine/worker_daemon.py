"""The process from which Spark forks its Python workers (`spark.python.daemon.module`), set up so that tasks begin quickly.

A worker takes half a second until it begins with its first task. After a failure several are new, just when others need the cores. A third of
a second goes into imports, so they are done here, before workers are forked. The rest goes into zip archives: with the first task
PySpark lets all importers forget what they know, and those of archives then read the archive's directory again, for each package in it.
On the path are PySpark itself and a jar of thousands of entries; what workers can do without is taken off it.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["without_archives"]


def without_archives(path: list[str]) -> list[str]:
    """Gives a module search path without the archives that Spark puts there.

    PySpark's own is replaced by the folder that came with it; without such a folder it stays. The jar has no modules in it. Archives of
    users (`--py-files`) stay.
    """
    kept = [folder for entry in path if (folder := _folder_of(Path(entry))) is not None]
    without_py4j = [entry for entry in kept if not _is_py4j(entry)]
    return without_py4j if PathFinder.find_spec("py4j", without_py4j) else kept


def _folder_of(entry: Path) -> str | None:
    if entry.name.startswith("spark-core_") and entry.suffix == ".jar":
        return None
    if entry.name == "pyspark.zip" and len(entry.parents) > 3:
        # Of a distribution of Spark its `python`, of the package from PyPI the folder that it is installed in.
        for folder in (entry.parents[1], entry.parents[3]):
            if (folder / "pyspark" / "worker.py").exists():
                return str(folder)
    return str(entry)


def _is_py4j(entry: str) -> bool:
    name = Path(entry).name
    return name.startswith("py4j-") and name.endswith(".zip")


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    sys.modules.pop("org", None)  # which `copy` of the standard library looks for, and finds in the jar

    import pyspark.worker  # noqa: F401 - so that forked workers find it imported, as what comes next
    from pyspark.daemon import manager

    from boatlift.engine import aggregate_task, divide_task, edges, lookup_task, stage_task  # noqa: F401

    manager()
