"""One side of a comparison: a process of its own with its own JVM, asked by lines of JSON.

The asking half is `Side`, the answering half is `serve`. Requests, each answered by one line:

* `prepare`: make a session and start reading the folder `input`; answered when it stands ready.
* `run`: take these files, each as one step; answered when the last step's output can be seen, with the moment at
  which each step's output became visible.
* anything else that the side offers.

While the other side is measured, a side is stopped (SIGSTOP), so that an idle side costs no time.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.harness.data import ARTIFACTS

__all__ = ["Side", "SideError", "die_with_parent", "feed", "serve"]

Answer = Mapping[str, Any]

_PR_SET_PDEATHSIG = 1


class SideError(Exception):
    """A request that a side could not fulfil."""


class Side:
    """A process that runs one system (a context manager).

    Args:
        module: The module to run: `benchmarks.peers.streaming_peer`, `benchmarks.sides.boatlift_side`.
        environment: On top of this process's own.
        python: The interpreter, if a peer needs another Spark.
        processors: Those that it may use; all if None.
        options: Handed to `prepare`.
    """

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        processors: Collection[int] | None = None,
        **options: Any,
    ) -> None:
        self._module = module
        self._processors = processors
        self._python = python
        self._environment = dict(environment or {})
        self._options = options
        self._work: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def folder(self) -> Path:
        """The folder of all files of this side."""
        if self._work is None:
            raise SideError(f"{self._module} is not running")
        return Path(self._work.name)

    def __enter__(self) -> Self:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        # In a JVM that outlives the side, tasks may still write for a moment when the folder is removed.
        self._work = tempfile.TemporaryDirectory(prefix="work-", dir=ARTIFACTS, ignore_cleanup_errors=True)
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._work is not None:
            self._work.cleanup()

    def start(self, **options: Any) -> Answer:
        """Start the process, again after `kill`, on the folder as it is."""
        self._process = subprocess.Popen(
            [self._python, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | self._environment,
            preexec_fn=self._keep_to_processors,  # noqa: PLW1509 - it calls the system alone
        )
        return self.ask("prepare", folder=str(self.folder), **(self._options | options))

    def _keep_to_processors(self) -> None:
        if self._processors is not None:
            os.sched_setaffinity(0, self._processors)

    def ask(self, what: str, **arguments: Any) -> Answer:
        """Ask the side and wait for its answer; the side runs meanwhile and is stopped after."""
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            raise SideError(f"{self._module} is not running")
        self._signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SideError(f"{self._module} ended with {self._process.wait()} while asked to {what}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise SideError(f"{self._module} could not {what}: {answer['error']}")
        self._signal(signal.SIGSTOP)
        return answer

    def run(self, files: list[Path]) -> Answer:
        """Run one step a file."""
        return self.ask("run", files=[str(path) for path in files])

    def kill(self) -> None:
        """Kill the side by SIGKILL; its durable files stay in its folder."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        """Signal every process that the side has started: those of its session, of any group."""
        if self._process is None:
            return
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(session) == self._process.pid and state != "Z":
                        os.kill(int(entry.name), number)
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it has just ended


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies: no process would wake it up again."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(handlers: Mapping[str, Callable[..., Answer]]) -> None:
    """Answer requests until there are no more. What Spark prints goes to standard error."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request.pop("do")](**request)
        except Exception:  # noqa: BLE001 - handed to the asking half, which raises it
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    # Nobody asks any more: threads that still run must not keep it alive.
    os._exit(0)


def feed(folder: Path, number: int, file: Path) -> None:
    """Put a file into an input folder, whole and at once, under a name that keeps the order."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:06d}.parquet").hardlink_to(file)
