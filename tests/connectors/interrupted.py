"""Real processes that are killed or stopped inside a function, at every line that connectors run.

A trace function counts the lines of `boatlift.connectors` that a call runs; at a chosen one the process sends itself
SIGKILL or SIGSTOP. So the points need no list kept by hand, and no hooks in the code.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import boatlift.connectors

_TRACED = str(Path(boatlift.connectors.__file__).parent)
_TESTS = str(Path(__file__).resolve().parent.parent)


class Tracer:
    """Counts visits to lines while it is on; raises a signal in its own process at the chosen one.

    Attributes:
        visits: How many visits of a line count: a loop over rows would give hundreds of points.
    """

    visits = 1

    def __init__(self, point: int | None, number: signal.Signals, tell: Callable[[Any], None]) -> None:
        self.lines = 0
        self.tell = tell
        self._visits: Counter[tuple[str, int]] = Counter()
        self._counting = threading.Lock()
        self._point = point
        self._signal = number

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_TRACED):
            return None
        place = (frame.f_code.co_filename, frame.f_lineno)
        with self._counting:
            if event == "line" and self._visits[place] < self.visits:
                self._visits[place] += 1
                if self.lines == self._point:
                    os.kill(os.getpid(), self._signal)
                self.lines += 1
        return self

    @contextmanager
    def on(self) -> Iterator[None]:
        threading.settrace(self)  # of threads that begin from now on
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]


class Child:
    """A process that runs `function(tracer, *arguments)` and reports its answer, or the condition that it raised."""

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        point: int | None = None,
        number: signal.Signals = signal.SIGKILL,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        # Processes are forked off one that has imported everything and started no thread.
        context.set_forkserver_preload(["connectors.sink_cases"])
        self._answers, there = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_run, args=(dict(os.environ), there, function, arguments, point, number), daemon=True
        )
        with _python_path():
            self.process.start()
        there.close()
        assert self.process.pid is not None
        self.pid: int = self.process.pid

    def answer(self) -> Any:
        """Wait for the end; return the answer, or None if the process was killed."""
        try:
            answer = self._answers.recv()
        except EOFError:
            answer = None
        self.process.join()
        return answer

    def hear(self) -> Any:
        """Wait for the next message of the process."""
        return self._answers.recv()

    def stopped(self) -> bool:
        """Wait until the process is stopped (True) or has ended (False)."""
        status = Path(f"/proc/{self.pid}/stat")
        while self.process.exitcode is None:
            if status.read_text().rpartition(")")[2].split()[0] in "Tt":
                return True
            self.process.join(0.002)
        return False

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    @property
    def was_killed(self) -> bool:
        return self.process.exitcode == -signal.SIGKILL


@contextmanager
def _python_path() -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([_TESTS, *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _run(
    environment: dict[str, str],  # a process has that of the server of forks else
    there: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    point: int | None,
    number: signal.Signals,
) -> None:
    os.environ.update(environment)
    from boatlift.errors import BoatliftError

    tracer = Tracer(point, number, there.send)
    try:
        answer = function(tracer, *arguments)
    except BoatliftError as error:
        answer = error.condition
    there.send(answer)
    there.close()
