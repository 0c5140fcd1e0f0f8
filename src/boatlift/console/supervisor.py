"""`boatlift run --supervised`: a run that is started again when it dies, in a JVM that outlives it.

The run is a child process, so that whatever ends it leaves the supervisor. The JVM is the supervisor's: a new run has a
Spark context, loaded classes and Python workers at once. The child writes a *beat* from its event loop every two
seconds; one that is silent hangs or is stopped, and is killed. Beside it waits a *spare*, with its imports done.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from types import FrameType

from boatlift.console.messages import notice
from boatlift.errors import UnavailableError
from boatlift.processes.warm_jvm import WarmJvm
from boatlift.runtime.host.ownership import is_stopped
from boatlift.runtime.host.progress import Progress

BEATS = "BOATLIFT_BEATS"
"""The environment variable of a child with the file descriptor that it writes its beats to."""

SPARE = "BOATLIFT_SPARE"
"""The environment variable of a spare with the file descriptor from which it reads when it is needed."""

SILENT_SECONDS = 15.0
"""A child without a beat for so long is killed; before its first beat, and when its event loop is over, it may take any
time."""

JVM_SECONDS, JVM_QUESTIONS = 10.0, 5
"""The JVM is asked so often whether it answers; after so many questions without an answer the child is killed."""

FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 5.0
"""Seconds from the death of a child to the start of the next one; they double until a child executes a step."""

MOST_DEATHS = 10
"""After so many deaths in a row without a step in between, the supervisor ends."""

STOPPED_LOOKS = 3
"""A child that a signal has stopped is killed at so many looks in a row, one a second."""

LONG_LIFE = 60.0
"""A child that lived for so many seconds did not die at its start."""

STEP, BEAT, OVER = b"+", b".", b"|"
"""The beats: the first new step of the run was executed; two seconds have passed; the event loop is over."""


def beating(on_progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Return the function that a run reports its progress to: in a supervised run it writes beats, too."""
    if BEATS not in os.environ:
        return on_progress
    descriptor, worked = int(os.environ[BEATS]), False

    def report(progress: Progress) -> None:
        nonlocal worked
        beats = {"beat": BEAT, "over": OVER}
        if progress.what == "step" and not progress.replay and not worked:
            worked = True
            beats["step"] = STEP
        with suppress(OSError):  # the supervisor is gone; its JVM ends with it, and then this run
            if beat := beats.get(progress.what):
                os.write(descriptor, beat)
        on_progress(progress)

    return report


def wait_as_spare() -> None:
    """In a spare: import what a run needs, then wait until the run before has died; end if the supervisor has."""
    for module in ("boatlift.api.running", "boatlift.api.named", "boatlift.console.programs", "pyspark.sql.functions"):
        import_module(module)
    needed = int(os.environ.pop(SPARE))
    if not os.read(needed, 1):
        sys.exit()
    os.close(needed)


class Supervisor:
    """Starts a command until it ends by itself.

    Laws:
        * A run that ends in good order, is refused, or fails in a way that a new start repeats is not started again.
        * At most one child runs. It dies with the supervisor, because its JVM does.
        * A spare does nothing but wait: it opens no store, and knows no JVM that is gone.
        * Only the first child takes a store over from a run of another process (`--take-over`).

    Args:
        arguments: Those of the command line.
        master, conf: Of the Spark context.
    """

    def __init__(self, arguments: Sequence[str], master: str, conf: Mapping[str, str], *, quiet: bool) -> None:
        self._arguments, self._master, self._conf, self._quiet = list(arguments), master, conf, quiet
        self._child: subprocess.Popen[bytes] | None = None
        self._spare: _Child | None = None
        self._signals: list[int] = []

    def run(self) -> int:
        """Return the exit code of the last child.

        Raises:
            UnavailableError: `[SPARK_NOT_STARTED]` the first JVM does not start.
        """
        deaths = 0
        jvm: WarmJvm | None = None
        with ExitStack() as stack, self._forwarding():
            while True:
                if jvm is None or not jvm.answers():
                    self._end_spare()
                    stack.close()
                    stack.callback(self._end_spare)
                    try:
                        notice(f"starting Spark ({self._master})", quiet=self._quiet)
                        jvm = stack.enter_context(WarmJvm(self._master, self._conf, warm_up=False))
                    except UnavailableError as error:
                        if jvm is None:
                            raise
                        notice(str(error))
                        end = _End(error.exit_code, worked=False)
                    else:
                        end = self._live(jvm)
                else:
                    end = self._live(jvm)
                if self._signals or not end.starts_again:
                    return end.exit_code
                deaths = 1 if end.worked else deaths + 1
                if deaths == MOST_DEATHS:
                    notice(f"the run {end}, for the {deaths}th time without a new step: it is not started again")
                    return end.exit_code
                backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (deaths - 1))
                notice(f"the run {end}: it is started again in {backoff:.1f} s")
                time.sleep(backoff)

    def _live(self, jvm: WarmJvm) -> _End:
        """Run a child to its end."""
        born, self._spare = self._spare, None
        if born is None or not born.begins():
            born = _Child(jvm, self._arguments, waits=False)
        self._child = child = born.process
        self._arguments = [each for each in self._arguments if not each.startswith("--take-over")]
        began = asked = time.monotonic()
        worked, silent, stopped = False, False, 0
        heard: float | None = None  # of the last beat, while the event loop turns
        with os.fdopen(born.beats, "rb", 0) as beats:
            while child.poll() is None and not silent:
                beat = _next_beat(beats.fileno())
                now = time.monotonic()
                if beat is not None:
                    worked = worked or beat == STEP
                    heard = now if beat in (STEP, BEAT) else None
                    if beat == STEP and self._spare is None:  # not before: its imports would slow the first step
                        with suppress(OSError):  # without a spare the next start is slower
                            self._spare = _Child(jvm, self._arguments, waits=True)
                if beat == b"":  # the child ends
                    break
                stopped = stopped + 1 if is_stopped(child.pid) else 0
                silent = stopped >= STOPPED_LOOKS or (heard is not None and now - heard > SILENT_SECONDS)
                if now - asked > JVM_SECONDS:
                    silent = silent or not any(jvm.answers() for _ in range(JVM_QUESTIONS))
                    asked = time.monotonic()
        if silent:
            child.kill()
        return _End(child.wait(), worked or time.monotonic() - began > LONG_LIFE, silent)

    def _end_spare(self) -> None:
        if self._spare is not None:
            self._spare.end()
            self._spare = None

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """Hand SIGINT and SIGTERM on to the child; without one, end."""

        def forward(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            if self._child is None or self._child.poll() is not None:
                raise KeyboardInterrupt
            self._child.send_signal(signal.SIGINT)

        before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Child:
    """A run, or a spare that waits until it is needed.

    Attributes:
        beats: The file descriptor from which its beats are read; the reader closes it.
    """

    def __init__(self, jvm: WarmJvm, arguments: Sequence[str], *, waits: bool) -> None:
        self.beats, beats = os.pipe()
        wait, self._go = os.pipe()
        environment = {**jvm.environment(), BEATS: str(beats), **({SPARE: str(wait)} if waits else {})}
        try:
            # In a group of its own a signal from the terminal reaches it once, by the supervisor.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "boatlift.console", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[beats, wait] if waits else [beats],
                process_group=0,
            )
        except BaseException:
            os.close(self.beats)
            os.close(self._go)
            raise
        finally:
            os.close(beats)
            os.close(wait)
        if not waits:
            os.close(self._go)

    def begins(self) -> bool:
        """Let a spare run; return whether it lives."""
        try:
            os.write(self._go, b"+")
        except OSError:  # it has ended
            self.end()
            return False
        os.close(self._go)
        return True

    def end(self) -> None:
        """End a spare."""
        os.close(self._go)
        os.close(self.beats)
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a child.

    Attributes:
        code: As of `Popen.wait`.
        worked: Whether it executed a new step, or lived long.
        silent: Whether it was killed because it hung.
    """

    code: int
    worked: bool
    silent: bool = False

    @property
    def starts_again(self) -> bool:
        """Whether another start may help: the run was killed, or something outside it failed."""
        return self.code < 0 or self.code in (1, UnavailableError.exit_code)

    @property
    def exit_code(self) -> int:
        return self.code if self.code >= 0 else 128 - self.code

    def __str__(self) -> str:
        if self.silent:
            return "hung, and was killed"
        return f"was killed by signal {-self.code}" if self.code < 0 else f"ended with exit code {self.code}"


def _next_beat(descriptor: int) -> bytes | None:
    """Return the next beat within a second; empty if the child has ended, None if there is none."""
    readable, _, _ = select.select([descriptor], [], [], 1.0)
    return os.read(descriptor, 1) if readable else None
