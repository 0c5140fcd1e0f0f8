"""What is on the path of Python workers."""

import sys
from pathlib import Path

import pytest

from boatlift.engine.worker_daemon import without_archives


def archives() -> tuple[Path, list[str]]:
    """Where PySpark is installed, and what Spark puts on the path of workers."""
    installed = Path(__import__("pyspark").__file__).parents[1]
    lib = installed / "pyspark" / "python" / "lib"
    (py4j,) = lib.glob("py4j-*.zip")
    (jar,) = (installed / "pyspark" / "jars").glob("spark-core_*.jar")
    return installed, [str(lib / "pyspark.zip"), str(py4j), str(jar)]


def test_what_is_installed_beside_comes_from_there_in_the_order_of_the_path() -> None:
    installed, added = archives()
    path = ["/here", *added, "/files/users.zip", str(installed), "/more"]
    assert without_archives(path) == ["/here", "/files/users.zip", str(installed), "/more"]


def test_only_the_jar_goes_where_pyspark_is_another_or_nowhere_else(tmp_path: Path) -> None:
    _, added = archives()
    for name in ("pyspark", "py4j"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    for other in ([], [str(tmp_path)]):
        assert without_archives(["/here", *added, *other]) == ["/here", *added[:2], *other]


def test_a_path_without_archives_stays() -> None:
    assert without_archives(["/here", "/files/users.zip"]) == ["/here", "/files/users.zip"]


@pytest.mark.spark
def test_workers_find_no_archive_and_are_forked_of_a_process_without_threads(spark: object) -> None:
    def look(batches):  # type: ignore[no-untyped-def]
        import os

        import pyarrow as pa

        for _ in batches:
            pass
        archives = [place for place, found in sys.path_importer_cache.items() if "zip" in type(found).__name__]
        threads = len(list(Path(f"/proc/{os.getppid()}/task").iterdir()))
        yield pa.record_batch({"at": [*archives, f"{threads} threads"]})

    rows = spark.range(0, 1, 1, 1).mapInArrow(look, "at STRING").collect()  # type: ignore[attr-defined]
    assert [row[0] for row in rows] == ["1 threads"]
