"""What is on the path of Python workers."""

import sys
from pathlib import Path

import pytest

from boatlift.engine.worker_daemon import without_archives


def test_pyspark_comes_from_the_folder_it_is_installed_in_and_the_jar_is_gone() -> None:
    installed = Path(__import__("pyspark").__file__).parents[1]
    lib = installed / "pyspark" / "python" / "lib"
    (py4j,) = lib.glob("py4j-*.zip")
    (jar,) = (installed / "pyspark" / "jars").glob("spark-core_*.jar")
    path = ["/here", str(lib / "pyspark.zip"), str(py4j), str(jar), "/files/users.zip", *sys.path]
    assert without_archives(path) == ["/here", str(installed), "/files/users.zip", *sys.path]


def test_a_distribution_of_spark_has_it_beside_the_archive(tmp_path: Path) -> None:
    worker = tmp_path / "python" / "pyspark" / "worker.py"
    worker.parent.mkdir(parents=True)
    worker.touch()
    archive = str(tmp_path / "python" / "lib" / "pyspark.zip")
    assert without_archives([archive, "/more"]) == [str(tmp_path / "python"), "/more"]


def test_what_is_nowhere_else_stays(tmp_path: Path) -> None:
    path = [str(tmp_path / "lib" / "pyspark.zip"), str(tmp_path / "lib" / "py4j-0.10-src.zip")]
    assert without_archives(path) == path


@pytest.mark.spark
def test_workers_find_no_archive_and_our_tasks_imported(spark: object) -> None:
    def look(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        for _ in batches:
            pass
        archives = [place for place, found in sys.path_importer_cache.items() if "zip" in type(found).__name__]
        yield pa.record_batch({"at": archives + [name for name in sys.modules if name.endswith("aggregate_task")]})

    rows = spark.range(0, 1, 1, 1).mapInArrow(look, "at STRING").collect()  # type: ignore[attr-defined]
    assert [row[0] for row in rows] == ["boatlift.engine.aggregate_task"]
