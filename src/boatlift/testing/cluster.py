"""A real Spark cluster on loopback, whose parts can be killed.

`local[2]` is Spark in one process. A standalone master and its workers are processes of their own, as on real machines,
and come with the PySpark package.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from boatlift.errors import UnavailableError
from boatlift.processes.settings import check_java, prepare_environment
from boatlift.testing.loopback import wait_for

_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """A Spark standalone master and workers on loopback (a context manager; Linux).

        with StandaloneCluster(workers=2) as cluster:
            subprocess.run([sys.executable, "driver.py", cluster.url], env=os.environ | cluster.environment)

    The driver makes its session by `boatlift.session(url, **settings)`. A process has one JVM, so a driver that must
    not share the fate of another one is a process of its own.

    Args:
        memory: The memory of each worker, as Spark writes it; an executor gets half of it.
        private: Folders that each worker has for itself, empty at first, like machines that share no disk. This needs
            the rights to mount.
    """

    def __init__(
        self, workers: int = 2, cores: int = 1, memory: str = "1g", private: Sequence[str | Path] = ()
    ) -> None:
        self._count, self._private = workers, [str(each) for each in private]
        self._cores = cores
        self._memory = memory
        self._folder = Path()
        self.url = ""
        self._web = ""
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def settings(self) -> Mapping[str, str]:
        """The Spark settings for a driver: small executors."""
        return {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _QUICK_JVM,
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that a driver needs beside this process's."""
        prepare_environment(self.url)
        return {name: os.environ[name] for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")}

    def __enter__(self) -> Self:
        check_java()
        self._folder = Path(tempfile.mkdtemp(prefix="boatlift-cluster-"))
        atexit.register(self.stop)
        try:
            self._start_master()
            for _ in range(self._count):
                self._launch_worker()
            self._wait_for_workers(self._count)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_worker(self) -> int:
        """Add a worker, wait until the master knows it, and return its index."""
        alive = wait_for(lambda: alive_workers(self._web), "the master's answer")
        self._launch_worker()
        self._wait_for_workers(alive + 1)
        return len(self._workers) - 1

    def executors(self, worker: int | None = None) -> list[int]:
        """Return the process ids of the executors that run, of one worker or of all."""
        chosen = self._workers if worker is None else [self._workers[worker]]
        sessions = {process.pid for process in chosen}
        return sorted(pid for pid, session in _processes() if session in sessions and _EXECUTOR in _command(pid))

    def kill_executor(self, worker: int | None = None) -> int:
        """Kill the first executor by SIGKILL; its worker starts another one for the same driver.

        Raises:
            LookupError: no executor runs.
        """
        running = self.executors(worker)
        if not running:
            raise LookupError("no executor runs: is the driver alive, and has it made its session?")
        os.kill(running[0], signal.SIGKILL)
        wait_for(lambda: running[0] not in self.executors(worker) or None, "the executor's death")
        return running[0]

    def kill_worker(self, worker: int) -> None:
        """Kill a worker by SIGKILL with its executors, like a machine that loses power."""
        process = self._workers[worker]
        _kill_sessions({process.pid})
        process.wait()

    def stop(self) -> None:
        """End every process of the cluster and remove its files; a second call does nothing."""
        atexit.unregister(self.stop)
        processes = [process for process in (self._master, *self._workers) if process is not None]
        running = {process.pid for process in processes if process.returncode is None}
        leaders = {process.pid for process in self._workers} - running  # their sessions may have other processes
        _kill_sessions(running | {session for _, session in _processes() if session in leaders})
        for process in processes:
            process.wait()
        self._master = None
        self._workers = []
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = Path()

    def _start_master(self) -> None:
        port, web = _free_ports(2)
        self.url = f"spark://127.0.0.1:{port}"
        self._web = f"http://127.0.0.1:{web}/json/"
        # fmt: off
        self._master = self._launch(
            "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web),
        )
        # fmt: on
        self._wait_for_workers(0)

    def _launch_worker(self) -> None:
        name = f"worker-{len(self._workers)}"
        # fmt: off
        self._workers.append(self._launch(
            name, "org.apache.spark.deploy.worker.Worker",
            "--host", "127.0.0.1", "--cores", str(self._cores), "--memory", self._memory,
            "--webui-port", "0", "--work-dir", str(self._folder / name), self.url,
            private=self._private,
        ))
        # fmt: on

    def _launch(
        self, name: str, main_class: str, *arguments: str, private: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": _QUICK_JVM,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        command = [str(home / "bin" / "spark-class"), main_class, *arguments]
        if private:
            mount = "".join(f"mount -t tmpfs tmpfs {shlex.quote(folder)} && " for folder in private)
            command = ["unshare", "--mount", "sh", "-c", f'{mount}exec "$@"', "sh", *command]
        null, out = subprocess.DEVNULL, subprocess.STDOUT
        with self._log(name).open("wb") as log:
            # In a session of its own every descendant can be found, whichever process group it chooses.
            return subprocess.Popen(
                command, env=environment, stdin=null, stdout=log, stderr=out, start_new_session=True
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait_for_workers(self, count: int) -> None:
        def have_come() -> bool | None:
            self._check_that_all_run()
            alive = alive_workers(self._web)
            return None if alive is None or alive < count else True

        wait_for(have_come, f"{count} workers of {self.url}")

    def _check_that_all_run(self) -> None:
        named = {"master": self._master} | {f"worker-{i}": process for i, process in enumerate(self._workers)}
        for name, process in named.items():
            # A worker that was killed on purpose has been waited for.
            if process is not None and process.returncode is None and process.poll() is not None:
                last = self._log(name).read_text(errors="replace")[-2000:]
                raise UnavailableError(
                    "STEP_FAILED", f"the {name} of the cluster on loopback ended with {process.returncode}: {last}"
                )


def alive_workers(address: str) -> int | None:
    """Return the number of workers that a master's web page lists; None while it does not answer with the list.

    A master listens before all of its pages are attached: until then it answers with its front page.
    """
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            known = json.load(answer)
    except (OSError, json.JSONDecodeError):
        return None
    return len([worker for worker in known["workers"] if worker["state"] == "ALIVE"])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _processes() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has just ended
            if after_name[0] != "Z":
                yield int(entry.name), int(after_name[3])


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # the process has just ended


def _kill_sessions(sessions: set[int]) -> None:
    """Kill all processes of these sessions until none is left: one of them may be starting another meanwhile."""
    if 0 in sessions or os.getsid(0) in sessions:
        raise AssertionError("this process's own session is not the cluster's")

    def gone() -> bool | None:
        running = [pid for pid, session in _processes() if session in sessions]
        for pid in running:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # the process has just ended
        return None if running else True

    if sessions:
        wait_for(gone, "the death of the cluster's processes")
