"""The module search path of Python workers, and their garbage collection between tasks."""

import gc
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from boatlift.processes import worker_daemon
from boatlift.processes.worker_daemon import (
    MANY_OBJECTS,
    STOPPED_LOOKS,
    UNHEARD,
    StoppedWorkers,
    keeping,
    without_archives,
)
from boatlift.runtime.host.ownership import is_stopped
from support.waiting import until


def archives() -> tuple[Path, list[str]]:
    """The folder of PySpark, and the entries that Spark adds to the path of workers."""
    installed = Path(__import__("pyspark").__file__).parents[1]
    lib = installed / "pyspark" / "python" / "lib"
    (py4j,) = lib.glob("py4j-*.zip")
    (jar,) = (installed / "pyspark" / "jars").glob("spark-core_*.jar")
    return installed, [str(lib / "pyspark.zip"), str(py4j), str(jar)]


def test_installed_packages_are_found_in_the_order_of_the_path() -> None:
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


class Knot:
    """Refers to itself: only a collection ends it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def nothing_set_aside() -> Iterator[None]:
    before = gc.get_freeze_count()
    gc.freeze()
    yield
    gc.unfreeze()
    assert before == 0, "or this fixture changes what others rely on"


@pytest.mark.usefixtures("nothing_set_aside")
def test_much_that_outlives_a_task_is_set_aside_and_garbage_is_not() -> None:
    kept: list[list[object]] = []
    knots: list[weakref.ref[Knot]] = []

    def task(count: int) -> int:
        kept.append([[each] for each in range(count)])
        knots.append(weakref.ref(Knot()))
        return count

    run = keeping(task)
    before, many = gc.get_freeze_count(), 2 * MANY_OBJECTS
    assert run(1) == 1
    few = gc.get_freeze_count()
    assert few <= before, "objects that are set aside may end at any time"
    assert run(many) == many
    assert gc.get_freeze_count() > few + many // 2
    assert len(gc.get_objects()) < MANY_OBJECTS
    assert [knot() for knot in knots] == [None, None]


@pytest.mark.spark
def test_a_worker_does_not_collect_garbage_among_objects_that_it_keeps(spark: object) -> None:
    def look(batches):  # type: ignore[no-untyped-def]
        import os

        import pyarrow as pa

        for _ in batches:
            pass
        yield pa.record_batch({"pid": [os.getpid()], "left": [len(gc.get_objects())], "kept": [gc.get_freeze_count()]})

    frame = spark.range(0, 1, 1, 1).mapInArrow(look, "pid LONG, left LONG, kept LONG")  # type: ignore[attr-defined]
    seen: set[int] = set()
    again = []
    for _ in range(10):
        (row,) = frame.collect()
        if row.pid in seen:
            again.append(row)
        seen.add(row.pid)
    assert again
    for row in again:
        # Of the tasks before, MANY_OBJECTS at most are left; this task has made some, too.
        assert row.left < 2 * MANY_OBJECTS < row.kept


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_task_that_its_jvm_has_given_up_ends_quietly_and_other_errors_are_raised(
    family: socket.AddressFamily,
) -> None:
    def writes(connection: socket.socket) -> int:
        for _ in range(1000):
            connection.sendall(b"rows" * 100_000)
        return 0

    def fails(connection: socket.socket) -> int:
        raise BrokenPipeError(connection)

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        if family == socket.AF_UNIX:
            here, there = socket.socketpair()
        else:
            here = socket.create_connection(server.getsockname())
            there, _ = server.accept()
    with here:
        with pytest.raises(BrokenPipeError):  # of something else: its JVM still listens
            keeping(fails)(here)
        there.close()
        assert keeping(writes)(here) == UNHEARD
        with pytest.raises(ZeroDivisionError):
            keeping(lambda _: 1 // 0)(here)


def test_only_a_child_that_is_stopped_at_three_looks_in_a_row_is_killed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = StoppedWorkers()
    with subprocess.Popen(["sleep", "600"]) as child:
        # This process may have other children, of other tests.
        monkeypatch.setattr("boatlift.processes.worker_daemon._children", lambda: [child.pid])
        try:
            for signals in ((), (signal.SIGSTOP,), (signal.SIGCONT, None, signal.SIGSTOP)):
                for each in signals:
                    if each is None:
                        stopped.look()  # it runs: the looks before do not count
                    else:
                        os.kill(child.pid, each)
                        until(lambda each=each: is_stopped(child.pid) == (each == signal.SIGSTOP))
                for _ in range(STOPPED_LOOKS - 1):
                    stopped.look()
                assert child.poll() is None
            assert capfd.readouterr().err == ""
            stopped.look()
            assert child.wait(60) == -signal.SIGKILL
        finally:
            child.kill()
    told = capfd.readouterr().err
    assert told == f"boatlift: Python worker {child.pid} on {socket.gethostname()} was stopped for 3 s, and is killed\n"


STOPS_ITSELF = """
import os, signal
from boatlift.processes.worker_daemon import StoppedWorkers
StoppedWorkers().begin()
worker = os.fork()
if worker == 0:
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(1)
print(os.WTERMSIG(os.waitpid(worker, 0)[1]))
"""


def test_a_daemon_kills_a_worker_that_is_stopped_while_it_waits() -> None:
    done = subprocess.run([sys.executable, "-c", STOPS_ITSELF], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == signal.SIGKILL


def test_the_daemon_imports_nothing_that_begins_threads() -> None:
    """A forked worker cannot use obstore if the daemon has; Arrow and NumPy begin threads as they are imported."""
    source = Path(worker_daemon.__file__).read_text()
    main = source.partition('if __name__ == "__main__":\n')[2]
    imported = [line.strip() for line in main.splitlines() if line.strip().startswith(("import ", "from "))]
    shown = "print(*{name.partition('.')[0] for name in sys.modules})"
    program = "\n".join(["import sys, boatlift.processes.worker_daemon", *imported, shown])
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(answer.stdout.split())
    assert {"boatlift", "pyspark"} <= modules
    assert not modules & {"obstore", "deltalake", "confluent_kafka", "pyarrow", "numpy", "pandas"}
